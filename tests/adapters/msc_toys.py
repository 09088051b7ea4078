"""Small stand-ins for the tests of MSC: a network with batch normalisation, and images of two colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.backbones import Backbone
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.msc.method import Anomalies, MSCMethod
from tempplug_adapters.msc.one_class import OneClassData, one_class
from tempplug_adapters.msc.recipe import METHOD, MSCRecipe
from tempplug_adapters.training.train import train

CLASSES = ("red", "green", "blue")


def toy_network() -> nn.Sequential:
    """Three convolutions with batch normalisation whose statistics are not those of any batch."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for inner, outer in ((3, 6), (6, 8), (8, 8)):
            layers += [nn.Conv2d(inner, outer, 3, stride=2, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]
            nn.init.normal_(layers[-2].bias, std=0.5)  # type: ignore[arg-type]
        return nn.Sequential(*layers)


def toy_backbone() -> Backbone:
    return Backbone(toy_network())


def toy_images(count: int = 60, seed: int = 0, name: str = "toys") -> ImageArray:
    """Noise around one colour a class, 12 x 12."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    images = torch.randint(0, 120, (count, 3, 12, 12), generator=generator)
    images[torch.arange(count), labels] += 100
    return ImageArray(images.to(torch.uint8), labels, CLASSES, name)


def toy_data(train_images: int | None = None) -> OneClassData:
    return one_class(toy_images(99), toy_images(30, seed=1), "green", train_images=train_images)


def recipe(**changes: Any) -> MSCRecipe:
    """MSC's settings for the toys, whose representations are so near to one another that larger steps ruin the network."""
    small = {"num_train_epochs": 4, "per_device_train_batch_size": 16, "image_size": 12, "frozen_blocks": 2}
    return MSCRecipe(**{**small, "optimizer": "adamw", "learning_rate": 3e-4, "momentum": 0.9, **changes})


def run(folder: Path, strategy: str = "fixed", *, data: Anomalies | None = None, **more: Any) -> dict[str, Any]:
    """Trains on the toys; what is no setting of the recipe goes to `train`."""
    settings = recipe(**{name: more.pop(name) for name in list(more) if name in MSCRecipe.kinds()})
    data = data or Anomalies(toy_data(), toy_backbone())
    return train(MSCMethod(METHOD), settings, data, TemperatureArguments(strategy, [], None), folder, **more)


def save_tiny_resnet(folder: Path) -> Path:
    """The folder of a random ResNet of transformers, of four residual blocks and width 8."""
    from transformers import ResNetConfig, ResNetModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[2, 2], layer_type="basic")
        ResNetModel(config).save_pretrained(folder)
    return folder
