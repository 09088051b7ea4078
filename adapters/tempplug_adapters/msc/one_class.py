"""One-class data: normal images for training, and a test set in which the images of other classes are anomalies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError, listed, nearest
from tempplug_adapters.images.image_set import ImageSet


@dataclass(frozen=True)
class OneClassData:
    """Images of one normal class, and a test set.

    Attributes:
        train: normal images; their labels are not used.
        test: images of all classes; None without a test.
        anomalous: [T] boolean, which test images are anomalies; none without a test.
        normal_class: its name; empty without a test.
    """

    train: ImageSet
    test: ImageSet | None
    anomalous: Tensor
    normal_class: str


def class_number(classes: Sequence[str], wanted: str) -> int:
    """Returns the position of a class, given by name or by position from 0; names that are numbers take precedence.

    Args:
        classes: all names.
        wanted: name or position.

    Raises:
        ConfigError: there is no such class.

    >>> class_number(("cat", "dog"), "dog"), class_number(("cat", "dog"), "0")
    (1, 0)
    """
    if wanted in classes:
        return list(classes).index(wanted)
    if wanted.isascii() and wanted.isdigit() and int(wanted) < len(classes):
        return int(wanted)
    raise ConfigError(
        f"normal_class='{wanted}' is no class.{nearest(wanted, classes)} Known: {listed(classes)}, or their numbers 0 to "
        f"{len(classes) - 1}."
    )


def one_class(
    train: ImageSet,
    test: ImageSet | None,
    normal_class: str,
    *,
    train_images: int | None = None,
    test_images: int | None = None,
) -> OneClassData:
    """Returns the data in which one class is normal.

    Subsets are taken at equal steps through each class, without randomness: m of n images are those at the positions
    floor(i·n/m), for i from 0 to m - 1.

    Args:
        train: labelled, and only its normal images are kept; or without classes, when all are normal.
        test: labelled with the same classes; None, where the training images have no classes, for no test.
        normal_class: name or number, see `class_number`.
        train_images: most normal images, at least 2; None for all.
        test_images: most test images, at least one a class, equally many of each class; None for all.

    Raises:
        ConfigError: there is no such class, or a number is too small.
        DataError: a set has no labels, the sets have other classes, or there are too few normal or no anomalous images.

    Source: the protocol of Reiss & Hoshen 2023. Kim & Kim 2025 describe the reverse, one anomalous class, but their numbers are
    those of this protocol.
    """
    if train_images is not None and train_images < 2:
        raise ConfigError(f"train_images={train_images} must be at least 2: each image is contrasted with another one.")
    if test is None:
        return OneClassData(_normal(train, torch.arange(len(train)), train_images, ""), None, torch.zeros(0).bool(), "")
    if test_images is not None and test_images < len(test.classes):
        raise ConfigError(f"test_images={test_images} must be at least {len(test.classes)}, one a class.")
    test_labels = _labels(test)
    if train.labels is not None and train.classes != test.classes:
        raise DataError(f"the sets '{train.name}' and '{test.name}' must have the same classes.")
    normal = class_number(test.classes, normal_class)
    name = test.classes[normal]
    every = torch.arange(len(train)) if train.labels is None else (_labels(train) == normal).nonzero()[:, 0]
    kept = _normal(train, every, train_images, f" of class '{name}'")
    if test_images is not None:
        each = test_images // len(test.classes)
        parts = [_evenly((test_labels == number).nonzero()[:, 0], each) for number in range(len(test.classes))]
        chosen = torch.cat(parts)
        test, test_labels = test.subset(chosen), test_labels[chosen]
    anomalous = test_labels != normal
    if anomalous.all() or not anomalous.any():
        raise DataError(f"the set '{test.name}' needs images of class '{name}' and of others.")
    return OneClassData(kept, test, anomalous, name)


def _normal(train: ImageSet, every: Tensor, wanted: int | None, of: str) -> ImageSet:
    kept = _evenly(every, wanted)
    if len(kept) < 2:
        raise DataError(f"the set '{train.name}' has {len(kept)} images{of}: wanted at least 2 to train on.")
    return train.subset(kept)


def _labels(images: ImageSet) -> Tensor:
    if images.labels is None:
        raise DataError(f"the set '{images.name}' has no labels, so it has no normal class.")
    return images.labels.cpu()


def _evenly(positions: Tensor, wanted: int | None) -> Tensor:
    if wanted is None or wanted >= len(positions):
        return positions
    return positions[torch.arange(wanted) * len(positions) // wanted]
