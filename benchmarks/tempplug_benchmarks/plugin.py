"""Registers the benchmark suites and commands, which `plugin.toml` declares; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins import CommandInfo, SuiteInfo, hookimpl
from tempplug.plugins.info import declared


@hookimpl
def tempplug_register_suites() -> list[SuiteInfo]:
    """Returns the benchmark suites."""
    return declared(SuiteInfo, __file__)


@hookimpl
def tempplug_register_commands() -> list[CommandInfo]:
    """Returns the commands of this distribution."""
    return declared(CommandInfo, __file__)
