"""Linear classifiers that learn from few labelled images of each class. This module must not know images or models."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.errors import ConfigError, MissingDependencyError
from tempplug_adapters.images.representations import check_held_out, check_labels, check_representations
from tempplug_adapters.vision.evaluation.accuracy import accuracy

LABELS = (10, 20, 50, 100, 200, 500)


def few_label_accuracies(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, seed: int = 0
) -> dict[str, float]:
    """Returns the accuracy of a logistic regression by the number of images of each class that it learns from, 0 to 100.

    scikit-learn's, with its L2 of 1 and until it has converged. Where a class has fewer images, all of them are taken.

    Args:
        train: [N, F] raw representations of the training images.
        train_labels: [N] their classes, from 0, at least two different ones.
        test: [M, F] raw representations of other images.
        test_labels: [M] their classes.
        seed: of the draw; more images of a class include the fewer.

    Returns:
        By ``10 labels`` to ``500 labels``.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: one class only, or train and test are the same.
        NonFiniteError: NaN or infinite representations.
        MissingDependencyError: scikit-learn is not installed.

    Source: Wang et al. 2024 (AMCL), table 5, which names logistic regression and the numbers of images, and no more.
    """
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise MissingDependencyError(f"few labels need scikit-learn: pip install scikit-learn ({error}).") from error
    check_representations(train, "train")
    check_representations(test, "test")
    check_held_out(train, test, ("train", "test"))
    check_labels(train_labels, train, "train_labels")
    codes = train_labels.cpu()
    order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed))
    members = [order[codes[order] == code] for code in torch.unique(codes).tolist()]
    if len(members) < 2:
        raise ConfigError(f"train_labels hold class {int(codes[0])} only: there is nothing to tell apart.")
    rows, asked = train.cpu().double().numpy(), test.cpu().double().numpy()
    found = {}
    for count in LABELS:
        chosen = torch.cat([each[:count] for each in members]).numpy()
        learned = LogisticRegression(max_iter=10_000).fit(rows[chosen], codes.numpy()[chosen])
        found[f"{count} labels"] = accuracy(test_labels.cpu(), torch.from_numpy(learned.predict(asked)))
    return found
