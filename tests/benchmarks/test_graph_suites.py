"""The suites graph, node, molecule and recommendation: what they generate, read and train."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from rdkit import Chem
from suite_checks import read, run_context
from torch_geometric.utils import contains_isolated_nodes, is_undirected

from tempplug.errors import DataError
from tempplug_adapters.recommendation.recipes import DCREC as METHOD, SASREC
from tempplug_benchmarks.tasks import recommendation
from tempplug_benchmarks.tasks.graph import generate
from tempplug_benchmarks.tasks.molecule import LABELLED, SUITE as MOLECULE, generate as generate_molecules, labels
from tempplug_benchmarks.tasks.node import CLASSES, NODES, WORDS, citation_graph


@pytest.mark.parametrize("with_features", [True, False])
def test_generated_graphs_are_trees_with_and_without_rings(with_features: bool) -> None:
    graphs, again, other = (generate(40, with_features, seed) for seed in (3, 3, 4))
    assert torch.equal(graphs.edge_index, again.edge_index)
    assert not torch.equal(graphs.edge_index, other.edge_index)
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


def test_generated_molecules_are_valid_and_their_labels_are_theirs() -> None:
    smiles = generate_molecules(500, seed=0)
    assert smiles == generate_molecules(500, seed=0) != generate_molecules(500, seed=1)
    assert len(set(smiles)) > 400
    halogen_or_nitrile = Chem.MolFromSmarts("[F,Cl,$(C#N)]")
    for text, row in zip(smiles, labels(smiles, 1, seed=0), strict=True):
        molecule = Chem.MolFromSmiles(text)
        assert molecule is not None, text
        assert molecule.HasSubstructMatch(halogen_or_nitrile) == bool(row[0]), text
    columns = list(zip(*labels(smiles, 3, seed=0), strict=True))
    assert 0.15 < sum(math.isnan(label) for column in columns for label in column) / 1500 < 0.25
    for column in columns:
        known = [label for label in column if not math.isnan(label)]
        assert 0.1 < sum(known) / len(known) < 0.9


def test_profiles_of_molecules_have_the_molecules_that_their_recipes_say(tmp_path: Path) -> None:
    assert [task.name for task in MOLECULE.tasks if "small" in task.profiles] == [
        *("bbbp", "bace", "clintox", "sider"),
        *("bbbp-short", "bbbp-long"),
    ]
    profile = MOLECULE.task("sider").profile("quick")
    _, data = read(profile, None, tmp_path)
    assert len(data) == profile.recipe.values()["max_pretrain_molecules"] == 512
    assert (len(data.labelled["SIDER"].molecules), data.labelled["SIDER"].labels.shape[1]) == (LABELLED, 3)
    _, untrained = read(profile, None, tmp_path, num_train_epochs=0)
    assert untrained.unlabelled is None


def test_the_file_to_pre_train_on_is_that_of_the_data_folder(data_dir: Path, tmp_path: Path) -> None:
    recipe, data = read(MOLECULE.task("bbbp").profile("small"), data_dir, tmp_path, max_pretrain_molecules=50)
    assert recipe.pretrain_file == str(data_dir / "graph/smiles/zinc_druglike_100k.smi.gz")
    assert (len(data), list(data.labelled)) == (50, ["BBBP"])


def test_an_arm_without_a_strategy_is_the_transformer_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(recommendation, "run_method", lambda context: ran.append(context) or {})  # type: ignore[func-returns-value]
    for label in ("sasrec", "untrained", "macl+infonce"):
        recommendation.run_recommender(run_context(recommendation.SUITE, tmp_path, label, "quick", "reddit", seed=3))
    assert [each.method for each in ran] == [SASREC, SASREC, METHOD]
    shared = ran[2].recipe.values()
    assert all(shared[name] == value for name, value in ran[0].recipe.values().items()), "the same settings"
    assert (ran[0].recipe.seed, ran[1].recipe.num_train_epochs) == (3, 0)


def test_movielens_is_read_as_it_is_downloaded(tmp_path: Path) -> None:
    file, profile = tmp_path / "recsys" / "ml-20m" / "ratings.csv", recommendation.SUITE.task("ml-20m").profile("paper")
    file.parent.mkdir(parents=True)
    lines = [f"{user},{10 * item},{4.5},{1_000_000 + item}" for user in range(30) for item in range(user % 4, 8)]
    file.write_text("\n".join(["userId,movieId,rating,timestamp", *lines, ""]))
    recipe, data = read(profile, tmp_path, tmp_path)
    assert (data.user_count, data.item_count, len(data.items)) == (30, 8, len(lines))
    assert (recipe.num_train_epochs, recipe.per_device_train_batch_size) == (300, 512)
    file.write_text("userId,movieId,rating,timestamp\n1,2,3.5,now\n")
    with pytest.raises(DataError, match=r"ratings\.csv, line 2: column 'timestamp' is 'now'"):
        read(profile, tmp_path, tmp_path)
