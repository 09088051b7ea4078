"""Nearest neighbours: the formula in float64, scikit-learn on real digits, blocks of queries, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.images.representations import unit_rows
from tempplug_adapters.vision.evaluation import classifiers
from tempplug_adapters.vision.evaluation.classifiers import knn_votes


def weighted_knn(bank: Tensor, labels: Tensor, queries: Tensor, *, k: int = 200, temperature: float = 0.1) -> Tensor:
    return knn_votes(bank, labels, queries, k=k, temperature=temperature).argmax(1)


def majority_knn(bank: Tensor, labels: Tensor, queries: Tensor, *, k: int, classes: int | None = None) -> Tensor:
    return knn_votes(bank, labels, queries, k=k, classes=classes).argmax(1)


def points(count: int, classes: int = 4, width: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    return torch.randn(count, width, generator=generator) + 0.8 * torch.eye(width)[labels], labels


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load_digits()
    pixels, labels = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    bank, queries = order[:1437], order[1437:]
    return pixels[bank], labels[bank], pixels[queries], labels[queries]


def unit(rows: Tensor) -> np.ndarray:
    values = rows.double().numpy()
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-300)


def elected(bank: Tensor, labels: Tensor, queries: Tensor, k: int, temperature: float | None) -> list[int]:
    """The rule, one query after the other; without a temperature all votes are equal."""
    a, b, found = unit(bank), unit(queries), []
    for row in b:
        nearness = a @ row
        votes = np.zeros(int(labels.max()) + 1)
        for place in np.argsort(-nearness, kind="stable")[:k]:
            votes[labels[place]] += np.exp(nearness[place] / temperature) if temperature else 1
        found.append(int(votes.argmax()))
    return found


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (5, 0.02), (20, 0.1), (20, 10.0), (83, 0.5)])
def test_a_weighted_vote_is_the_formula(k: int, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    (bank, labels), (queries, _) = points(83), points(60, seed=1)
    expected = elected(bank, labels, queries, k, temperature)
    assert len(set(expected)) >= 3
    assert weighted_knn(bank, labels, queries, k=k, temperature=temperature).tolist() == expected
    monkeypatch.setattr(classifiers, "_SIMILARITIES", 7 * 83)
    assert weighted_knn(3 * bank, labels, queries / 7, k=k, temperature=temperature).tolist() == expected


@pytest.mark.parametrize("k", [1, 2, 10, 83])
def test_a_majority_is_the_formula(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (bank, labels), (queries, _) = points(83), points(60, seed=1)
    expected = elected(bank, labels, queries, k, None)
    assert majority_knn(bank, labels, queries, k=k).tolist() == expected
    monkeypatch.setattr(classifiers, "_SIMILARITIES", 7 * 83)
    assert majority_knn(bank, labels, queries, k=k).tolist() == expected


def test_temperature_and_majority_differ_where_they_should() -> None:
    # Two far neighbours of class 1 against one near one of class 0.
    bank, labels = torch.tensor([[1.0, 0.1], [0.2, 1.0], [0.2, -1.0]]), torch.tensor([0, 1, 1])
    query = torch.tensor([[1.0, 0.0]])
    assert weighted_knn(bank, labels, query, k=3, temperature=0.1).tolist() == [0]
    assert weighted_knn(bank, labels, query, k=3, temperature=10.0).tolist() == [1]
    assert majority_knn(bank, labels, query, k=3).tolist() == [1]


@pytest.mark.parametrize("k", [1, 10])
def test_a_majority_on_digits_is_scikit_learns(k: int) -> None:
    bank, labels, queries, truth = digits()
    machine = KNeighborsClassifier(k, algorithm="brute").fit(unit(bank), labels.numpy())
    found = majority_knn(bank, labels, queries, k=k)
    assert found.tolist() == machine.predict(unit(queries)).tolist()
    assert (found == truth).double().mean() > 0.95


def test_a_weighted_vote_on_digits_is_scikit_learns() -> None:
    bank, labels, queries, _ = digits()

    def weights(distance: np.ndarray) -> np.ndarray:
        return np.exp((1 - distance**2 / 2) / 0.1)

    machine = KNeighborsClassifier(200, algorithm="brute", weights=weights).fit(unit(bank), labels.numpy())
    assert weighted_knn(bank, labels, queries).tolist() == machine.predict(unit(queries)).tolist()


def test_of_equal_votes_the_lowest_class_wins() -> None:
    bank = torch.tensor([[1.0, 0.1], [1.0, -0.1], [1.0, 0.2], [1.0, -0.2]])
    query = torch.tensor([[1.0, 0.0]])
    for labels, winner in (([3, 1, 1, 3], 1), ([2, 2, 0, 0], 0)):
        assert majority_knn(bank, torch.tensor(labels), query, k=4).tolist() == [winner]
    assert weighted_knn(bank, torch.tensor([3, 1, 1, 3]), query, k=4).tolist() == [1]
    assert weighted_knn(bank, torch.tensor([2, 2, 0, 0]), query, k=4).tolist() == [2], "nearer, so no tie"


def test_collapsed_representations_are_asked_like_any_other() -> None:
    bank, labels = torch.ones(400, 5), torch.arange(400) % 4
    votes = knn_votes(bank, labels, torch.ones(400, 5), k=200, temperature=0.1)
    assert votes.shape == (400, 4)
    assert torch.equal(votes.sum(1), torch.full((400,), 200.0, dtype=torch.float64))
    assert torch.equal(knn_votes(bank, labels, torch.zeros(3, 5), k=400), torch.full((3, 4), 100.0, dtype=torch.float64))


@pytest.mark.parametrize("temperature", [1e-30, 1e-4, 1e30])
def test_no_temperature_overflows(temperature: float) -> None:
    (bank, labels), (queries, _) = points(50), points(20, seed=1)
    found = weighted_knn(bank, labels, queries, k=9, temperature=temperature)
    expected = majority_knn(bank, labels, queries, k=1 if temperature < 1 else 9)
    assert found.tolist() == expected.tolist()


def test_length_and_precision_of_rows_do_not_count() -> None:
    (bank, labels), (queries, _) = points(50), points(300, seed=1)
    plain = weighted_knn(bank, labels, queries, k=9)
    scale = torch.logspace(-11, 36, 50)[:, None]
    assert torch.equal(weighted_knn(bank * scale, labels.int(), queries.double(), k=9), plain)
    assert not unit_rows(1e-14 * bank).any(), "as in the loss, rows as short as that have no direction"
    rounded = bank.bfloat16()
    exact = weighted_knn(rounded.double(), labels, queries.double(), k=9)
    assert torch.equal(weighted_knn(rounded, labels, queries, k=9), exact)


def test_neighbours_are_found_in_full_precision_under_autocast() -> None:
    (bank, labels), (queries, _) = points(50), points(300, seed=1)
    plain = [weighted_knn(bank, labels, queries, k=5), majority_knn(bank, labels, queries, k=5)]
    with torch.autocast("cpu", torch.bfloat16):
        bank.requires_grad_()
        assert torch.equal(weighted_knn(bank, labels, queries, k=5), plain[0])
        assert torch.equal(majority_knn(bank, labels, queries, k=5), plain[1])


def test_a_small_bank_votes_as_a_whole() -> None:
    (bank, labels), (queries, _) = points(30), points(20, seed=1)
    assert torch.equal(weighted_knn(bank, labels, queries), weighted_knn(bank, labels, queries, k=30))
    assert torch.equal(majority_knn(bank, labels, queries, k=99, classes=9), majority_knn(bank, labels, queries, k=30))


class Largest(TorchDispatchMode):
    """The number of values in the largest tensor that was made."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, (tuple, list)) else [found]:
            self.numel = max(self.numel, each.numel() if isinstance(each, Tensor) else 0)
        return found


