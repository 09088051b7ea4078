"""What evaluations ask of the labels, said before images are represented, which takes minutes.

It must not know models or pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tempplug.errors import DataError
from tempplug_adapters.images.long_tail import head_mid_tail
from tempplug_adapters.vision.long_tail_part import long_tail_part

if TYPE_CHECKING:
    from torch import Tensor

    from tempplug_adapters.vision.evaluations import Evaluation


def check_needs(name: str, it: Evaluation) -> None:
    """Makes sure that the labels allow an evaluation.

    Args:
        name: one of `EVALUATIONS`.
        it: with its sets and settings.

    Raises:
        ConfigError, DataError: they do not.
    """
    if name == "long-tail":
        part, _ = long_tail_bank(it)
        head_mid_tail(torch.bincount(it.bank_labels.cpu()[part], minlength=len(it.train.classes)))
        asked = torch.bincount(it.query_labels.cpu(), minlength=len(it.test.classes))
        if not bool((asked > 0).all()):
            empty = it.test.classes[int((asked == 0).nonzero()[0, 0])]
            raise DataError(f"the set '{it.test.name}' has no image of class '{empty}': 'long-tail' measures every class.")
    if name == "svc-probe" and int((torch.bincount(it.bank_labels) > 0).sum()) < 2:
        raise DataError(f"the set '{it.train.name}' has images of one class only: 'svc-probe' has nothing to tell apart.")
    if name == "report":
        counts = torch.bincount(it.query_labels)
        present = int((counts > 0).sum())
        if present < 2 or int(counts.max()) < 2:
            raise DataError(
                f"the set '{it.test.name}' has {len(it.test)} images of {present} classes: 'report' needs two images of "
                "one class, and images of another."
            )


def long_tail_bank(it: Evaluation) -> tuple[Tensor, int]:
    """Returns the positions of the long-tailed bank among the training images, and the size of its largest class.

    Args:
        it: with its training set and settings.

    Raises:
        ConfigError, DataError: the labels or the settings do not allow it.
    """
    given = it.settings
    return long_tail_part(it.bank_labels.cpu(), it.train.classes, given.imbalance_ratio, given.largest_class, given.split_seed)
