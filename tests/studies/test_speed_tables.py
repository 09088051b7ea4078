"""The guide's tables from results of the speed suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studies.other_libraries.speed_tables import errors, short, speed
from tempplug_benchmarks.run.store import Result
from tempplug_benchmarks.speed.cases import METRICS
from tempplug_benchmarks.speed.recipe import SpeedRecipe

ABACUS = {"cpu": "Abacus", "cores": 2, "threads": 1}


def result(quantity: str, numbers: Mapping[str, Mapping[str, float]], hardware: Any = ABACUS, **case: Any) -> Result:
    place = {"suite": "speed", "profile": "small", "task": "t", "arm": "a", "seed": 0, "date": "", "versions": {}, "seconds": 1}
    specs = {"strategy": None, "objective": None, "dataset": "none", "recipe": SpeedRecipe().values(), "hardware": hardware}
    changes = {"loss_name": "labels", "rows": 64, "dimension": 8, **case}
    return Result(**place, **specs, changes=changes, metrics={METRICS[quantity].name: 1.0}, implementations=numbers)


def times(**numbers: float) -> dict[str, dict[str, float]]:
    return {name: {"milliseconds": number} for name, number in numbers.items()}


def test_errors_are_sorted_and_those_above_eagers_marked() -> None:
    found = [
        result("accuracy", {"tempplug": {"gradient_error": ours}, "eager": {"gradient_error": eager}}, temperature=temperature)
        for temperature, ours, eager in ((0.5, 2e-7, 1e-7), (0.1, 1e-7, 2e-7))
    ]
    assert [line[1:] for line in errors(found)[1:]] == [
        ["64 × 8", "0.1", "1.0e-07", "2.0e-07"],
        ["64 × 8", "0.5", "2.0e-07 ▼", "1.0e-07"],
    ]


def test_times_are_milliseconds_cold_for_small_batches_and_marked_where_tempplug_is_slower() -> None:
    ours = {"milliseconds": 2.0, "milliseconds_cold": 4.0, "matmul_share": 0.234}
    both = {"tempplug": ours, "eager": {"milliseconds": 1.0, "milliseconds_cold": 8.0}}
    found = [
        result("time", times(tempplug=2, eager=1, compiled=5)),
        result("accuracy", {"tempplug": {"gradient_error": 1e-7}, "eager": {"gradient_error": 2e-7}}),
        *(result("time", both, rows=rows) for rows in (512, 513)),
        result("time", {**times(tempplug=2), "tempplug-dystress": {"milliseconds": 1.0}}, loss_name="plugin-map"),
    ]
    assert [row[1:] for row in speed(found, "labels")[1:]] == [
        ["64 × 8", "hot", "2.0", "1.0 ▼", "5.0", "–", "–"],
        ["512 × 8", "cold", "4.0", "8.0", "–", "–", "23%"],
        ["513 × 8", "hot", "2.0", "1.0 ▼", "–", "–", "23%"],
    ]
    plugin = ["two views, a plugin's map", "64 × 8", "hot", "2.0", "–", "–", "tempplug's DySTreSS 1.0", "–"]
    assert speed(found, "plugin-map")[1:] == [plugin]
    assert len(speed(found)) == 5
    assert speed(found)[0][3:6] == ["tempplug, ms", "plain PyTorch, ms", "`torch.compile`, ms"]


def test_the_short_table_has_a_line_for_each_loss() -> None:
    found = [
        result("time", times(tempplug=2, eager=eager), loss_name="nt-xent", rows=rows, dimension=128)
        for rows, eager in ((64, 1.0), (2048, 4.0), (256, 9.0))
    ]
    found.append(result("time", times(tempplug=2), loss_name="two-way", dimension=512))
    assert short(found)[1:] == [
        ["two views (SimCLR)", "64, 2048", "2.0, 2.0", "1.0, 4.0", "–, –"],
        ["two-way (CLIP), D = 512", "64", "2.0", "–", "–"],
    ]
