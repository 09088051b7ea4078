from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tempplug_adapters.graph.graph_data import GraphSet
from tempplug_adapters.graph.graphcl_recipe import GraphCLSettings, augmentations_for, known_options
from tempplug_benchmarks.command import main
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.plan import plan, resolve, slug
from tempplug_benchmarks.task import PROFILES
from tempplug_benchmarks.tasks.graph import BASELINE, SETS, SUITE
from tempplug_benchmarks.tasks.graph_generated import generate

TASKS = [task.name for task in SUITE.tasks]


def test_importing_the_suite_loads_no_framework() -> None:
    heavy = {"torch", "torch_geometric", "sklearn"}
    code = f"import sys, tempplug_benchmarks.tasks.graph; print(sorted({heavy} & sys.modules.keys()))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_complete(name: str) -> None:
    task = SUITE.task(name)
    assert tuple(task.profiles) == PROFILES
    for profile_name, profile in task.profiles.items():
        specs = {(resolved.strategy, resolved.objective) for resolved in map(resolve, profile.arms)}
        assert len(specs) == len(profile.arms), "two arms are the same"
        assert len({slug(arm.label) for arm in profile.arms}) == len(profile.arms)
        assert bool(profile.needs) == (profile_name != "quick")
        json.dumps(dict(profile.recipe), allow_nan=False)


def test_the_paper_profile_is_the_recipe_of_the_adapter() -> None:
    for each in SETS:
        profile = SUITE.task(each.tu.lower()).profile("paper")
        expected = GraphCLSettings(augmentations=augmentations_for(each.tu)).values()
        shared = expected.keys() & profile.recipe.keys()
        assert shared == expected.keys() - {"seed"}
        assert {key: profile.recipe[key] for key in shared} == {key: expected[key] for key in shared}
        arms = {arm.label: arm for arm in profile.arms}
        for label, strategy in {BASELINE: "fixed", "macl": "macl", "dystress": "dystress", "schedule": "schedule"}.items():
            options = ",".join(
                f"{key}={value}" for key, value in known_options(strategy, 20, 1, 1).items() if key not in ("size", "dimension")
            )
            assert resolve(arms[label]).strategy == resolve(type(arms[label])(label, f"{strategy}:{options}")).strategy


@pytest.mark.parametrize("name", TASKS)
def test_reported_rows_exist_and_have_the_metric(name: str) -> None:
    task = SUITE.task(name)
    tables = load(task.papers)
    found = {}
    for arm in task.profile("paper").arms:
        for row in arm.reported:
            cell = tables.row(row)["accuracy"]
            found[arm.label] = cell.value
            settings = ",".join(f"{key}={value}" for key, value in cell.settings.items() if key not in ("strategy", "seeds"))
            assert resolve(type(arm)("row", f"{cell.settings['strategy']}:{settings}", "dcl")) == resolve(
                type(arm)("row", arm.strategy, arm.objective)
            )
    assert found.keys() == {BASELINE, "macl"}
    assert not any(arm.reported for arm in task.profile("quick").arms), "papers say nothing of generated graphs"


@pytest.mark.parametrize(
    ("dataset", "graphcl", "macl"),
    [
        ("NCI1", (77.87, 0.41), (78.41, 0.47)),
        ("PROTEINS", (74.39, 0.45), (74.47, 0.85)),
        ("MUTAG", (86.80, 1.34), (89.04, 0.98)),
        ("RDT-B", (89.53, 0.84), (90.59, 0.36)),
        ("DD", (78.62, 0.40), (78.80, 0.66)),
        ("IMDB-B", (71.14, 0.44), (71.42, 1.05)),
    ],
)
def test_cells_stand_as_printed(dataset: str, graphcl: tuple[float, float], macl: tuple[float, float]) -> None:
    cells = {cell.method: (cell.value, cell.std) for cell in load("graph").cells if cell.dataset == dataset}
    assert cells == {"GraphCL": graphcl, "w/ MACL": macl}
    assert dataset in {each.printed for each in SETS}


def test_both_adaptivity_and_the_denominator_are_compared() -> None:
    arms = {arm.label: (arm.strategy, arm.objective) for arm in SUITE.task("mutag").profile("small").arms}
    assert arms["macl"] == (arms["macl-infonce"][0], "dcl")
    assert arms[BASELINE] == (arms["fixed-0.2-infonce"][0], "dcl")
    assert arms["macl-infonce"][1] == arms["fixed-0.2-infonce"][1] == "infonce"


@pytest.mark.parametrize("with_features", [True, False])
def test_generated_graphs_are_trees_with_and_without_rings(with_features: bool) -> None:
    graphs = generate(40, with_features, seed=3)
    nodes, edges = graphs.node_start.diff(), graphs.edge_start.diff() // 2
    assert graphs.labels is not None
    assert torch.equal(edges, nodes - 1 + nodes // 3 * graphs.labels)
    assert graphs.labels.sum() == 20
    assert graphs.x.shape == (len(graphs.x), 3 if with_features else 1)
    assert torch.equal(graphs.x.sum(1), torch.ones(len(graphs.x)))
    for position in range(40):
        low, high = graphs.batch(torch.tensor([position])).edge_index
        assert (low != high).all()
        assert len(set(zip(low.tolist(), high.tolist(), strict=True))) == len(low), "no edge is there twice"
        assert int(high.max()) == int(nodes[position]) - 1


def same(first: GraphSet, second: GraphSet) -> bool:
    return torch.equal(first.edge_index, second.edge_index) and torch.equal(first.x, second.x)


def test_the_seed_decides_what_is_generated() -> None:
    assert same(generate(10, True, 0), generate(10, True, 0))
    assert not same(generate(10, True, 0), generate(10, True, 1))


@pytest.mark.parametrize("name", ["mutag", "imdb-binary"])
def test_the_quick_profile_trains_and_measures(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "graph", "--tasks", name, "--seeds", "0", "--strategies", "macl", "--output", str(tmp_path)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert f"graph / {name} / quick" in captured.out
    assert len(captured.err.splitlines()) == 2
    for arm in (BASELINE, "macl"):
        content = json.loads((tmp_path / "graph" / "quick" / name / arm / "seed-0.json").read_text())
        assert 85 < content["metrics"]["accuracy"] <= 100
    assert not list(tmp_path.rglob("*.work"))


def test_plans_of_all_profiles_resolve() -> None:
    for profile in PROFILES:
        assert len(plan(SUITE, profile, [0])) == sum(len(task.profile(profile).arms) for task in SUITE.tasks)
