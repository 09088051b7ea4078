"""Arms, tasks and plans: what labels mean, which runs a plan has, and which names and values are refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tempplug.errors import ConfigError, DataError, TempplugError, UnknownNameError
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around
from tempplug_benchmarks.arm import UNTRAINED, Arm, Specs, arms, parse_arm, resolve
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.run.plan import choose_arms, plan, slug
from tempplug_benchmarks.run_method import RunContext
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Resources, Task

RECIPE = Recipe(
    num_train_epochs=20, loss=LossRecipe(temperatures=around(0.4), objective="dcl", objectives={"learnable": "infonce"})
)
METHOD = MethodInfo(name="none", summary="nothing", target="nowhere:None", recipes={"none": Recipe()}, datasets="none")
FIXED = Arm("fixed+dcl")
HARD = "hardness:strength=1e+1+same-key"
REST = "floor_ratio=0.1,strict=false"
SOGCLR = "sogclr:gamma=0.5,eps=0,rho=0,decay=0,per_view=true,relative=true"
HEAD_TAIL, COUNTS = "temperature_head=1,temperature_tail=0.1", "head-tail:class_counts=9/5/1"
SCORE = Metric(name="score", summary="a score")


def profile(**changes: Any) -> Profile:
    settings = {"dataset": "none", "recipe": Recipe(), "arms": (FIXED,), "metrics": (SCORE,), "primary": "score"}
    return Profile(**{**settings, **changes})


def task(measured: dict[str, float] | None = None, **changes: Any) -> Task:
    settings = {"name": "t", "summary": "s", "method": METHOD, "baseline": "fixed+dcl", "profiles": {"quick": profile()}}
    return Task(**{**settings, "train": lambda context: measured, **changes})


@pytest.mark.parametrize(
    ("text", "label", "strategy", "objective"),
    [
        ("fixed", "fixed+dcl", "fixed:temperature=0.4", "dcl"),
        ("fixed+infonce", "fixed+infonce", "fixed:temperature=0.4", "infonce"),
        ("learnable", "learnable+infonce", "learnable:initial_temperature=0.4,max_scale=100,learning_rate=0.01", "infonce"),
        ("fixed:temperature=1e+0+dclw:sigma=5e+1", "", "fixed:temperature=1", "dclw:sigma=50"),
        ("macl:alpha=2+reweighted", "", f"macl:base_temperature=0.4,alpha=2,threshold=0,{REST}", "reweighted"),
        # what the data decide is left out until they are read
        ("amcl+none", "", "amcl:span=2,floor=0.05,beta=1", None),
        ("temperature-free+sogclr:gamma=0.5", "", "temperature-free:eps=0.0001", SOGCLR),
        ("head-tail:head_classes=3", "head-tail:head_classes=3+dcl", f"head-tail:{HEAD_TAIL},head_classes=3", "dcl"),
        (f"{COUNTS}+dcl", "", f"{COUNTS},{HEAD_TAIL},head_classes=none", "dcl"),
    ],
)
def test_what_is_not_written_is_the_recipes(text: str, label: str, strategy: str, objective: str | None) -> None:
    assert parse_arm(text, RECIPE) == Arm(label or text)
    assert resolve(Arm(label or text), RECIPE) == Specs(strategy, objective)


@pytest.mark.parametrize(
    ("text", "label", "negatives"),
    [
        ("fixed+infonce+same-key", "fixed+infonce+same-key", "same-key"),
        ("fixed+same-key@seed=3", "fixed+dcl+same-key@seed=3", "same-key"),
        (f"fixed+{HARD}", f"fixed+dcl+{HARD}", "hardness:strength=10,of=all,blocks=none+same-key"),
    ],
)
def test_terms_on_negatives_stand_behind_the_objective(text: str, label: str, negatives: str) -> None:
    arm = parse_arm(text, RECIPE)
    assert (arm.label, resolve(arm, RECIPE).negatives) == (label, negatives)
    by_recipe = replace(RECIPE, loss=replace(RECIPE.loss, negatives="same-key"))
    assert resolve(parse_arm("fixed", by_recipe), by_recipe).negatives == "same-key"


def test_a_run_without_terms_is_the_experiment_that_it_was(toy: ModuleType, tmp_path: Path) -> None:
    without, with_terms = (plan(toy.SUITE, "quick", [0], strategies=[f"macl+infonce{terms}"])[1] for terms in ("", "+same-key"))
    assert without.identity().keys() == {"strategy", "objective", "changes", "dataset", "recipe"}
    assert with_terms.identity() == {**without.identity(), "negatives": "same-key"}
    assert len({each.path(tmp_path) for each in (without, with_terms)}) == 2


def test_settings_of_one_arm_stand_behind_its_objective() -> None:
    arm = parse_arm("schedule@num_train_epochs=50,optimizer=sgd", RECIPE)
    assert (arm.label, arm.parts) == ("schedule+dcl@num_train_epochs=50,optimizer=sgd", ("schedule", "dcl"))
    assert arm.changes == {"num_train_epochs": 50, "optimizer": "sgd"}
    for each, period in ((Arm("schedule+dcl"), 4), (arm, 10), (Arm("schedule:period=7+dcl"), 7)):
        assert f"period={period}," in str(resolve(each, RECIPE).strategy)
    assert arms("plain@seed=1") == (Arm("plain@seed=1", changes={"seed": 1}),)
    assert resolve(UNTRAINED, RECIPE) == Specs(None, None)
    assert [each.contrasts for each in (UNTRAINED, Arm("plain@seed=1"), FIXED)] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("+dcl", ConfigError, "must be STRATEGY or STRATEGY"),
        (" +dcl", ConfigError, "must be STRATEGY or STRATEGY"),
        ("fixed@seed", ConfigError, "'seed' is not an option"),
        ("fixed@", ConfigError, "is not an option"),
        ("fixed@a=1/2", ConfigError, "no slash"),
        ("fixd+dcl", UnknownNameError, "unknown strategy 'fixd'"),
        ("fixed+dlc", UnknownNameError, "unknown objective 'dlc'"),
        ("fixed+dcl+dclw", UnknownNameError, "'dclw' is no negative term: pass it as objective='dclw'"),
        ("fixed:temprature=1+dcl", UnknownNameError, "Did you mean 'temperature'"),
        ("amcl:spam=1+dcl", UnknownNameError, "Did you mean 'span'"),
        ("fixed:temperature=0+dcl", ConfigError, "temperature=0 of strategy 'fixed' must be greater than 0"),
        ("amcl:floor=-1+dcl", ConfigError, "floor=-1 of strategy 'amcl' must be"),
        ("head-tail:class_counts=2/1,head_classes=3+dcl", ConfigError, "head_classes=3"),
    ],
)
def test_wrong_arms_are_refused_before_anything_is_trained(text: str, error: type[TempplugError], message: str) -> None:
    with pytest.raises(error, match=message):
        resolve(parse_arm(text, RECIPE), RECIPE)


def test_the_arms_of_a_plan_are_the_tasks_where_they_mean_the_same(toy: ModuleType) -> None:
    for profile, wanted, chosen in (
        ("quick", ["macl", "temperature-free+dcl"], ["fixed+infonce", "macl+reweighted", "temperature-free+dcl"]),
        (
            "small",
            ["all", "temperature-free", "macl+infonce", "untrained"],
            ["fixed+infonce", "macl+infonce", "fixed+dcl", "untrained", "temperature-free+infonce"],
        ),
        ("quick", ["fixed:temperature=0.05"], ["fixed+infonce"]),
        ("quick", ["fixed"], ["fixed+infonce"]),
        ("quick", ["fixed:temperature=5e-2+infonce"], ["fixed+infonce"]),
    ):
        assert list(choose_arms(toy.SUITE.tasks[0], profile, wanted)) == chosen
    assert list(choose_arms(toy.SUITE.tasks[0], "quick", ["fixed@seed=3"], baseline=False)) == ["fixed+infonce@seed=3"]
    assert slug("fixed:temperature=1e+1+dcl") == slug("fixed:temperature=1e-1+dcl")
    with pytest.raises(ConfigError, match="would share the folder 'fixed-temperature-1e-1-infonce'"):
        choose_arms(toy.SUITE.tasks[0], "quick", ["fixed:temperature=1e+1", "fixed:temperature=1e-1"])


def test_a_plan_has_every_seed_of_every_arm_and_folders_by_recipe(toy: ModuleType, tmp_path: Path) -> None:
    runs = plan(toy.SUITE, "quick", [3, 1])
    labels = ["fixed+infonce", "macl+infonce", "fixed+dcl"]
    assert [(run.arm.label, run.seed) for run in runs] == [(label, seed) for seed in (3, 1) for label in labels]
    assert runs[1].specs.strategy == "macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false"
    old, new = (plan(toy.make_suite(steps=steps), "quick", [0])[0] for steps in (10, 20))
    assert old.path(tmp_path) == new.path(tmp_path)
    assert old.work_dir(tmp_path) != new.work_dir(tmp_path)
    suite = Suite("s", "", (task(), task(name="u", by_name=("quick",))))
    assert [run.task.name for run in plan(suite, "quick", [0])] == ["t"]
    assert [run.task.name for run in plan(suite, "quick", [0], ["u"])] == ["u"], "it runs where it is named"


def test_a_task_may_be_changed_for_all_arms() -> None:
    recipes = {"quick": Recipe(num_train_epochs=2, learning_rate=0.1), "paper": Recipe(num_train_epochs=200, learning_rate=1.0)}
    arm = Arm("fixed+dcl", (PaperRow("paper", "1", "row", "data"),))
    profiles = {name: profile(recipe=recipe, arms=(arm,)) for name, recipe in recipes.items()}
    suite = Suite("s", "", (task(profiles=profiles, papers="node"),))
    changed = suite.task("t@num_train_epochs=400,weight_decay=0.5")
    assert (changed.name, changed.papers) == ("t@num_train_epochs=400,weight_decay=0.5", "")
    # twice the paper's epochs are twice as many of a smaller profile's own; other settings are not scaled
    found = {name: (each.recipe.num_train_epochs, each.recipe.weight_decay) for name, each in changed.profiles.items()}
    assert found == {"quick": (4, 0.5), "paper": (400, 0.5)}
    assert not any(arm.reported for each in changed.profiles.values() for arm in each.arms), "papers report another recipe"
    [run] = plan(suite, "quick", [0], ["t@learning_rate=3"])
    assert run.path(Path()) == Path("s/quick/t@learning_rate=3/fixed-dcl/seed-0.json")
    assert run.sizes.recipe.learning_rate == pytest.approx(0.3)
    for name, message in (("t@epochs=3", "no setting 'epochs'"), ("u@seed=3", "has no task 'u'")):
        with pytest.raises(UnknownNameError, match=message):
            suite.task(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({"seeds": seeds}, r"different integers, each at least 0 and at most 4294967295") for seeds in ([], [-1], [2**32])),
        ({"seeds": [0, 0]}, "seeds=0, 0 must be different integers"),
        ({"tasks": ["toy-tusk"]}, r"has no task 'toy-tusk'\. Did you mean 'toy-task'"),
        ({"strategies": ["mackl"]}, r"unknown strategy 'mackl'\. Did you mean 'macl'"),
        ({"profile": "paper"}, "no task of suite 'toy' has a profile 'paper'"),
        ({"profile": "paper", "tasks": ["toy-task"]}, r"no profile 'paper'\. It has: quick, small"),
    ],
)
def test_a_wrong_plan_is_refused(toy: ModuleType, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TempplugError, match=message):
        plan(toy.SUITE, **{"profile": "quick", "seeds": [0], **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profiles": {"tiny": profile()}}, "profile 'tiny' of task 't' must be one of quick, small, paper"),
        ({"resources": {"paper": Resources()}}, "resources of task 't' must be of its profiles quick, not of 'paper'"),
        ({"baseline": "other"}, "must have an arm labelled 'other'"),
        ({"without": "other"}, "must have an arm labelled 'other', the training without the loss"),
        ({"profiles": {"quick": profile(validation="score")}}, "must have a metric named 'score' beside its primary one"),
        ({"profiles": {"quick": profile(arms=(FIXED, FIXED))}}, "must not have two arms of one label"),
        ({"profiles": {"quick": profile(arms=(FIXED, Arm("macl")))}}, "must name its objective: macl+OBJECTIVE"),
        ({"profiles": {"quick": profile(primary="speed")}}, "must have a metric named 'speed'"),
        ({"quickstart": ("untrained",)}, "quickstart=untrained of"),
        ({"quickstart": ("fixed+dcl", "macl+dcl")}, "quickstart=fixed+dcl, macl+dcl of"),
    ],
)
def test_a_task_checks_its_profiles(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        task(**changes)


def test_a_run_returns_the_declared_metrics_and_finite_ones(tmp_path: Path) -> None:
    specs = {"strategy": "fixed", "objective": "dcl"}
    context = RunContext(method=METHOD, profile=profile(), recipe=Recipe(), **specs, data_dir=None, work_dir=tmp_path)
    assert task({"score": 3}).run(context) == {"score": 3.0}
    with pytest.raises(ConfigError, match=r"returned the metrics \['points'\], declared are \['score'\]"):
        task({"points": 1.0}).run(context)
    with pytest.raises(ConfigError, match="metric score=nan of task 't' must be finite"):
        task({"score": float("nan")}).run(context)


def test_missing_data_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").touch()
    needing = profile(needs=("a.tsv", "b.tsv"))
    told = {None: r"\(a.tsv, b.tsv\) and no data folder was given", tmp_path: "b.tsv under the data folder"}
    for folder, message in told.items():
        with pytest.raises(DataError, match=rf"task 't' needs (real data )?{message}"):
            needing.check_data("t", folder)
    (tmp_path / "b.tsv").touch()
    needing.check_data("t", tmp_path)
    profile().check_data("t", None)
