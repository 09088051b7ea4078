"""A LightningModule on a graph of PyTorch Geometric, with any temperature strategy by three flags.

    python adapters/examples/lightning_nodes.py --temperature-strategy schedule --epochs 100

Three parts make it work: the loss is an attribute of the module, `optimizer_groups` gives temperatures a separate learning rate
and no weight decay, and `TemperatureCallback` passes the progress to the loss and logs the record. The data are the karate club
and can be replaced by others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN
from torch_geometric.utils import dropout_edge, mask_feature

import tempplug
from tempplug.arguments import merge_spec
from tempplug_adapters.lightning import TemperatureCallback, optimizer_groups


class Contrastive(pl.LightningModule):
    """GRACE: two views of every node."""

    def __init__(self, features: int, loss_fn: tempplug.ContrastiveLoss) -> None:
        super().__init__()
        self.encoder = GCN(features, 32, 2)
        self.head = torch.nn.Linear(32, 32)
        self.loss_fn = loss_fn

    def view(self, graph: Data, share: float) -> Tensor:
        """Returns the embeddings of the nodes without a share of edges and features."""
        x, _ = mask_feature(graph.x, share)
        edge_index, _ = dropout_edge(graph.edge_index, share)
        embeddings: Tensor = self.head(self.encoder(x, edge_index))
        return embeddings

    def training_step(self, graph: Data, number: int) -> Tensor:
        """Returns the loss."""
        loss = self.loss_fn(self.view(graph, 0.2), self.view(graph, 0.4))
        self.log("loss", loss, prog_bar=True, batch_size=1)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns the optimizer, temperatures in groups of their own."""
        return torch.optim.AdamW(optimizer_groups(self), lr=0.01, weight_decay=1e-4)


def main(words: Sequence[str], **trainer: Any) -> pl.Trainer:
    """Trains and returns the Trainer, whose ``callback_metrics`` and logs have the temperature."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    tempplug.add_temperature_arguments(parser)
    arguments = parser.parse_args(words)
    strategy, options = merge_spec(arguments.temperature_strategy, arguments.temperature_args)
    loss_fn = tempplug.ContrastiveLoss(
        tempplug.create_strategy(strategy, **options),
        arguments.contrastive_objective,
        negatives=arguments.contrastive_negatives,
    )
    pl.seed_everything(0)
    data = KarateClub()
    run = pl.Trainer(max_epochs=arguments.epochs, log_every_n_steps=1, callbacks=[TemperatureCallback()], **trainer)
    run.fit(Contrastive(data.num_features, loss_fn), DataLoader(data))
    return run


if __name__ == "__main__":
    found = main(sys.argv[1:]).callback_metrics
    print({name: round(float(value), 4) for name, value in found.items()})
