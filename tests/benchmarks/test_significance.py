"""Verdicts: paired t tests over seeds, corrected for looks and families, and the choice of a baseline on validation data."""

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

from tempplug_benchmarks.command import reports
from tempplug_benchmarks.report.comparison import Comparison, check_known, compare
from tempplug_benchmarks.report.significance import Comparable, detectable, has_signal, holm, judge, p_value
from tempplug_benchmarks.report.tables import conclusion, headline, remarks
from tempplug_benchmarks.results import Difference, load_results, over_samples, paired_difference
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.suite import Suite


def difference(mine: list[float], theirs: list[float] | None = None) -> Difference:
    """The paired difference to ``theirs``, to zeros by default."""
    found = paired_difference(dict(enumerate(mine)), dict(enumerate(theirs or [0.0] * len(mine))))
    assert found is not None
    return found


def verdict(found: Difference, higher: bool = True, signal: bool | None = True, smallest: float = 0.0) -> str:
    return judge({"arm": Comparable(found, higher, signal, smallest)})["arm"].verdict


def test_p_is_that_of_the_paired_t_test() -> None:
    generator = random.Random(1)
    for count in (2, 3, 10):
        mine, theirs = ([generator.gauss(level, 1) for _ in range(count)] for level in (0.5, 0))
        assert p_value(difference(mine, theirs)) == pytest.approx(stats.ttest_rel(mine, theirs).pvalue, abs=1e-12)
    assert p_value(difference([1.0])) is None
    assert p_value(difference([1.0, 2.0], [1.0, 2.0])) == 1.0
    # by 1/60 at every seed, which is no zero deviation to the last bit: as sure as the signs
    for count in (2, 3, 6):
        same = difference([3.7**seed - 1 / 60 for seed in range(count)], [3.7**seed for seed in range(count)])
        assert p_value(same) == pytest.approx(stats.binomtest(0, count).pvalue)
        assert detectable(same, 1) is None
        assert verdict(same) == ("worse" if count == 6 else "underpowered")


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
    one = difference(list(generator.normal(size=12)))
    true = detectable(one, comparisons)
    assert true is not None
    assert one.deviation is not None
    drawn = generator.normal(true, one.deviation, size=(20_000, 12))
    found = stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05 / comparisons
    assert 0.75 < found.mean() < 0.85


def test_the_verdict_follows_the_corrected_p() -> None:
    clear, faint = difference([1.0, 1.02, 0.98, 1.0, 1.0]), difference([1.0, 1.6, 0.4, 1.5, 0.5])
    assert p_value(faint) == pytest.approx(0.0151, abs=1e-3)
    many = {f"arm {number}": Comparable(difference([1.0, -1.0, 0.1, 0.0, 0.0]), True, None) for number in range(4)}
    found = judge({"clear": Comparable(clear, False, True), "faint": Comparable(faint, True, True), **many})
    assert (found["clear"].verdict, found["faint"].verdict) == ("worse", "no difference seen")
    assert (verdict(faint), verdict(clear, signal=False)) == ("better", "no signal")
    assert verdict(difference([1.0]), signal=None) == "one seed"
    assert verdict(difference([1.0, -1.0, 0.5, -0.5, 0.1])) == "no difference seen"


@pytest.mark.parametrize(("sign", "news"), [(1, "better"), (-1, "worse")])
def test_better_and_worse_alike_need_five_seeds_and_a_difference_that_matters(sign: int, news: str) -> None:
    clear = [sign * each for each in (0.0998, 0.1, 0.1002, 0.1001, 0.0999)]  # mean 0.1
    assert (p_value(difference(clear[:4])) or 1) < 0.001
    assert verdict(difference(clear[:4])) == "underpowered"
    assert [verdict(difference(clear), smallest=least) for least in (0.0, 0.0999, 0.1001)] == [news, news, "too small"]


