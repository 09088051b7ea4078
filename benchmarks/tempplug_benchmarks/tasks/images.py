"""The suites ``vision``, ``long-tail`` and ``anomaly``, each declared in its TOML file, and how they read images.

A missing data set is never replaced by another one. Importing this module loads no framework.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug.errors import DataError
from tempplug_adapters.msc.recipe import METHOD
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.vision.recipes import METHODS, MOCO, SIMCLR, VisionRecipe
from tempplug_benchmarks.suite_file import make_suite, read_file

if TYPE_CHECKING:
    from tempplug_adapters.msc.method import Anomalies
    from tempplug_adapters.msc.recipe import MSCRecipe
    from tempplug_adapters.training.method import Source

# Names of the lossy copies, by data set.
_COPIES = {"cifar10": "cifar10", "imagenette": "imagenette224", "tiny-imagenet": "tiny_imagenet_c100"}


def read_images(
    recipe: Any,
    source: Source,
    *,
    method: MethodInfo,
    wanted: int | None = None,
    copies: bool = False,
    folder: str = "",
    splits: bool = False,
) -> tuple[Any, Any]:
    """Returns the recipe and the data as loaded by the method.

    A data set may be local or come from the Hugging Face hub, but lossy copies and subsets are rejected.

    Args:
        recipe: recipe of the run.
        source: name of the data set.
        method: the method that loads it.
        wanted: required number of training images; None for any number.
        copies: read the lossy copies below ``vision``, which are otherwise rejected.
        folder: path in the data folder, instead of a name.
        splits: select the split given by the run's seed, for papers with several splits.

    Raises:
        DataError: the data set is missing, is a copy, or has another number of images.
    """
    place = source.data_dir
    if place is not None:
        if copies:
            source = replace(source, data_dir=place / "vision")
        else:
            _refuse_copies(source.dataset, place)
        if folder:
            source = replace(source, dataset=str(place / folder))
    if splits:
        recipe = recipe.changed(split_seed=recipe.seed)
    data = method.load().load(recipe, source)
    if wanted is not None and len(data) != wanted:
        raise DataError(
            f"{source.dataset} has {len(data):,} images to train on, but the profile is about {wanted:,}: pass the whole data "
            "set, or run another profile."
        )
    return recipe, data


def _refuse_copies(dataset: str, folder: Path) -> None:
    for place in (folder, folder / "vision"):
        copy = place / f"{_COPIES.get(dataset, dataset)}_train_jpeg.npz"
        if copy.exists():
            raise DataError(
                f"{copy} holds lossy copies of images, which are no {dataset}: put the original data set into another folder "
                "and pass that one, or pass none to load it from the Hugging Face hub."
            )


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


VISION = make_suite(read_file("vision"), *METHODS.values(), read_images, settings=VisionRecipe)
LONG_TAIL = make_suite(read_file("long_tail"), SIMCLR, MOCO, read_images, settings=VisionRecipe)
ANOMALY = make_suite(read_file("anomaly"), METHOD, digit_anomalies, read_images)
