"""SentEval's three ways to compute an accuracy from vectors and classes: nested folds, folds on train, a dev split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from tempplug_adapters.sentence_evaluation.logistic_regression import SEED, Classifier, Fit, Fitted, Rows, fit_all

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2)
"""Candidates for the weight decay (L2)."""


class Split(NamedTuple):
    """Rows of a task, in the order that determines the folds.

    Attributes:
        features: [N, D], floating.
        labels: class numbers [N], int64.
    """

    features: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracies of a task in per cent, rounded to two decimals as in SentEval.

    Attributes:
        dev: accuracy of the best weight decay, on the rows that chose it.
        test: accuracy on held-out rows.
        predicted: class of each row [N], int64.
    """

    dev: float
    test: float
    predicted: Tensor


def nested_folds(rows: Split, classes: int, folds: int, classifier: Classifier) -> Accuracy:
    """Returns the mean over test folds; an inner cross-validation chooses the weight decay of each (MR, CR, SUBJ, MPQA).

    Args:
        rows: all rows of the task.
        classes: number of classes.
        folds: from 2 to the number of rows of the rarest class.
        classifier: see `Classifier`.
    """
    features, labels = rows
    codes = labels.cpu().numpy()
    outer = list(_folds(codes, folds))
    strengths, dev = [], []
    for train, _ in outer:
        inner = [Fit(train[a], train[b], STRENGTHS) for a, b in _folds(codes[train], folds)]
        best, score = _choice(fit_all(features, labels, inner, classes, classifier))
        strengths.append(best)
        dev.append(score)
    chosen = [Fit.held_out(train, (best,)) for (train, _), best in zip(outer, strengths, strict=True)]
    predicted, test = torch.empty_like(labels), []
    for (_, fold), fitted in zip(outer, fit_all(features, labels, chosen, classes, classifier), strict=True):
        where = torch.from_numpy(fold).to(labels.device)
        predicted[where] = fitted.predict(features[where])[0]
        test.append(_per_cent(predicted[where], labels[where]))
    return Accuracy(round(float(np.mean(dev)), 2), round(float(np.mean(test)), 2), predicted)


def folds_on_train(train: Split, test: Split, classes: int, folds: int, classifier: Classifier) -> Accuracy:
    """Returns the accuracy on the test rows; a cross-validation on the others chooses the weight decay (TREC, MRPC)."""
    fits = [Fit(a, b, STRENGTHS) for a, b in _folds(train.labels.cpu().numpy(), folds)]
    best, dev = _choice(fit_all(*train, fits, classes, classifier))
    (fitted,) = fit_all(*train, [Fit.held_out(np.arange(len(train.labels)), (best,))], classes, classifier)
    predicted = fitted.predict(test.features)[0]
    return Accuracy(dev, _per_cent(predicted, test.labels), predicted)


def dev_split(train: Split, dev: Split, test: Split, classes: int, classifier: Classifier) -> Accuracy:
    """Returns the accuracy on the test rows; the dev rows choose the weight decay and when to stop (SST2)."""
    rows = np.arange(len(train.labels) + len(dev.labels))
    fit = Fit(rows[: len(train.labels)], rows[len(train.labels) :], STRENGTHS)
    joined = Split(torch.cat([train.features, dev.features]), torch.cat([train.labels, dev.labels]))
    (fitted,) = fit_all(*joined, [fit], classes, classifier)
    best, score = _choice([fitted])
    predicted = fitted.predict(test.features)[STRENGTHS.index(best)]
    return Accuracy(score, _per_cent(predicted, test.labels), predicted)


def _folds(codes: NDArray[np.int64], folds: int) -> Iterator[tuple[Rows, Rows]]:
    return iter(StratifiedKFold(folds, shuffle=True, random_state=SEED).split(np.zeros(len(codes)), codes))


def _choice(fits: list[Fitted]) -> tuple[float, float]:
    """Returns the weight decay with the best mean dev accuracy, the weakest of equals, and that accuracy in per cent."""
    scores = np.round(100 * np.mean([fitted.accuracy.cpu().numpy() for fitted in fits], axis=0), 2)
    return STRENGTHS[int(scores.argmax())], float(scores.max())


def _per_cent(predicted: Tensor, labels: Tensor) -> float:
    return round(100 * float((predicted == labels).double().mean()), 2)