def test_p_is_multiplied_by_the_looks_before_holm() -> None:
    family = {
        "often": ([1.0, 1.6, 0.4, 1.5, 0.5], 3),
        "once": ([1.0, 1.7, 0.3, 1.5, 0.5], 1),
        "chance": ([1.0, -1.0, 0.1, 0.0, 0.0], 30),
    }
    p = {name: float(stats.ttest_1samp(values, 0).pvalue) for name, (values, _) in family.items()}
    found = judge({name: Comparable(difference(values), True, True, 0.0, looks) for name, (values, looks) in family.items()})
    # of the three the smallest p is that of "often", after its looks that of "once"
    assert p["often"] < p["once"] < 3 * p["often"]
    expected = {"once": 3 * p["once"], "often": 2 * 3 * p["often"], "chance": 1.0}
    assert {name: each.adjusted for name, each in found.items()} == pytest.approx(expected)
    assert found["often"].p == pytest.approx(p["often"])
    assert found["often"].detectable == detectable(difference(family["often"][0]), 9)


def test_a_baseline_has_a_signal_where_it_is_clearly_better_than_no_training() -> None:
    clear = difference([1.0, 1.1, 0.9])
    assert [has_signal(clear, higher_is_better=higher) for higher in (True, False)] == [True, False]
    assert has_signal(difference([1.0, -1.0, 0.5]), higher_is_better=True) is False
    assert [has_signal(each, higher_is_better=True) for each in (difference([1.0]), None)] == [None, None]


def measured(toy: ModuleType, folder: Path, scores: dict[str, float], errors: dict[str, float] | None = None) -> Comparison:
    """The comparison of five seeds of these arms, with scores that vary a little and errors that do not."""
    for run in plan(toy.SUITE, "small", range(5), strategies=list(scores)):
        noise = random.Random(f"{run.arm.label} {run.seed}").gauss(0, 0.1)
        metrics = {"STSB": scores[run.arm.label] + noise, "error": (errors or {}).get(run.arm.label, 0.5)}
        write_result(run, folder, metrics, seconds=1)
    (found,) = compare(load_results(folder), {"toy": toy.SUITE})
    return found


def test_looks_stand_beside_the_arms_and_correct_p(toy: ModuleType, tmp_path: Path) -> None:
    once = measured(toy, tmp_path, {"fixed+infonce": 70.0, "macl+infonce": 70.3})
    (folder,) = tmp_path.glob("*/*/*/")
    looks = [{"date": "2026-11-20", "seeds": "0 to 2"}, {"date": "2026-11-22", "seeds": "3 and 4"}]
    (folder / "looks.json").write_text(json.dumps({"format": 1, "looks": looks}))
    for inside in (tmp_path, folder, folder / "macl-infonce"):
        assert len(reports(inside)) == 1, "it is not taken for a result of the speed suite"
        assert load_results(inside).looks.keys() == {("toy", "small", "toy-task")}
    (twice,) = compare(load_results(tmp_path), {"toy": toy.SUITE})
    first, second = (row.significance for each in (once, twice) for row in each.rows if row.significance)
    assert second.adjusted == pytest.approx(2 * (first.adjusted or 0))
    assert ("Holm p" in headline(once).header, "Holm p, results read 2 times" in headline(twice).header) == (True, True)
    told = "results read 2 times, by which p is multiplied before Holm's correction: "
    told += "2026-11-20 0 to 2; 2026-11-22 3 and 4"
    assert [[line for line in remarks(each) if line.startswith("results read")] for each in (once, twice)] == [[], [told]]
    for content in ("{", "[]", '{"format": 1}', '{"format": 1, "looks": []}', '{"format": 1, "looks": [{"date": "today"}]}'):
        (folder / "looks.json").write_text(content)
        found = load_results(tmp_path)
        assert found.results == (), "a correction that is unknown"
        assert ["looks.json" in problem for problem in found.problems] == [True]


