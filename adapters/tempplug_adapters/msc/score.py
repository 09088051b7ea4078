"""How far images are from the normal ones, and how well that tells anomalies apart. It must not know how to train.

Source: Reiss & Hoshen 2023: the sum of the squared distances to the two nearest normal training images.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.images import representations
from tempplug_adapters.images.augmentation import UNCHANGED, create_augmentation
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.images.representations import unit_rows

_ROWS_AT_ONCE = 512


def represent(
    backbone: nn.Module,
    images: ImageSet,
    size: int,
    *,
    batch_size: int = 16,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Tensor:
    """Returns the representations of all images, of length one, [N, F] on the CPU.

    An image is seen as its middle square, resized bicubically. The authors resize its shorter side to 256 pixels, bilinearly,
    and take the middle 224 x 224.

    Args:
        backbone: images to representations.
        images: in the order of the result, at least one.
        size: side to which their middle squares are resized, bicubically.
        batch_size: images at once; small batches stay in a processor's cache.
        progress: called with the fraction done.
    """
    middle_square = create_augmentation(UNCHANGED, size)

    def seen(batch: Tensor) -> Tensor:
        # Channels last is how convolutions run fastest; the values do not depend on it.
        square: Tensor = middle_square(batch)
        return square.contiguous(memory_format=torch.channels_last)

    found = representations.represent(backbone, images, batch_size=batch_size, augmentation=seen, progress=progress)
    return unit_rows(found)


@torch.no_grad()
def anomaly_scores(train: Tensor, test: Tensor, neighbours: int = 2) -> Tensor:
    """Returns how anomalous each test row is: the sum of its squared distances to the nearest training rows, [T].

    Neighbours are found through products, a block of rows at a time; their distances are then taken by subtraction, so that
    rows that nearly coincide lose no digits. scikit-learn's search took 1.65 times the processor time (5,000 training rows,
    10,000 test rows, F = 2,048, one thread), for the same scores.

    Args:
        train: [N, F] representations of normal images.
        test: [T, F].
        neighbours: how many, from 1 to N.

    Raises:
        ShapeError: they are no matrices of one width.
        ConfigError: there are fewer training rows than neighbours.
        DataError: a value is not finite.

    >>> anomaly_scores(torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([[3.0]]))
    tensor([5.])
    """
    if train.ndim != 2 or test.ndim != 2 or train.shape[1] != test.shape[1]:
        raise ShapeError(f"train {list(train.shape)} and test {list(test.shape)} must be [N, F] and [T, F].")
    if not 1 <= neighbours <= len(train):
        raise ConfigError(f"neighbours={neighbours} must be from 1 to {len(train)}, the normal training images.")
    if not (train.isfinite().all() and test.isfinite().all()):
        raise DataError("representations must be finite, but hold NaN or infinite values: training may have diverged.")
    squares = train.square().sum(1)
    found = []
    for rows in torch.split(test, _ROWS_AT_ONCE):
        # The row's own square is the same for all of its neighbours.
        nearest = (squares - 2 * rows @ train.T).topk(neighbours, dim=1, largest=False).indices
        found.append((rows[:, None] - train[nearest]).square().sum((1, 2)))
    return torch.cat(found) if found else test.new_empty(0)


def roc_auc(scores: Tensor, anomalous: Tensor) -> float:
    """Returns the area under the ROC curve × 100: how often an anomaly scores higher than a normal image.

    Args:
        scores: [T], higher is more anomalous.
        anomalous: [T] boolean, some true and some false.

    Raises:
        DataError: all images are of one kind.

    >>> roc_auc(torch.tensor([0.1, 0.5, 0.9]), torch.tensor([False, False, True]))
    100.0
    """
    if anomalous.all() or not anomalous.any():
        raise DataError("ROC-AUC needs normal and anomalous images.")
    return 100 * float(roc_auc_score(anomalous.cpu().numpy(), scores.cpu().numpy()))
