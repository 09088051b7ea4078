"""What the speed report says, against a golden file; its plot; its remarks."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_checks import write_failure, write_result

from tempplug_benchmarks.arm import Arm, Specs
from tempplug_benchmarks.profile import Profile
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import write
from tempplug_benchmarks.speed.cases import METHOD, METRICS, SpeedSuite, Target
from tempplug_benchmarks.speed.plot import Point, draw, points
from tempplug_benchmarks.speed.recipe import SpeedRecipe
from tempplug_benchmarks.speed.report import Section, SpeedReport, remarks, sections
from tempplug_benchmarks.task import Task

GOLDEN = Path(__file__).parent / "golden" / "speed.md"
OTHERS = ("eager", "lightly", "compiled")


def case(loss: str, rows: int, dimension: int, others: Sequence[str] = ("eager",), tag: str = "", **more: Any) -> Arm:
    names = {"loss_name": loss, "rows": rows, "dimension": dimension, "implementations": ["tempplug", *others]}
    return Arm("-".join(filter(None, (loss, f"{rows}x{dimension}", tag))), changes={**names, **more})


def task(name: str, summary: str, quantity: str, cases: Sequence[Arm]) -> Task:
    metric = METRICS[quantity]
    quick = Profile(dataset="none", recipe=SpeedRecipe(), arms=tuple(cases), metrics=(metric,), primary=metric.name)
    return Task(name=name, summary=summary, method=METHOD, baseline="", profiles={"quick": quick})


TIMED = [case("nt-xent", rows, 64, OTHERS, environment=["WIND=<calm>"]) for rows in (32, 512, 2048)]
EXACT = [case("nt-xent", 64, 32, tag=f"t{value:g}", temperature=value) for value in (0.02, 0.1)]
SUITE = SpeedSuite(
    name="race",
    summary="none",
    tasks=(
        task("run", "how long", "time", TIMED),
        task("hold", "how much", "memory", [case("nt-xent", 512, 64, tag="memory")]),
        task("hit", "how exact", "accuracy", EXACT),
    ),
    targets=(
        Target(case="nt-xent-32x64", against="eager", at_least=0.9),
        Target(case="nt-xent-512x64", against="eager", at_least=3),
        Target(case="nt-xent-512x64", against="eager", at_least=2, cold=True),
        Target(case="nt-xent-512x64", against="compiled", at_least=1, of="lightly"),
        Target(case="nt-xent-512x64-memory", against="tempplug", at_most=300),
    ),
)
FIGURES: dict[str, dict[str, Any]] = {
    "nt-xent-32x64": {"tempplug": 0.4, "eager": 0.5, "lightly": "not installed", "compiled": "failed"},
    "nt-xent-512x64": {"tempplug": 4.0, "eager": 10.0, "lightly": 1234.5, "compiled": 8.0},
    "nt-xent-512x64-memory": {"tempplug": 100.0, "eager": 250.0},
    "nt-xent-64x32-t0.02": {"tempplug": 5e-6, "eager": 1e-3},
    "nt-xent-64x32-t0.1": {"tempplug": 2e-7, "eager": 4e-7},
}


def outcome(figure: float | str, primary: str) -> dict[str, float | str]:
    if isinstance(figure, str):
        return {"note": figure if figure != "failed" else "failed: RuntimeError: no | compiler"}
    numbers: dict[str, dict[str, float | str]] = {
        "milliseconds": {"milliseconds": figure, "milliseconds_cold": figure + 2, "rounds": 7, "cpu_per_wall": 1.0},
        "mebibytes": {"mebibytes": figure},
        "gradient_error": {"gradient_error": figure, "loss_error": figure / 10},
    }
    return {**numbers[primary], "loss": 1.5}


def write_outcomes(run: Run, folder: Path, outcomes: Mapping[str, Mapping[str, float | str]]) -> None:
    primary = run.sizes.primary
    made = write_result(run, folder, {primary: float(outcomes["tempplug"][primary])}, 1.0, implementations=outcomes)
    write(run, folder, replace(made, versions={"python": "3.11.0"}, hardware={"cpu": "Abacus", "cores": 2, "threads": 1}))


def runs(suite: SpeedSuite, setting: str = "") -> list[Run]:
    tasks = [suite.task(each.name + setting) for each in suite.tasks]
    return [Run(suite.name, "quick", task, arm, Specs(), 0) for task in tasks for arm in task.profile("quick").arms]


def found_in(folder: Path, suite: SpeedSuite) -> tuple[Section, ...]:
    loaded = load_results(folder)
    return sections((*loaded.results, *loaded.failures), {suite.name: suite})


def measured(
    folder: Path, setting: str = "", changed: Mapping[str, Mapping[str, Any]] | None = None, left_out: Sequence[str] = ()
) -> tuple[Section, ...]:
    """Returns the sections of `FIGURES`, some numbers changed or left out."""
    for run in runs(SUITE, setting):
        name = run.arm.label
        if name not in FIGURES:
            write_failure(run, folder, "its process ended\nwithout a result (signal 9).", "")
            continue
        outcomes = {each: outcome(figure, run.sizes.primary) for each, figure in FIGURES[name].items()}
        for each, numbers in (changed or {}).get(name, {}).items():
            outcomes[each].update(numbers)
        kept = {each: {key: of[key] for key in of.keys() - set(left_out)} for each, of in outcomes.items()}
        write_outcomes(run, folder, kept)
    return found_in(folder, SUITE)


@pytest.fixture
def found(tmp_path: Path) -> tuple[Section, ...]:
    return measured(tmp_path)


def test_markdown_is_golden(found: tuple[Section, ...]) -> None:
    assert SpeedReport(found, ["old.json is not JSON"]).markdown() == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [70, 140])
def test_terminal_and_page_show_every_figure(found: tuple[Section, ...], width: int) -> None:
    shown = io.StringIO()
    SpeedReport(found, ["old.json is not JSON"]).print(Console(file=shown, width=width))
    text = shown.getvalue()
    for words in ("512×64 · lightly", "308.62", "≥ 3× missed", "cold ≥ 2× reached", "not installed", "left out: old.json"):
        assert words in text
    text = "\n".join(SpeedReport(found, ["old"]).html_parts())
    assert text.count("<table>") == 3
    # compiled took 8 ms, lightly 1234
    for words in ('<td class="worse">2.50</td>', '<td class="better">1.25</td>', "lightly ≥ 1× missed", "&lt;calm&gt;"):
        assert words in text


RATE = {"matmul_share": 0.456, "matmul_teraflops": 0.0987}
BUSY = "- measured: wall time, 2 threads, float32, seed 0, two processes that never rest beside it\n"
HOT = "| 512×64 · eager | 10 | - | 7 | 2.50 | - | - | ≥ 3× missed; cold ≥ 2× | - |"


@pytest.mark.parametrize(
    ("setting", "changed", "left_out", "shown"),
    [
        ("@threads=2,busy=true", {}, "", BUSY),
        ("@threads=2,busy=true", {}, "", "- CPU time over wall time: 1.00 to 1.00; a quiet machine gives the threads\n"),
        ("@device=cuda,precision=bfloat16", RATE, "", "- matmul rate of the same processes, bfloat16: 99 to 99 GFLOP/s"),
        ("", RATE, "", "- matmul rate of the same processes, float32: 99 to 99 GFLOP/s\n- of matmul rate: operations"),
        ("", RATE, "", "**46%**"),
        ("", {}, "milliseconds_cold", HOT),
        ("", {"loss": 1.51}, "", "- not the same loss: nt-xent-512x64: eager 1.5, lightly 1.5, compiled 1.5, tempplug 1.51"),
    ],
)
def test_settings_rates_and_differing_losses_are_shown(
    setting: str, changed: dict[str, float], left_out: str, shown: str, tmp_path: Path
) -> None:
    (section, *_) = measured(tmp_path, setting, {"nt-xent-512x64": {"tempplug": changed}}, [left_out])
    text = SpeedReport([section], []).markdown()
    assert shown in text
    assert ("≥" in text) == (setting == ""), "other settings have no targets"


@pytest.mark.parametrize(("large", "verdict"), [(7.9, "reached"), (8.1, "missed")])
def test_growth_for_twice_the_pairs_is_shown(large: float, verdict: str, tmp_path: Path) -> None:
    sizes = {64: 1.0, 128: 2.0, 256: large, 1024: 99.0}
    cases = [*(case("nt-xent", rows, 8) for rows in sizes), case("macl", 256, 8)]
    suite = SpeedSuite(name="race", summary="", tasks=(task("grow", "", "time", cases),))
    for run in runs(suite):
        figure = sizes[run.arm.changes["rows"]] * 9
        names = run.arm.changes["implementations"]
        write_outcomes(run, tmp_path, {name: outcome(figure, run.sizes.primary) for name in names})
    (section,) = found_in(tmp_path, suite)
    said = f"growth for twice the pairs: {large / 2:.2f} times at most (nt-xent 128×8 to nt-xent 256×8)"
    assert f"{said}; wanted is at most 4: {verdict}" in remarks(section)


def test_points_have_the_ratio_and_what_is_wanted(found: tuple[Section, ...]) -> None:
    assert points(found[0]) == {
        "eager": [Point(32, 2.5 / 2.4, None), Point(512, 2.0, 2)],
        "lightly": [Point(512, 1236.5 / 6, None)],
        "compiled": [Point(512, 10 / 6, None)],
    }, "cold, as a training meets it"
    assert list(points(found[2])) == ["eager, τ=0.02", "eager, τ=0.1"]


def test_the_plot_has_a_panel_for_each_task(found: tuple[Section, ...], tmp_path: Path) -> None:
    for name in ("speed.svg", "speed.png"):
        assert draw(found, tmp_path / "deep" / name)
    picture = (tmp_path / "deep" / "speed.svg").read_text(encoding="utf-8")
    for words in ("race / quick / cpu-1-thread", "N, pairs in a batch", "hold", "hit", "eager, τ=0.02"):
        assert f"<!-- {words}" in picture
    assert (tmp_path / "deep" / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert not draw([], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
