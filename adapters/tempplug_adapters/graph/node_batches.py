"""Mini-batches of a graph: some nodes to contrast, and around them what a GCN of a few layers reads, neighbours sampled.

For graphs whose nodes do not fit one similarity matrix. This module must not know the model.

Source: Hamilton et al. 2017, Inductive Representation Learning on Large Graphs (sampling a fixed number of neighbours a layer).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class NodeBatch:
    """A part of a graph.

    Attributes:
        nodes: [n] positions in the whole graph; those to contrast come first.
        edge_index: [2, E], which number the nodes as they stand in ``nodes``.
        seeds: how many of the nodes are to be contrasted.
    """

    nodes: Tensor
    edge_index: Tensor
    seeds: int


class NodeSampler:
    """Finds what a GCN reads around some nodes, a part of their neighbours chosen at random.

    Args:
        edge_index: [2, E] of the whole graph, from source to target.
        nodes: N.

    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> NodeSampler(path, nodes=3).around(torch.tensor([2]), neighbours=5, layers=1).nodes
    tensor([2, 1])
    """

    def __init__(self, edge_index: Tensor, nodes: int) -> None:
        self.nodes = nodes
        order = torch.argsort(edge_index[1], stable=True)
        self._sources = edge_index[0, order]
        self._degrees = torch.bincount(edge_index[1], minlength=nodes)
        self._starts = self._degrees.cumsum(0) - self._degrees

    def around(self, seeds: Tensor, neighbours: int, layers: int) -> NodeBatch:
        """Returns the batch that contrasts some nodes.

        Args:
            seeds: [s] positions, each named once.
            neighbours: of each node and layer, how many incoming edges are followed, at least 1.
            layers: how many steps away from the seeds the encoder looks.
        """
        place = torch.full((self.nodes,), -1, device=seeds.device)
        place[seeds] = torch.arange(len(seeds), device=seeds.device)
        nodes, frontier = seeds, seeds
        edges: list[Tensor] = []
        for _ in range(layers):
            sources, targets = self._sampled(frontier, neighbours)
            fresh = torch.unique(sources[place[sources] < 0])
            place[fresh] = torch.arange(len(nodes), len(nodes) + len(fresh), device=seeds.device)
            edges.append(torch.stack((place[sources], place[targets])))
            nodes, frontier = torch.cat((nodes, fresh)), fresh
        return NodeBatch(nodes, torch.cat(edges, dim=1), len(seeds))

    def _sampled(self, targets: Tensor, neighbours: int) -> tuple[Tensor, Tensor]:
        """Returns sources and targets of up to ``neighbours`` incoming edges of each target, without replacement."""
        degrees = self._degrees[targets]
        group = torch.repeat_interleave(torch.arange(len(targets), device=targets.device), degrees)
        first = degrees.cumsum(0) - degrees
        within = torch.arange(len(group), device=targets.device) - first[group]
        position = self._starts[targets][group] + within
        # Sorting group + random leaves the groups in order and shuffles inside them, so `within` ranks the shuffled edges.
        shuffled = torch.argsort(group + torch.rand(len(group), dtype=torch.float64, device=targets.device))
        kept = shuffled[within < neighbours]
        return self._sources[position[kept]], targets[group[kept]]
