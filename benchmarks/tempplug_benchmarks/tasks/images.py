"""Code shared by the image suites: reading images, and the settings of the smaller profiles.

A missing data set is never replaced by another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug.errors import DataError
from tempplug_adapters.training.method_info import MethodInfo

if TYPE_CHECKING:
    from tempplug_adapters.training.method import Source

QUICK: Mapping[str, Any] = {
    "width": 8,
    "embedding_dimension": 32,
    "image_size": 8,
    # its crops keep at least a fifth of the 8 x 8 pixels
    "augmentation": "moco-v2",
    "num_train_epochs": 2,
    "per_device_train_batch_size": 128,
    "channels_last": False,
}
SMALL: Mapping[str, Any] = {
    "width": 16,
    "embedding_dimension": 64,
    "image_size": 16,
    "learning_rate": 3e-3,
    "num_train_epochs": 6,
}
"""Changes of the small profiles to a recipe of CIFAR-10: about a minute per run on one core.

The stem of small images on views of 16 pixels, and this learning rate, were chosen with fixed temperatures alone, on 5,000
images that are in neither the training nor the test set: kNN reaches 41 % with it, and 23 % with random weights.
"""

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
