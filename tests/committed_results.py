"""The committed results, read from their files alone, and checks of printed numbers against them."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"

Values = dict[str, dict[int, dict[str, float]]]


def records(file: Path) -> list[dict[str, Any]]:
    """Returns what the file of a task says about each run, its first line's ``common`` included."""
    head, *runs = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [{**head["common"], **run} for run in runs]


def values(place: str) -> Values:
    """Returns the metrics of ``suite/profile/task`` by arm and seed."""
    found: Values = {}
    for record in records(RESULTS / f"{place}.jsonl"):
        found.setdefault(record["arm"], {})[record["seed"]] = record["metrics"]
    assert found, place
    return found


def of(found: Values, arm: str, metric: str) -> dict[int, float]:
    return {seed: metrics[metric] for seed, metrics in found.get(arm, {}).items() if metric in metrics}


def looks(place: str) -> int:
    """Returns how often the results of ``suite/profile/task`` were read while seeds were added."""
    with (RESULTS / f"{place}.jsonl").open(encoding="utf-8") as lines:
        return max(1, len(json.loads(next(lines)).get("looks", [])))


def numbers(cell: str) -> list[float]:
    return [float(each) for each in re.findall(r"(?<![\w=])[-+]?\d+(?:\.\d+)?", cell)]


def half(cell: str) -> float:
    """Returns half of what the last digit of a cell's first number stands for."""
    first = re.findall(r"\d+(?:\.\d+)?", cell)[0]
    return 0.5 * 10.0 ** -len(first.partition(".")[2]) * 1.0001


def check_mean(cell: str, by_seed: dict[int, float]) -> None:
    """Checks mean and sample deviation."""
    expected = [statistics.fmean(by_seed.values()), *([statistics.stdev(by_seed.values())] if len(by_seed) > 1 else [])]
    assert numbers(cell) == pytest.approx(expected, abs=half(cell)), cell


def check_difference(cell: str, arm: dict[int, float], baseline: dict[int, float]) -> float | None:
    """Checks the mean difference over common seeds and its t interval; returns p, None for a single seed or equal values."""
    common = sorted(arm.keys() & baseline.keys())
    mine, theirs = ([each[seed] for seed in common] for each in (arm, baseline))
    expected = [statistics.fmean(a - b for a, b in zip(mine, theirs, strict=True))]
    test = stats.ttest_rel(mine, theirs) if len(common) > 1 and mine != theirs else None
    if "[" in cell:
        assert test is not None
        expected += [*test.confidence_interval(0.95)]
    assert numbers(re.split(r"[](]", cell)[0]) == pytest.approx(expected, abs=half(cell)), cell
    return None if test is None else float(test.pvalue)


def check_holm(p_values: list[tuple[float, str]], factor: int) -> None:
    """Checks the printed p values of a whole family against those of the t tests, times the looks, after Holm's correction."""
    largest = 0.0
    for rank, (p, shown) in enumerate(sorted(p_values)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * factor * p))
        assert float(shown.strip("<")) == pytest.approx(largest, rel=0.06) or largest < 0.001, (p, shown)
