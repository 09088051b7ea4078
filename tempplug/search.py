"""`search_space`: which options of a strategy are worth searching, and where, for Optuna, Ray Tune and other searchers.

The ranges are those that options declare (`tempplug.options`). This module must not know any strategy, and imports no tuner:
each brings its trial or its module along.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tempplug.arguments import parse_spec
from tempplug.create import create_strategy, load_class
from tempplug.errors import ConfigError, unknown
from tempplug.options import Choice, Number, Option, format_value, options_of
from tempplug.plugins import StrategyInfo, registry

DECADE = 10.0


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to a greater ``high``, both included; whole ones alone if ``integer``."""

    low: float
    high: float
    integer: bool = False

    @property
    def log(self) -> bool:
        """Whether equal ratios count as equal steps: where the range spans a decade."""
        return self.low > 0 and self.high / self.low >= DECADE


@dataclass(frozen=True)
class SearchSpace:
    """What is searched of a strategy; made by `search_space`.

    Parameters are called ``STRATEGY.OPTION`` in a tuner, so that an option ``learning_rate`` is not taken for the Trainer's.
    The options that the spec string gave are ``held``; ``searched`` has a `Range` or the words to choose from by option.
    """

    strategy: str
    held: Mapping[str, Any]
    searched: Mapping[str, Range | tuple[str, ...]]

    def suggest(self, trial: Any) -> str:
        """Returns the spec string of a trial of Optuna.

        The trial may also be a mapping with a value for every parameter, such as Ray Tune's configurations,
        ``study.best_params`` and the Trainer's ``best_run.hyperparameters``; other keys are ignored, and a missing one raises
        `ConfigError`.

        >>> search_space("macl:alpha=1").suggest({"macl.base_temperature": 0.05, "macl.threshold": 0.5})
        'macl:alpha=1,base_temperature=0.05,threshold=0.5'
        """
        suggested = {option: self._of(trial, f"{self.strategy}.{option}", domain) for option, domain in self.searched.items()}
        written = ",".join(f"{option}={format_value(value)}" for option, value in {**self.held, **suggested}.items())
        return f"{self.strategy}:{written}" if written else self.strategy

    def ray(self, tune: Any) -> dict[str, Any]:
        """Returns the space as Ray Tune takes it: ``Tuner(train, param_space=space.ray(ray.tune))``."""
        return {f"{self.strategy}.{option}": _in_ray(tune, domain) for option, domain in self.searched.items()}

    @staticmethod
    def _of(trial: Any, name: str, domain: Range | tuple[str, ...]) -> Any:
        if isinstance(trial, Mapping):
            if name not in trial:
                raise ConfigError(f"trial has no '{name}'; it has {', '.join(map(str, trial)) or 'nothing'}.")
            return trial[name]
        if isinstance(domain, tuple):
            return trial.suggest_categorical(name, list(domain))
        if domain.integer:
            return trial.suggest_int(name, int(domain.low), int(domain.high), log=domain.log)
        return trial.suggest_float(name, domain.low, domain.high, log=domain.log)


def search_space(spec: str, **ranges: tuple[float, float]) -> SearchSpace:
    """Returns what to search of a strategy: the options that declare a range worth searching, on a log scale over decades.

    Temperatures that declare none are searched from 0.01 to 1. Ranges of options that must not cross (lowest and highest
    temperature) meet and do not overlap. Seeds, sizes and safety limits keep their default; an option that belongs to another
    option's word (a shift to the shifted profile) is searched where the spec string gives that word.

    Args:
        spec: name of a strategy, or a spec string whose options are fixed: ``"dystress:profile=shifted"``.
        ranges: other ends for single options, ``base_temperature=(0.02, 0.2)``, also for some that are not searched otherwise.

    Raises:
        UnknownNameError: no such strategy or option.
        ConfigError: an end is out of the option's range, the ends are in the wrong order, or the strategy does not accept every
            combination of them.

    >>> search_space("macl").searched["base_temperature"]
    Range(low=0.01, high=1.0, integer=False)
    """
    name, held = parse_spec(spec)
    options = {option.name: option for option in options_of(load_class(registry().get(StrategyInfo, name)))}
    for option_name in (*held, *ranges):
        if option_name not in options:
            raise unknown("option", option_name, options, of=f" of strategy '{name}'")
    searched: dict[str, Range | tuple[str, ...]] = {}
    for option in options.values():
        if option.name in ranges:
            searched[option.name] = _given(name, option, ranges[option.name], held)
        elif option.name not in held:
            domain = _declared(option, held)
            searched |= {} if domain is None else {option.name: domain}
    space = SearchSpace(name, held, searched)
    _check_corners(space, options)
    return space


def _declared(option: Option, held: Mapping[str, Any]) -> Range | tuple[str, ...] | None:
    """Returns where an option is worth searching, None where it is not."""
    kind = option.kind
    if isinstance(kind, Choice):
        return kind.values if kind.search else None
    if not isinstance(kind, Number) or kind.search is None or option.required:
        return None
    if kind.only_with is not None and held.get(kind.only_with[0]) != kind.only_with[1]:
        return None
    return Range(float(kind.search[0]), float(kind.search[1]), kind.integer)


def _given(strategy: str, option: Option, ends: Any, held: Mapping[str, Any]) -> Range:
    where = f"{option.name}={ends!r} of the search space of '{strategy}'"
    if option.name in held:
        raise ConfigError(f"{where} is held at {format_value(held[option.name])} by the spec string: give one of both.")
    if not isinstance(option.kind, Number) or not isinstance(ends, tuple | list) or len(ends) != 2:
        raise ConfigError(f"{where} must be the two ends (low, high) of a range of numbers.")
    low, high = (option.kind.check(f"end {end!r} of {where}", end) for end in ends)
    if low is None or high is None or not low < high:
        raise ConfigError(f"{where} must be (low, high), low less than high.")
    return Range(low, high, option.kind.integer)


def _check_corners(space: SearchSpace, options: Mapping[str, Option]) -> None:
    """Raises ConfigError where the strategy refuses some of the ends together."""
    needed = {option.name: option.kind.example() for option in options.values() if option.required and option.kind is not None}
    needed = {option: value for option, value in needed.items() if option not in space.held}
    names = [f"{space.strategy}.{option}" for option in space.searched]
    ends = [domain if isinstance(domain, tuple) else (domain.low, domain.high) for domain in space.searched.values()]
    for corner in itertools.product(*ends):
        spec = space.suggest(dict(zip(names, corner, strict=True)))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                create_strategy(spec, **needed)
        except ConfigError as error:
            raise ConfigError(f"the search space of '{space.strategy}' holds '{spec}', but {error}") from error


def _in_ray(tune: Any, domain: Range | tuple[str, ...]) -> Any:
    if isinstance(domain, tuple):
        return tune.choice(list(domain))
    if domain.integer:
        return (tune.lograndint if domain.log else tune.randint)(int(domain.low), int(domain.high) + 1)
    return (tune.loguniform if domain.log else tune.uniform)(domain.low, domain.high)
