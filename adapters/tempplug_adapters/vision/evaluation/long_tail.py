"""Representations learned from a long-tailed set, measured class by class: neighbours and linear machines, head to tail.

The bank is the long-tailed training set itself, the queries are a test set with images of every class; the overall accuracy
is the mean over the classes. This module must not know images or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug_adapters.images.long_tail import head_mid_tail
from tempplug_adapters.images.representations import check_labels, check_representations
from tempplug_adapters.vision.evaluation.accuracy import class_accuracies
from tempplug_adapters.vision.evaluation.knn import majority_knn
from tempplug_adapters.vision.evaluation.svc_probe import few_shot_indices, svc_probe

NEIGHBOURS = (1, 10)


@dataclass(frozen=True)
class LongTailScore:
    """Accuracies in percent, each a mean over classes.

    Attributes:
        overall: over all classes.
        head: over the classes with most training images; None where the split has none.
        middle: over those between.
        tail: over those with fewest.
        classes: of each class.
    """

    overall: float
    head: float | None
    middle: float | None
    tail: float | None
    classes: tuple[float, ...]

    def values(self) -> dict[str, Any]:
        """Returns the fields by name, as JSON knows them."""
        return asdict(self) | {"classes": list(self.classes)}


def long_tail_score(
    labels: Tensor, predicted: Tensor, counts: Tensor, *, head_above: int | None = None, tail_below: int | None = None
) -> LongTailScore:
    """Returns the accuracy over all classes and over head, middle and tail.

    Args:
        labels: [M] classes of the test images, from 0; every class must have one.
        predicted: [M] what was predicted.
        counts: [C] training images of each class, which make it head, middle or tail; C at least 3.
        head_above: as in `head_mid_tail`: None makes thirds, 100 is for ImageNet-100-LT.
        tail_below: likewise; 20 for ImageNet-100-LT.

    Raises:
        ShapeError: labels and predictions do not fit.
        ConfigError: a class has no test image, or there are fewer than three.

    Source: Kukleva et al. 2023, Tables 1 and 7 to 9.
    """
    each = class_accuracies(labels, predicted, len(counts))
    head, middle, tail = (_mean(each, group) for group in head_mid_tail(counts, head_above=head_above, tail_below=tail_below))
    return LongTailScore(each.mean().item(), head, middle, tail, tuple(each.tolist()))


def long_tail_evaluation(
    bank: Tensor,
    bank_labels: Tensor,
    queries: Tensor,
    query_labels: Tensor,
    *,
    head_above: int | None = None,
    tail_below: int | None = None,
) -> dict[str, LongTailScore]:
    """Returns the scores of the temperature-schedule paper: ``knn@1``, ``knn@10``, ``few-shot`` and ``long-tail``.

    ``knn@k`` is `majority_knn` with the whole bank. ``few-shot`` (FS LP) and ``long-tail`` (LT LP) are linear machines trained
    on as many images of each class as the smallest has, drawn from the bank, and on all of it.

    Args:
        bank: [N, F] raw representations of the long-tailed training set.
        bank_labels: [N] their classes, from 0, at least one image of each.
        queries: [M, F] raw representations of the test set, on the device of ``bank``.
        query_labels: [M] their classes, at least one image of each.
        head_above: as in `long_tail_score`.
        tail_below: likewise.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: a class is missing on one side, the thresholds cross, or bank and queries are the same.
        NonFiniteError: NaN or infinite representations.

    Source: Kukleva et al. 2023. They represent the CIFAR bank by randomly cropped and flipped images, as `represent` does with
    an ``augmentation``. For ImageNet-100-LT they fit FS LP on a fixed list of 12 images a class, most of which are not in the
    long-tailed set; with such a list call `svc_probe` and `long_tail_score`.
    """
    check_representations(bank, "bank")
    check_representations(queries, "queries")
    classes = max(check_labels(bank_labels, bank, "bank_labels"), check_labels(query_labels, queries, "query_labels"))
    counts = torch.bincount(bank_labels.cpu(), minlength=classes)
    if not bool((counts > 0).all()):
        missing = int((counts == 0).nonzero()[0, 0])
        raise ConfigError(f"bank_labels hold no image of class {missing} of {classes}: it could never be predicted.")
    shots = few_shot_indices(bank_labels, int(counts.min()))
    predicted = {f"knn@{k}": majority_knn(bank, bank_labels, queries, k=k) for k in NEIGHBOURS}
    predicted["few-shot"] = svc_probe(bank[shots.to(bank.device)], bank_labels[shots], queries)
    predicted["long-tail"] = svc_probe(bank, bank_labels, queries)
    groups = {"head_above": head_above, "tail_below": tail_below}
    return {name: long_tail_score(query_labels, found, counts, **groups) for name, found in predicted.items()}


def _mean(values: Tensor, group: Sequence[int]) -> float | None:
    return values[torch.tensor(group)].mean().item() if len(group) else None