def test_the_baseline_is_the_fixed_temperature_that_validation_chose(toy: ModuleType, tmp_path: Path) -> None:
    scores = {"fixed+infonce": 70.0, "fixed:temperature=0.5+infonce": 71.0, "fixed+dcl": 90.0, "macl+infonce": 71.5}
    declared = measured(toy, tmp_path, scores, dict(zip(scores, (0.3, 0.2, 0.1, 0.0), strict=True)))
    assert (declared.baseline, declared.chosen) == ("fixed+infonce", False)
    small = replace(toy.SUITE.tasks[0].profiles["small"], validation="error")
    suite = Suite("toy", "validated", (replace(toy.SUITE.tasks[0], profiles={"small": small}, quickstart=()),))

    def compared() -> Comparison:
        (found,) = compare(load_results(tmp_path, lambda entry: check_known(entry, suite)), {"toy": suite})
        return found

    chosen = compared()
    # the lower error, though dcl's is lower still: another objective is not another temperature
    assert (chosen.baseline, chosen.chosen) == ("fixed:temperature=0.5+infonce", True)
    macl = next(row for row in chosen.rows if row.label == "macl+infonce")
    assert macl.differences["STSB"].mean == pytest.approx(0.5, abs=0.2)
    assert "baseline: fixed:temperature=0.5+infonce, the best of the fixed temperatures by error" in remarks(chosen)
    # what was measured before there was a validation metric is reported and chooses nothing
    for path in tmp_path.rglob("fixed-infonce/seed-*.json"):
        content = json.loads(path.read_text())
        del content["metrics"]["error"]
        path.write_text(json.dumps(content))
    without = compared()
    assert (without.baseline, without.chosen) == ("fixed+infonce", False)
    assert (without.rows[0].label, list(without.rows[0].summaries)) == ("fixed+infonce", ["STSB"])
    assert "baseline: fixed+infonce, as declared, not chosen on validation data" in remarks(without)
    path.write_text(json.dumps({**content, "metrics": {"error": 0.5}}))
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
    differences = np.mean(np.array(samples["macl+infonce"]) - np.array(samples["fixed+infonce"]), axis=0)
    low, high = np.percentile(differences, [2.5, 97.5])
    rows = {row.label: row.over_samples for row in found.rows}
    assert rows == {"fixed+infonce": None, "macl+infonce": pytest.approx((low, high))}
    assert 0 < low < high < 1.2, "paired, so that what both find hard has no part in it"
    told = f"minus baseline over samples of the test data, these runs alone, 95 %: macl+infonce [{low:+.2f}, {high:+.2f}]"
    assert told in remarks(found)
    assert over_samples({0: [1.0, 2.0]}, {1: [1.0, 2.0]}) is None
    assert over_samples({0: [1.0, 2.0]}, {0: [1.0, 2.0, 3.0]}) is None


def test_untrained_arms_are_of_no_family_and_say_whether_there_is_a_signal(toy: ModuleType, tmp_path: Path) -> None:
    found = measured(toy, tmp_path, {"untrained": 70.0, "fixed+infonce": 70.0, "macl+infonce": 75.0})
    rows = {row.cells[0]: (row.cells[4], row.tone) for row in headline(found).rows}
    assert found.signal is False
    assert (rows["macl+infonce"], rows["untrained"]) == (("no signal", ""), ("-", ""))
    assert "signal: the baseline is not clearly better than what was not trained" in remarks(found)


def test_an_auxiliary_loss_is_judged_against_the_training_without_it(toy: ModuleType, tmp_path: Path) -> None:
    trained = measured(toy, tmp_path, {"untrained": 50.0, "macl+infonce": 70.0, "fixed+infonce": 70.0})
    suite = replace(toy.SUITE, tasks=(replace(toy.SUITE.tasks[0], without="macl+infonce"), *toy.SUITE.tasks[1:]))
    (without,) = compare(load_results(tmp_path), {"toy": suite})
    assert (trained.signal, without.signal) == (True, False)
    assert conclusion(without).startswith(
        "No signal: fixed+infonce is not clearly better than macl+infonce, the training without"
    )


def test_tasks_of_one_family_are_corrected_together(toy: ModuleType, tmp_path: Path) -> None:
    for family, factor in (("all", 2.0), ("", 1.0)):
        tasks = tuple(replace(toy.SUITE.tasks[0], name=name, family=family) for name in ("one", "two"))
        suite, folder = Suite("toy", "two tasks", tasks), tmp_path / (family or "each")
        for run in plan(suite, "quick", [0, 1, 2], strategies=["macl+infonce"]):
            metrics = {"STSB": random.Random(f"{run.task.name} {run.arm.label} {run.seed}").random(), "error": 0.0}
            write_result(run, folder, metrics, seconds=1)
        comparisons = compare(load_results(folder), {"toy": suite})
        found = [row.significance for each in comparisons for row in each.rows if row.significance]
        smallest = min(found, key=lambda each: each.p or 0)
        assert len(found) == 2
        assert smallest.adjusted == pytest.approx(min(1.0, factor * (smallest.p or 0)))
