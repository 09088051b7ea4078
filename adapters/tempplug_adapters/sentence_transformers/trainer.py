"""`TemperatureSentenceTransformerTrainer`: a SentenceTransformerTrainer that manages its ranking losses.

`charge.Charge` manages the state of the losses, the mixin of Hugging Face Trainers their files; this module combines both and
defines the optimizer groups.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

from sentence_transformers import SentenceTransformerTrainer
from torch import nn

from tempplug_adapters.data_parallel import use_accelerate
from tempplug_adapters.huggingface.loss_files import LossMixin
from tempplug_adapters.parameter_groups import own_learning_rates
from tempplug_adapters.sentence_transformers.callback import TemperatureRankingCallback
from tempplug_adapters.sentence_transformers.charge import Charge, ranking_losses
from tempplug_adapters.sentence_transformers.columns import NamedColumns, refuse_missing_columns


class TemperatureSentenceTransformerTrainer(LossMixin, SentenceTransformerTrainer):
    """A SentenceTransformerTrainer for losses that are, or contain, ranking losses with temperature strategies.

    The parameters of the losses are optimised at separate learning rates without weight decay, averaged over processes, clipped
    separately, saved as ``contrastive_loss.pt`` in each checkpoint, and restored on resume and with the best model. Schedules
    get their progress at every step, and a default period from the length of the run. Logs include
    `TemperatureCallback.measure`. Numeric columns that a loss reads, such as ``index``, are passed to it (`NamedColumns`).

    Args:
        *args: arguments of the library's Trainer.
        log_record: ``brief`` or ``full``, see `tempplug_adapters.huggingface.TemperatureCallback.measure`.
        **kwargs: arguments of the library's Trainer.

    Raises:
        ConfigError: the loss contains no `TemperatureRankingLoss`; a data set lacks a column that the loss reads; an optimizer
            with a scheduler lacks the parameters of the loss.
    """

    def __init__(self, *args: Any, log_record: str = "brief", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.remove_callback(TemperatureRankingCallback)  # one is enough
        self.charge = Charge(self.loss, log_record)
        self.add_callback(self.charge)
        use_accelerate(self.charge.contrastive_losses, self.accelerator)
        self.look_after(self.charge.contrastive_losses, self.charge.parameters)
        wanted = {name for each in self.charge.losses.values() for name in each.columns}
        if wanted:
            self._check_columns()
            self.data_collator: Any = NamedColumns(self.data_collator, wanted)

    def _check_columns(self) -> None:
        labels = getattr(self.data_collator, "valid_label_columns", [])
        for kind, given in (("train_dataset", self.train_dataset), ("eval_dataset", self.eval_dataset)):
            for name, each in given.items() if isinstance(given, dict) else [("", given)]:
                loss = self.loss.get(name, nn.Identity()) if isinstance(self.loss, dict) else self.loss
                read = {column for one in ranking_losses(loss).values() for column in one.columns}
                refuse_missing_columns(each, read, labels, f"{kind}[{name!r}]" if name else kind)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Returns the names of the parameters with weight decay, without those that the losses exempt."""
        spared = {id(parameter) for parameter in self.charge.spared()}
        own = dict(model.named_parameters(remove_duplicate=False))
        return [name for name in super().get_decay_parameter_names(model) if id(own[name]) not in spared]

    def get_optimizer_cls_and_kwargs(self, args: Any, model: Any = None) -> tuple[Any, Any]:  # type: ignore[override]
        """Returns the optimizer's class and groups, with separate groups for parameters with separate learning rates.

        A ``learning_rate_mapping`` of the user has precedence.
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
        """Logs; a training log (one with a loss) includes the statistics of the last training batch."""
        if "loss" in logs:
            logs.update(self.charge.measure())
        super().log(logs, *args, **kwargs)


__all__ = ["TemperatureSentenceTransformerTrainer"]
