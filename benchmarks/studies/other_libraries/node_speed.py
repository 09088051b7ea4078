"""Compares the seconds per epoch of GRACE with tempplug's loss and with InfoNCE in plain PyTorch, alternating in one process.

Both train the same model from the same weights on the same views; the losses of their first epoch are also returned. Run it as
``python -m studies.other_libraries.node_speed --dataset CiteSeer``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from studies.other_libraries.turns import in_turn
from tempplug import ContrastiveLoss
from tempplug_adapters.graph.grace_method import GraceMethod
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.graph.recipes import GRACE as METHOD, GraceRecipe
from tempplug_adapters.training.batches import seed_of
from tempplug_adapters.training.method import Source


class PlainInfoNCE(nn.Module):
    """InfoNCE between two views of all nodes with intra-view negatives, in the layout of PyGCL.

    Masks [N, 2N] select the candidates and exclude the anchor itself (PyGCL 0.1.2 includes it). They are created once, whereas
    PyGCL creates them in each call.

    Args:
        nodes: N.
        temperature: divisor of the similarities.
    """

    def __init__(self, nodes: int, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        other, own = torch.eye(nodes), 1 - torch.eye(nodes)
        self.positive = torch.cat((other, torch.zeros(nodes, nodes)), dim=1)
        self.counted = torch.cat((torch.ones(nodes, nodes), own), dim=1)

    def accepted(self, **given: Tensor) -> dict[str, Tensor]:
        """Returns no further inputs, in the interface of `ContrastiveLoss.accepted`."""
        return {}

    def forward(self, view_a: Tensor, view_b: Tensor) -> Tensor:
        """Returns the mean over both views' anchors."""
        unit_a, unit_b = (torch.nn.functional.normalize(view) for view in (view_a, view_b))
        return (self._one_way(unit_a, unit_b) + self._one_way(unit_b, unit_a)) / 2

    def _one_way(self, anchors: Tensor, others: Tensor) -> Tensor:
        logits = anchors @ torch.cat((others, anchors)).T / self.temperature
        mass = (logits.exp() * self.counted).sum(dim=1, keepdim=True)
        return -((logits - mass.log()) * self.positive).sum(dim=1).mean()


def measure(data: Nodes, epochs: int, temperature: float = 0.5, seed: int = 0) -> dict[str, float]:
    """Returns the measurements of both losses.

    Args:
        data: the graph; a step contrasts all its nodes.
        epochs: number of epochs of each loss, at least 1.
        temperature: of both losses.
        seed: of weights and views.

    Returns:
        ``tempplug_seconds`` and ``plain_seconds``, the medians of an epoch after two warm-up epochs; ``tempplug_loss`` and
        ``plain_loss`` of the first epoch, on the same embeddings; ``threads``, the number of PyTorch threads.
    """
    method, recipe = GraceMethod(METHOD), GraceRecipe()
    steps, values = {}, dict[str, float]()
    losses = {"tempplug": ContrastiveLoss(f"fixed:temperature={temperature}"), "plain": PlainInfoNCE(len(data), temperature)}
    for name, loss in losses.items():
        torch.manual_seed(seed)
        own = method.build(recipe, data, loss)
        optimizer = torch.optim.Adam(own.parameters(), lr=recipe.learning_rate)

        def step(epoch: int, name: str = name, own: nn.Module = own, optimizer: torch.optim.Optimizer = optimizer) -> float:
            torch.manual_seed(seed_of(seed, epoch))
            began = time.perf_counter()
            optimizer.zero_grad()
            value = own(**method.collate(recipe, data, torch.arange(len(data))))
            value.backward()
            optimizer.step()
            taken = time.perf_counter() - began
            values.setdefault(f"{name}_loss", value.item())
            return taken

        steps[name] = step
    medians = {f"{name}_seconds": statistics.median(of) for name, of in in_turn(steps, epochs).items()}
    return {**medians, **values, "threads": torch.get_num_threads()}


def main() -> None:
    """Measures and prints one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m studies.other_libraries.node_speed", description=__doc__)
    parser.add_argument("--dataset", default="CiteSeer")
    parser.add_argument("--data-dir", default=os.environ.get("TEMPPLUG_DATA"), help="(default: TEMPPLUG_DATA)")
    parser.add_argument("--epochs", type=int, default=30, help="of each loss (default: 30)")
    parser.add_argument("--temperature", type=float, default=0.5, help="(default: 0.5)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        source = Source(given.dataset, None if given.data_dir is None else Path(given.data_dir), Path(cache))
        data = GraceMethod(METHOD).load(GraceRecipe(), source)
    print(json.dumps({"dataset": given.dataset, **measure(data, given.epochs, given.temperature)}))


if __name__ == "__main__":
    main()
