from __future__ import annotations

import pytest
import torch

from tempplug_adapters.graph.graph_data import GraphSet
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.tasks.graph import SETS
from tempplug_benchmarks.tasks.graph_generated import generate


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
