"""What the tests of the vision training share: tiny images, and a backbone that trains in no time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.training.checkpoint import CHECKPOINT
from tempplug_adapters.vision import methods, train
from tempplug_adapters.vision.recipe import VisionSettings
from tempplug_adapters.vision.recipes import recipe_settings

SIDE = 6
CLASSES = ("red", "green", "blue")


class TinyBackbone(nn.Module):
    """Images to 16 numbers; ``mean`` and ``std`` are what a checkpoint of a `Backbone` holds."""

    dimension = 16
    mean: Tensor

    def __init__(self, batch_norm: bool = True) -> None:
        super().__init__()
        self.module = nn.Sequential(
            nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1),
            nn.BatchNorm2d(8) if batch_norm else nn.Identity(),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * (SIDE // 2) ** 2, self.dimension),
        )
        self.register_buffer("mean", torch.zeros(3, 1, 1))
        self.register_buffer("std", torch.ones(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        representations: Tensor = self.module(images.to(self.mean.dtype))
        return representations


def images(count: int = 26, seed: int = 0, labelled: bool = True) -> ImageArray:
    """Noise with a colour, which is its class; the classes have different sizes."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(120, (count, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    labels = (torch.arange(count) % 6 // 2.5).long()
    pixels[torch.arange(count), labels] += 100
    return ImageArray(pixels, labels if labelled else None, CLASSES, f"colours-{seed}")


def small(method: str, **changes: Any) -> VisionSettings:
    """Settings of a method's first recipe, cut down to tiny images, batches and heads, and with views that are quick."""
    sizes: dict[str, Any] = {"embedding_dimension": 8, "image_size": SIDE, "batch_size": 8, "epochs": 5}
    sizes["augmentation"] = "amcl-a"
    if method in ("moco", "nnclr"):
        sizes["queue_size"] = 11
    if method == "nnclr":
        sizes["hidden_dimension"] = 12
    return recipe_settings(method, **{**sizes, **changes})


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backbone is a `TinyBackbone`."""
    monkeypatch.setattr(methods, "create_backbone", lambda name, **options: TinyBackbone())


def saved(folder: Path) -> dict[str, Any]:
    """The checkpoint of a run."""
    content: dict[str, Any] = torch.load(folder / CHECKPOINT, weights_only=True)
    return content


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Where two states differ by a single bit."""
    if isinstance(first, Tensor):
        return [] if torch.equal(first, second) else [path]
    if isinstance(first, dict):
        if first.keys() != second.keys():
            return [f"{path}: {first.keys() ^ second.keys()}"]
        return [found for key in first for found in differences(first[key], second[key], f"{path}.{key}")]
    if isinstance(first, list | tuple):
        pairs = zip(first, second, strict=True)
        return [found for place, (a, b) in enumerate(pairs) for found in differences(a, b, f"{path}.{place}")]
    return [] if first == second else [f"{path}: {first} {second}"]


def flags(strategy: str | None, objective: str | None = None) -> TemperatureArguments:
    return TemperatureArguments(strategy, [], objective)


@pytest.fixture(name="seen")
def watched_steps(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each step hands to the method, with the method and the learning rates of that moment."""
    calls: list[dict[str, Any]] = []
    made: list[Any] = []
    original, optimizer = train.create_method, train.create_optimizer

    def watched(*given: Any, **named: Any) -> Any:
        module = original(*given, **named)

        def hook(_: nn.Module, views: tuple[Tensor, ...], named: dict[str, Any]) -> None:
            rates = [group["lr"] for group in made[-1].param_groups]
            calls.append({"views": views, "module": module, "rates": rates, **named})

        module.register_forward_pre_hook(hook, with_kwargs=True)
        return module

    def create(*given: Any) -> Any:
        made.append(optimizer(*given))
        return made[-1]

    monkeypatch.setattr(train, "create_method", watched)
    monkeypatch.setattr(train, "create_optimizer", create)
    return calls
