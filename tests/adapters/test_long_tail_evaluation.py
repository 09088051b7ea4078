"""Long tails: the four scores of the paper on long-tailed digits, groups of classes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from torch import Tensor

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.images.long_tail import long_tail_indices
from tempplug_adapters.vision.evaluation.classifiers import accuracy, class_accuracies, few_shot_indices, long_tail_score
from tempplug_adapters.vision.evaluation.evaluations import long_tail_evaluation

GROUPS = {"head": slice(4), "middle": slice(4, 7), "tail": slice(7, None)}


def long_tailed_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load_digits()
    pixels, labels = torch.tensor(data.data), torch.tensor(data.target)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1300], order[1300:]
    train = train[long_tail_indices(labels[train], 20, 100, seed=1)]
    return pixels[train], labels[train], pixels[test], labels[test]


def unit(rows: Tensor) -> np.ndarray:
    return (rows / rows.norm(dim=1, keepdim=True)).numpy()


def test_the_scores_are_scikit_learns_class_by_class() -> None:
    bank, labels, queries, truth = long_tailed_digits()
    counts = torch.bincount(labels)
    assert sorted(counts.tolist())[::9] == [5, 100]
    shots = few_shot_indices(labels, 5)
    asked = unit(queries)
    expected = {f"knn@{k}": KNeighborsClassifier(k, algorithm="brute").fit(unit(bank), labels).predict(asked) for k in (1, 10)}
    expected["few-shot"] = LinearSVC(random_state=42).fit(unit(bank[shots]), labels[shots]).predict(asked)
    expected["long-tail"] = LinearSVC(random_state=42).fit(unit(bank), labels).predict(asked)
    found = long_tail_evaluation(bank, labels, queries, truth)
    assert list(found) == list(expected)
    by_size = counts.argsort(descending=True, stable=True)
    for name, predicted in expected.items():
        shares = np.array([100 * float((predicted[truth == code] == code).mean()) for code in range(10)])
        groups = {group: shares[by_size[places]].mean() for group, places in GROUPS.items()}
        score = {key: value if key == "classes" else float(value) for key, value in found[name].items()}
        assert score.pop("classes") == pytest.approx(shares.tolist()), name
        assert score == pytest.approx({"overall": shares.mean(), **groups})
    tails = {name: score["tail"] for name, score in found.items()}
    assert tails["knn@10"] < tails["knn@1"], "a class of five images cannot fill ten neighbours"
    assert tails["knn@10"] < found["knn@10"]["head"]


def test_head_and_tail_may_be_told_by_size() -> None:
    bank, labels, queries, truth = long_tailed_digits()
    by_size = long_tail_evaluation(bank, labels, queries, truth, head_above=60, tail_below=6)["long-tail"]
    counts = torch.bincount(labels).tolist()
    head = [share for share, count in zip(by_size["classes"], counts, strict=True) if count > 60]
    assert 0 < len(head) < 4
    assert by_size["head"] == pytest.approx(np.mean(head))
    assert by_size["tail"] == pytest.approx(by_size["classes"][counts.index(5)])


def test_a_group_without_a_class_has_no_score() -> None:
    labels = torch.tensor([0, 1, 2, 2])
    score = long_tail_score(labels, torch.tensor([0, 0, 2, 0]), torch.tensor([9, 7, 8]), head_above=9, tail_below=8)
    assert score == {"overall": 50.0, "head": None, "middle": 75.0, "tail": 0.0, "classes": [100.0, 0.0, 50.0]}


def test_accuracies_count_images_and_classes() -> None:
    labels, predicted = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 2, 0])
    assert accuracy(labels, predicted) == 50.0
    assert class_accuracies(labels, predicted.int(), 2).tolist() == pytest.approx([200 / 3, 0.0])


def test_faults_are_named() -> None:
    bank, labels, queries, truth = long_tailed_digits()
    kept, asked = labels != 3, truth != 9
    few = torch.tensor([0, 0, 0, 1])
    for call, given, error, message in [
        (long_tail_evaluation, (bank[kept], labels[kept], queries, truth), ConfigError, "no image of class 3 of 10: it could"),
        (long_tail_evaluation, (bank, labels, queries[asked], truth[asked]), ConfigError, "labels hold no image of class 9"),
        (long_tail_evaluation, (bank, labels, queries, truth[:3]), ShapeError, r"query_labels of shape \[3\]"),
        (class_accuracies, (few, few, 4), ConfigError, "no image of class 2: an accuracy of each of 4 classes needs"),
        (class_accuracies, (few, few, 1), ConfigError, "labels 0 to 1 must be in 0 to 0"),
        (accuracy, (few, few[1:]), ShapeError, r"labels and predicted of shapes \[4\] and \[3\] must both be \[M\]"),
        (accuracy, (few[:0], few[:0]), ShapeError, r"\[0\] and \[0\]"),
    ]:
        with pytest.raises(error, match=message):
            call(*given)