@pytest.mark.parametrize("classify", [weighted_knn, majority_knn])
def test_memory_is_that_of_a_tile(classify: Any) -> None:
    (bank, labels), (queries, _) = points(20000), points(600, seed=1)
    with Largest() as largest:
        classify(bank, labels, queries, k=20)
    assert largest.numel <= classifiers._SIMILARITIES, "all similarities at once would be 12 million"


def test_faults_are_named() -> None:
    (bank, labels), (queries, _) = points(30), points(20, seed=1)
    for classify in (weighted_knn, majority_knn):
        with pytest.raises(ConfigError, match="k=0 neighbours must be an integer, at least 1"):
            classify(bank, labels, queries, k=0)
        with pytest.raises(ConfigError, match="queries are the representations of bank: each would be asked about itself"):
            classify(bank, labels, bank.clone(), k=3)
        with pytest.raises(ShapeError, match=r"queries of shape \[20, 5\] must be \[M, 6\], as wide as bank"):
            classify(bank, labels, queries[:, :5], k=3)
        with pytest.raises(ShapeError, match=r"bank_labels of shape \[29\] must be \[30\]"):
            classify(bank, labels[1:], queries, k=3)
        with pytest.raises(ConfigError, match=r"bank_labels 0 to 3 must be in 0 to 2: there are 3 classes"):
            knn_votes(bank, labels, queries, k=3, classes=3)
        with pytest.raises(ConfigError, match=r"bank_labels -1 to 2 must be at least 0"):
            classify(bank, labels - 1, queries, k=3)
        with pytest.raises(ConfigError, match=r"bank_labels of dtype torch\.float32 must be integers"):
            classify(bank, labels.float(), queries, k=3)
        with pytest.raises(ShapeError, match=r"bank of shape \[0, 6\] must be \[N, F\]"):
            classify(bank[:0], labels[:0], queries, k=3)
        with pytest.raises(ConfigError, match=r"queries of dtype torch\.int64 must be floating point"):
            classify(bank, labels, queries.long(), k=3)
        with pytest.raises(NonFiniteError, match="queries hold NaN or infinite values"):
            classify(bank, labels, queries / 0, k=3)
    for temperature in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match=r"temperature=.* of the vote must be greater than 0"):
            weighted_knn(bank, labels, queries, temperature=temperature)
