from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from run_checks import write_result
from scipy import stats

from tempplug_benchmarks.kinds import reports
from tempplug_benchmarks.report.comparison import Comparison, check_known, compare
from tempplug_benchmarks.report.significance import Comparable, detectable, has_signal, holm, judge, p_value
from tempplug_benchmarks.report.tables import headline, remarks
from tempplug_benchmarks.results import Loaded, load_results, over_samples, paired_difference
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.suite import Suite

SEEDS = range(5)


def difference(mine: list[float], theirs: list[float]):
    found = paired_difference(dict(enumerate(mine)), dict(enumerate(theirs)))
    assert found is not None
    return found


def test_p_is_that_of_the_paired_t_test() -> None:
    generator = random.Random(1)
    for count in (2, 3, 10):
        mine, theirs = ([generator.gauss(level, 1) for _ in range(count)] for level in (0.5, 0))
        assert p_value(difference(mine, theirs)) == pytest.approx(stats.ttest_rel(mine, theirs).pvalue, abs=1e-12)
    assert p_value(difference([1.0], [0.0])) is None
    assert (p_value(difference([1.0, 2.0], [1.0, 2.0])), p_value(difference([2.0, 3.0], [1.0, 2.0]))) == (1.0, 0.5)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_seeds_that_all_differ_by_the_same_are_as_sure_as_their_signs(count: int) -> None:
    """By 1/60 at every seed, which is no zero deviation to the last bit."""
    same = difference([3.7**seed - 1 / 60 for seed in range(count)], [3.7**seed for seed in range(count)])
    assert p_value(same) == pytest.approx(stats.binomtest(0, count).pvalue)
    assert detectable(same, 1) is None
    assert judge({"same": Comparable(same, True, True)})["same"].verdict == ("worse" if count == 6 else "underpowered")


def test_holm_rejects_what_the_step_down_procedure_rejects() -> None:
    generator = random.Random(2)
    for _ in range(200):
        p_values = [generator.random() ** 4 for _ in range(generator.randint(1, 6))]
        rejected = set()
        for rank, position in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if p_values[position] >= 0.05 / (len(p_values) - rank):
                break
            rejected.add(position)
        assert {each for each, p in enumerate(holm(p_values)) if p < 0.05} == rejected


@pytest.mark.parametrize("comparisons", [1, 8])
def test_the_detectable_difference_is_found_four_times_in_five(comparisons: int) -> None:
    generator = np.random.default_rng(3)
    one = difference(list(generator.normal(size=12)), [0.0] * 12)
    true = detectable(one, comparisons)
    assert true is not None
    assert one.deviation is not None
    drawn = generator.normal(true, one.deviation, size=(20_000, 12))
    found = stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05 / comparisons
    assert 0.75 < found.mean() < 0.85


def test_the_verdict_follows_the_corrected_p() -> None:
    zeros = [0.0] * 5
    clear, faint = difference([1.0, 1.02, 0.98, 1.0, 1.0], zeros), difference([1.0, 1.6, 0.4, 1.5, 0.5], zeros)
    assert p_value(faint) == pytest.approx(0.0151, abs=1e-3)
    many = {f"arm {number}": Comparable(difference([1.0, -1.0, 0.1, 0.0, 0.0], zeros), True, None) for number in range(6)}
    family = {"clear": Comparable(clear, False, True), "faint": Comparable(faint, True, True), **many}
    found = judge(family)
    assert (found["clear"].verdict, found["faint"].verdict) == ("worse", "no difference seen")
    assert judge({"faint": Comparable(faint, True, True)})["faint"].verdict == "better"
    assert judge({"clear": Comparable(clear, True, False)})["clear"].verdict == "no signal"
    assert judge({"alone": Comparable(difference([1.0], [0.0]), True, None)})["alone"].verdict == "one seed"
    five = difference([1.0, -1.0, 0.5, -0.5, 0.1], zeros)
    assert judge({"five": Comparable(five, True, True)})["five"].verdict == "no difference seen"


@pytest.mark.parametrize("sign", [1, -1])
def test_better_and_worse_alike_want_five_seeds_and_a_difference_that_matters(sign: int) -> None:
    news = "better" if sign > 0 else "worse"

    def verdict(values: list[float], smallest: float) -> str:
        found = difference([sign * each for each in values], [0.0] * len(values))
        p = p_value(found)
        assert p is not None
        assert p < 0.001
        return judge({"arm": Comparable(found, True, True, smallest)})["arm"].verdict

    clear = [0.0998, 0.1, 0.1002, 0.1001, 0.0999]  # mean 0.1
    assert verdict(clear[:4], 0.0) == "underpowered"
    assert verdict(clear, 0.0) == verdict(clear, 0.0999) == news
    assert verdict(clear, 0.1001) == "too small"


