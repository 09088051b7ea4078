"""Evaluates representations of graphs with several labels by scikit-learn's linear classifiers, one for each label."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tempplug.errors import ConfigError, NonFiniteError
from tempplug_adapters.graph.svm import INNER_FOLDS, PENALTIES


@dataclass(frozen=True)
class LabelScores:
    """Metrics × 100, averaged over labels and folds.

    Attributes:
        roc_auc: area under the receiver operating characteristic.
        average_precision: area under the precision-recall curve, as a step function.
    """

    roc_auc: float
    average_precision: float


def measurable_labels(labels: Tensor, folds: int) -> list[int]:
    """Returns the labels [G, T] (0, 1 or NaN) that a cross-validation can be held with; a warning counts the others.

    Raises:
        ConfigError: there is no such label.
    """
    wanted = max(folds, 2 * INNER_FOLDS)  # so that the training part of each fold can be split again
    fewest = torch.minimum((labels == 0).sum(0), (labels == 1).sum(0))
    found: list[int] = (fewest >= wanted).nonzero().flatten().tolist()
    tasks, needed = labels.shape[1], f"0 for {wanted} graphs and 1 for {wanted}, which {folds} folds need"
    if not found:
        raise ConfigError(f"none of {tasks} labels a graph is {needed}.")
    if len(found) < tasks:
        warnings.warn(
            f"{tasks - len(found)} of {tasks} labels a graph are not measured by: they are not {needed}.", stacklevel=2
        )
    return found


def evaluate_labels(
    representations: Tensor,
    labels: Tensor,
    seed: int = 0,
    folds: int = 10,
    progress: Callable[[float], None] = lambda fraction: None,
) -> LabelScores:
    """Returns how well logistic regressions on standardised representations rank graphs by each of their labels.

    Each label has stratified folds of the graphs of which it is known. In each, the strength C of {0.001 … 1000} is chosen by
    the ROC-AUC of a 5-fold cross-validation on the training part alone.

    Args:
        representations: [G, D].
        labels: [G, T] 0, 1 or NaN where it is not known.
        seed: of the folds, at least 0.
        folds: how many, at least 2.
        progress: called with the fraction done.

    Raises:
        NonFiniteError: representations hold NaN or infinite values.
        ConfigError: no label has graphs enough.
    """
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import average_precision_score, roc_auc_score
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    points: npt.NDArray[np.float64] = representations.double().numpy()
    if not np.isfinite(points).all():
        raise NonFiniteError("representations hold NaN or infinite values.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warned of when the data were loaded
        tasks = measurable_labels(labels, folds)
    found: list[tuple[float, float]] = []
    for task in tasks:
        known = ~labels[:, task].isnan()
        rows, truth = points[known.numpy()], labels[known, task].long().numpy()
        for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(rows, truth):
            probe = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky", max_iter=1000))
            search = GridSearchCV(probe, {"logisticregression__C": PENALTIES}, scoring="roc_auc", cv=INNER_FOLDS)
            with config_context(assume_finite=True, skip_parameter_validation=True):
                scores = search.fit(rows[train], truth[train]).decision_function(rows[test])
            found.append((roc_auc_score(truth[test], scores), average_precision_score(truth[test], scores)))
            progress(len(found) / (folds * len(tasks)))
    roc_auc, average_precision = (float(100 * np.mean(each)) for each in zip(*found, strict=True))
    return LabelScores(roc_auc, average_precision)
