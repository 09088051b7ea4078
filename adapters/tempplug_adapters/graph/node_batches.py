"""Mini-batches of a graph: some nodes to contrast, and the sampled neighbours that an encoder of a few layers reads.

PyTorch Geometric samples where pyg-lib is installed, which its sampler needs (Hamilton et al. 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NeighborSampler, NodeSamplerInput


@dataclass(frozen=True)
class NodeBatch:
    """A part of a graph, from the nodes to be contrasted outwards.

    Attributes:
        nodes: [n] positions in the whole graph, those fewer steps away first.
        edge_index: [2, E], which number the nodes as they stand in ``nodes``; those into nodes fewer steps away first.
        edges: [E] positions of the edges in the whole graph.
        reach: how many of the nodes are at most 0, 1, 2, … steps away; the first number is of those to be contrasted.
    """

    nodes: Tensor
    edge_index: Tensor
    edges: Tensor
    reach: tuple[int, ...]

    @property
    def seeds(self) -> int:
        """How many of the nodes are to be contrasted."""
        return self.reach[0]


class NodeSampler:
    """Finds what an encoder reads around some nodes, a part of their neighbours chosen at random.

    Args:
        edge_index: [2, E] of the whole graph, from source to target.
        nodes: N.

    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> NodeSampler(path, nodes=3).around(torch.tensor([2]), neighbours=5, layers=1).nodes
    tensor([2, 1])
    """

    def __init__(self, edge_index: Tensor, nodes: int) -> None:
        self.nodes = nodes
        self._edge_index = edge_index
        self._order = torch.argsort(edge_index[1], stable=True)
        self._degrees = torch.bincount(edge_index[1], minlength=nodes)
        self._starts = self._degrees.cumsum(0) - self._degrees
        self._theirs: dict[tuple[int, int], Any] = {}

    def around(self, seeds: Tensor, neighbours: int | None, layers: int) -> NodeBatch:
        """Returns the batch that contrasts some nodes.

        Args:
            seeds: [s] positions, each named once.
            neighbours: of each node and layer, how many incoming edges are followed, at least 1; None for all.
            layers: how many steps away from the seeds the encoder looks.
        """
        if torch_geometric.typing.WITH_PYG_LIB:
            return self._by_library(seeds, -1 if neighbours is None else neighbours, layers)
        place = torch.full((self.nodes,), -1, device=seeds.device)
        place[seeds] = torch.arange(len(seeds), device=seeds.device)
        nodes, frontier, reach = seeds, seeds, [len(seeds)]
        followed: list[Tensor] = []
        for _ in range(layers):
            edges = self._sampled(frontier, neighbours)
            sources = self._edge_index[0, edges]
            fresh = torch.unique(sources[place[sources] < 0])
            place[fresh] = torch.arange(len(nodes), len(nodes) + len(fresh), device=seeds.device)
            followed.append(edges)
            nodes, frontier = torch.cat((nodes, fresh)), fresh
            reach.append(len(nodes))
        every = torch.cat(followed)
        return NodeBatch(nodes, place[self._edge_index[:, every]], every, tuple(reach))

    def _sampled(self, targets: Tensor, neighbours: int | None) -> Tensor:
        """Returns up to ``neighbours`` incoming edges of each target, without replacement, in the order of the targets."""
        degrees = self._degrees[targets]
        group = torch.repeat_interleave(torch.arange(len(targets), device=targets.device), degrees)
        first = degrees.cumsum(0) - degrees
        within = torch.arange(len(group), device=targets.device) - first[group]
        position = self._starts[targets][group] + within
        if neighbours is not None and bool((degrees > neighbours).any()):
            # Sorting group + random leaves the groups in order and shuffles inside them, so `within` ranks the shuffled edges.
            shuffled = torch.argsort(group + torch.rand(len(group), dtype=torch.float64, device=targets.device))
            position = position[shuffled[within < neighbours]]
        return self._order[position]

    def _by_library(self, seeds: Tensor, neighbours: int, layers: int) -> NodeBatch:
        if (neighbours, layers) not in self._theirs:
            graph = Data(edge_index=self._edge_index, num_nodes=self.nodes)
            self._theirs[neighbours, layers] = NeighborSampler(graph, [neighbours] * layers)
        sampler = self._theirs[neighbours, layers]
        found = sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
        # it counts edges in an order of its own, sorted by target
        edges = found.edge if sampler.edge_permutation is None else sampler.edge_permutation[found.edge]
        return NodeBatch(found.node, torch.stack((found.row, found.col)), edges, tuple(accumulate(found.num_sampled_nodes)))
