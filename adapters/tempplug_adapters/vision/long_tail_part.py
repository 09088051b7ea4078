"""The long-tailed part of a set that the flags of the commands ask for, with their words for what is wrong.

It must not know images: labels are all that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.images.long_tail import default_n_max, long_tail_indices


def long_tail_part(
    labels: Tensor, classes: Sequence[str], imbalance_ratio: float, largest_class: int | None, split_seed: int
) -> tuple[Tensor, int]:
    """Returns the positions of a random long-tailed part, ascending, and how many images its largest class has.

    Args:
        labels: [N] int64 classes from 0, on the CPU.
        classes: their names; each must have an image.
        imbalance_ratio: images of the largest class over those of the smallest, at least 1.
        largest_class: images of the largest class; None: nine tenths of the smallest class there is.
        split_seed: of the draw.

    Raises:
        ConfigError: an option is out of range.
        DataError: a class has too few images.
    """
    counts = torch.bincount(labels, minlength=len(classes))
    if not bool((counts > 0).all()):
        empty = classes[int((counts == 0).nonzero()[0, 0])]
        raise DataError(f"class '{empty}' has no image, so that a long-tailed part cannot have all {len(classes)} classes.")
    largest = default_n_max(labels, len(classes)) if largest_class is None else largest_class
    if largest < imbalance_ratio:
        origin = ", nine tenths of the smallest class," if largest_class is None else ""
        raise ConfigError(
            f"largest_class={largest}{origin} must be at least imbalance_ratio={imbalance_ratio:g}: the smallest class would "
            "keep no image. Lower the ratio."
        )
    return long_tail_indices(labels, imbalance_ratio, largest, split_seed), largest
