"""The support vector machine's protocol is scikit-learn's, number for number."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.graph.svm import evaluate_svm


def points(count: int = 90, classes: int = 2, distance: float = 1.2) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(0)
    labels = chance.integers(classes, size=count)
    return chance.normal(size=(count, 4)) * [1, 3, 0.2, 10] + distance * labels[:, None], labels


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_a_grid_search_over_an_rbf_machine(classes: int) -> None:
    x, y = points(classes=classes)
    expected, held_out = [], []
    for train, test in StratifiedKFold(6, shuffle=True, random_state=4).split(x, y):
        search = GridSearchCV(SVC(), {"C": [0.001, 0.01, 0.1, 1, 10, 100, 1000]}, cv=5, scoring="accuracy")
        expected.append(100 * search.fit(x[train], y[train]).score(x[test], y[test]))
        held_out.append(100 * search.best_score_)
    told: list[float] = []
    found = evaluate_svm(x, y + 5, seed=4, folds=6, progress=told.append)
    assert found.folds == pytest.approx(expected)
    assert (found.accuracy, found.validation) == (pytest.approx(np.mean(expected)), pytest.approx(np.mean(held_out)))
    assert 50 < found.accuracy < 95
    assert told == pytest.approx([1 / 6, 1 / 3, 0.5, 2 / 3, 5 / 6, 1])


def test_the_seed_decides_the_folds() -> None:
    x, y = points()
    assert evaluate_svm(x, y, seed=1) == evaluate_svm(x, y, seed=1)
    assert evaluate_svm(x, y, seed=1).folds != evaluate_svm(x, y, seed=2).folds


def test_points_that_are_far_from_zero_or_all_alike_are_told_apart_or_not() -> None:
    x, y = points(60, distance=8.0)
    assert evaluate_svm(x[:, :1] + 1e9, y).accuracy == 100.0
    assert evaluate_svm(np.ones((60, 3)), np.arange(60) % 3 == 0).accuracy == pytest.approx(100 * 2 / 3)


def test_faults_are_named() -> None:
    x, y = points(40)
    with pytest.raises(ShapeError, match=r"representations \[40, 4\] must be \[N, D\], with labels \[N\], not \[39\]"):
        evaluate_svm(x, y[:-1])
    with pytest.raises(NonFiniteError, match="representations hold NaN"):
        evaluate_svm(np.where(x > 9, np.nan, x), y)
    with pytest.raises(ConfigError, match="one class only"):
        evaluate_svm(x, np.zeros(40))
    with pytest.raises(ConfigError, match="folds=1 must be at least 2"):
        evaluate_svm(x, y, folds=1)
    with pytest.raises(ConfigError, match="a class has 9 members, too few for 10 folds"):
        evaluate_svm(x, np.arange(40) < 9)
