"""What holds for every suite that trains."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from suite_checks import PROFILES, SUITES
from suite_checks import bench as main

from tempplug.arguments import parse_spec
from tempplug_benchmarks import profile as profiles
from tempplug_benchmarks.arm import UNTRAINED, Arm, resolve
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.profile import Profile
from tempplug_benchmarks.run.controls import controls
from tempplug_benchmarks.run.plan import plan, slug
from tempplug_benchmarks.run.store import difference_from, read_result
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task
from tempplug_benchmarks.training import QUICKSTART_SEEDS

SENTENCE_TASKS = ("supervised", "unsupervised", "unsupervised-roberta", "transfer", "transfer-roberta")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
each_suite = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
each_profile = pytest.mark.parametrize(
    ("task", "name", "profile"), [each[1:] for each in PROFILES], ids=[each[0] for each in PROFILES]
)


def test_importing_the_suites_loads_no_framework() -> None:
    heavy = {"torch", "torch_geometric", "transformers", "sklearn", "scipy", "rdkit", "kornia", "PIL"}
    names = ", ".join(f"tempplug_benchmarks.tasks.{suite.name.replace('-', '_')}" for suite in SUITES)
    code = f"import sys, {names}; print(sorted({heavy} & sys.modules.keys()))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


@pytest.mark.slow
@each_profile
def test_every_profile_is_complete(task: Task, name: str, profile: Profile) -> None:
    meant = {(resolve(arm, profile.recipe), json.dumps(dict(arm.changes))) for arm in profile.arms}
    assert len(meant) == len(profile.arms), "two arms are the same"
    assert len({slug(arm.label) for arm in profile.arms}) == len(profile.arms)
    assert type(profile.recipe) is type(next(iter(task.method.recipes.values())))
    assert not profile.needs or name != "quick", "the quick profile generates its data"
    assert all(metric.summary for metric in profile.metrics)
    assert name != "quick" or not any(arm.reported for arm in profile.arms), "papers say nothing of generated data"
    json.dumps(profile.settings(), allow_nan=False)


def test_a_task_is_described_without_what_its_profiles_differ_in() -> None:
    """Digits were called "60,000 images of 10 classes, 32 x 32"."""
    for where, task, name, profile in PROFILES:
        assert not re.search(r"\d,\d{3}|\d x \d", task.summary), where
        assert profile.stands_in or name != "quick", where
        assert (profile.stands_in == "digits") == ("digits" in profile.dataset), where


def test_a_difference_must_be_a_tenth_of_a_point_to_matter() -> None:
    assert {profile.primary_metric().smallest_difference for *_, profile in PROFILES} == {0.1}


def test_every_profile_has_temperatures_to_choose_among_by_validation_and_an_untrained_row() -> None:
    without = {where for where, *_, profile in PROFILES if not profile.validation}
    # one-class training has no validation; generated sentences have one set of pairs; SDCLR's lists hold nothing out, nor does
    # DySTreSS's recipe
    assert {where for where in without if not where.startswith("anomaly/")} == {
        *(f"sentence/{task}/quick" for task in SENTENCE_TASKS),
        "long-tail/imagenet-100-lt/paper",
        *(f"long-tail/cifar{classes}-lt-dystress/paper" for classes in (10, 100)),
    }
    for where, task, name, profile in PROFILES:
        assert UNTRAINED in profile.arms, where
        if name in task.by_name:
            continue  # a paper's table, with the temperature of the paper
        objective = task.baseline.rpartition("+")[2]
        fixed = [arm for arm in profile.arms if re.fullmatch(rf"fixed:temperature=[0-9.]+\+{objective}", arm.label)]
        assert len(fixed) >= 4, where


@each_suite
def test_plans_of_all_profiles_resolve(suite: Suite) -> None:
    for profile in profiles.PROFILES:
        expected = sum(len(task.profile(profile).arms) for task in suite.unasked(profile))
        assert len(plan(suite, profile, [0])) == expected > 0


def test_the_quickstart_is_small_and_sets_wrong_temperatures_and_what_was_not_trained_beside_adaptive_strategies() -> None:
    found = [(suite, task) for suite in SUITES for task in suite.unasked("quick") if task.quickstart]
    assert [suite.name for suite, _ in found] == ["sentence", "vision"]
    runs = [run for suite, task in found for run in plan(suite, "quick", QUICKSTART_SEEDS, [task.name], task.quickstart)]
    assert len(runs) == 70
    for _, task in found:
        assert not task.profile("quick").needs
        assert task.profile("quick").stands_in, "the task's name is that of other data"
        assert UNTRAINED.label in task.quickstart
        specs = [parse_spec(Arm(label).parts[0]) for label in task.quickstart if Arm(label).parts]
        assert len({name for name, _ in specs} - {"fixed"}) >= 3
        low, middle, high = sorted(float(options["temperature"]) for name, options in specs if name == "fixed")
        assert task.baseline.startswith(f"fixed:temperature={middle:g}+")
        assert low <= middle / 5
        assert high >= middle * 5


@pytest.mark.slow
@each_profile
def test_reported_rows_are_of_their_arms(task: Task, name: str, profile: Profile) -> None:
    for arm in profile.arms:
        specs = resolve(arm, profile.recipe)
        for row in arm.reported:
            cells = load(task.papers).row(row)
            assert cells.keys() & {metric.name for metric in profile.metrics}
            for cell in cells.values():
                strategy, options = parse_spec(str(specs.strategy))
                assert cell.settings["strategy"] == strategy
                objective = str(specs.objective).partition(":")[0]
                assert cell.settings.get("objective", objective) == objective
                for key in cell.settings.keys() & options.keys():
                    assert cell.settings[key] == options[key]


PAPERS = ["node", "graph", "molecule", "bias", "vision", "long_tail", "anomaly", "recommendation"]


@pytest.mark.parametrize("papers", PAPERS)
def test_every_cell_is_answered_by_an_arm(papers: str) -> None:
    tasks = [(task, profile) for _, task, _, profile in PROFILES if task.papers == papers]
    rows = {(row.paper, row.table, row.method, row.dataset) for _, each in tasks for arm in each.arms for row in arm.reported}
    assert rows == {(cell.paper, cell.table, cell.method, cell.dataset) for cell in load(papers).cells}


@pytest.mark.slow
@each_suite
def test_committed_results_are_of_what_the_suite_means_now(suite: Suite) -> None:
    """A setting that is changed where results were measured with another one must not go unseen."""
    files = sorted((RESULTS / suite.name).rglob("seed-*.json"))
    assert files
    for path in files:
        result = read_result(path)
        # an arm may have been asked for beside those of the suite, and a control follows from another one's result
        controlled = Arm(result.arm).controlled
        planned = plan(suite, result.profile, [result.seed], [result.task], [controlled or result.arm])
        if controlled:
            planned, _ = controls(planned, [read_result(path.parents[1] / slug(controlled) / path.name)])
        (run,) = (run for run in planned if run.path(RESULTS) == path)
        difference = difference_from(run, result)
        assert not difference, f"{path} was measured otherwise, run it again or change the suite back: {difference}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "task", "strategies", "metric", "low", "high"),
    [
        ("node", "citeseer", ["schedule"], "F1-micro 10/10/80", 60, 95),
        ("graph", "mutag", ["macl+dcl"], "accuracy", 85, 100),
        ("molecule", "sider", ["untrained"], "ROC-AUC", 70, 100),
        ("sentence", "supervised", ["macl"], "similarity", 65, 100),
        ("sentence", "transfer", ["untrained"], "TREC", 20, 100),
        ("bias", "mabel", ["temperature-free"], "LM", 80, 100),
        ("vision", "cifar10", ["amcl", "untrained"], "kNN", 30, 100),
        ("long-tail", "cifar10-lt", ["head-tail"], "kNN@1", 30, 100),
        ("anomaly", "ship", ["temperature-free"], "ROC-AUC", 50, 100),
        ("recommendation", "reddit", ["temperature-free", "sasrec"], "HR@10 full", 50, 100),
    ],
)
def test_the_quick_profile_trains_and_measures(
    suite: str,
    task: str,
    strategies: list[str],
    metric: str,
    low: float,
    high: float,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["run", suite, "--tasks", task, "--seeds", "0", "--strategies", *strategies, "--output", str(tmp_path)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert re.search(rf"^{suite} / {task}( \(on [\w ]+\))? / quick ", captured.out, re.MULTILINE)
    assert len(captured.err.splitlines()) == 1 + len(strategies), "one line a run: the frameworks' own talk is kept away"
    found = [read_result(path).metrics for path in sorted((tmp_path / suite).rglob("seed-0.json"))]
    assert len(found) == 1 + len(strategies)
    for metrics in found:
        assert low < metrics[metric] <= high
    assert len({json.dumps(dict(metrics)) for metrics in found}) == len(found), "every arm has learnt something else"
    assert not list(tmp_path.rglob("*.work")), "checkpoints are deleted after the run"
