"""Resolves spec strings with the default options of a context: a recipe, or the adapter of a library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tempplug
from tempplug.arguments import parse_spec
from tempplug.options import options_of
from tempplug.plugins import ObjectiveInfo, StrategyInfo, registry

if TYPE_CHECKING:
    from tempplug import Objective, Strategy

Temperatures = Mapping[str, Mapping[str, Any]]
"""Options by strategy."""


def filled(spec: str, temperatures: Temperatures) -> tuple[str, dict[str, Any]]:
    """Returns the name of a strategy and its options; those in the spec string override those of the context."""
    name, written = parse_spec(spec)
    return name, {**temperatures.get(name, {}), **written}


def in_context(strategy: str | Strategy, temperatures: Temperatures, **known: Any) -> Strategy:
    """Returns the strategy of a spec string with the options of a context; an instance is returned unchanged.

    Options ``known`` from the data, such as ``class_counts``, are used if the strategy accepts them and neither the spec string
    nor the context sets them. Raises UnknownNameError and ConfigError, which name the option.

    >>> own = {"fixed": {"temperature": 0.05}}
    >>> in_context("fixed", own).spec(), in_context("fixed:temperature=0.2", own).spec()
    ('fixed:temperature=0.05', 'fixed:temperature=0.2')
    """
    if not isinstance(strategy, str):
        return tempplug.create_strategy(strategy)
    name, options = filled(strategy, temperatures)
    return tempplug.create_strategy(name, **_taken(StrategyInfo, name, known) | options)


def objective_in_context(objective: str, **known: Any) -> Objective:
    """Returns the objective of a spec string; options ``known`` from the data are used as `in_context` does.

    >>> objective_in_context("sogclr:gamma=0.8", size=50).size
    50
    """
    name, options = parse_spec(objective)
    return tempplug.create_objective(name, **_taken(ObjectiveInfo, name, known) | options)


def _taken(kind: type[StrategyInfo | ObjectiveInfo], name: str, known: dict[str, Any]) -> dict[str, Any]:
    """Returns those of the options that a strategy or an objective has."""
    names = {each.name for each in options_of(registry().load(registry().get(kind, name)))}
    return {key: value for key, value in known.items() if key in names}
