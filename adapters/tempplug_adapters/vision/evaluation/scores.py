"""Accuracies in percent: over all images, by class, and over head, middle and tail classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.images.long_tail import head_mid_tail


def accuracy(labels: Tensor, predicted: Tensor) -> float:
    """Returns the percentage of correct predictions [M] for labels [M]; raises `ShapeError` for different lengths."""
    return 100 * _right(labels, predicted).double().mean().item()


def accuracy_within(labels: Tensor, scores: Tensor, first: int) -> float:
    """Returns the share of images whose class is among the first of highest score, 0 to 100; ties go to the lowest class.

    Written by hand because scikit-learn's ``top_k_accuracy_score`` prefers the highest class in ties, frequent in votes.

    Args:
        labels: [M] class of each image, M at least 1.
        scores: [M, C] of each class.
        first: number of classes, at least 1.

    >>> accuracy_within(torch.tensor([0, 1]), torch.tensor([[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]]), 2)
    50.0
    """
    labels = labels.to(scores.device).long()[:, None]
    own = scores.gather(1, labels)
    before = torch.arange(scores.shape[1], device=scores.device) < labels
    rank = ((scores > own) | ((scores == own) & before)).sum(dim=1)
    return 100 * (rank < first).double().mean().item()


def class_accuracies(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Returns the accuracy of each class, [classes] float64, 0 to 100, on the CPU.

    Args:
        labels: [M] class of each image, in 0 … classes - 1; every class must have one.
        predicted: [M] class that was predicted.
        classes: their number.

    Raises:
        ShapeError: labels and predictions are not vectors of one length, or empty.
        ConfigError: a class has no image, or a label is no class.

    >>> class_accuracies(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 1, 0]), 2)
    tensor([100.0000,  66.6667], dtype=torch.float64)
    """
    right, labels = _right(labels, predicted).cpu(), labels.cpu()
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise ConfigError(f"labels {int(labels.min())} to {int(labels.max())} must be in 0 to {classes - 1}.")
    total = torch.bincount(labels, minlength=classes)
    if not bool((total > 0).all()):
        missing = int((total == 0).nonzero()[0, 0])
        raise ConfigError(f"labels hold no image of class {missing}: an accuracy of each of {classes} classes needs one.")
    return 100 * torch.bincount(labels[right], minlength=classes).double() / total


def _right(labels: Tensor, predicted: Tensor) -> Tensor:
    if labels.ndim != 1 or labels.shape != predicted.shape or not len(labels):
        shapes = f"{list(labels.shape)} and {list(predicted.shape)}"
        raise ShapeError(f"labels and predicted of shapes {shapes} must both be [M] with M at least 1.")
    return labels == predicted.to(labels.device)


def long_tail_score(
    labels: Tensor, predicted: Tensor, counts: Tensor, *, head_above: int | None = None, tail_below: int | None = None
) -> dict[str, Any]:
    """Returns the mean accuracy over classes, ``overall``, of ``head``, ``middle`` and ``tail``, and that of each, ``classes``.

    A group without classes has None.

    Args:
        labels: [M] classes of the test images, from 0; every class must have one.
        predicted: [M] predicted classes.
        counts: [C] training images of each class, by which it is head, middle or tail; C at least 3.
        head_above: as in `head_mid_tail`: None: thirds; 100 for ImageNet-100-LT.
        tail_below: likewise; 20 for ImageNet-100-LT.

    Raises:
        ShapeError: labels and predictions do not fit.
        ConfigError: a class has no test image, or there are fewer than three.

    Source: Kukleva et al. 2023, Tables 1 and 7 to 9.
    """
    each = class_accuracies(labels, predicted, len(counts))
    groups = zip(("head", "middle", "tail"), head_mid_tail(counts, head_above=head_above, tail_below=tail_below), strict=True)
    means = {name: each[torch.tensor(group)].mean().item() if group else None for name, group in groups}
    return {"overall": each.mean().item(), **means, "classes": each.tolist()}
