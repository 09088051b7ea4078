"""The images of a training and of its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.images.image_data import Split, files_of, load_images
from tempplug_adapters.images.image_set import ImageFiles, ImageSet
from tempplug_adapters.images.long_tail import hold_out, long_tail_part
from tempplug_adapters.storage.fingerprint import grouped
from tempplug_adapters.vision.evaluation.evaluations import Evaluation
from tempplug_adapters.vision.evaluation.settings import EvaluationSettings
from tempplug_adapters.vision.recipes import VisionRecipe

ALIGNED_IMAGES = 2000
"""Most test images whose two views are compared: the same images for every strategy and seed."""
CROPPED_FROM = 8 / 7
"""Side of an image over that of a view cropped from it, unless the recipe has a size: 256 pixels for 224."""


@dataclass(frozen=True)
class VisionImages:
    """The images; ``len`` is the number of training images.

    Attributes:
        train: training images.
        bank: labelled images from which classifiers learn; None without evaluation.
        test: labelled test images of the same classes; None without evaluation.
        held_out: labelled validation images left out of a long-tailed training set; None without them.
    """

    train: ImageSet
    bank: ImageSet | None = None
    test: ImageSet | None = None
    held_out: ImageSet | None = None

    def __len__(self) -> int:
        return len(self.train)


def read_images(
    dataset: str,
    split: Split,
    data_dir: Path | None,
    *,
    image_size: int | None,
    load_size: int | None = None,
    count: int | None = None,
    seed: int = 0,
    columns: Sequence[str] = (),
) -> ImageSet:
    """Returns a data set as `load_images` does, its images of a size that suits the views.

    Args:
        dataset: with ``split``, ``data_dir``, ``count``, ``seed`` and ``columns`` as in `load_images`.
        image_size: pixels of each side of a view; None: those of the images.
        load_size: pixels of each side of an image; None keeps the size of images that all have one, and resizes others to 8/7
            of a view.
    """
    images = load_images(dataset, split, data_dir, size=load_size, count=count, seed=seed, columns=columns)
    if load_size is None and image_size is not None and isinstance(images, ImageFiles):
        return ImageFiles(images.encoded, round(CROPPED_FROM * image_size))
    return images


def loaded_size(recipe: VisionRecipe) -> int:
    """Returns the side to which image files are resized before they are resized to that of a view."""
    return recipe.load_size or round(CROPPED_FROM * recipe.image_size)


def load_vision(recipe: VisionRecipe, dataset: str, data_dir: Path | None, *, evaluated: bool = True) -> VisionImages:
    """Returns the images that a recipe trains on and, where they have labels, those of its evaluations.

    Raises:
        TempplugError: images cannot be read, or do not suit the recipe.
    """

    def read(name: str, split: Split, count: int | None = None) -> ImageSet:
        sizes = {"image_size": recipe.image_size, "load_size": recipe.load_size}
        return read_images(name, split, data_dir, **sizes, columns=recipe.columns, count=count, seed=recipe.split_seed)

    train, held_out = _long_tailed(read(dataset, "train", recipe.count), recipe)
    wanted = recipe.evaluation_dataset
    bank = train if wanted is None or not evaluated else read(wanted, "train")
    if not (evaluated and recipe.evaluations) or (bank.labels is None and wanted is None):
        return VisionImages(train)
    try:
        test = read(wanted or dataset, "test")
        test.batch(torch.tensor([0]))  # read now, where the set is on disk: it is measured with after the training
    except DataError as error:
        raise DataError(f"{error} Or pass --no-evaluate to train without measuring.") from error
    check_evaluations(recipe, bank, test)
    return VisionImages(train, bank, test, held_out if wanted is None else None)


def vision_files(recipe: VisionRecipe, dataset: str, data_dir: Path | None, data: VisionImages) -> dict[str, Path | str]:
    """Returns the files of the images that `load_vision` has returned."""
    measured = "dataset" if recipe.evaluation_dataset is None else "evaluation_dataset"
    parts: list[tuple[str, Split, ImageSet | None]] = [
        ("dataset", "train", data.train),
        ("dataset", "train", data.held_out),
        (measured, "train", data.bank),
        (measured, "test", data.test),
    ]
    files: dict[str, Path | str] = {}
    for setting, split, images in parts:
        if images is not None:
            name = dataset if setting == "dataset" else recipe.evaluation_dataset or dataset
            files |= grouped(f"{setting} {split}", files_of(images, name, split, data_dir))
    return files


def check_evaluations(recipe: VisionRecipe, bank: ImageSet, test: ImageSet) -> None:
    """Raises `TempplugError` before the training if the labels do not allow the evaluations."""
    evaluation = Evaluation(nn.Identity(), bank, test, evaluation_settings(recipe), torch.device("cpu"))
    for name in recipe.evaluations:
        evaluation.check(name)


def evaluation_settings(recipe: VisionRecipe) -> EvaluationSettings:
    """Returns the evaluation settings of a recipe; the training set itself is the bank of ``long-tail``."""
    return EvaluationSettings(
        neighbours=recipe.neighbours,
        probe=recipe.probe,
        imbalance_ratio=None,
        head_above=recipe.head_above,
        tail_below=recipe.tail_below,
        image_size=recipe.image_size,
        augmentation=recipe.augmentation,
        view_images=ALIGNED_IMAGES,
        seed=recipe.seed,
    )


def _long_tailed(images: ImageSet, recipe: VisionRecipe) -> tuple[ImageSet, ImageSet | None]:
    """Returns the training images and the validation images left out of them, if any."""
    if recipe.imbalance_ratio is None:
        for name in ("largest_class", "held_out"):
            if value := getattr(recipe, name):
                raise ConfigError(f"{name}={value} applies to long-tailed parts only: set imbalance_ratio, too.")
        return images, None
    if images.labels is None:
        raise DataError(f"imbalance_ratio needs the class of every image, which the set '{images.name}' lacks.")
    drawn = (recipe.imbalance_ratio, recipe.largest_class, recipe.split_seed, recipe.held_out)
    part = images.subset(long_tail_part(images.labels, images.classes, *drawn)[0])
    left = hold_out(images.labels, recipe.held_out, recipe.split_seed)[1]
    return part, images.subset(left) if len(left) else None
