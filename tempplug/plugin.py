"""Registers the built-in strategies, objectives and terms on negatives, which `plugin.toml` declares; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins import NegativeInfo, ObjectiveInfo, StrategyInfo, hookimpl
from tempplug.plugins.info import declared


@hookimpl
def tempplug_register_strategies() -> list[StrategyInfo]:
    """Returns the built-in strategies."""
    return declared(StrategyInfo, __file__)


@hookimpl
def tempplug_register_objectives() -> list[ObjectiveInfo]:
    """Returns the built-in objectives."""
    return declared(ObjectiveInfo, __file__)


@hookimpl
def tempplug_register_negatives() -> list[NegativeInfo]:
    """Returns the built-in terms on negatives."""
    return declared(NegativeInfo, __file__)
