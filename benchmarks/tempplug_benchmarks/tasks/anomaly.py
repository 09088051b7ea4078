"""The suite ``anomaly``, declared in ``anomaly.toml``, and its small network for the quick profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tempplug_adapters.msc.recipe import METHOD
from tempplug_benchmarks.suite_file import make_suite, read_file
from tempplug_benchmarks.tasks.reading import read_images

if TYPE_CHECKING:
    from tempplug_adapters.msc.method import Anomalies
    from tempplug_adapters.msc.recipe import MSCRecipe
    from tempplug_adapters.training.method import Source


def digit_anomalies(recipe: MSCRecipe, source: Source) -> tuple[MSCRecipe, Anomalies]:
    """Returns the recipe, and scikit-learn's digits with one normal class and the small network."""
    import torch

    from tempplug_adapters.images.backbones import create_backbone
    from tempplug_adapters.images.image_data import load_images
    from tempplug_adapters.msc.method import Anomalies
    from tempplug_adapters.msc.one_class import one_class

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = create_backbone("resnet18", stem="cifar", width=8)
    train, test = load_images(source.dataset, "train", None), load_images(source.dataset, "test", None)
    return recipe, Anomalies(one_class(train, test, recipe.normal_class or ""), backbone)


SUITE = make_suite(read_file("anomaly"), METHOD, digit_anomalies, read_images)
