from __future__ import annotations

import pytest
import torch
from torch_geometric.utils import contains_isolated_nodes, is_undirected

from tempplug_adapters.graph.nodes import Nodes
from tempplug_benchmarks.papers import PaperRow, load
from tempplug_benchmarks.tasks.node_generated import CLASSES, NODES, WORDS, citation_graph
from tempplug_benchmarks.tasks.node_speed import measure


@pytest.mark.parametrize(
    ("method", "micro", "macro", "micro_std"),
    [("temperature 0.1", 58.94, 53.41, 3.17), ("temperature 1", 67.05, 60.03, 3.02), ("temperature free", 67.95, 60.56, 2.10)],
)
def test_cells_stand_as_printed(method: str, micro: float, macro: float, micro_std: float) -> None:
    cells = load("node").row(PaperRow("temperature-free", "3", method, "CiteSeer"))
    assert (cells["F1-micro"].value, cells["F1-macro"].value, cells["F1-micro"].std) == (micro, macro, micro_std)


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


def test_the_plain_formula_has_the_same_value_and_both_are_timed() -> None:
    speed = measure(Nodes(citation_graph(0)), epochs=1, temperature=0.3)
    assert speed.tempplug_loss == pytest.approx(speed.plain_loss, rel=1e-5)
    assert speed.tempplug_loss > 1
    assert min(speed.tempplug_seconds, speed.plain_seconds) > 0
