"""Sets the length of a training in its schedules, whose periods depend on it, and warns of schedules that do not fit."""

from __future__ import annotations

import logging
import math
from typing import Any

from torch import nn
from transformers import TrainingArguments

from tempplug import Objective, Strategy
from tempplug.strategies.schedule import Schedule

logger = logging.getLogger(__name__)


def epochs_of(args: TrainingArguments, batches: Any) -> float:
    """Returns the number of epochs of a run, as a Trainer counts them.

    Args:
        args: arguments of the run.
        batches: the batches of an epoch; a stream without a length is a single epoch.
    """
    if args.max_steps <= 0:
        return float(args.num_train_epochs)
    try:
        steps = math.ceil(len(batches) / args.gradient_accumulation_steps)
    except TypeError:
        return 1.0
    return args.max_steps / max(steps, 1)


def set_training_length(module: nn.Module, epochs: float, *, steps: int = 0, log: bool) -> None:
    """Sets the length of the training in every strategy and objective of a module.

    Args:
        module: a loss, or a module with losses.
        epochs: number of epochs of the whole training, at least 0.
        steps: its number of optimizer steps; 0 if unknown.
        log: whether to log options that depend on the length, and schedules that need more steps.
    """
    for objective in (each for each in module.modules() if isinstance(each, Objective)):
        objective.set_length(epochs)
    for strategy in (each for each in module.modules() if isinstance(each, Strategy)):
        before = strategy.spec()
        strategy.set_length(epochs)
        if log and strategy.spec() != before:
            logger.warning(
                "strategy '%s' goes by the %g epochs of this run: %s (a period that is given is kept).",
                *(strategy.name, epochs, strategy.spec()),
            )
        if log and isinstance(strategy, Schedule) and (missed := strategy.missed(epochs, steps)):
            logger.warning(missed)
