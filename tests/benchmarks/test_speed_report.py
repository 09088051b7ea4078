"""What the speed report says, against a golden file; its plot; its remarks."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tempplug_benchmarks.speed.case import Case, Setting, SpeedSuite, SpeedTask
from tempplug_benchmarks.speed.cases import case
from tempplug_benchmarks.speed.plot import Point, draw, points
from tempplug_benchmarks.speed.report import html_parts, markdown, print_report
from tempplug_benchmarks.speed.store import SpeedResult, SpeedRun, load_speed_results, write_speed_result
from tempplug_benchmarks.speed.table import Section, remarks, sections
from tempplug_benchmarks.speed.targets import Target

GOLDEN = Path(__file__).parent / "golden" / "speed.md"
OTHERS = ("eager", "lightly", "compiled")
TIMED = tuple(case("nt-xent", rows, 64, OTHERS, environment={"WIND": "<calm>"}) for rows in (32, 512, 2048))
HELD = (case("nt-xent", 512, 64, quantity="memory", tag="memory"),)
EXACT = tuple(case("nt-xent", 64, 32, quantity="accuracy", tag=f"t{value:g}", temperature=value) for value in (0.02, 0.1))
SUITE = SpeedSuite(
    name="race",
    summary="none",
    tasks=(
        SpeedTask(name="run", summary="how long", quantity="time", profiles={"quick": TIMED}),
        SpeedTask(name="hold", summary="how much", quantity="memory", profiles={"quick": HELD}),
        SpeedTask(name="hit", summary="how exact", quantity="accuracy", profiles={"quick": EXACT}),
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


def outcome(each: Case, figure: float | str) -> dict[str, Any]:
    if isinstance(figure, str):
        return {"status": figure, "numbers": {}, "note": figure if figure != "failed" else "RuntimeError: no | compiler"}
    numbers: Mapping[str, float] = {
        "time": {"milliseconds": figure, "milliseconds_cold": figure + 2, "rounds": 7, "cpu_per_wall": 1.0},
        "memory": {"mebibytes": figure},
        "accuracy": {"gradient_error": figure, "loss_error": figure / 10},
    }[each.quantity]
    return {"status": "measured", "numbers": {**numbers, "loss": 1.5}, "note": ""}


def results(folder: Path, setting: Setting, changed: Mapping[str, Mapping[str, Any]] | None = None) -> list[SpeedResult]:
    machine = {"cpu": "Abacus", "cores": 2, "threads": 1}
    found = []
    for task in SUITE.tasks:
        for each in task.profiles["quick"]:
            run = SpeedRun(SUITE.name, "quick", each, setting)
            answer: dict[str, Any] = {"error": "its process ended\nwithout a result (signal 9)."}
            if each.name in FIGURES:
                outcomes = {name: outcome(each, figure) for name, figure in FIGURES[each.name].items()}
                for name, numbers in (changed or {}).get(each.name, {}).items():
                    outcomes[name]["numbers"].update(numbers)
                answer = {"outcomes": outcomes, "versions": {"python": "3.11.0"}, "hardware": machine}
            found.append(write_speed_result(run, folder, answer, 1.0))
    return found


@pytest.fixture
def found(tmp_path: Path) -> tuple[Section, ...]:
    return sections(SUITE, results(tmp_path, Setting()))


def test_markdown_is_golden(found: tuple[Section, ...]) -> None:
    assert markdown(found, ["old.json is not JSON"], ["speed.svg"]) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [70, 140])
def test_the_terminal_shows_every_figure(found: tuple[Section, ...], width: int) -> None:
    shown = io.StringIO()
    print_report(Console(file=shown, width=width), found, ["old.json is not JSON"])
    text = shown.getvalue()
    for words in ("512×64 · lightly", "308.62", "≥ 3× missed", "cold ≥ 2× reached", "not installed", "left out: old.json"):
        assert words in text


def test_html_has_every_table_and_tones(found: tuple[Section, ...]) -> None:
    text = "\n".join(html_parts(found, ["old"]))
    assert text.count("<table>") == 3
    assert '<td class="worse">2.50</td>' in text
    assert '<td class="better">1.25</td>' in text
    assert "lightly ≥ 1× missed" in text, "compiled took 8 ms, lightly 1234"
    assert "&lt;calm&gt;" in text


def test_busy_settings_have_no_targets(tmp_path: Path) -> None:
    (section, *_) = sections(SUITE, results(tmp_path, Setting(threads=2, busy=True)))
    assert "≥" not in markdown([section], [])
    lines = remarks(section)
    assert "measured: wall time, 2 threads, float32, seed 0, two processes that never rest beside it" in lines
    assert "CPU time over wall time: 1.00 to 1.00; a quiet machine gives the threads" in lines


def test_a_gpu_shows_its_share_of_the_matmul_rate(tmp_path: Path) -> None:
    measured = {"nt-xent-512x64": {"tempplug": {"matmul_share": 0.456, "matmul_teraflops": 700.0}}}
    (section, *_) = sections(SUITE, results(tmp_path, Setting(device="cuda", precision="bfloat16"), measured))
    text = markdown([section], [])
    assert "of matmul rate" in text
    assert "**46%**" in text
    assert "- matmul rate of the same processes, bfloat16: 700 to 700 TFLOP/s" in text


def test_a_cpu_shows_its_share_of_the_matmul_rate(tmp_path: Path) -> None:
    measured = {"nt-xent-512x64": {"tempplug": {"matmul_share": 0.456, "matmul_teraflops": 0.0987}}}
    (section, *_) = sections(SUITE, results(tmp_path, Setting(), measured))
    text = markdown([section], [])
    assert "**46%**" in text
    assert "- matmul rate of the same processes, float32: 99 to 99 GFLOP/s\n- of matmul rate: operations" in text


def test_results_without_cold_times_are_told_hot(tmp_path: Path) -> None:
    for result in (each for each in results(tmp_path, Setting()) if not each.error):
        for numbers in (of["numbers"] for of in result.outcomes.values()):
            numbers.pop("milliseconds_cold", None)
        write_speed_result(result.run, tmp_path, {"outcomes": result.outcomes}, 1.0)
    (section, *_) = sections(SUITE, load_speed_results(tmp_path)[0])
    assert "| 512×64 · eager | 10 | - | 7 | 2.50 | - | - | ≥ 3× missed; cold ≥ 2× | - |" in markdown([section], [])
    assert Point(512, 2.5, 3) in points(section)["eager"]


@pytest.mark.parametrize(("large", "verdict"), [(7.9, "reached"), (8.1, "missed")])
def test_growth_for_twice_the_pairs_is_shown(large: float, verdict: str, tmp_path: Path) -> None:
    sizes = {64: 1.0, 128: 2.0, 256: large, 1024: 99.0}
    cases = tuple(case("nt-xent", rows, 8) for rows in sizes)
    task = SpeedTask(name="grow", summary="", quantity="time", profiles={"quick": (*cases, case("macl", 256, 8))})
    suite = SpeedSuite(name="race", summary="", tasks=(task,))
    written = [
        write_speed_result(
            SpeedRun("race", "quick", each, Setting()),
            tmp_path,
            {"outcomes": {name: outcome(each, sizes[each.rows] * 9) for name in each.implementations}},
            1.0,
        )
        for each in task.profiles["quick"]
    ]
    (section,) = sections(suite, written)
    said = f"growth for twice the pairs: {large / 2:.2f} times at most (nt-xent 128×8 to nt-xent 256×8)"
    assert f"{said}; wanted is at most 4: {verdict}" in remarks(section)


def test_a_loss_that_differs_is_called_out(tmp_path: Path) -> None:
    measured = {"nt-xent-512x64": {"lightly": {"loss": 1.6}, "eager": {"loss": 1.5001}}}
    (section, *_) = sections(SUITE, results(tmp_path, Setting(), measured))
    assert "not the same loss: nt-xent-512x64: lightly 1.6, tempplug 1.5" in remarks(section)


def test_any_folder_of_an_output_can_be_reported(tmp_path: Path) -> None:
    written = results(tmp_path, Setting())
    folder = written[0].run.path(tmp_path).parent
    for _ in range(3):
        assert len(load_speed_results(folder)[0]) == len(written)
        folder = folder.parent
    assert folder == tmp_path


def test_points_have_the_ratio_and_what_is_wanted(found: tuple[Section, ...]) -> None:
    assert points(found[0]) == {
        "eager": [Point(32, 2.5 / 2.4, None), Point(512, 2.0, 2)],
        "lightly": [Point(512, 1236.5 / 6, None)],
        "compiled": [Point(512, 10 / 6, None)],
    }, "cold, as a training meets it"
    assert list(points(found[2])) == ["eager, τ=0.02", "eager, τ=0.1"]


def test_the_plot_has_panels_for_sizes_and_a_list_for_the_rest(found: tuple[Section, ...], tmp_path: Path) -> None:
    for name in ("speed.svg", "speed.png"):
        assert draw(found, tmp_path / "deep" / name)
    picture = (tmp_path / "deep" / "speed.svg").read_text(encoding="utf-8")
    for words in ("race / quick / cpu-1-thread", "N, pairs in a batch", "hold, N=512: eager", "hit, N=64: eager, τ=0.02"):
        assert f"<!-- {words}" in picture
    assert (tmp_path / "deep" / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert not draw([], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
