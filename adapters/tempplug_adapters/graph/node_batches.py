"""Mini-batches of a graph: some nodes to contrast, and around them what a GCN of a few layers reads, neighbours sampled.

For graphs whose nodes do not fit one similarity matrix. This module must not know the model.

Source: Hamilton et al. 2017, Inductive Representation Learning on Large Graphs (sampling a fixed number of neighbours a layer).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tempplug.errors import ConfigError


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


class NodeBatches:
    """Deals the nodes of a graph into batches, anew at each iteration; an epoch has every node once.

    Args:
        edge_index: [2, E] of the whole graph, from source to target.
        nodes: N.
        batch_size: nodes to contrast in a batch, at least 2; sizes differ by at most one, and a batch of one is never left.
        neighbours: of each node and layer, how many incoming edges are followed, chosen at random; at least 1.
        layers: how many steps away from the seeds the encoder looks.

    Raises:
        ConfigError: a number is out of range.

    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> [batch.seeds for batch in NodeBatches(path, nodes=7, batch_size=3, neighbours=5)]
    [3, 2, 2]
    """

    def __init__(self, edge_index: Tensor, nodes: int, batch_size: int, neighbours: int, layers: int = 2) -> None:
        if batch_size < 2:
            raise ConfigError(f"batch_size={batch_size} must be at least 2: a node needs another one as its negative.")
        if neighbours < 1:
            raise ConfigError(f"neighbours={neighbours} must be at least 1.")
        self.nodes, self.batch_size, self.neighbours, self.layers = nodes, batch_size, neighbours, layers
        order = torch.argsort(edge_index[1], stable=True)
        self._sources = edge_index[0, order]
        self._degrees = torch.bincount(edge_index[1], minlength=nodes)
        self._starts = self._degrees.cumsum(0) - self._degrees

    def __len__(self) -> int:
        return max(1, min(math.ceil(self.nodes / self.batch_size), self.nodes // 2))

    def __iter__(self) -> Iterator[NodeBatch]:
        for seeds in torch.randperm(self.nodes, device=self._sources.device).tensor_split(len(self)):
            yield self.around(seeds)

    def around(self, seeds: Tensor) -> NodeBatch:
        """Returns the batch that contrasts the nodes at these positions, [s], each named once."""
        place = torch.full((self.nodes,), -1, device=seeds.device)
        place[seeds] = torch.arange(len(seeds), device=seeds.device)
        nodes, frontier = seeds, seeds
        edges: list[Tensor] = []
        for _ in range(self.layers):
            sources, targets = self._sampled(frontier)
            fresh = torch.unique(sources[place[sources] < 0])
            place[fresh] = torch.arange(len(nodes), len(nodes) + len(fresh), device=seeds.device)
            edges.append(torch.stack((place[sources], place[targets])))
            nodes, frontier = torch.cat((nodes, fresh)), fresh
        return NodeBatch(nodes, torch.cat(edges, dim=1), len(seeds))

    def _sampled(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Returns sources and targets of up to ``neighbours`` incoming edges of each target, without replacement."""
        degrees = self._degrees[targets]
        group = torch.repeat_interleave(torch.arange(len(targets), device=targets.device), degrees)
        first = degrees.cumsum(0) - degrees
        within = torch.arange(len(group), device=targets.device) - first[group]
        position = self._starts[targets][group] + within
        # Sorting group + random leaves the groups in order and shuffles inside them, so `within` ranks the shuffled edges.
        shuffled = torch.argsort(group + torch.rand(len(group), dtype=torch.float64, device=targets.device))
        kept = shuffled[within < self.neighbours]
        return self._sources[position[kept]], targets[group[kept]]
