"""Several labels a graph: what probes find, and what cannot be measured by."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from graphcl_toys import toy_set
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from tempplug.cli import main
from tempplug.errors import ConfigError, NonFiniteError
from tempplug_adapters.graph import label_probe
from tempplug_adapters.graph.label_probe import evaluate_labels, measurable_labels


def points(count: int = 60) -> tuple[Tensor, Tensor]:
    """Representations, and three labels: one that they tell, noise, and one of which a third is not known."""
    chance = torch.Generator().manual_seed(0)
    rows = torch.randn(count, 4, generator=chance) * torch.tensor([1.0, 10.0, 0.1, 5.0]) + 3
    told = rows @ torch.tensor([1.0, 0.1, 0.0, 0.0]) + torch.randn(count, generator=chance) / 2 > 3.3
    labels = torch.stack([told, torch.rand(count, generator=chance) > 0.5, told], 1).float()
    labels[::3, 2] = torch.nan
    return rows, labels


def test_it_is_scikit_learns_regression_on_standardised_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = points()
    monkeypatch.setattr(label_probe, "PENALTIES", (0.1,))
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
    assert (found.roc_auc, found.average_precision) == pytest.approx(tuple(100 * np.mean(figures, axis=0)))
    assert told == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1])


def test_the_strength_is_chosen() -> None:
    chance = torch.Generator().manual_seed(0)
    told = torch.arange(60) % 2
    # the sign of the first number tells the label but for few; a strong weight on the many others is a mistake
    rows = torch.cat([(2.0 * told - 1 + torch.randn(60, generator=chance))[:, None], torch.randn(60, 40, generator=chance)], 1)
    chosen = evaluate_labels(rows, told[:, None].float(), folds=2).roc_auc
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_probe, "PENALTIES", (1000.0,))
        assert evaluate_labels(rows, told[:, None].float(), folds=2).roc_auc < chosen


def test_labels_of_too_few_graphs_are_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_probe, "PENALTIES", (1.0,))
    rows, labels = points()
    rare = torch.cat([labels, torch.eye(60)[:, :1]], 1)
    with pytest.warns(
        UserWarning, match="1 of 4 labels a graph are not measured by: they are not 0 for 10 graphs and 1 for 10"
    ):
        assert measurable_labels(rare, 2) == [0, 1, 2]
    assert evaluate_labels(rows, rare, folds=2) == evaluate_labels(rows, labels, folds=2)
    with pytest.raises(ConfigError, match="none of 3 labels a graph is 0 for 31 graphs and 1 for 31, which 31 folds need"):
        measurable_labels(labels, 31)
    with pytest.raises(NonFiniteError, match="representations hold NaN"):
        evaluate_labels(rows / 0, labels)


def test_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_probe, "PENALTIES", (1.0,))
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
