"""What the tests of the vision training share: tiny images, and a backbone that trains in no time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.training.train import train
from tempplug_adapters.vision import vision_method
from tempplug_adapters.vision.recipes import METHODS, VisionRecipe
from tempplug_adapters.vision.vision_images import VisionImages
from tempplug_adapters.vision.vision_method import TwoViews, VisionMethod

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


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backbone is a `TinyBackbone`."""
    monkeypatch.setattr(vision_method, "create_backbone", lambda name, **options: TinyBackbone())


def images(count: int = 26, seed: int = 0, labelled: bool = True) -> ImageArray:
    """Noise with a colour, which is its class; the classes have different sizes."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(120, (count, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    labels = (torch.arange(count) % 6 // 2.5).long()
    pixels[torch.arange(count), labels] += 100
    return ImageArray(pixels, labels if labelled else None, CLASSES, f"colours-{seed}")


def measured(test: ImageArray | None = None) -> VisionImages:
    """Images to train on and to be measured with."""
    train_images = images()
    return VisionImages(train_images, train_images, images(12, seed=1) if test is None else test)


def small(method: str, **changes: Any) -> VisionRecipe:
    """A method's first recipe, cut down to tiny images, batches and heads, and with views that are quick."""
    sizes: dict[str, Any] = {"embedding_dimension": 8, "image_size": SIDE, "per_device_train_batch_size": 8}
    sizes |= {"num_train_epochs": 5, "augmentation": "amcl-a", "backbone": "resnet18"}
    if method in ("moco", "nnclr"):
        sizes["queue_size"] = 11
    if method == "nnclr":
        sizes["hidden_dimension"] = 12
    recipe = METHODS[method].recipe(**{**sizes, **changes})
    assert isinstance(recipe, VisionRecipe)
    return recipe


def flags(strategy: str | None, objective: str | None = None, options: list[str] | None = None) -> TemperatureArguments:
    return TemperatureArguments(strategy, options or [], objective)


def built(method: str, strategy: str | None = None, data: ImageArray | None = None, **changes: Any) -> TwoViews:
    """The module that a training begins with."""
    made: VisionMethod[Any] = METHODS[method].load()  # type: ignore[assignment]
    recipe, given = small(method, **changes), VisionImages(images() if data is None else data)
    recipe = made.recipe_of(recipe, (strategy or "fixed").partition(":")[0], "colours")
    torch.manual_seed(recipe.seed)
    return made.build(recipe, given, made.create_loss(recipe, given, flags(strategy)))


def run(
    folder: Path,
    method: str = "simclr",
    strategy: str | None = "fixed",
    *,
    data: ImageArray | VisionImages | None = None,
    recipe: VisionRecipe | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Trains; what is no setting of the recipe goes to `train`."""
    info = METHODS[method]
    settings = {name: more.pop(name) for name in list(more) if name in type(info.recipe()).kinds()}
    given = images() if data is None else data
    return train(
        info.load(),
        small(method, **settings) if recipe is None else recipe,
        given if isinstance(given, VisionImages) else VisionImages(given),
        flags(strategy) if isinstance(strategy, str | None) else strategy,
        folder,
        **more,
    )


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each step hands to the step module, and that module."""
    calls: list[dict[str, Any]] = []
    original = TwoViews.__init__

    def watched(self: TwoViews, step: nn.Module, *given: Any) -> None:
        original(self, step, *given)  # type: ignore[arg-type]

        def hook(_: nn.Module, views: tuple[Tensor, ...], named: dict[str, Any]) -> None:
            calls.append({"views": views, "module": step, **named})

        step.register_forward_pre_hook(hook, with_kwargs=True)
        if isinstance(step.backbone, TinyBackbone):
            step.backbone.module[0].register_forward_hook(lambda _, __, output: calls[-1].update(output=output))

    monkeypatch.setattr(TwoViews, "__init__", watched)
    return calls
