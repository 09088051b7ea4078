"""Resolves spec strings with the default options of a context: a recipe, or the adapter of a library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import tempplug
from tempplug.arguments import parse_spec, split_specs
from tempplug.errors import ConfigError
from tempplug.options import format_spec, options_of
from tempplug.plugins import NegativeInfo, ObjectiveInfo, StrategyInfo, registry

if TYPE_CHECKING:
    from tempplug import NegativeTerm, Objective, Strategy
    from tempplug.plugins.info import Info

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


def negatives_in_context(negatives: str | None, **known: Any) -> list[NegativeTerm]:
    """Returns the terms on negatives of a spec string with the options ``known`` from the data, unless it sets them.

    >>> [each.spec() for each in negatives_in_context("log-q", size=9)]
    ['log-q:size=9']
    """
    specs = []
    for name, options in map(parse_spec, split_specs(negatives) if negatives else ()):
        given = {key: value for key, value in options.items() if value is not None}
        specs.append(format_spec(name, _taken(NegativeInfo, name, known) | given))
    return tempplug.create_negatives("+".join(specs) or None)


def refuse_missing(terms: Iterable[NegativeTerm], offered: Iterable[str], where: str) -> None:
    """Raises ConfigError if a term on negatives reads an argument that the calls of a loss do not pass.

    Args:
        terms: of the loss.
        offered: names of the arguments that are passed.
        where: description of the calls, for the message.
    """
    for term in terms:
        if missing := sorted(term.takes - set(offered)):
            raise ConfigError(
                f"negative term '{term.name}' reads {' and '.join(f'{name}=' for name in missing)}, which {where} does not "
                "have: leave the term out, or call tempplug.ContrastiveLoss in a training of your own."
            )


def _taken(kind: type[Info], name: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of ``known`` that are options of a strategy, an objective or a term."""
    names = {each.name for each in options_of(registry().load(registry().get(kind, name)))}
    return {key: value for key, value in known.items() if key in names}
