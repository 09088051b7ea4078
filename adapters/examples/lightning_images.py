"""A LightningModule on images, with any temperature strategy by three flags: SimCLR on scikit-learn's digits.

    python adapters/examples/lightning_images.py --temperature-strategy learnable --epochs 5

``lightning_nodes.py`` explains the parts that make it work. Backbone, views and loss can be replaced.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tempplug
from tempplug.arguments import merge_spec
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.backbones import create_backbone
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.lightning import TemperatureCallback, optimizer_groups

SIZE = 16


class SimCLR(pl.LightningModule):
    """Two views of every image."""

    def __init__(self, loss_fn: tempplug.ContrastiveLoss) -> None:
        super().__init__()
        self.backbone = create_backbone("resnet18", stem="cifar", width=8)
        self.head = nn.Sequential(nn.Linear(self.backbone.dimension, 64), nn.ReLU(), nn.Linear(64, 32))
        self.augmentation = create_augmentation("simclr-cifar", SIZE)
        self.loss_fn = loss_fn

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        """Returns the loss."""
        (pixels,) = batch
        images = pixels.float() / 255
        view_a, view_b = self.head(self.backbone(self.augmentation(torch.cat([images, images])))).chunk(2)
        loss: Tensor = self.loss_fn(view_a, view_b)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns the optimizer, temperatures in groups of their own."""
        return torch.optim.SGD(optimizer_groups(self), lr=0.06, momentum=0.9, weight_decay=5e-4)


def main(words: Sequence[str], **trainer: Any) -> pl.Trainer:
    """Trains and returns the Trainer, whose ``callback_metrics`` and logs have the temperature."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images", type=int, help="how many to train on; else all")
    tempplug.add_temperature_arguments(parser)
    arguments = parser.parse_args(words)
    strategy, options = merge_spec(arguments.temperature_strategy, arguments.temperature_args)
    loss_fn = tempplug.ContrastiveLoss(
        tempplug.create_strategy(strategy, **options),
        arguments.contrastive_objective,
        negatives=arguments.contrastive_negatives,
    )
    pl.seed_everything(0)
    images = load_images("digits", "train", None, size=SIZE, count=arguments.images)
    loader = DataLoader(TensorDataset(images.batch(torch.arange(len(images)))), batch_size=128, shuffle=True, drop_last=True)
    run = pl.Trainer(max_epochs=arguments.epochs, log_every_n_steps=1, callbacks=[TemperatureCallback()], **trainer)
    run.fit(SimCLR(loss_fn), loader)
    return run


if __name__ == "__main__":
    found = main(sys.argv[1:]).callback_metrics
    print({name: round(float(value), 4) for name, value in found.items()})
