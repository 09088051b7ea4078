"""Each augmentation removes what it names, from every graph, and nothing from the graphs that it was not drawn for."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from graphcl_toys import Data, batch_of, graph, grown, ring, toy_set
from scipy.stats import chisquare
from torch import Tensor

from tempplug.errors import UnknownNameError
from tempplug_adapters.graph.augmentation import AUGMENTATIONS, augment
from tempplug_adapters.graph.graph_data import GraphBatch

STAR = [(0, node) for node in range(1, 11)]
# Two one-way chains from node 0, so that the first node of a subgraph is its start. Of 15 nodes it has three more.
CHAINS = [*((node, node + 1) for node in range(7)), (0, 8), *((node, node + 1) for node in range(8, 14))]


def draw(graphs: GraphBatch, *pool: str, seed: int = 0) -> GraphBatch:
    torch.manual_seed(seed)
    return augment(graphs, pool)


def sizes(graphs: GraphBatch) -> tuple[Tensor, Tensor]:
    """Nodes and edges of each graph."""
    of_edge = graphs.batch[graphs.edge_index[0]]
    return (torch.bincount(graphs.batch, minlength=graphs.num_graphs), torch.bincount(of_edge, minlength=graphs.num_graphs))


def edges_of(graphs: GraphBatch, position: int) -> list[tuple[float, float]]:
    """The edges of one graph, nodes named by their first feature: their number before the augmentation."""
    mine = graphs.batch[graphs.edge_index[0]] == position
    return sorted(map(tuple, graphs.x[:, 0][graphs.edge_index[:, mine]].T.tolist()))


def nodes_of(graphs: GraphBatch, position: int) -> list[float]:
    return graphs.x[graphs.batch == position, 0].tolist()


def test_a_tenth_of_the_nodes_is_dropped_with_their_edges() -> None:
    graphs = batch_of(*(graph(size, ring(size)) for size in (5, 9, 10, 19, 20, 31)))
    seen = set()
    for seed in range(30):
        view = draw(graphs, "drop-nodes", seed=seed)
        assert sizes(view)[0].tolist() == [5, 9, 9, 18, 18, 28]
        for position, size in enumerate((5, 9, 10, 19, 20, 31)):
            kept = nodes_of(view, position)
            assert edges_of(view, position) == [each for each in edges_of(graphs, position) if set(each) <= set(kept)]
            # the second feature is the first one plus the size of the graph
            assert view.x[view.batch == position, 1].tolist() == [each + size for each in kept]
        seen.update(set(range(10)) - {int(node) for node in nodes_of(view, 2)})
    assert seen == set(range(10)), "any node may be dropped"


def test_a_tenth_of_the_directed_edges_is_dropped_and_no_node() -> None:
    graphs = batch_of(*(graph(size, ring(size)) for size in (4, 5, 20)))
    lost = Counter()
    for seed in range(100):
        view = draw(graphs, "drop-edges", seed=seed)
        assert [each.tolist() for each in sizes(view)] == [[4, 5, 20], [8, 9, 36]]
        assert torch.equal(view.x, graphs.x)
        assert set(edges_of(view, 2)) < set(edges_of(graphs, 2))
        lost.update(set(edges_of(graphs, 2)) - set(edges_of(view, 2)))
    assert len(lost) == 40
    assert max(lost.values()) < 30, "10 of 100 are expected"


def test_a_tenth_of_the_nodes_gets_noise_for_features() -> None:
    graphs = batch_of(*[graph(30, ring(30), width=5)] * 200)
    before = graphs.x.clone()
    view = draw(graphs, "mask-attributes")
    assert torch.equal(graphs.x, before)
    assert torch.equal(view.edge_index, graphs.edge_index)
    changed = (view.x != graphs.x).all(1)
    assert torch.equal(changed, (view.x != graphs.x).any(1))
    assert torch.bincount(graphs.batch[changed]).tolist() == [3] * 200
    noise = view.x[changed]
    assert noise.mean().item() == pytest.approx(0.5, abs=0.04)
    assert noise.std().item() == pytest.approx(0.5, abs=0.03)


def test_a_neighbourhood_is_a_node_and_some_of_its_neighbours() -> None:
    view = draw(batch_of(*[graph(11, STAR)] * 300), "neighbourhood")
    found = Counter(tuple(nodes_of(view, position)) for position in range(300))
    # from a leaf, only the centre is near; from the centre, two of ten leaves
    assert all(kept[0] == 0 and len(kept) in (2, 3) for kept in found)
    assert sum(count for kept, count in found.items() if len(kept) == 3) == pytest.approx(300 / 11, abs=20)
    assert len([kept for kept in found if len(kept) == 2]) == 10
    path = draw(batch_of(*[graph(20, [(node, node + 1) for node in range(19)])] * 50), "neighbourhood")
    assert sizes(path)[0].max() == 3, "four are allowed, but a node has two neighbours"


def test_a_subgraph_grows_by_one_random_neighbour_at_a_time() -> None:
    count = 6000
    one = Data(x=torch.arange(15.0), edge_index=torch.tensor(CHAINS).T)
    view = draw(batch_of(*[one] * count), "subgraph")
    places = view.x[:, 0].long().split(sizes(view)[0].tolist())
    found = Counter(frozenset(each.tolist()) for each in places)
    expected = grown(CHAINS, 15, 4)
    assert found.keys() == expected.keys()
    frequencies = [(found[part], count * chance) for part, chance in expected.items()]
    assert chisquare(*zip(*frequencies, strict=True)).pvalue > 1e-3
    pairs = draw(batch_of(*[graph(20, [(2 * pair, 2 * pair + 1) for pair in range(10)])] * 20), "subgraph")
    assert [each.tolist() for each in sizes(pairs)] == [[2] * 20] * 2, "it stays in its component"


def test_one_augmentation_of_the_pool_is_drawn_for_each_graph() -> None:
    view = draw(batch_of(*[graph(10, ring(10))] * 1500), "drop-nodes", "drop-edges", "neighbourhood")
    kinds = Counter(zip(*(each.tolist() for each in sizes(view)), strict=True))
    assert kinds.keys() == {(9, 16), (10, 18), (3, 4)}
    assert all(abs(number - 500) < 90 for number in kinds.values())


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_seed_decides_and_graphs_of_one_node_or_without_edges_survive(name: str) -> None:
    graphs = toy_set().batch(torch.arange(40))
    first, again, other = (draw(graphs, name, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.edge_index, again.edge_index)
    assert first.x.tolist() != other.x.tolist() or first.edge_index.tolist() != other.edge_index.tolist()
    graphs = batch_of(graph(1, []), graph(20, []), graph(3, [(0, 1)]), graph(30, [(0, 0), (4, 5)]))
    for seed in range(20):
        view = draw(graphs, name, seed=seed)
        assert view.num_graphs == 4
        assert (sizes(view)[0] >= 1).all()
        assert view.edge_index.numel() == 0 or int(view.edge_index.max()) < len(view.x)


def test_unknown_augmentations_are_named() -> None:
    graphs = batch_of(graph(5, ring(5)))
    with pytest.raises(UnknownNameError, match=r"unknown augmentation 'drop-node'\. Did you mean 'drop-nodes'"):
        augment(graphs, ["drop-node"])
    with pytest.raises(UnknownNameError, match="no augmentation is named"):
        augment(graphs, [])
