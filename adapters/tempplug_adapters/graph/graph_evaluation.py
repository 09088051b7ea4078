"""How well representations of graphs predict classes, by a support vector machine, or labels, by logistic regressions.

``GridSearchCV(SVC(), …)`` gives the same numbers in three to four times the time: it computes the kernel for each penalty.
"""

from __future__ import annotations

import math
import statistics
import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tempplug.errors import ConfigError, NonFiniteError
from tempplug_adapters.modes import Progress, silent

PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
INNER_FOLDS = 5

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SVMScore:
    """Accuracies in percent.

    Attributes:
        accuracy: mean over the folds.
        folds: of each fold.
        validation: of the chosen penalties on the held-out parts of the training graphs, mean over the folds.
    """

    accuracy: float
    folds: tuple[float, ...]
    validation: float


def evaluate_svm(
    representations: npt.ArrayLike, labels: npt.ArrayLike, seed: int = 0, folds: int = 10, progress: Progress = silent
) -> SVMScore:
    """Returns the accuracy of an RBF support vector machine in stratified cross-validation (You et al. 2020, Sun et al. 2020).

    In each fold, the penalty C of {0.001 … 1000} is chosen by 5-fold cross-validation on the training part alone.

    Args:
        representations: [N, D].
        labels: [N] classes, at least two, each with at least as many members as there are folds.
        seed: of the folds, at least 0.
        folds: number of folds, at least 2.
        progress: called with the fraction done.

    Raises:
        NonFiniteError: representations hold NaN or infinite values.
        ConfigError: there is one class only, or a class has too few members.
    """
    from scipy.spatial.distance import pdist, squareform
    from sklearn import config_context
    from sklearn.model_selection import StratifiedKFold

    points = np.asarray(representations, dtype=np.float64)
    codes = np.unique(np.asarray(labels), return_inverse=True)[1]
    _check_finite(points)
    check_classes(codes, folds)
    # from the differences: the expansion by products loses what is small beside the norms
    squared = squareform(pdist(points, "sqeuclidean"))
    scores, validation = [], []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(points, codes):
        with config_context(assume_finite=True, skip_parameter_validation=True):
            inner = StratifiedKFold(INNER_FOLDS).split(train, codes[train])
            table = [_accuracies(points, codes, squared, train[fit], train[held], PENALTIES) for fit, held in inner]
            shares = np.mean(table, axis=0)
            best = int(np.argmax(shares))  # the first of equally good ones, like GridSearchCV
            scores.append(100 * _accuracies(points, codes, squared, train, test, (PENALTIES[best],))[0])
        validation.append(100 * float(shares[best]))
        progress(len(scores) / folds)
    return SVMScore(statistics.fmean(scores), tuple(scores), statistics.fmean(validation))


def _accuracies(
    points: Floats, codes: Labels, squared: Floats, train: Labels, test: Labels, penalties: tuple[float, ...]
) -> list[float]:
    """Returns the accuracy on ``test`` for each penalty; the width of the kernel follows the training part."""
    from sklearn.svm import SVC

    variance = points[train].var()
    gamma = 1 / (points.shape[1] * variance) if variance > 0 else 1.0
    fitted, asked = (np.exp(-gamma * squared[np.ix_(rows, train)]) for rows in (train, test))
    machines = (SVC(C=penalty, kernel="precomputed").fit(fitted, codes[train]) for penalty in penalties)
    return [float(np.mean(machine.predict(asked) == codes[test])) for machine in machines]


def check_classes(labels: npt.ArrayLike, folds: int) -> None:
    """Raises `ConfigError` unless labels [N] have two classes, each with enough members for the folds and their inner folds."""
    if folds < 2:
        raise ConfigError(f"folds={folds} must be at least 2.")
    members = np.unique(np.asarray(labels), return_counts=True)[1]
    if len(members) < 2:
        raise ConfigError("labels hold one class only: there is nothing to tell apart.")
    fewest = int(members.min())
    if fewest < folds or fewest - math.ceil(fewest / folds) < INNER_FOLDS:
        raise ConfigError(
            f"a class has {fewest} members, too few for {folds} folds whose training parts are split into {INNER_FOLDS} again."
        )


def evaluate_labels(
    representations: Tensor, labels: Tensor, seed: int = 0, folds: int = 10, progress: Progress = silent
) -> dict[str, float]:
    """Returns ``roc_auc`` and ``average_precision`` × 100 of logistic regressions, averaged over labels and folds.

    The representations are standardised, and each label has a regression of its own.
    The graphs for which a label is known are split into stratified folds. In each fold, the strength C of {0.001 … 1000} is
    chosen by the ROC-AUC of a 5-fold cross-validation on the training part alone.

    Args:
        representations: [G, D].
        labels: [G, T] 0, 1 or NaN where it is not known.
        seed: of the folds, at least 0.
        folds: number of folds, at least 2.
        progress: called with the fraction done.

    Raises:
        NonFiniteError: representations hold NaN or infinite values.
        ConfigError: every label has too few graphs.
    """
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import average_precision_score, roc_auc_score
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    points: Floats = representations.double().numpy()
    _check_finite(points)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning was given when the data were loaded
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
    means = (float(100 * np.mean(each)) for each in zip(*found, strict=True))
    return dict(zip(("roc_auc", "average_precision"), means, strict=True))


def measurable_labels(labels: Tensor, folds: int) -> list[int]:
    """Returns the labels of [G, T] (0, 1 or NaN) that suffice for a cross-validation, and warns of the number of others.

    Raises:
        ConfigError: there is no such label.
    """
    wanted = max(folds, 2 * INNER_FOLDS)  # so that the training part of each fold can be split again
    found: list[int] = (((labels == 0).sum(0) >= wanted) & ((labels == 1).sum(0) >= wanted)).nonzero().flatten().tolist()
    tasks = labels.shape[1]
    needed = f"labels can be evaluated: {folds} folds need {wanted} graphs with 0 and {wanted} graphs with 1 of each label."
    if not found:
        raise ConfigError(f"none of {tasks} {needed}")
    if len(found) < tasks:
        warnings.warn(f"only {len(found)} of {tasks} {needed}", stacklevel=2)
    return found


def _check_finite(points: Floats) -> None:
    if not np.isfinite(points).all():
        raise NonFiniteError("representations hold NaN or infinite values.")
