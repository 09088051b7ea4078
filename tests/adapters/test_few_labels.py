"""Logistic regression on few labelled images of each class."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.vision.evaluation.classifiers import LABELS, few_label_accuracies


def blobs(per_class: int, seed: int, spread: float = 1.5) -> tuple[Tensor, Tensor]:
    """Three clouds of points in four dimensions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(3).repeat(per_class)
    return torch.eye(4)[labels] + spread * torch.randn(len(labels), 4, generator=generator), labels


def fitted(rows: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Multinomial logistic regression, cross-entropy summed plus half the squares of the weights, by another minimiser."""

    def loss(flat: np.ndarray) -> float:
        weights, bias = flat[:12].reshape(3, 4), flat[12:]
        scores = rows @ weights.T + bias
        return float((np.logaddexp.reduce(scores, 1) - scores[np.arange(len(rows)), labels]).sum() + (weights**2).sum() / 2)

    flat = minimize(loss, np.zeros(15), method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-12}).x
    return np.argmax(asked @ flat[:12].reshape(3, 4).T + flat[12:], axis=1)


def test_it_is_logistic_regression_on_as_many_images_of_each_class() -> None:
    train, labels = blobs(10, 0)
    test, truth = blobs(200, 1)
    found = few_label_accuracies(train, labels, test, truth)
    expected = 100 * (fitted(train.double().numpy(), labels.numpy(), test.double().numpy()) == truth.numpy()).mean()
    assert found["10 labels"] == pytest.approx(expected, abs=0.2)
    assert list(found) == [f"{count} labels" for count in LABELS]
    # there are no more than ten of each
    assert set(found.values()) == {found["10 labels"]}


def test_more_labels_tell_more_and_the_seed_draws_them() -> None:
    train, labels = blobs(500, 2)
    test, truth = blobs(1000, 3)
    by_seed = [few_label_accuracies(train, labels, test, truth, seed=seed) for seed in (0, 0, 1)]
    assert by_seed[0] == by_seed[1]
    assert by_seed[0]["10 labels"] != by_seed[2]["10 labels"]
    assert by_seed[0]["500 labels"] == by_seed[2]["500 labels"], "all of them"
    assert all(found["10 labels"] < found["500 labels"] for found in by_seed)
    # a class that comes first in the file is drawn from like any other
    order = labels.argsort(stable=True)
    assert few_label_accuracies(train[order], labels[order], test, truth)["500 labels"] == by_seed[0]["500 labels"]


def test_rare_classes_have_as_many_labels_as_frequent_ones() -> None:
    labels = torch.tensor([0] * 2000 + [1] * 11 + [2] * 11)
    test, truth = blobs(50, 1, spread=0.05)
    found = few_label_accuracies(torch.eye(4)[labels] + 0.05 * torch.rand(len(labels), 4), labels, test, truth)
    assert found["10 labels"] == 100


def test_faults_are_named() -> None:
    train, labels = blobs(10, 0)
    with pytest.raises(ConfigError, match="train_labels hold class 1 only: there is nothing to tell apart"):
        few_label_accuracies(train, torch.ones(30, dtype=torch.long), *blobs(2, 1))
    with pytest.raises(ConfigError, match="train"):
        few_label_accuracies(train, labels, train, labels)
    with pytest.raises(ShapeError, match="train_labels"):
        few_label_accuracies(train, labels[1:], *blobs(2, 1))
