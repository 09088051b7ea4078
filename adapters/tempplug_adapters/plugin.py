"""Registers the adapters and their commands, which `plugin.toml` declares; imports nothing heavy."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from tempplug.plugins import AdapterInfo, CommandInfo, hookimpl


@hookimpl
def tempplug_register_adapters() -> list[AdapterInfo]:
    """Returns the adapters of this distribution."""
    return [AdapterInfo(**each) for each in _declared("adapters")]


@hookimpl
def tempplug_register_commands() -> list[CommandInfo]:
    """Returns the training and evaluation commands."""
    return [CommandInfo(**each) for each in _declared("commands")]


@cache
def _declarations() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _declared(kind: str) -> list[dict[str, Any]]:
    """Returns the fields of each declaration: an entry needs the packages of its extra, unless it lists others."""
    read = _declarations()
    return [
        {
            **entry,
            "name": name,
            "target": f"{__package__}.{entry['target']}",
            "requires": tuple(entry.get("requires", read["requires"].get(entry.get("extra"), ()))),
        }
        for name, entry in read[kind].items()
    ]
