"""Declarations, and the listener; imports nothing heavy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tempplug.plugins import ObjectiveInfo, StrategyInfo, hookimpl

if TYPE_CHECKING:
    from tempplug import StepRecord


@hookimpl
def tempplug_register_strategies() -> list[StrategyInfo]:
    return [
        StrategyInfo(
            name="cubic",
            target="tempplug_cubic.cubic:Cubic",
            summary="colder for pairs that are far from orthogonal",
            reference="none",
        )
    ]


@hookimpl
def tempplug_register_objectives() -> list[ObjectiveInfo]:
    return [ObjectiveInfo(name="hinge", target="tempplug_cubic.hinge:Hinge", summary="smooth hinge on the margin")]


@hookimpl
def tempplug_log(record: StepRecord) -> None:
    """Appends the mean temperature to the file that CUBIC_LOG names."""
    with Path(os.environ["CUBIC_LOG"]).open("a", encoding="utf-8") as file:
        file.write(f"{record.numbers()['temperature_mean']:.6f}\n")
