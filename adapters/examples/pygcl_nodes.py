"""GRACE with PyGCL, and with any temperature strategy by three flags: tempplug's loss in PyGCL's contrast model.

    python adapters/examples/pygcl_nodes.py --tau 0.4 --temperature-strategy macl

PyGCL 0.1.2 imports dgl, torch_sparse and torch_scatter, which must be installed. The data are PyTorch Geometric's karate club;
any other data set of nodes can replace it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
from GCL import augmentors as augment  # type: ignore[import-untyped]
from GCL.models import DualBranchContrast  # type: ignore[import-untyped]
from torch import nn
from torch_geometric.datasets import KarateClub
from torch_geometric.nn import GCN

import tempplug
from tempplug.arguments import merge_spec
from tempplug.options import format_spec
from tempplug_adapters.graph.pygcl import PyGCLLoss
from tempplug_adapters.parameter_groups import optimizer_groups


def main(words: Sequence[str]) -> list[float]:
    """Trains, prints loss and temperature of some epochs, and returns all temperatures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tau", type=float, help="PyGCL's spelling of a temperature; in place of options of the strategy")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    tempplug.add_temperature_arguments(parser)
    arguments = parser.parse_args(words)
    torch.manual_seed(0)
    graph = KarateClub()[0]

    strategy = format_spec(*merge_spec(arguments.temperature_strategy, arguments.temperature_args))
    # with PyGCL alone: InfoNCE(tau=0.2)
    loss = PyGCLLoss(strategy, arguments.contrastive_objective, tau=arguments.tau, negatives=arguments.contrastive_negatives)
    contrast = DualBranchContrast(loss, mode="L2L", intraview_negs=True)
    loss.contrastive_loss.set_length(arguments.epochs)

    encoder, head = GCN(graph.num_features, 32, 2), nn.Sequential(nn.Linear(32, 32), nn.ELU(), nn.Linear(32, 32))
    views = [augment.Compose([augment.EdgeRemoving(pe=share), augment.FeatureMasking(pf=share)]) for share in (0.2, 0.4)]
    model = nn.ModuleDict({"encoder": encoder, "head": head, "contrast": contrast})
    optimizer = torch.optim.Adam(optimizer_groups(model), lr=arguments.learning_rate)
    temperatures = []
    for epoch in range(arguments.epochs):
        loss.contrastive_loss.set_progress(epoch)
        made = [view(graph.x, graph.edge_index) for view in views]
        h1, h2 = (head(encoder(x, edge_index)) for x, edge_index, _ in made)
        value = contrast(h1=h1, h2=h2)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        temperatures.append(float(loss.contrastive_loss.record.temperature_mean))
        if epoch % max(1, arguments.epochs // 10) == 0:
            print(f"epoch {epoch}  loss {value.item():.4f}  temperature {temperatures[-1]:.4f}")
    return temperatures


if __name__ == "__main__":
    main(sys.argv[1:])
