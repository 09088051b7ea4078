"""Reading the data of suites from the data folder. A missing data set is never replaced by another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug.errors import DataError
from tempplug_adapters.training.method_info import MethodInfo

if TYPE_CHECKING:
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


def read_text(recipe: Any, source: Source, *, method: MethodInfo) -> tuple[Any, Any]:
    """Returns the recipe and data with paths in the data folder; a missing encoder is loaded from the hub."""
    folder = source.data_dir or Path()
    if (folder / recipe.model_name_or_path).is_dir():
        recipe = recipe.changed(model_name_or_path=str(folder / recipe.model_name_or_path))
    return recipe, method.load().load(recipe, replace(source, dataset=str(folder / source.dataset)))
