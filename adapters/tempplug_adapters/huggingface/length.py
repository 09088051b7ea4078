"""How long a training is, told to the schedules in it: the one place where a period follows from the length of a run."""

from __future__ import annotations

import logging
import math
from typing import Any

from torch import nn
from transformers import TrainingArguments

from tempplug import Strategy
from tempplug.strategies.schedule import Schedule

logger = logging.getLogger(__name__)


def epochs_of(args: TrainingArguments, batches: Any) -> float:
    """Returns how many epochs a run has, as a Trainer counts them.

    Args:
        args: of the run.
        batches: of an epoch, anything with a length; a stream without one is one epoch, however long.
    """
    if args.max_steps <= 0:
        return float(args.num_train_epochs)
    try:
        steps = math.ceil(len(batches) / args.gradient_accumulation_steps)
    except TypeError:
        return 1.0
    return args.max_steps / max(steps, 1)


def tell_length(module: nn.Module, epochs: float, *, steps: int = 0, say: bool) -> None:
    """Tells every strategy in a module how long the training will be.

    Args:
        module: a loss, or what holds some.
        epochs: of the whole training, at least 0.
        steps: of the optimizer in it; 0 where that is not known yet.
        say: whether to warn, once for each strategy, of options that follow from it, and of schedules that need more steps.
    """
    for strategy in (each for each in module.modules() if isinstance(each, Strategy)):
        before = strategy.spec()
        strategy.set_length(epochs)
        if say and strategy.spec() != before:
            logger.warning(
                "strategy '%s' goes by the %g epochs of this run: %s (what you give in its place is left alone).",
                strategy.name,
                epochs,
                strategy.spec(),
            )
        if say and isinstance(strategy, Schedule) and (missed := strategy.missed(epochs, steps)):
            logger.warning(missed)
