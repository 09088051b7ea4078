from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.arm import UNTRAINED, Arm
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.resources import GPU
from tempplug_benchmarks.run.plan import choose_arms, plan, slug
from tempplug_benchmarks.run_method import RunContext
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task

METHOD = MethodInfo(name="none", summary="nothing", target="nowhere:None", recipes={"none": Recipe()}, datasets="none")


def profile(**changes: object) -> Profile:
    settings: dict[str, object] = {
        "dataset": "none",
        "recipe": Recipe(),
        "arms": (Arm("fixed+dcl"),),
        "metrics": (Metric(name="score", summary="a score"),),
        "primary": "score",
    }
    return Profile(**{**settings, **changes})  # type: ignore[arg-type]


def task(measured: dict[str, float], **changes: object) -> Task:
    settings: dict[str, object] = {
        "name": "t",
        "summary": "s",
        "method": METHOD,
        "baseline": "fixed+dcl",
        "profiles": {"quick": profile()},
    }
    return Task(**{**settings, "train": lambda context: measured, **changes})  # type: ignore[arg-type]


def context(folder: Path) -> RunContext:
    return RunContext(
        method=METHOD,
        profile=profile(),
        recipe=Recipe(),
        strategy="fixed",
        objective="dcl",
        data_dir=None,
        work_dir=folder,
    )


def test_the_baseline_always_runs(toy: ModuleType) -> None:
    chosen = choose_arms(toy.SUITE.tasks[0], "quick", ["macl", "temperature-free+dcl"])
    assert list(chosen) == ["fixed+infonce", "macl+reweighted", "temperature-free+dcl"]


def test_all_stands_for_the_tasks_own_arms(toy: ModuleType) -> None:
    chosen = choose_arms(toy.SUITE.tasks[0], "small", ["all", "temperature-free", "macl+infonce", "untrained"])
    assert list(chosen) == ["fixed+infonce", "macl+infonce", "fixed+dcl", "untrained", "temperature-free+infonce"]


@pytest.mark.parametrize("text", ["fixed:temperature=0.05", "fixed", "fixed:temperature=5e-2+infonce"])
def test_what_means_the_same_as_an_arm_of_the_task_is_that_arm(toy: ModuleType, text: str) -> None:
    assert list(choose_arms(toy.SUITE.tasks[0], "quick", [text])) == ["fixed+infonce"]


def test_an_arm_with_settings_of_its_own_is_another_arm(toy: ModuleType) -> None:
    chosen = choose_arms(toy.SUITE.tasks[0], "quick", ["fixed@seed=3"], baseline=False)
    assert list(chosen) == ["fixed+infonce@seed=3"]


def test_a_task_may_be_changed_for_all_arms() -> None:
    recipes = {"quick": Recipe(num_train_epochs=2, learning_rate=0.1), "paper": Recipe(num_train_epochs=200, learning_rate=1.0)}
    row = PaperRow("paper", "1", "row", "data")
    arm = Arm("fixed+dcl", (row,))
    profiles = {name: profile(recipe=recipe, arms=(arm,)) for name, recipe in recipes.items()}
    suite = Suite("s", "", (task({}, profiles=profiles, papers="node"),))
    changed = suite.task("t@num_train_epochs=400,weight_decay=0.5")
    assert (changed.name, changed.papers) == ("t@num_train_epochs=400,weight_decay=0.5", "")
    # twice the paper's epochs are twice as many of a smaller profile's own, what has no size is as it is said
    found = {name: (each.recipe.num_train_epochs, each.recipe.weight_decay) for name, each in changed.profiles.items()}
    assert found == {"quick": (4, 0.5), "paper": (400, 0.5)}
    assert not any(arm.reported for each in changed.profiles.values() for arm in each.arms), "papers report of another recipe"
    [run] = plan(suite, "quick", [0], ["t@learning_rate=3"])
    assert run.path(Path()) == Path("s/quick/t@learning_rate=3/fixed-dcl/seed-0.json")
    assert run.sizes.recipe.learning_rate == pytest.approx(0.3)
    with pytest.raises(UnknownNameError, match="no setting 'epochs'"):
        suite.task("t@epochs=3")
    with pytest.raises(UnknownNameError, match="has no task 'u'"):
        suite.task("u@seed=3")


def test_what_must_be_named_runs_where_it_is_named_alone() -> None:
    suite = Suite("s", "", (task({}), task({}, name="u", by_name=("quick",))))
    assert [run.task.name for run in plan(suite, "quick", [0])] == ["t"]
    assert [run.task.name for run in plan(suite, "quick", [0], ["u"])] == ["u"]


def test_arms_that_would_share_a_folder_are_refused(toy: ModuleType) -> None:
    assert slug("fixed:temperature=1e+1+dcl") == slug("fixed:temperature=1e-1+dcl")
    with pytest.raises(ConfigError, match="would share the folder 'fixed-temperature-1e-1-infonce'"):
        choose_arms(toy.SUITE.tasks[0], "quick", ["fixed:temperature=1e+1", "fixed:temperature=1e-1"])


