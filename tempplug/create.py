"""From spec strings to strategies and objectives."""

from __future__ import annotations

from typing import Any

from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, UnknownNameError, nearest
from tempplug.objectives.base import Objective
from tempplug.options import options_of
from tempplug.plugins import ObjectiveInfo, StrategyInfo, registry
from tempplug.strategies.base import Strategy


def create_strategy(spec: str | Strategy, **options: Any) -> Strategy:
    """Returns the strategy that a spec string describes.

    Args:
        spec: ``name`` or ``name:key=value,key=value``; an instance is returned as it is.
        options: further options; they win over those of the spec string.

    Raises:
        UnknownNameError: no such strategy or option; the message suggests the nearest.
        ConfigError: an option is out of range, or the spec string is malformed.

    >>> create_strategy("macl:alpha=2,threshold=0.8", base_temperature=0.05).spec()
    'macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false'
    """
    if isinstance(spec, Strategy):
        _refuse(options, spec)
        return spec
    created = _create(StrategyInfo, "strategy", spec, options)
    if not isinstance(created, Strategy):
        raise ConfigError(f"strategy '{spec}' points to a {type(created).__name__}, not to a tempplug.Strategy.")
    return created


def create_objective(spec: str | Objective, **options: Any) -> Objective:
    """Returns the objective that a spec string describes; arguments and errors as in `create_strategy`.

    >>> create_objective("dclw:sigma=0.25").spec()
    'dclw:sigma=0.25'
    """
    if isinstance(spec, Objective):
        _refuse(options, spec)
        return spec
    created = _create(ObjectiveInfo, "objective", spec, options)
    if not isinstance(created, Objective):
        raise ConfigError(f"objective '{spec}' points to a {type(created).__name__}, not to a tempplug.Objective.")
    return created


def _refuse(options: dict[str, Any], instance: object) -> None:
    if options:
        raise ConfigError(f"options {', '.join(options)} cannot be given beside a {type(instance).__name__} instance.")


def _create(kind: type[StrategyInfo] | type[ObjectiveInfo], word: str, spec: str, options: dict[str, Any]) -> Any:
    name, written = parse_spec(spec)
    target = registry().load(registry().get(kind, name))
    given = {**written, **options}
    known = options_of(target)
    for option in given:
        if option not in (names := [each.name for each in known]):
            raise UnknownNameError(
                f"unknown option '{option}' of {word} '{name}'.{nearest(option, names)} Known: {', '.join(names) or 'none'}."
            )
    missing = [each.name for each in known if each.required and each.name not in given]
    if missing:
        raise ConfigError(f"{word} '{name}' needs {' and '.join(f'{each}=' for each in missing)}.")
    return target(**given)
