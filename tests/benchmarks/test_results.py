from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from run_checks import write_failure, write_result

from tempplug.errors import DataError
from tempplug_benchmarks.report.comparison import compare
from tempplug_benchmarks.results import load_results, paired_difference, summarise
from tempplug_benchmarks.run.plan import plan

# Two-sided 95 % points of Student's t, from printed tables.
T_2, T_1 = 4.302653, 12.706205


def test_mean_and_sample_deviation() -> None:
    # deviations -3, -1, 4: squares sum to 26, divided by 2
    summary = summarise({0: 70.0, 1: 72.0, 2: 77.0})
    assert summary.mean == 73
    assert summary.std == pytest.approx(13**0.5)
    assert summary.count == 3
    assert summarise({5: 70.0}).std is None


def test_paired_difference_with_its_t_interval() -> None:
    # differences 1, 0, 4: mean 5/3, sample variance 13/3, so half the width is t · sqrt(13/3) / sqrt(3) = t · sqrt(13) / 3
    difference = paired_difference({0: 70.0, 1: 72.0, 2: 77.0}, {0: 69.0, 1: 72.0, 2: 73.0})
    assert difference is not None
    assert difference.low is not None
    assert difference.high is not None
    half = T_2 * 13**0.5 / 3
    assert difference.mean == pytest.approx(5 / 3)
    assert (difference.low, difference.high) == pytest.approx((5 / 3 - half, 5 / 3 + half), rel=1e-6)
    assert difference.count == 3


def test_only_common_seeds_are_paired() -> None:
    # seeds 1 and 2: differences 2 and 4, mean 3, deviation sqrt(2)
    difference = paired_difference({0: 99.0, 1: 3.0, 2: 5.0}, {1: 1.0, 2: 1.0, 7: 50.0})
    assert difference is not None
    assert difference.high is not None
    assert (difference.mean, difference.count) == (3, 2)
    assert difference.high == pytest.approx(3 + T_1, rel=1e-6)
    single = paired_difference({0: 2.0}, {0: 1.5})
    assert single is not None
    assert (single.mean, single.low, single.high, single.count) == (0.5, None, None, 1)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_a_comparison_sets_reported_beside_measured(toy: ModuleType, tmp_path: Path) -> None:
    runs = plan(toy.SUITE, "quick", [0, 1], strategies=["all", "temperature-free"])
    for run in runs[:-1]:
        write_result(run, tmp_path, {"STSB": 70.0 + run.seed + len(run.arm.label), "error": 0.5}, seconds=1)
    write_failure(runs[-1], tmp_path, "it broke", "")
    (comparison,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    rows = {row.label: row for row in comparison.rows}
    assert list(rows) == ["fixed+infonce", "macl+infonce", "fixed+dcl", "temperature-free+infonce"]
    assert rows["fixed+infonce"].differences == {}
    assert rows["fixed+dcl"].differences["STSB"].mean == -4
    assert rows["macl+infonce"].reported[0].cells["STSB"].value == 77.69
    assert rows["temperature-free+infonce"].summaries["STSB"].count == 1
    assert [failure.seed for failure in rows["temperature-free+infonce"].failures] == [1]


def test_results_of_different_recipes_are_never_averaged(toy: ModuleType, tmp_path: Path) -> None:
    for seed, steps in ((0, 10), (1, 20)):
        run = plan(toy.make_suite(steps=steps), "quick", [seed])[0]
        write_result(run, tmp_path, {"STSB": 70.0, "error": 0.5}, seconds=1)
    with pytest.raises(DataError, match=r"of different experiments \(they differ in recipe\)"):
        compare(load_results(tmp_path), {"toy": toy.SUITE})


def test_one_label_must_mean_one_strategy(toy: ModuleType, tmp_path: Path) -> None:
    for seed in (0, 1):
        run = next(run for run in plan(toy.SUITE, "quick", [seed]) if run.arm.label == "fixed+infonce")
        content = write_result(run, tmp_path, {"STSB": 70.0, "error": 0.5}, seconds=1)
        path = run.path(tmp_path)
        path.write_text(path.read_text().replace(f'"{content.strategy}"', f'"macl:alpha={seed}"'))
    with pytest.raises(DataError, match=r"they differ in strategy"):
        compare(load_results(tmp_path), {"toy": toy.SUITE})


def test_a_folder_without_results_is_an_error_and_a_broken_file_a_message(toy: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no results"):
        load_results(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        load_results(tmp_path / "absent")
    run = plan(toy.SUITE, "quick", [0])[0]
    write_result(run, tmp_path, {"STSB": 70.0, "error": 0.5}, seconds=1)
    broken = run.path(tmp_path).with_name("seed-9.json")
    broken.write_text("{")
    loaded = load_results(tmp_path)
    assert len(loaded.results) == 1
    assert [str(broken) in problem for problem in loaded.problems] == [True]


def test_any_folder_of_an_output_can_be_reported(toy: ModuleType, tmp_path: Path) -> None:
    run = plan(toy.SUITE, "quick", [0])[0]
    write_result(run, tmp_path, {"STSB": 70.0, "error": 0.5}, seconds=1)
    unfinished = run.work_dir(tmp_path)
    unfinished.mkdir()
    (unfinished / "metrics.json").write_text("{}")
    folder = run.path(tmp_path)
    for _ in range(4):
        folder = folder.parent
        assert len(load_results(folder).results) == 1
    assert folder == tmp_path / "toy"
