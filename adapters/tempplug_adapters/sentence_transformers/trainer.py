"""`TemperatureSentenceTransformerTrainer`: SentenceTransformerTrainer that takes charge of its ranking losses.

What a loss learns, counts or follows is looked after by `charge.Charge`, its files by the mixin that Hugging Face Trainers
share; this module joins the two and makes the optimizer groups.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

from sentence_transformers import SentenceTransformerTrainer
from torch import nn

from tempplug_adapters.huggingface.loss_files import LossMixin
from tempplug_adapters.parameter_groups import own_learning_rates
from tempplug_adapters.sentence_transformers.callback import TemperatureRankingCallback
from tempplug_adapters.sentence_transformers.charge import Charge


class TemperatureSentenceTransformerTrainer(LossMixin, SentenceTransformerTrainer):
    """A SentenceTransformerTrainer for losses that are, or hold, ranking losses with temperature strategies.

    What they learn joins the optimizer at learning rates of their own, spared by weight decay, is averaged over
    processes, clipped by itself, saved as ``contrastive_loss.pt`` in each checkpoint, and comes back on resume and with the
    best model. Schedules are told the length of the run, from which a period follows that is not given, and their progress at
    every step. Logs carry what `TemperatureCallback.measure` returns.

    Args:
        *args: of the library's Trainer.
        **kwargs: of the library's Trainer.

    Raises:
        ConfigError: there is no `TemperatureRankingLoss` in the loss; an optimizer with its scheduler is given that lacks the
            parameters of the loss; when training starts, DeepSpeed or FSDP around a loss that learns.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.remove_callback(TemperatureRankingCallback)  # one is enough
        self.charge = Charge(self.loss)
        self.add_callback(self.charge)
        self.look_after(self.charge.contrastive_losses)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Returns the names of the parameters that weight decay applies to: without those that the losses spare."""
        spared = {id(parameter) for parameter in self.charge.spared()}
        own = dict(model.named_parameters(remove_duplicate=False))
        return [name for name in super().get_decay_parameter_names(model) if id(own[name]) not in spared]

    def get_optimizer_cls_and_kwargs(self, args: Any, model: Any = None) -> tuple[Any, Any]:  # type: ignore[override]
        """Returns the optimizer's class and groups, what the losses learn at rates of their own in groups of its own.

        ``learning_rate_mapping``, where the user gave one, comes after and so has the last word.
        """
        rates = own_learning_rates(self.contrastive_loss)
        loss = nn.Sequential(OrderedDict(self.loss)) if isinstance(self.loss, dict) else self.loss
        own = {f"^{re.escape(name)}$": rates[each] for name, each in loss.named_parameters() if each in rates}
        given = args.learning_rate_mapping
        args.learning_rate_mapping = {**own, **given}
        try:
            kind, options = super().get_optimizer_cls_and_kwargs(args, model)
        finally:
            args.learning_rate_mapping = given
        return kind, options

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Logs; a training log (one with a loss) also gets the measurements of the last training batch."""
        if "loss" in logs:
            logs.update(self.charge.measure())
        super().log(logs, *args, **kwargs)


__all__ = ["TemperatureSentenceTransformerTrainer"]
