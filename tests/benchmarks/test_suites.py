"""What holds for every suite that trains."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from suite_checks import PROFILES, SUITES, bench as main

from tempplug.arguments import parse_spec
from tempplug_benchmarks import profile as profiles
from tempplug_benchmarks.arm import UNTRAINED, Arm, resolve
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import plan, slug
from tempplug_benchmarks.run.store import difference_from, read_result
from tempplug_benchmarks.run.tuning import controls
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.training import QUICKSTART_SEEDS

PAPERS = ("node", "graph", "molecule", "bias", "vision", "long_tail", "anomaly", "recommendation")
SENTENCE_TASKS = ("supervised", "unsupervised", "unsupervised-roberta", "transfer", "transfer-roberta")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_every_profile_is_complete() -> None:
    for where, task, name, profile in PROFILES:
        meant = {(resolve(arm, profile.recipe), json.dumps(dict(arm.changes))) for arm in profile.arms}
        assert len(meant) == len(profile.arms), f"two arms of {where} are the same"
        assert len({slug(arm.label) for arm in profile.arms}) == len(profile.arms), where
        assert UNTRAINED in profile.arms, where
        assert type(profile.recipe) is type(next(iter(task.method.recipes.values()))), where
        assert all(metric.summary for metric in profile.metrics), where
        assert profile.primary_metric().smallest_difference == (0.5 if where.startswith("retrieval/") else 0.1), where
        assert not re.search(r"\d,\d{3}|\d x \d", task.summary), f"{where}: profiles differ in that"
        assert (profile.stands_in == "digits") == ("digits" in profile.dataset), where
        if name == "quick":  # generates its data, of which papers say nothing
            reported = any(arm.reported for arm in profile.arms)
            assert (bool(profile.stands_in), profile.needs, reported) == (True, (), False), where
        json.dumps(profile.settings(), allow_nan=False)


def test_every_profile_has_temperatures_to_choose_among_by_validation() -> None:
    without = {where for where, *_, profile in PROFILES if not profile.validation}
    # one-class training has no validation; generated sentences have one set of pairs; SDCLR's lists hold nothing out, nor does
    # DySTreSS's recipe
    assert {where for where in without if not where.startswith("anomaly/")} == {
        *(f"sentence/{task}/quick" for task in SENTENCE_TASKS),
        "retrieval/paraphrases/quick",
        "long-tail/imagenet-100-lt/paper",
        *(f"long-tail/cifar{classes}-lt-dystress/paper" for classes in (10, 100)),
    }
    for where, task, name, profile in PROFILES:
        if name not in task.by_name:  # a paper's table has the temperature of the paper
            objective = task.baseline.rpartition("+")[2]
            fixed = [arm for arm in profile.arms if re.fullmatch(rf"fixed:temperature=[0-9.]+\+{objective}", arm.label)]
            assert len(fixed) >= 4, where


def test_plans_of_all_profiles_resolve() -> None:
    for suite, profile in itertools.product(SUITES, profiles.PROFILES):
        expected = sum(len(task.profile(profile).arms) for task in suite.default_tasks(profile))
        assert len(plan(suite, profile, [0])) == expected > 0


def test_the_quickstart_is_small_and_has_wrong_temperatures_beside_adaptive_strategies() -> None:
    found = [(suite, task) for suite in SUITES for task in suite.default_tasks("quick") if task.quickstart]
    assert [suite.name for suite, _ in found] == ["sentence", "vision"]
    runs = [run for suite, task in found for run in plan(suite, "quick", QUICKSTART_SEEDS, [task.name], task.quickstart)]
    assert len(runs) == 70
    for _, task in found:
        assert UNTRAINED.label in task.quickstart
        specs = [parse_spec(Arm(label).parts[0]) for label in task.quickstart if Arm(label).parts]
        assert len({name for name, _ in specs} - {"fixed"}) >= 3
        low, middle, high = sorted(float(options["temperature"]) for name, options in specs if name == "fixed")
        assert task.baseline.startswith(f"fixed:temperature={middle:g}+")
        assert 5 * low <= middle <= high / 5


def test_reported_rows_are_of_their_arms_and_every_cell_has_one() -> None:
    answered: dict[str, set[tuple[str, ...]]] = {}
    for _, task, _, profile in PROFILES:
        for arm, row in ((each, row) for each in profile.arms for row in each.reported):
            answered.setdefault(task.papers, set()).add((row.paper, row.table, row.method, row.dataset))
            specs, cells = resolve(arm, profile.recipe), load(task.papers).row(row)
            assert cells.keys() & {metric.name for metric in profile.metrics}
            for cell in cells.values():
                strategy, options = parse_spec(str(specs.strategy))
                objective = str(specs.objective).partition(":")[0]
                ours = {"strategy": strategy, "objective": objective, **options}
                assert cell.settings.items() >= {("strategy", strategy)}
                assert all(cell.settings[key] == ours[key] for key in cell.settings.keys() & ours.keys()), (row, cell)
    for papers in PAPERS:
        assert answered[papers] == {(cell.paper, cell.table, cell.method, cell.dataset) for cell in load(papers).cells}


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_committed_results_are_of_what_the_suite_means_now(suite: Suite) -> None:
    """A setting must not change unnoticed where results were measured with another one."""
    results = {result.key: result for result in load_results(RESULTS / suite.name).results}
    own = {key: result for key, result in results.items() if Arm(result.arm).installed}
    assert own
    assert {key[3] for key in results.keys() - own.keys()} <= {"target-probability+infonce"}, "the strategy of a study"
    for key, result in own.items():
        # an arm may have been named beside those of the suite, and a control follows from another one's result
        controlled = Arm(result.arm).controlled
        planned = plan(suite, result.profile, [result.seed], [result.task], [controlled or result.arm])
        if controlled:
            planned, _ = controls(planned, [results[*key[:3], controlled, result.seed]])
        (run,) = (run for run in planned if run.key == key)
        difference = difference_from(run, result)
        assert not difference, f"{key} was measured otherwise, run it again or change the suite back: {difference}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "task", "strategies", "metric", "low"),
    [
        ("node", "citeseer", "schedule", "F1-micro 10/10/80", 60),
        ("graph", "mutag", "macl+dcl", "accuracy", 85),
        ("molecule", "sider", "untrained", "ROC-AUC", 70),
        ("sentence", "supervised", "macl", "similarity", 65),
        ("sentence", "transfer", "untrained", "TREC", 20),
        ("retrieval", "paraphrases", "dystress", "nDCG@10", 40),
        ("bias", "mabel", "temperature-free", "LM", 80),
        ("vision", "cifar10", "amcl", "kNN", 30),
        ("long-tail", "cifar10-lt", "head-tail", "kNN@1", 30),
        ("anomaly", "ship", "temperature-free", "ROC-AUC", 50),
        ("recommendation", "reddit", "temperature-free sasrec", "HR@10 full", 50),
    ],
)
def test_the_quick_profile_trains_and_measures(
    suite: str, task: str, strategies: str, metric: str, low: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = strategies.split()
    words = ["run", suite, "--tasks", task, "--seeds", "0", "--strategies", *named, "--output", str(tmp_path)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert re.search(rf"^{suite} / {task}( \(on [\w ]+\))? / quick ", captured.out, re.MULTILINE)
    assert len(captured.err.splitlines()) == 1 + len(named), "one line a run: the frameworks' own talk is kept away"
    found = [read_result(path).metrics for path in sorted((tmp_path / suite).rglob("seed-0.json"))]
    assert len(found) == 1 + len(named)
    for metrics in found:
        assert low < metrics[metric] <= 100
    assert len({json.dumps(dict(metrics)) for metrics in found}) == len(found), "every arm has learnt something else"
    assert not list(tmp_path.rglob("*.work")), "checkpoints are deleted after the run"
