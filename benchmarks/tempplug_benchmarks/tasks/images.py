"""What the suites of images share: how images are read, and what the smaller profiles change in a recipe.

Nothing is ever used in the place of the data set that a profile names.

It must not know arms. Importing this loads no framework.
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
    # its crops keep a fifth of the eight pixels' square at least
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
"""What the small profiles change in a recipe of CIFAR-10, a minute or so a run on one core.

The stem of small images on views of 16 pixels, and this learning rate, were chosen with fixed temperatures alone, on 5,000
images that are neither trained nor tested on: neighbours are right in 41 % then, and in 23 % with random weights.
"""

# How the lossy copies of a data set are called, by its name.
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
    """Returns recipe and data as the method loads them.

    A data set may lie where the user has it, or come from the Hugging Face hub, but lossy copies or a part of it are refused.

    Args:
        recipe: of the run.
        source: which data set.
        method: that loads it.
        wanted: how many images there must be to train on; None is any number.
        copies: read the lossy copies below ``vision``, which are refused otherwise.
        folder: of the data folder, in place of a name.
        splits: draw the part that the run's seed means: a paper's splits are seeds.

    Raises:
        DataError: there is no such data set, it is a copy, or has another number of images.
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
