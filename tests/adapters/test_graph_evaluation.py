"""Evaluations of graphs are scikit-learn's protocols, number for number; what cannot be measured is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from graphcl_toys import toy_set
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC
from torch import Tensor

from tempplug.cli import main
from tempplug.errors import ConfigError, NonFiniteError
from tempplug_adapters.graph import evaluation as graph_evaluation
from tempplug_adapters.graph.evaluation import evaluate_labels, evaluate_svm, measurable_labels


def classes(count: int = 90, kinds: int = 3, distance: float = 1.2) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(0)
    labels = chance.integers(kinds, size=count)
    return chance.normal(size=(count, 4)) * [1, 3, 0.2, 10] + distance * labels[:, None], labels


def test_a_machine_is_a_grid_search_whose_folds_the_seed_decides() -> None:
    x, y = classes()
    expected, held_out = [], []
    for train, test in StratifiedKFold(6, shuffle=True, random_state=4).split(x, y):
        search = GridSearchCV(SVC(), {"C": [0.001, 0.01, 0.1, 1, 10, 100, 1000]}, cv=5, scoring="accuracy")
        expected.append(100 * search.fit(x[train], y[train]).score(x[test], y[test]))
        held_out.append(100 * search.best_score_)
    told: list[float] = []
    found = evaluate_svm(x, y + 5, seed=4, folds=6, progress=told.append)
    assert found.folds == pytest.approx(expected)
    assert (found.accuracy, found.validation) == (pytest.approx(np.mean(expected)), pytest.approx(np.mean(held_out)))
    assert told == pytest.approx([1 / 6, 1 / 3, 0.5, 2 / 3, 5 / 6, 1])
    assert evaluate_svm(x, y, seed=5, folds=6).folds != found.folds


def test_points_that_are_far_from_zero_or_all_alike_are_told_apart_or_not() -> None:
    x, y = classes(60, 2, distance=8.0)
    assert evaluate_svm(x[:, :1] + 1e9, y).accuracy == 100.0
    assert evaluate_svm(np.ones((60, 3)), np.arange(60) % 3 == 0).accuracy == pytest.approx(100 * 2 / 3)


def several(count: int = 60) -> tuple[Tensor, Tensor]:
    """Representations, and three labels: one that they determine, noise, and one of which a third is not known."""
    chance = torch.Generator().manual_seed(0)
    rows = torch.randn(count, 4, generator=chance) * torch.tensor([1.0, 10.0, 0.1, 5.0]) + 3
    told = rows @ torch.tensor([1.0, 0.1, 0.0, 0.0]) + torch.randn(count, generator=chance) / 2 > 3.3
    labels = torch.stack([told, torch.rand(count, generator=chance) > 0.5, told], 1).float()
    labels[::3, 2] = torch.nan
    return rows, labels


def test_labels_have_regressions_on_standardised_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = several()
    monkeypatch.setattr(graph_evaluation, "PENALTIES", (0.1,))
    told: list[float] = []
    found = evaluate_labels(rows, labels, seed=3, folds=2, progress=told.append)
    figures = []
    for task in range(3):
        known = ~labels[:, task].isnan()
        x, y = rows[known].double().numpy(), labels[known, task].numpy()
        for train, test in StratifiedKFold(2, shuffle=True, random_state=3).split(x, y):
            mean, scale = x[train].mean(0), x[train].std(0)
            fitted = LogisticRegression(C=0.1, tol=1e-8).fit((x[train] - mean) / scale, y[train])
            scores = fitted.decision_function((x[test] - mean) / scale)
            figures.append((roc_auc_score(y[test], scores), average_precision_score(y[test], scores)))
    assert [found["roc_auc"], found["average_precision"]] == pytest.approx((100 * np.mean(figures, axis=0)).tolist())
    assert told == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1])
    rare = torch.cat([labels, torch.eye(60)[:, :1]], 1)
    with pytest.warns(
        UserWarning, match="only 3 of 4 labels can be evaluated: 2 folds need 10 graphs with 0 and 10 graphs with 1"
    ):
        assert measurable_labels(rare, 2) == [0, 1, 2]
    assert evaluate_labels(rows, rare, seed=3, folds=2) == found


def test_the_strength_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = torch.Generator().manual_seed(0)
    told = torch.arange(60) % 2
    # the sign of the first number tells the label but for few; a strong weight on the many others is a mistake
    rows = torch.cat([(2.0 * told - 1 + torch.randn(60, generator=chance))[:, None], torch.randn(60, 40, generator=chance)], 1)
    found = []
    for penalties in ((0.01, 1000.0), (1000.0,)):
        monkeypatch.setattr(graph_evaluation, "PENALTIES", penalties)
        found.append(evaluate_labels(rows, told[:, None].float(), folds=2)["roc_auc"])
    assert found[0] > found[1]


def test_what_cannot_be_measured_is_named() -> None:
    x, y = classes(40, 2)
    rows, labels = several()
    none = "none of 3 labels can be evaluated: 31 folds need 31 graphs with 0 and 31 graphs with 1"
    for call, error, message in [
        (lambda: evaluate_svm(np.where(x > 9, np.nan, x), y), NonFiniteError, "representations hold NaN"),
        (lambda: evaluate_svm(x, np.zeros(40)), ConfigError, "one class only"),
        (lambda: evaluate_svm(x, y, folds=1), ConfigError, "folds=1 must be at least 2"),
        (lambda: evaluate_svm(x, np.arange(40) < 9), ConfigError, "a class has 9 members, too few for 10 folds"),
        (lambda: evaluate_labels(rows / 0, labels), NonFiniteError, "representations hold NaN"),
        (lambda: measurable_labels(labels, 31), ConfigError, none),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_several_labels_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_evaluation, "PENALTIES", (1.0,))
    graphs = toy_set(60).graphs()
    for number, each in enumerate(graphs):
        each.y = torch.tensor([[float(each.y), torch.nan if number % 5 == 0 else float(number % 3 == 0)]])
    torch.save(graphs, tmp_path / "toys.pt")
    words = ["--dataset", str(tmp_path / "toys.pt"), "--output-dir", str(tmp_path / "out"), "--num-train-epochs", "1"]
    assert main(["train", "graphcl", *words, "--folds", "2"]) == 0
    figures = json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluation"]
    assert set(figures) == {"roc_auc", "average_precision"}
    assert figures["roc_auc"] > 60
    assert main(["train", "graphcl", *words[:2], "--output-dir", str(tmp_path / "no"), "--folds", "40"]) == 2
