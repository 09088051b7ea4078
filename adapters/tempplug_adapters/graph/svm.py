"""How well a support vector machine tells classes apart by their representations.

``GridSearchCV(SVC(), …)`` gives the same numbers in three to four times the time: it computes the kernel for each penalty.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tempplug.errors import ConfigError, NonFiniteError, ShapeError

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
        validation: of the chosen penalties, on the parts of the training graphs held out to choose them, mean over the folds.
    """

    accuracy: float
    folds: tuple[float, ...]
    validation: float


def evaluate_svm(
    representations: npt.ArrayLike,
    labels: npt.ArrayLike,
    seed: int = 0,
    folds: int = 10,
    progress: Callable[[float], None] = lambda fraction: None,
) -> SVMScore:
    """Returns the accuracy of an RBF support vector machine in stratified cross-validation (You et al. 2020, Sun et al. 2020).

    In each fold, the penalty C of {0.001 … 1000} is chosen by 5-fold cross-validation on the training part alone.

    Args:
        representations: [N, D].
        labels: [N] classes, at least two, each with as many members as there are folds.
        seed: of the folds, at least 0.
        folds: how many, at least 2.
        progress: called with the fraction done.

    Raises:
        ShapeError: representations and labels do not fit.
        NonFiniteError: representations hold NaN or infinite values.
        ConfigError: there is one class only, or a class has too few members.
    """
    from sklearn import config_context
    from sklearn.model_selection import StratifiedKFold

    points = np.asarray(representations, dtype=np.float64)
    codes = np.unique(np.asarray(labels), return_inverse=True)[1]
    _check(points, codes)
    check_classes(codes, folds)
    squared = _squared_distances(points)
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(points, codes)
    scores, validation = [], []
    for train, test in splits:
        # what is checked once need not be checked again for each of the machines
        with config_context(assume_finite=True, skip_parameter_validation=True):
            penalty, held_out = _best_penalty(points, codes, squared, train)
            validation.append(100 * held_out)
            scores.append(100 * _accuracies(points, codes, squared, train, test, (penalty,))[0])
        progress(len(scores) / folds)
    return SVMScore(statistics.fmean(scores), tuple(scores), statistics.fmean(validation))


def _best_penalty(points: Floats, codes: Labels, squared: Floats, train: npt.NDArray[np.intp]) -> tuple[float, float]:
    """Returns the penalty that is best in cross-validation on the training part, and its share of hits there."""
    from sklearn.model_selection import StratifiedKFold

    splits = StratifiedKFold(INNER_FOLDS).split(train, codes[train])
    table = [_accuracies(points, codes, squared, train[fit], train[held], PENALTIES) for fit, held in splits]
    shares = np.mean(table, axis=0)
    best = int(np.argmax(shares))  # the first of equally good ones, like GridSearchCV
    return PENALTIES[best], float(shares[best])


def _accuracies(
    points: Floats,
    codes: Labels,
    squared: Floats,
    train: npt.NDArray[np.intp],
    test: npt.NDArray[np.intp],
    penalties: tuple[float, ...],
) -> list[float]:
    """Returns the accuracy on ``test`` for each penalty; the width of the kernel follows the training part."""
    from sklearn.svm import SVC

    variance = points[train].var()
    gamma = 1 / (points.shape[1] * variance) if variance > 0 else 1.0
    fitted = np.exp(-gamma * squared[np.ix_(train, train)])
    asked = np.exp(-gamma * squared[np.ix_(test, train)])
    machines = (SVC(C=penalty, kernel="precomputed").fit(fitted, codes[train]) for penalty in penalties)
    return [float(np.mean(machine.predict(asked) == codes[test])) for machine in machines]


def _squared_distances(points: Floats) -> Floats:
    from scipy.spatial.distance import pdist, squareform

    # from the differences: the expansion by products loses what is small beside the norms
    return squareform(pdist(points, "sqeuclidean"))


def _check(points: Floats, codes: Labels) -> None:
    if points.ndim != 2 or codes.shape != points.shape[:1] or not points.size:
        raise ShapeError(f"representations {list(points.shape)} must be [N, D], with labels [N], not {list(codes.shape)}.")
    if not np.isfinite(points).all():
        raise NonFiniteError("representations hold NaN or infinite values.")


def check_classes(labels: npt.ArrayLike, folds: int) -> None:
    """Raises `ConfigError` unless the labels [N] have two classes, with members enough for the folds and those inside."""
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
