"""Registers the benchmark suites and commands, which `plugin.toml` declares; imports nothing heavy."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tempplug.plugins import CommandInfo, SuiteInfo, hookimpl


@hookimpl
def tempplug_register_suites() -> list[SuiteInfo]:
    """Returns the benchmark suites."""
    return [SuiteInfo(**each) for each in _declared("suites")]


@hookimpl
def tempplug_register_commands() -> list[CommandInfo]:
    """Returns the commands of this distribution."""
    return [CommandInfo(**each) for each in _declared("commands")]


def _declared(kind: str) -> list[dict[str, Any]]:
    read = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return [
        {
            **entry,
            "name": name,
            "target": f"{__package__}.{entry['target']}",
            "requires": tuple(read["requires"][entry["requires"]]),
        }
        for name, entry in read[kind].items()
    ]
