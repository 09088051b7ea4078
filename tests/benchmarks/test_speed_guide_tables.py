"""The guide's tables from results of the speed suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tempplug_benchmarks.speed.guide_tables import errors, speed


def write(folder: Path, name: str, quantity: str, temperature: float, **numbers: dict[str, float]) -> None:
    case = {"name": name, "loss": "labels", "rows": 64, "dimension": 8, "temperature": temperature, "quantity": quantity}
    outcomes: dict[str, Any] = {each: {"status": "measured", "numbers": of} for each, of in numbers.items()}
    (folder / f"{name}.json").write_text(json.dumps({"case": {**case, "environment": {}}, "outcomes": outcomes}))


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
    assert row[1:] == ["64 × 8", "2.0", "0.50 ▼", "2.5", "–"]
