"""Long-tailed parts of balanced data sets, and the groups head, middle and tail of their classes.

This module must not depend on images; it reads only labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError, ShapeError


def long_tail_counts(classes: int, imbalance_ratio: float, n_max: int) -> list[int]:
    """Returns the number of images of each class, largest first: ⌊n_max · ρ^(−k/(C−1))⌋ for k = 0 to C−1.

    Args:
        classes: C, at least 1.
        imbalance_ratio: ρ, size of the largest class over that of the smallest; at least 1.
        n_max: images of the largest class; at least ρ, so that the smallest class has one.

    Raises:
        ConfigError: an argument is out of range.

    Source: Cui et al. 2019; with n_max 4500 for CIFAR-10 and 450 for CIFAR-100 the sizes of SDCLR's index files, which Kukleva
    et al. 2023 use.

    Example:
        >>> long_tail_counts(10, 100, 4500)
        [4500, 2697, 1617, 969, 581, 348, 208, 125, 75, 45]
    """
    if not (math.isfinite(imbalance_ratio) and imbalance_ratio >= 1):
        meaning = "100 makes the largest class 100 times the smallest"
        raise ConfigError(f"imbalance_ratio={imbalance_ratio} must be at least 1: {meaning}.")
    if classes < 1:
        raise ConfigError(f"classes={classes} must be at least 1.")
    if n_max < imbalance_ratio:
        least = f"imbalance_ratio={imbalance_ratio}: the smallest class would keep no image"
        raise ConfigError(f"n_max={n_max} images of the largest class must be at least {least}.")
    steps = max(classes - 1, 1)
    # a size that is whole must not be rounded down with the last bit of the power
    return [math.floor(n_max * imbalance_ratio ** (-rank / steps) * (1 + 1e-12)) for rank in range(classes)]


def long_tail_indices(labels: Tensor, imbalance_ratio: float, n_max: int, seed: int) -> Tensor:
    """Returns a random long-tailed part of a data set: positions, ascending, [sum of the sizes].

    The order of the classes by size and the images are drawn at random; the same seed draws the same part.

    Args:
        labels: [N] int64 classes from 0; each must have enough images for its drawn size.
        imbalance_ratio: ρ, size of the largest class over that of the smallest; at least 1.
        n_max: images of the largest class; 4500 for CIFAR-10 and 450 for CIFAR-100, after `hold_out` of their 5,000
            validation images.
        seed: of the draw; each split of a paper has its own.

    Raises:
        ShapeError: the labels have another shape or type.
        ConfigError: an option is out of range.
        DataError: a class has too few images.

    Source: `long_tail_counts`.

    Example:
        >>> labels = torch.arange(4).repeat_interleave(100)
        >>> part = long_tail_indices(labels, imbalance_ratio=10, n_max=80, seed=0)
        >>> sorted(labels[part].bincount().tolist())
        [8, 17, 37, 80]
    """
    _check_labels(labels)
    generator = torch.Generator().manual_seed(seed)
    classes = int(labels.max()) + 1
    sizes = long_tail_counts(classes, imbalance_ratio, n_max)
    order = torch.randperm(classes, generator=generator).tolist()
    chosen = [_draw(labels, label, size, generator) for size, label in zip(sizes, order, strict=True)]
    return torch.cat(chosen).sort().values


def long_tail_part(
    labels: Tensor,
    classes: Sequence[str],
    imbalance_ratio: float,
    largest_class: int | None,
    split_seed: int,
    held_out: int = 0,
) -> tuple[Tensor, int]:
    """Returns the positions of a random long-tailed part, ascending, and the size of its largest class.

    The same set and options give the same images.

    Args:
        labels: [N] int64 classes from 0, on the CPU.
        classes: their names; each must have an image.
        imbalance_ratio: images of the largest class over those of the smallest, at least 1.
        largest_class: images of the largest class; None: nine tenths of the smallest class of the set, rounded down: 4,500 of
            CIFAR-10's 5,000, as in SDCLR's splits.
        split_seed: of the draw.
        held_out: images that `hold_out` removes first, a multiple of the number of classes.

    Raises:
        ConfigError: an option is out of range.
        DataError: a class has too few images.
    """
    counts = torch.bincount(labels, minlength=len(classes))
    if not bool((counts > 0).all()):
        empty = classes[int((counts == 0).nonzero()[0, 0])]
        raise DataError(f"class '{empty}' has no image, so that a long-tailed part cannot have all {len(classes)} classes.")
    largest = 9 * int(counts.min()) // 10 if largest_class is None else largest_class
    if largest < imbalance_ratio:
        origin = ", nine tenths of the smallest class," if largest_class is None else ""
        least = f"imbalance_ratio={imbalance_ratio:g}: the smallest class would keep no image. Lower the ratio"
        raise ConfigError(f"largest_class={largest}{origin} must be at least {least}.")
    kept, _ = hold_out(labels, held_out, split_seed)
    return kept[long_tail_indices(labels[kept], imbalance_ratio, largest, split_seed)], largest


def hold_out(labels: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Returns the positions that are kept and those held out, ascending, the same number of each class.

    Args:
        labels: [N] int64 classes from 0.
        count: positions held out in all; a multiple of the number of classes: 5,000 for CIFAR-10 and CIFAR-100.
        seed: of the draw.

    Raises:
        ShapeError: the labels have another shape or type.
        ConfigError: the count is negative or not a multiple of the number of classes.
        DataError: a class has too few images.
    """
    _check_labels(labels)
    classes = int(labels.max()) + 1
    if count < 0 or count % classes:
        raise ConfigError(f"count={count} of images held out must be a multiple of the {classes} classes.")
    generator = torch.Generator().manual_seed(seed)
    held = torch.cat([_draw(labels, label, count // classes, generator) for label in range(classes)]).sort().values
    kept = torch.ones(len(labels), dtype=torch.bool)
    kept[held] = False
    return kept.nonzero()[:, 0], held


def head_mid_tail(
    counts: Sequence[int] | Tensor, *, head_above: int | None = None, tail_below: int | None = None
) -> tuple[list[int], list[int], list[int]]:
    """Returns the classes of the head, the middle and the tail, each from the largest class to the smallest.

    Without thresholds the three groups have the same number of classes, with the remainder in the first ones: 4, 3 and 3 of 10
    classes, 34, 33 and 33 of 100. With thresholds the size of each class determines its group.

    Args:
        counts: [C] images of each class; where two are equal the lower class counts as larger.
        head_above: classes with more images are the head: 100 for ImageNet-100-LT.
        tail_below: classes with fewer images are the tail: 20 for ImageNet-100-LT.

    Raises:
        ConfigError: there are fewer than three classes, or the thresholds overlap or only one is given.

    Source: Kukleva et al. 2023, section 4; the thresholds are those of SDCLR's code.

    Example:
        >>> head_mid_tail([10, 500, 20, 300, 40, 50])
        ([1, 3], [5, 4], [2, 0])
    """
    sizes = [int(count) for count in counts]
    order = sorted(range(len(sizes)), key=lambda label: -sizes[label])
    if head_above is None and tail_below is None:
        if len(order) < 3:
            fault = "cannot be put into head, middle and tail: there must be at least 3"
            raise ConfigError(f"counts of {len(order)} classes {fault}.")
        head = -(-len(order) // 3)
        middle = head + -(-(len(order) - head) // 2)
    elif head_above is None or tail_below is None or tail_below > head_above + 1:
        wanted = "must both be given, the second at most the first plus one"
        raise ConfigError(f"head_above={head_above} and tail_below={tail_below} {wanted}.")
    else:
        head, middle = sum(size > head_above for size in sizes), sum(size >= tail_below for size in sizes)
    return order[:head], order[head:middle], order[middle:]


def _draw(labels: Tensor, label: int, size: int, generator: torch.Generator) -> Tensor:
    positions = (labels == label).nonzero()[:, 0]
    if len(positions) < size:
        raise DataError(f"class {label} has {len(positions)} images, but {size} are required.")
    return positions[torch.randperm(len(positions), generator=generator)[:size]]


def _check_labels(labels: Tensor) -> None:
    if labels.ndim != 1 or labels.dtype != torch.int64 or not len(labels) or int(labels.min()) < 0:
        raise ShapeError(f"labels {list(labels.shape)} {labels.dtype} must be [N] torch.int64, at least one, from 0 on.")
