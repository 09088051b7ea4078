"""The guide's tables from results of the speed suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from run_checks import write_result

from tempplug_benchmarks.arm import Arm, Specs
from tempplug_benchmarks.profile import Profile
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import Result, write
from tempplug_benchmarks.speed.cases import METHOD, METRICS
from tempplug_benchmarks.speed.guide_tables import errors, machines, memory, results_of, short, speed
from tempplug_benchmarks.speed.recipe import SpeedRecipe
from tempplug_benchmarks.task import Task


def write_case(
    folder: Path,
    name: str,
    quantity: str,
    temperature: float,
    *,
    loss: str = "labels",
    rows: int = 64,
    dimension: int = 8,
    machine: Mapping[str, str | int] | None = None,
    threads: int = 1,
    **numbers: Mapping[str, float],
) -> None:
    metric = METRICS[quantity]
    case = {"loss_name": loss, "rows": rows, "dimension": dimension, "temperature": temperature}
    recipe = SpeedRecipe(threads=threads)
    profile = Profile(dataset="none", recipe=recipe, arms=(), metrics=(metric,), primary=metric.name)
    task = Task(name=f"t{threads}", summary="", method=METHOD, baseline="", profiles={"small": profile})
    run = Run("speed", "small", task, Arm(name, changes=case), Specs(), 0)
    made = write_result(run, folder, {metric.name: 1.0}, 1, implementations=numbers)
    hardware = {"cpu": "Abacus", "cores": 2, "threads": 1} | dict(machine or {})
    write(run, folder, Result(**{**vars(made), "hardware": hardware}))


def results(folder: Path, slug: str = "cpu-1-thread") -> tuple[Result, ...]:
    return results_of(folder / "speed" / "small", slug)


def test_errors_are_sorted_and_those_above_eagers_marked(tmp_path: Path) -> None:
    for name, temperature, ours, eager in (("a", 0.5, 2e-7, 1e-7), ("b", 0.1, 1e-7, 2e-7)):
        numbers = {"tempplug": {"gradient_error": ours}, "eager": {"gradient_error": eager}}
        write_case(tmp_path, name, "accuracy", temperature, **numbers)
    _, first, second = errors(results(tmp_path))
    assert first[1:] == ["64 × 8", "0.1", "1.0e-07", "2.0e-07"]
    assert second[1:] == ["64 × 8", "0.5", "2.0e-07 ▼", "1.0e-07"]


def test_times_are_relative_cold_for_small_batches_and_slower_ones_are_marked(tmp_path: Path) -> None:
    times = {"tempplug": {"milliseconds": 2.0}, "eager": {"milliseconds": 1.0}, "compiled": {"milliseconds": 5.0}}
    write_case(tmp_path, "a", "time", 0.1, **times)
    write_case(tmp_path, "b", "accuracy", 0.1, tempplug={"gradient_error": 1e-7}, eager={"gradient_error": 2e-7})
    ours, eager = ({"milliseconds": hot, "milliseconds_cold": cold} for hot, cold in ((2.0, 4.0), (1.0, 8.0)))
    for rows in (512, 513):
        write_case(tmp_path, f"c{rows}", "time", 0.1, rows=rows, tempplug={**ours, "matmul_share": 0.234}, eager=eager)
    plugin = {"tempplug": {"milliseconds": 2.0}, "tempplug-dystress": {"milliseconds": 1.0}}
    write_case(tmp_path, "d", "time", 0.1, loss="plugin-map", **plugin)
    _, *rows = speed(results(tmp_path), "labels")
    assert [row[1:] for row in rows] == [
        ["64 × 8", "hot", "2.0", "0.50 ▼", "2.5", "–", "–"],
        ["512 × 8", "cold", "4.0", "2.0", "–", "–", "23%"],
        ["513 × 8", "hot", "2.0", "0.50 ▼", "–", "–", "23%"],
    ]
    _, row = speed(results(tmp_path), "plugin-map")
    assert row == ["two views, a plugin's map", "64 × 8", "hot", "2.0", "–", "–", "tempplug's DySTreSS 0.50", "–"]
    assert len(speed(results(tmp_path))) == 5


def test_the_short_table_has_a_line_for_each_loss(tmp_path: Path) -> None:
    for rows, eager in ((64, 1.0), (2048, 4.0), (256, 9.0)):
        of = {"tempplug": {"milliseconds": 2.0}, "eager": {"milliseconds": eager}}
        write_case(tmp_path, f"a{rows}", "time", 0.1, loss="nt-xent", rows=rows, dimension=128, **of)
    write_case(tmp_path, "b", "time", 0.1, loss="two-way", dimension=512, tempplug={"milliseconds": 2.0})
    assert short(results(tmp_path))[1:] == [
        ["two views (SimCLR)", "64, 2048", "2.0, 2.0", "0.50 ▼, 2.0", "–, –"],
        ["two-way (CLIP), D = 512", "64", "2.0", "–", "–"],
    ]


def test_every_processor_has_its_rate_of_products(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.12), ("c", None)):
        write_case(
            tmp_path,
            name,
            "time",
            0.1,
            tempplug={"milliseconds": 2.0} if rate is None else {"milliseconds": 2.0, "matmul_teraflops": rate},
        )
    write_case(tmp_path, "d", "memory", 0.1, machine={"cpu": "Slate", "vendor": "Flint", "family": 1, "model": 2}, tempplug={})
    assert machines(results(tmp_path))[1:] == [
        ["Abacus, 2 cores, 1 threads", "100 to 120", "3"],
        ["Slate (Flint family 1 model 2), 2 cores, 1 threads", "–", "1"],
    ]


def test_results_of_another_setting_are_no_part(tmp_path: Path) -> None:
    write_case(tmp_path, "a", "memory", 0.1, rows=64, tempplug={"mebibytes": 1.0})
    write_case(tmp_path, "a", "memory", 0.1, rows=64, threads=2, tempplug={"mebibytes": 2.0}, eager={"mebibytes": 3000.0})
    assert memory(results(tmp_path))[1][2:] == ["1", "–", "–"]
    assert memory(results(tmp_path, "cpu-2-threads"))[1][2:] == ["2", "3,000", "–"]
