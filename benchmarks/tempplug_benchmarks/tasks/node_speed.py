"""Seconds per epoch of GRACE with tempplug's loss and with InfoNCE written out in plain PyTorch, alternated in one process.

Both train the same model from the same weights on the same views, and the values of their first epoch are returned too. Run it
as ``python -m tempplug_benchmarks.tasks.node_speed --dataset CiteSeer``.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

import tempplug
from tempplug_adapters.graph.grace import GRACE, NodeFeatures, View, corrupt
from tempplug_adapters.graph.grace_recipe import GraceSettings
from tempplug_adapters.graph.node_data import load_graph

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class NodeSpeed:
    """What was measured.

    Attributes:
        tempplug_seconds: median of an epoch with `tempplug.ContrastiveLoss`.
        plain_seconds: median of an epoch with `PlainInfoNCE`.
        tempplug_loss: value of the first epoch's loss, both on the same embeddings.
        plain_loss: likewise.
        threads: that PyTorch used.
    """

    tempplug_seconds: float
    plain_seconds: float
    tempplug_loss: float
    plain_loss: float
    threads: int


class PlainInfoNCE:
    """InfoNCE between two views of all nodes, the nodes of an anchor's own view among its negatives, as PyGCL lays it out.

    Masks [N, 2N] say which candidates count; an anchor itself does not (PyGCL 0.1.2 counts it). They are made once, not at each
    call as there.

    Args:
        nodes: N.
        temperature: that similarities are divided by.
    """

    def __init__(self, nodes: int, temperature: float) -> None:
        self.temperature = temperature
        other, own = torch.eye(nodes), 1 - torch.eye(nodes)
        self.positive = torch.cat((other, torch.zeros(nodes, nodes)), dim=1)
        self.counted = torch.cat((torch.ones(nodes, nodes), own), dim=1)

    def __call__(self, view_a: Tensor, view_b: Tensor) -> Tensor:
        """Returns the mean over both views' anchors."""
        unit_a, unit_b = (torch.nn.functional.normalize(view) for view in (view_a, view_b))
        return (self._one_way(unit_a, unit_b) + self._one_way(unit_b, unit_a)) / 2

    def _one_way(self, anchors: Tensor, others: Tensor) -> Tensor:
        logits = anchors @ torch.cat((others, anchors)).T / self.temperature
        mass = (logits.exp() * self.counted).sum(dim=1, keepdim=True)
        return -((logits - mass.log()) * self.positive).sum(dim=1).mean()


def measure(graph: Data, epochs: int, temperature: float = 0.5, seed: int = 0) -> NodeSpeed:
    """Returns the medians of so many epochs of each, after two that are not counted.

    Args:
        graph: see `tempplug_adapters.graph.node_data.check_graph`.
        epochs: of each, at least 1.
        temperature: of both losses.
        seed: of weights and views.
    """
    torch.manual_seed(seed)
    settings, features = GraceSettings(), NodeFeatures(graph.x)
    model = GRACE(features.columns)
    losses: list[Loss] = [
        tempplug.ContrastiveLoss(f"fixed:temperature={temperature}"),
        PlainInfoNCE(features.nodes, temperature),
    ]
    sides = []
    for loss in losses:
        own = copy.deepcopy(model)
        sides.append((own, loss, torch.optim.Adam(own.parameters(), lr=settings.learning_rate)))
    seconds: tuple[list[float], list[float]] = ([], [])
    values = [0.0, 0.0]
    for epoch in range(epochs + 2):
        state = torch.get_rng_state()
        # Whichever goes second finds the caches warm, so they take turns.
        for side in (0, 1) if epoch % 2 == 0 else (1, 0):
            torch.set_rng_state(state)
            taken, value = _epoch(*sides[side], graph.edge_index, features, settings)
            if epoch == 0:
                values[side] = value
            if epoch >= 2:
                seconds[side].append(taken)
    medians = [statistics.median(each) for each in seconds]
    return NodeSpeed(medians[0], medians[1], values[0], values[1], torch.get_num_threads())


def _epoch(
    model: GRACE,
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    edge_index: Tensor,
    features: NodeFeatures,
    settings: GraceSettings,
) -> tuple[float, float]:
    began = time.perf_counter()
    pairs = zip(settings.edge_removal, settings.feature_masking, strict=True)
    views: list[View] = [corrupt(edge_index, features.columns, *shares) for shares in pairs]
    optimizer.zero_grad()
    value = loss(*model(features, views))
    value.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return time.perf_counter() - began, value.item()


def main() -> None:
    """Measures and prints one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m tempplug_benchmarks.tasks.node_speed", description=__doc__)
    parser.add_argument("--dataset", default="CiteSeer")
    parser.add_argument("--data-dir", default=os.environ.get("TEMPPLUG_DATA"), help="(default: TEMPPLUG_DATA)")
    parser.add_argument("--epochs", type=int, default=30, help="of each loss (default: 30)")
    parser.add_argument("--temperature", type=float, default=0.5, help="(default: 0.5)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        graph = load_graph(given.dataset, given.data_dir, cache)
    print(json.dumps({"dataset": given.dataset, **vars(measure(graph, given.epochs, given.temperature))}))


if __name__ == "__main__":
    main()
