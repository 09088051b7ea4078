from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.utils import contains_isolated_nodes, is_undirected

from tempplug_benchmarks.command import main
from tempplug_benchmarks.papers import PaperRow, load
from tempplug_benchmarks.plan import plan, resolve, slug
from tempplug_benchmarks.task import PROFILES
from tempplug_benchmarks.tasks.node import SUITE
from tempplug_benchmarks.tasks.node_generated import CLASSES, NODES, WORDS, citation_graph
from tempplug_benchmarks.tasks.node_speed import measure

TASKS = [task.name for task in SUITE.tasks]


def test_importing_the_suite_loads_no_framework() -> None:
    code = (
        "import sys, tempplug_benchmarks.tasks.node; print(sorted({'torch', 'torch_geometric', 'scipy'} & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_complete(name: str) -> None:
    task = SUITE.task(name)
    assert {"small", "paper"} <= set(task.profiles) <= set(PROFILES)
    for profile_name, profile in task.profiles.items():
        specs = {(resolved.strategy, resolved.objective) for resolved in map(resolve, profile.arms)}
        assert len(specs) == len(profile.arms), "two arms are the same"
        assert len({slug(arm.label) for arm in profile.arms}) == len(profile.arms)
        assert bool(profile.needs) == (profile_name != "quick")
        assert f"period={float(profile.recipe['epochs'] or 0) / 5:g}" in profile.arms[-1].strategy
        json.dumps(dict(profile.recipe), allow_nan=False)


def test_arms_of_the_paper_have_its_temperatures_and_its_metrics() -> None:
    task = SUITE.task("citeseer")
    tables = load(task.papers)
    for name in ("small", "paper"):
        profile = task.profile(name)
        reported = {arm.label: tables.row(row) for arm in profile.arms for row in arm.reported}
        assert list(reported) == ["fixed-0.1", "fixed-0.25", "fixed-0.5", "fixed-1", "temperature-free"]
        for label, cells in reported.items():
            assert set(cells) == {"F1-micro", "F1-macro"} <= {metric.name for metric in profile.metrics}
            settings = cells["F1-micro"].settings
            written = f":temperature={settings['temperature']}" if "temperature" in settings else ""
            arm = profile.arm(label)
            assert arm is not None
            assert resolve(arm).strategy.startswith(f"{settings['strategy']}{written}")
    assert not any(arm.reported for arm in task.profile("quick").arms), "papers say nothing of generated graphs"
    assert not any(arm.reported for each in ("cora", "dblp") for arm in SUITE.task(each).profile("paper").arms)


@pytest.mark.parametrize(
    ("method", "micro", "macro", "micro_std"),
    [("temperature 0.1", 58.94, 53.41, 3.17), ("temperature 1", 67.05, 60.03, 3.02), ("temperature free", 67.95, 60.56, 2.10)],
)
def test_cells_stand_as_printed(method: str, micro: float, macro: float, micro_std: float) -> None:
    cells = load("node").row(PaperRow("temperature-free", "3", method, "CiteSeer"))
    assert (cells["F1-micro"].value, cells["F1-macro"].value, cells["F1-micro"].std) == (micro, macro, micro_std)


def test_both_an_adaptive_and_a_reweighted_arm_and_dcl_are_compared() -> None:
    for task in SUITE.tasks:
        arms = {arm.label: arm for arm in task.profile("paper").arms}
        assert arms["macl"].strategy == arms["macl-infonce"].strategy
        assert (arms["macl"].objective, arms["macl-infonce"].objective) == ("reweighted", "infonce")
        assert (arms["fixed-0.5"].strategy, "dcl") == (arms["fixed-0.5-dcl"].strategy, arms["fixed-0.5-dcl"].objective)


def test_the_generated_graph_is_one_and_hides_its_classes() -> None:
    graph = citation_graph(3)
    assert torch.equal(graph.edge_index, citation_graph(3).edge_index)
    assert not torch.equal(graph.x, citation_graph(4).x)
    assert graph.x.shape == (NODES, WORDS)
    assert is_undirected(graph.edge_index)
    assert contains_isolated_nodes(graph.edge_index, NODES)
    assert torch.bincount(graph.y).tolist() == [NODES // CLASSES] * CLASSES
    same = (graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]).float().mean()
    assert 0.6 < same < 0.8


@pytest.mark.parametrize("name", ["citeseer", "dblp"])
def test_the_quick_profile_trains_and_measures(name: str, tmp_path: Path) -> None:
    words = ["run", SUITE.name, "--tasks", name, "--seeds", "0", "--strategies", "fixed-0.5", "--output", str(tmp_path)]
    assert main(words) == 0
    content = json.loads((tmp_path / "node" / "quick" / name / "fixed-0.5" / "seed-0.json").read_text())
    assert 60 < content["metrics"]["F1-micro 10/10/80"] < 95
    assert not list(tmp_path.rglob("*.work")), "checkpoints are deleted after the run"


def test_plans_of_all_profiles_resolve() -> None:
    for profile in PROFILES:
        expected = sum(len(task.profile(profile).arms) for task in SUITE.tasks if profile in task.profiles)
        assert len(plan(SUITE, profile, [0])) == expected > 0


def test_the_plain_formula_has_the_same_value_and_both_are_timed() -> None:
    speed = measure(citation_graph(0), epochs=1, temperature=0.3)
    assert speed.tempplug_loss == pytest.approx(speed.plain_loss, rel=1e-5)
    assert speed.tempplug_loss > 1
    assert min(speed.tempplug_seconds, speed.plain_seconds) > 0
