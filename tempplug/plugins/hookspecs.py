"""The hooks that a plugin may implement: when each is called, and what becomes of the value it returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

from tempplug.plugins.info import AdapterInfo, CommandInfo, NegativeInfo, ObjectiveInfo, StrategyInfo, SuiteInfo

if TYPE_CHECKING:
    from tempplug.types import StepRecord

PROJECT = "tempplug"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def tempplug_register_strategies() -> Iterable[StrategyInfo]:  # type: ignore[empty-body]
    """Called once, the first time a name is not built in or everything is listed; the declarations join the registry."""


@hookspec
def tempplug_register_objectives() -> Iterable[ObjectiveInfo]:  # type: ignore[empty-body]
    """Called like `tempplug_register_strategies`; the declarations join the registry of objectives."""


@hookspec
def tempplug_register_negatives() -> Iterable[NegativeInfo]:  # type: ignore[empty-body]
    """Called like `tempplug_register_strategies`; the declarations join the registry of terms on negatives."""


@hookspec
def tempplug_register_adapters() -> Iterable[AdapterInfo]:  # type: ignore[empty-body]
    """Called when adapters are listed or asked for."""


@hookspec
def tempplug_register_suites() -> Iterable[SuiteInfo]:  # type: ignore[empty-body]
    """Called when benchmark suites are listed or one is run."""


@hookspec
def tempplug_register_commands() -> Iterable[CommandInfo]:  # type: ignore[empty-body]
    """Called when the ``tempplug`` command parses its arguments; the declarations become sub-commands."""


@hookspec
def tempplug_log(record: StepRecord) -> None:
    """Called by the adapters whenever they log, with the record of the last loss; the return value is ignored.

    A plugin that raises here is named in a warning and gets no further records; training goes on.
    """
