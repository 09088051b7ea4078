"""Registers the adapters and their commands, which `plugin.toml` declares; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins import AdapterInfo, CommandInfo, hookimpl
from tempplug.plugins.info import declared


@hookimpl
def tempplug_register_adapters() -> list[AdapterInfo]:
    """Returns the adapters of this distribution."""
    return declared(AdapterInfo, __file__)


@hookimpl
def tempplug_register_commands() -> list[CommandInfo]:
    """Returns the training and evaluation commands."""
    return declared(CommandInfo, __file__)
