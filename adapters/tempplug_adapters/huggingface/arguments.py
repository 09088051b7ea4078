"""The temperature flags as a dataclass for `transformers.HfArgumentParser`; independent of the Trainer."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import distributed

import tempplug
from tempplug.arguments import merge_spec, parse_spec
from tempplug.errors import ConfigError
from tempplug.options import Number, Option, format_spec, format_value, options_of
from tempplug.plugins import AdapterInfo, NegativeInfo, ObjectiveInfo, StrategyInfo, registry
from tempplug.plugins.info import Info
from tempplug.types import Gather, LayoutName
from tempplug_adapters.contexts import Temperatures, in_context, negatives_in_context, objective_in_context
from tempplug_adapters.measurements import check_record

if TYPE_CHECKING:
    from tempplug_adapters.sentence_transformers import TemperatureRankingLoss


_RATE = Number(above=0, optional=True)
_SIZE = Number(at_least=1, integer=True, optional=True)


def _known(kind: type[Info]) -> str:
    return ", ".join(info.name for info in registry().all(kind))


_STRATEGY_HELP = (
    f"Temperature strategy: name or name:key=value,... Known: {_known(StrategyInfo)}; `tempplug list` describes them."
)
_ARGS_HELP = (
    "Options of the temperature strategy, key=value ...; `tempplug show NAME` lists them with their ranges. Other options have "
    "the defaults of the program, which are printed when training starts."
)
_RATE_HELP = (
    "Learning rate of the strategy's parameters, on the same schedule as the model's. Default: the strategy's own, "
    "0.01 for learnable; the model's if it has none (amcl)."
)
_OBJECTIVE_HELP = f"Contrastive objective: name or name:key=value,... Known: {_known(ObjectiveInfo)}."
_NEGATIVES_HELP = (
    "Terms on negatives, which leave out or weight negatives: name or name:key=value,..., several joined by +. Known: "
    f"{_known(NegativeInfo)}. Default: none."
)
_MINI_BATCH_HELP = "Most rows to embed at once; the loss and its gradient are those of the whole batch. Default: all rows."
_RECORD_HELP = "Numbers of a training log; brief: temperature, similarities and gradient scale; full: all. Default: brief."


@dataclass
class TemperatureArguments:
    """The flags ``--temperature-strategy``, ``--temperature-args``, ``--contrastive-objective``,
    ``--temperature-learning-rate``, ``--contrastive-negatives``, ``--log-record`` and ``--contrastive-mini-batch-size``,
    checked when parsed.

    Options that are not given have the defaults of the context, see the methods that create a loss. An `HfArgumentParser` can
    parse this class together with ``TrainingArguments``, and accepts each flag with ``-`` and with ``_``.

    Args:
        temperature_strategy: spec string of the strategy; None leaves the choice to a training command's recipe, and means
            ``fixed`` without one.
        temperature_args: further options of the strategy, ``key=value`` each.
        contrastive_objective: spec string of the objective; None as above, ``infonce`` without a recipe.
        temperature_learning_rate: learning rate of the strategy's parameters, greater than 0: of τ of ``learnable``, φ of
            ``amcl``, and the temperatures of ``individual``, which have an update rule instead of the optimizer. None: the
            strategy's own rate, or the model's if it has none.
        contrastive_negatives: spec string of terms on negatives; None leaves the choice to the recipe, and means no terms
            without one.
        log_record: numbers of the last batch in a training log, ``brief`` or ``full``; pass it to a Trainer as its argument
            ``log_record``.
        contrastive_mini_batch_size: the most rows to embed at once, at least 1; pass it to a Trainer as its argument of that
            name. None embeds whole batches.

    Raises:
        UnknownNameError: a strategy, an option, an objective, a term or a ``log_record`` is unknown; the message suggests
            the nearest name.
        ConfigError: an option is malformed, given twice or out of range, or the strategy has no parameters for a learning rate.

    >>> TemperatureArguments("macl:alpha=2", ["threshold=0.8"]).create_loss("cross-view").strategy.spec()
    'macl:base_temperature=0.1,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false'
    >>> TemperatureArguments("macle")
    Traceback (most recent call last):
    tempplug.errors.UnknownNameError: unknown strategy 'macle'. Did you mean 'macl'? Known: ...
    """

    temperature_strategy: str | None = field(default="fixed", metadata={"help": _STRATEGY_HELP, "metavar": "SPEC"})
    temperature_args: list[str] = field(default_factory=list, metadata={"help": _ARGS_HELP, "metavar": "KEY=VALUE"})
    contrastive_objective: str | None = field(default="infonce", metadata={"help": _OBJECTIVE_HELP, "metavar": "SPEC"})
    temperature_learning_rate: float | None = field(default=None, metadata={"help": _RATE_HELP, "metavar": "RATE"})
    contrastive_negatives: str | None = field(default=None, metadata={"help": _NEGATIVES_HELP, "metavar": "SPEC"})
    log_record: str = field(default="brief", metadata={"help": _RECORD_HELP, "metavar": "brief|full"})
    contrastive_mini_batch_size: int | None = field(default=None, metadata={"help": _MINI_BATCH_HELP, "metavar": "N"})

    def __post_init__(self) -> None:
        rate = self.temperature_learning_rate
        _RATE.check(f"temperature_learning_rate={rate}", rate)
        _SIZE.check(f"contrastive_mini_batch_size={self.contrastive_mini_batch_size}", self.contrastive_mini_batch_size)
        if self.temperature_strategy is not None:
            name, options = self._merged()
            # options from the data, such as class counts, are added later, and the others can be checked only then
            if _required(StrategyInfo, name) <= options.keys():
                self._set_learning_rate(tempplug.create_strategy(name, **options))
        if self.contrastive_objective is not None:
            name, options = parse_spec(self.contrastive_objective)
            if _required(ObjectiveInfo, name) <= options.keys():
                tempplug.create_objective(name, **options)
        tempplug.create_negatives(self.contrastive_negatives)
        check_record(self.log_record)

    def create_loss(
        self,
        layout: LayoutName | str = "two-view",
        *,
        symmetric: bool = False,
        gather: Gather | None = None,
        temperatures: Temperatures | None = None,
        **known: Any,
    ) -> tempplug.ContrastiveLoss:
        """Creates the loss given by the flags.

        Args:
            layout: as in `tempplug.ContrastiveLoss`.
            symmetric: whether to average both directions of ``cross-view``.
            gather: whether candidates come from all processes, or ``"ring"``, as in `tempplug.ContrastiveLoss`; None gathers if
                there are several.
            temperatures: default options by strategy, such as those of `tempplug_adapters.training.recipe.around`; for
                example, with ``around(0.05)`` the default of ``fixed`` is 0.05. None keeps the strategies' own defaults (0.1).
            **known: options determined by the data, such as ``class_counts`` or ``size``; used if strategy, objective or a term
                on negatives have them and neither the flags nor ``temperatures`` set them.

        Raises:
            UnknownNameError: as in the constructor.
            ConfigError: as in the constructor, or the strategy requires an option that is not given.
        """
        from tempplug.layouts import create_layout  # loads torch

        return tempplug.ContrastiveLoss(
            strategy=self._set_learning_rate(in_context(format_spec(*self._merged()), temperatures or {}, **known)),
            objective=objective_in_context(self.contrastive_objective or "infonce", **known),
            layout=create_layout(layout, symmetric),
            negatives=negatives_in_context(self.contrastive_negatives, **known),
            gather=_several_processes() if gather is None else gather,
        )

    def create_sentence_transformers_loss(
        self, model: Any, *, mini_batch_size: int | None = None, gather_across_devices: bool | None = None, **options: Any
    ) -> TemperatureRankingLoss:
        """Creates the loss given by the flags, for a Trainer of sentence-transformers.

        Args:
            model: a SentenceTransformer.
            mini_batch_size: number of rows embedded at a time by GradCache; None takes that of the flags; without it, a batch
                is embedded at once.
            gather_across_devices: whether candidates come from all processes; None gathers if there are several.
            **options: options of `tempplug_adapters.sentence_transformers.TemperatureRankingLoss`, such as ``directions``.

        Raises:
            MissingDependencyError: sentence-transformers is not installed.
            UnknownNameError: as in the constructor.
            ConfigError: as in the constructor and in that loss.
        """
        losses = registry().load(registry().get(AdapterInfo, "sentence-transformers"))
        options["gather_across_devices"] = _several_processes() if gather_across_devices is None else gather_across_devices
        kind = losses.TemperatureRankingLoss
        size = self.contrastive_mini_batch_size if mini_batch_size is None else mini_batch_size
        if size is not None:
            kind, options["mini_batch_size"] = losses.CachedTemperatureRankingLoss, size
        loss: TemperatureRankingLoss = kind(
            model,
            format_spec(*self._merged()),
            self.contrastive_objective or "infonce",
            negatives=self.contrastive_negatives,
            **options,
        )
        self._set_learning_rate(loss.contrastive_loss.strategy)
        return loss

    def _merged(self) -> tuple[str, dict[str, Any]]:
        """Returns the name and the options of the strategy, including the learning rate if that is an option."""
        name, options = merge_spec(self.temperature_strategy or "fixed", self.temperature_args)
        if self.temperature_learning_rate is None or "learning_rate" not in {
            each.name for each in _options(StrategyInfo, name)
        }:
            return name, options
        if "learning_rate" in options:
            raise ConfigError(
                f"the learning rate of strategy '{name}' is given twice: as learning_rate={options['learning_rate']} and as "
                f"temperature_learning_rate={self.temperature_learning_rate}."
            )
        return name, {**options, "learning_rate": self.temperature_learning_rate}

    def _set_learning_rate(self, strategy: tempplug.Strategy) -> tempplug.Strategy:
        """Sets the given learning rate, if the strategy has no option for it, and returns the strategy."""
        if self.temperature_learning_rate is not None and "learning_rate" not in strategy.options:
            if not any(True for _ in strategy.parameters()):
                raise ConfigError(
                    f"temperature_learning_rate={format_value(self.temperature_learning_rate)} has no meaning for strategy "
                    f"'{strategy.name}', which has no parameters: leave it out."
                )
            strategy.learning_rate = self.temperature_learning_rate
        return strategy


def _several_processes() -> bool:
    """Returns whether the program was launched as one of several processes, also before they are connected."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size() > 1
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def _required(kind: type[Info], name: str) -> set[str]:
    """Returns the options that have no default."""
    return {option.name for option in _options(kind, name) if option.required}


def _options(kind: type[Info], name: str) -> tuple[Option, ...]:
    """Returns the options of a strategy or an objective; raises UnknownNameError if it is unknown."""
    return options_of(registry().load(registry().get(kind, name)))