def test_a_plan_has_every_seed_of_every_arm_with_resolved_specs(toy: ModuleType) -> None:
    runs = plan(toy.SUITE, "quick", [3, 1])
    assert [(run.arm.label, run.seed) for run in runs] == [
        ("fixed+infonce", 3), ("macl+infonce", 3), ("fixed+dcl", 3),
        ("fixed+infonce", 1), ("macl+infonce", 1), ("fixed+dcl", 1),
    ]  # fmt: skip
    assert runs[1].specs.strategy == "macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false"


@pytest.mark.parametrize("seeds", [[], [-1], [0, 0], [2**32]])
def test_seeds_are_checked(toy: ModuleType, seeds: list[int]) -> None:
    with pytest.raises(ConfigError, match="must be different integers, each at least 0 and at most 4294967295"):
        plan(toy.SUITE, "quick", seeds)


def test_unknown_names_are_refused_with_what_there_is(toy: ModuleType) -> None:
    with pytest.raises(UnknownNameError, match=r"has no task 'toy-tusk'\. Did you mean 'toy-task'"):
        plan(toy.SUITE, "quick", [0], tasks=["toy-tusk"])
    with pytest.raises(UnknownNameError, match=r"unknown strategy 'mackl'\. Did you mean 'macl'"):
        plan(toy.SUITE, "quick", [0], strategies=["mackl"])
    with pytest.raises(ConfigError, match="no task of suite 'toy' has a profile 'paper'"):
        plan(toy.SUITE, "paper", [0])
    with pytest.raises(UnknownNameError, match=r"no profile 'paper'\. It has: quick, small"):
        plan(toy.SUITE, "paper", [0], tasks=["toy-task"])


def test_a_changed_recipe_has_its_own_folder_of_checkpoints(toy: ModuleType, tmp_path: Path) -> None:
    old, new = (plan(toy.make_suite(steps=steps), "quick", [0])[0] for steps in (10, 20))
    assert old.path(tmp_path) == new.path(tmp_path)
    assert old.work_dir(tmp_path) != new.work_dir(tmp_path)


def test_a_task_checks_its_profiles() -> None:
    with pytest.raises(ConfigError, match="profile 'tiny' of task 't' must be one of quick, small, paper"):
        task({}, profiles={"tiny": profile()})
    with pytest.raises(ConfigError, match="resources of task 't' must be of its profiles quick, not of 'paper'"):
        task({}, resources={"paper": GPU})
    with pytest.raises(ConfigError, match="must have an arm labelled 'other'"):
        task({}, baseline="other")
    with pytest.raises(ConfigError, match="must have a metric named 'score' beside its primary one"):
        task({}, profiles={"quick": profile(validation="score")})
    with pytest.raises(ConfigError, match="must not have two arms of one label"):
        task({}, profiles={"quick": profile(arms=(Arm("fixed+dcl"), Arm("fixed+dcl")))})
    with pytest.raises(
        ConfigError, match=r"arm 'macl' of profile 'quick' of task 't' must name its objective: macl\+OBJECTIVE"
    ):
        task({}, profiles={"quick": profile(arms=(Arm("fixed+dcl"), Arm("macl")))})
    task({}, profiles={"quick": profile(arms=(Arm("fixed+dcl"), UNTRAINED))}, quickstart=("untrained", "fixed+dcl"))
    for labels in (("untrained",), ("fixed+dcl", "macl+dcl")):
        with pytest.raises(ConfigError, match=f"quickstart={', '.join(labels)} of task 't' must be arms".replace("+", r"\+")):
            task({}, profiles={"quick": profile(arms=(Arm("fixed+dcl"), UNTRAINED))}, quickstart=labels)
    with pytest.raises(ConfigError, match="must have a metric named 'speed'"):
        task({}, profiles={"quick": profile(primary="speed")})


def test_a_run_returns_the_declared_metrics_and_finite_ones(tmp_path: Path) -> None:
    assert task({"score": 3}).run(context(tmp_path)) == {"score": 3.0}
    with pytest.raises(ConfigError, match=r"returned the metrics \['points'\], declared are \['score'\]"):
        task({"points": 1.0}).run(context(tmp_path))
    with pytest.raises(ConfigError, match="metric score=nan of task 't' must be finite"):
        task({"score": float("nan")}).run(context(tmp_path))


def test_missing_data_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").touch()
    needing = profile(needs=("a.tsv", "b.tsv"))
    with pytest.raises(DataError, match=r"task 't' needs real data \(a.tsv, b.tsv\) and no data folder was given"):
        needing.check_data("t", None)
    with pytest.raises(DataError, match=r"task 't' needs b.tsv under the data folder"):
        needing.check_data("t", tmp_path)
    (tmp_path / "b.tsv").touch()
    needing.check_data("t", tmp_path)
    profile().check_data("t", None)