def test_p_is_multiplied_by_the_looks_before_holm() -> None:
    family = {
        "often": ([1.0, 1.6, 0.4, 1.5, 0.5], 3),
        "once": ([1.0, 1.7, 0.3, 1.5, 0.5], 1),
        "chance": ([1.0, -1.0, 0.1, 0.0, 0.0], 30),
    }
    p = {name: float(stats.ttest_1samp(values, 0).pvalue) for name, (values, _) in family.items()}
    found = judge(
        {name: Comparable(difference(values, [0.0] * 5), True, True, 0.0, looks) for name, (values, looks) in family.items()}
    )
    # of the three the smallest p is that of "often", after its looks that of "once"
    assert p["often"] < p["once"] < 3 * p["often"]
    expected = {"once": 3 * p["once"], "often": 2 * 3 * p["often"], "chance": 1.0}
    assert {name: each.adjusted for name, each in found.items()} == pytest.approx(expected)
    assert found["often"].p == pytest.approx(p["often"])
    assert found["often"].detectable == detectable(difference(family["often"][0], [0.0] * 5), 9)


def test_looks_stand_beside_the_arms_and_are_told(toy: ModuleType, tmp_path: Path) -> None:
    scores = {"fixed+infonce": 70.0, "macl+infonce": 70.3}
    once = _measured(toy, tmp_path, scores, dict.fromkeys(scores, 0.5))
    (folder,) = tmp_path.glob("*/*/*/")
    looks = [{"date": "2026-11-20", "seeds": "0 to 2"}, {"date": "2026-11-22", "seeds": "3 and 4"}]
    (folder / "looks.json").write_text(json.dumps({"format": 1, "looks": looks}))
    for inside in (tmp_path, folder, folder / "macl-infonce"):
        assert len(reports(inside)) == 1, "it is taken for a result of speed"
        assert load_results(inside).looks.keys() == {("toy", "small", "toy-task")}
    (twice,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    p = {len(each.looks): row.significance for each in (once, twice) for row in each.rows if row.significance}
    assert p[2].adjusted == pytest.approx(2 * (p[0].adjusted or 0))
    assert ("Holm p" in headline(once).header, "Holm p, 2 looks" in headline(twice).header) == (True, True)
    told = "looks: 2, by which each p is multiplied before Holm's correction: 2026-11-20 0 to 2; 2026-11-22 3 and 4"
    assert told in remarks(twice)
    assert not [line for line in remarks(once) if line.startswith("looks")]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"format": 1}', '{"format": 1, "looks": []}', '{"format": 1, "looks": [{"date": "today"}]}']
)
def test_results_whose_looks_cannot_be_read_are_left_out(toy: ModuleType, tmp_path: Path, content: str) -> None:
    scores = {"fixed+infonce": 70.0, "macl+infonce": 70.3}
    _measured(toy, tmp_path, scores, dict.fromkeys(scores, 0.5))
    (folder,) = tmp_path.glob("*/*/*/")
    (folder / "looks.json").write_text(content)
    found = load_results(tmp_path)
    assert found.results == ()
    (problem,) = found.problems
    assert "looks.json" in problem


def test_a_baseline_has_a_signal_where_it_is_clearly_better_than_no_training() -> None:
    clear = difference([1.0, 1.1, 0.9], [0.0, 0.0, 0.0])
    assert has_signal(clear, higher_is_better=True) is True
    assert has_signal(clear, higher_is_better=False) is False
    assert has_signal(difference([1.0, -1.0, 0.5], [0.0] * 3), higher_is_better=True) is False
    assert has_signal(difference([1.0], [0.0]), higher_is_better=True) is None
    assert has_signal(None, higher_is_better=True) is None


