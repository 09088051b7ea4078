"""The guide's tables from results of the speed suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tempplug_benchmarks.speed.guide_tables import errors, machines, short, speed


def write(
    folder: Path,
    name: str,
    quantity: str,
    temperature: float,
    *,
    loss: str = "labels",
    rows: int = 64,
    dimension: int = 8,
    machine: dict[str, str | int] | None = None,
    **numbers: dict[str, float],
) -> None:
    case = {"name": name, "loss": loss, "rows": rows, "dimension": dimension, "temperature": temperature, "quantity": quantity}
    hardware = {"cpu": "Abacus", "cores": 2, "threads": 1} | (machine or {})
    outcomes: dict[str, Any] = {each: {"status": "measured", "numbers": of} for each, of in numbers.items()}
    (folder / f"{name}.json").write_text(
        json.dumps({"case": {**case, "environment": {}}, "outcomes": outcomes, "hardware": hardware})
    )


def test_errors_are_sorted_and_those_above_eagers_marked(tmp_path: Path) -> None:
    write(tmp_path, "a", "accuracy", 0.5, tempplug={"gradient_error": 2e-7}, eager={"gradient_error": 1e-7})
    write(tmp_path, "b", "accuracy", 0.1, tempplug={"gradient_error": 1e-7}, eager={"gradient_error": 2e-7})
    _, first, second = errors(tmp_path)
    assert first[1:] == ["64 × 8", "0.1", "1.0e-07", "2.0e-07"]
    assert second[1:] == ["64 × 8", "0.5", "2.0e-07 ▼", "1.0e-07"]


def test_times_stand_beside_what_others_take_and_slower_ones_are_marked(tmp_path: Path) -> None:
    write(
        tmp_path, "a", "time", 0.1, tempplug={"milliseconds": 2.0}, eager={"milliseconds": 1.0}, compiled={"milliseconds": 5.0}
    )
    write(tmp_path, "b", "accuracy", 0.1, tempplug={"gradient_error": 1e-7}, eager={"gradient_error": 2e-7})
    _, row = speed(tmp_path)
    assert row[1:] == ["64 × 8", "hot", "2.0", "0.50 ▼", "2.5", "–", "–"]


@pytest.mark.parametrize(("rows", "shown"), [(512, ["cold", "4.0", "2.0"]), (513, ["hot", "2.0", "0.50 ▼"])])
def test_small_batches_are_told_cold_and_large_ones_hot(rows: int, shown: list[str], tmp_path: Path) -> None:
    ours, eager = ({"milliseconds": hot, "milliseconds_cold": cold} for hot, cold in ((2.0, 4.0), (1.0, 8.0)))
    write(tmp_path, "a", "time", 0.1, rows=rows, tempplug={**ours, "matmul_share": 0.234}, eager=eager)
    _, row = speed(tmp_path)
    assert row[1:5] == [f"{rows} × 8", *shown]
    assert row[-1] == "23%"


def test_a_table_may_be_of_some_losses_alone(tmp_path: Path) -> None:
    for loss in ("labels", "plugin-map"):
        write(
            tmp_path,
            loss,
            "time",
            0.1,
            loss=loss,
            tempplug={"milliseconds": 2.0},
            **{"tempplug-dystress": {"milliseconds": 1.0}},
        )
    _, row = speed(tmp_path, "plugin-map")
    assert row == ["two views, a plugin's map", "64 × 8", "hot", "2.0", "–", "–", "tempplug's DySTreSS 0.50", "–"]
    assert len(speed(tmp_path)) == 3


def test_the_short_table_has_a_line_for_each_loss(tmp_path: Path) -> None:
    for rows, eager in ((64, 1.0), (2048, 4.0), (256, 9.0)):
        of = {"tempplug": {"milliseconds": 2.0}, "eager": {"milliseconds": eager}}
        write(tmp_path, f"a{rows}", "time", 0.1, loss="nt-xent", rows=rows, dimension=128, **of)
    write(tmp_path, "b", "time", 0.1, loss="two-way", dimension=512, tempplug={"milliseconds": 2.0})
    assert short(tmp_path)[1:] == [
        ["two views (SimCLR)", "64, 2048", "2.0, 2.0", "0.50 ▼, 2.0", "–, –"],
        ["two-way (CLIP), D = 512", "64", "2.0", "–", "–"],
    ]


def test_every_processor_has_its_rate_of_products(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.12), ("c", None)):
        write(tmp_path, name, "time", 0.1, tempplug={"milliseconds": 2.0} if rate is None else {"matmul_teraflops": rate})
    write(tmp_path, "d", "memory", 0.1, machine={"cpu": "Slate", "vendor": "Flint", "family": 1, "model": 2}, tempplug={})
    assert machines(tmp_path)[1:] == [
        ["Abacus, 2 cores, 1 threads", "100 to 120", "3"],
        ["Slate (Flint family 1 model 2), 2 cores, 1 threads", "–", "1"],
    ]
