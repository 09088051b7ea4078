"""What suites of images measure, of a backbone that gives the pixels themselves."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from tempplug_adapters.images.backbones import Backbone
from tempplug_adapters.training.method import Run, Source
from tempplug_adapters.vision.recipe import VisionRecipe
from tempplug_adapters.vision.recipes import SIMCLR
from tempplug_adapters.vision.vision_images import VisionImages
from tempplug_benchmarks.profile import Profile


class Pixels(nn.Module):
    """The grey values as representations.

    Args:
        mean: that is taken from them.
    """

    def __init__(self, mean: float) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.encoder = Backbone(_Flat(), mean=(mean,) * 3, std=(1, 1, 1), dimension=64)


class _Flat(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0].flatten(1)


def measure_pixels(profile: Profile, mean: float, folder: Path, **changes: int) -> tuple[dict[str, float], VisionImages]:
    """Returns the metrics of a profile and the images that it reads."""
    recipe = profile.recipe.changed(**changes)
    assert isinstance(recipe, VisionRecipe)
    source, method = Source(profile.source, None, folder), SIMCLR.load()
    recipe, data = (recipe, method.load(recipe, source)) if profile.load is None else profile.load(recipe, source)
    with torch.no_grad():
        figures = method.evaluate(recipe, Pixels(mean).eval(), data, Run(folder))
    return {metric.name: figures[metric.figure or metric.name] for metric in profile.metrics}, data