def _measured(toy: ModuleType, tmp_path: Path, scores: dict[str, float], errors: dict[str, float]) -> Comparison:
    for run in plan(toy.SUITE, "small", SEEDS, strategies=list(scores)):
        noise = random.Random(f"{run.arm.label} {run.seed}").gauss(0, 0.1)
        metrics = {"STSB": scores[run.arm.label] + noise, "error": errors[run.arm.label]}
        write_result(run, tmp_path, metrics, seconds=1)
    (found,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    return found


def test_the_baseline_is_the_fixed_temperature_that_validation_chose(toy: ModuleType, tmp_path: Path) -> None:
    scores = {"fixed+infonce": 70.0, "fixed:temperature=0.5+infonce": 71.0, "fixed+dcl": 90.0, "macl+infonce": 71.5}
    errors = {"fixed+infonce": 0.3, "fixed:temperature=0.5+infonce": 0.2, "fixed+dcl": 0.1, "macl+infonce": 0.0}
    declared = _measured(toy, tmp_path, scores, errors)
    assert (declared.baseline, declared.chosen) == ("fixed+infonce", False)
    task = replace(
        toy.SUITE.tasks[0], profiles={"small": replace(toy.SUITE.tasks[0].profiles["small"], validation="error")}, quickstart=()
    )
    (chosen,) = compare(load_results(tmp_path), {"toy": Suite("toy", "validated", (task,))})
    # the lower error, though dcl's is lower still: another objective is not another temperature
    assert (chosen.baseline, chosen.chosen) == ("fixed:temperature=0.5+infonce", True)
    macl = next(row for row in chosen.rows if row.label == "macl+infonce")
    assert macl.differences["STSB"].mean == pytest.approx(0.5, abs=0.2)
    assert "baseline: fixed:temperature=0.5+infonce, the best of the fixed temperatures by error" in remarks(chosen)


def test_what_was_measured_without_validation_is_reported_and_chooses_nothing(toy: ModuleType, tmp_path: Path) -> None:
    scores = {"fixed+infonce": 70.0, "fixed:temperature=0.5+infonce": 71.0, "macl+infonce": 71.5}
    _measured(toy, tmp_path, scores, dict.fromkeys(scores, 0.1) | {"fixed:temperature=0.5+infonce": 0.05})
    small = replace(toy.SUITE.tasks[0].profiles["small"], validation="error")
    suite = Suite("toy", "validated", (replace(toy.SUITE.tasks[0], profiles={"small": small}, quickstart=()),))

    def compared() -> Comparison:
        (found,) = compare(load_results(tmp_path, lambda entry: check_known(entry, suite)), {"toy": suite})
        return found

    assert (compared().baseline, compared().chosen) == ("fixed:temperature=0.5+infonce", True)
    for path in tmp_path.rglob("fixed-infonce/seed-*.json"):
        content = json.loads(path.read_text())
        del content["metrics"]["error"]
        path.write_text(json.dumps(content))
    assert (compared().baseline, compared().chosen) == ("fixed+infonce", False)
    first = compared().rows[0]
    assert (first.label, list(first.summaries)) == ("fixed+infonce", ["STSB"])
    assert "baseline: fixed+infonce, as declared, not chosen on validation data" in remarks(compared())
    content["metrics"] = {"error": 0.5}
    path.write_text(json.dumps(content))
    assert "it again" in load_results(tmp_path, lambda entry: check_known(entry, suite)).problems[0]


def test_samples_of_the_test_data_give_the_interval_of_these_very_runs(toy: ModuleType, tmp_path: Path) -> None:
    chance = np.random.default_rng(4)
    samples: dict[str, list[list[float]]] = {"fixed+infonce": [], "macl+infonce": []}
    for run in plan(toy.SUITE, "quick", [0, 1, 2], strategies=list(samples)):
        shared = np.random.default_rng(run.seed).normal(70, 3, 40)  # what both find hard in a sample
        values = (shared + chance.normal(0.5 * (run.arm.label == "macl+infonce"), 0.2, 40)).tolist()
        noted = {"STSB": values} if run.seed < 2 else {}
        samples[run.arm.label] += noted.values()
        write_result(run, tmp_path, {"STSB": values[0], "error": 0.1}, 1, resampled=noted)
    (found,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    rows = {row.label: row.over_samples for row in found.rows}
    differences = np.mean(np.array(samples["macl+infonce"]) - np.array(samples["fixed+infonce"]), axis=0)
    low, high = np.percentile(differences, [2.5, 97.5])
    assert rows == {"fixed+infonce": None, "macl+infonce": pytest.approx((low, high))}
    assert 0 < low < high < 1.2, "paired, what both find hard has no part in it"
    told = f"minus baseline over samples of the test data, these runs alone, 95 %: macl+infonce [{low:+.2f}, {high:+.2f}]"
    assert told in remarks(found)
    assert over_samples({0: [1.0, 2.0]}, {1: [1.0, 2.0]}) is None
    assert over_samples({0: [1.0, 2.0]}, {0: [1.0, 2.0, 3.0]}) is None


def test_untrained_arms_are_of_no_family_and_say_whether_there_is_a_signal(toy: ModuleType, tmp_path: Path) -> None:
    scores = {"untrained": 70.0, "fixed+infonce": 70.0, "macl+infonce": 75.0}
    found = _measured(toy, tmp_path, scores, dict.fromkeys(scores, 0.5))
    rows = {row.cells[0]: row for row in headline(found).rows}
    assert found.signal is False
    assert (rows["macl+infonce"].cells[4], rows["macl+infonce"].tone) == ("no signal", "")
    assert rows["untrained"].cells[4] == "-"
    assert "signal: the baseline is not clearly better than what was not trained" in remarks(found)


def test_tasks_of_one_family_are_corrected_together(toy: ModuleType, tmp_path: Path) -> None:
    first = toy.SUITE.tasks[0]
    for together, expected in (("all", 2.0), ("", 1.0)):
        tasks = tuple(replace(first, name=name, family=together) for name in ("one", "two"))
        suite = Suite("toy", "two tasks", tasks)
        for run in plan(suite, "quick", [0, 1, 2], strategies=["macl+infonce"]):
            metrics = {"STSB": random.Random(f"{run.task.name} {run.arm.label} {run.seed}").random(), "error": 0.0}
            write_result(run, tmp_path / (together or "each"), metrics, seconds=1)
        loaded: Loaded = load_results(tmp_path / (together or "each"))
        found = [row.significance for each in compare(loaded, {"toy": suite}) for row in each.rows if row.significance]
        assert len(found) == 2
        smallest = min(found, key=lambda each: each.p or 0)
        assert smallest.p is not None
        assert smallest.adjusted == pytest.approx(min(1.0, expected * smallest.p))
