"""Classifiers of representations: the vote, the linear probe, the machine and few labels, beside formulas and scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from covering import every_pair
from launched.largest import Largest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from torch import Tensor
from torch.nn import functional as F

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.images.representations import unit_rows
from tempplug_adapters.vision.evaluation import classifiers
from tempplug_adapters.vision.evaluation.classifiers import (
    LABELS,
    accuracy,
    few_label_accuracies,
    few_shot_indices,
    fit_linear_probe,
    knn_votes,
    linear_scores,
    svc_probe,
)
from tempplug_adapters.vision.evaluation.settings import MACL_CIFAR10, PROBES, LinearProbeSettings


def points(count: int, classes: int = 4, width: int = 6, seed: int = 0, spread: float = 1.25) -> tuple[Tensor, Tensor]:
    """Clouds of points, one of each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    return spread * torch.randn(count, width, generator=generator) + torch.eye(width)[labels], labels


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load_digits()
    pixels, labels = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return pixels[train], labels[train], pixels[test], labels[test]


def unit(rows: Tensor) -> np.ndarray:
    return np.asarray(F.normalize(rows.double(), dim=1))


def vote(bank: Tensor, labels: Tensor, queries: Tensor, k: int, temperature: float = math.inf) -> list[int]:
    return knn_votes(bank, labels, queries, k=k, temperature=temperature).argmax(1).tolist()


def elected(bank: Tensor, labels: Tensor, queries: Tensor, k: int, temperature: float) -> list[int]:
    """The rule of the vote, one query after the other."""
    found = []
    for row in unit(queries):
        nearness = unit(bank) @ row
        votes = np.zeros(int(labels.max()) + 1)
        for place in np.argsort(-nearness, kind="stable")[:k]:
            votes[labels[place]] += np.exp(nearness[place] / temperature)
        found.append(int(votes.argmax()))
    return found


@pytest.mark.parametrize(("k", "temperature", "tile"), every_pair((1, 5, 20, 83), (0.02, 0.5, 10.0, math.inf), (2**22, 7 * 83)))
def test_a_vote_is_the_formula(k: int, temperature: float, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, "_SIMILARITIES", tile)
    (bank, labels), (queries, _) = points(83), points(60, seed=1)
    expected = elected(bank, labels, queries, k, temperature)
    assert k == 83 or len(set(expected)) >= 3
    assert vote(3 * bank, labels, queries / 7, k, temperature) == expected
    if k == 83:
        assert vote(bank, labels, queries, 200, temperature) == expected, "a smaller bank votes as a whole"


def test_of_equal_votes_the_lowest_class_wins() -> None:
    bank, query = torch.tensor([[1.0, 0.1], [1.0, -0.1], [1.0, 0.2], [1.0, -0.2]]), torch.tensor([[1.0, 0.0]])
    for labels, winner, nearest in (([3, 1, 1, 3], 1, 1), ([2, 2, 0, 0], 0, 2)):
        assert vote(bank, torch.tensor(labels), query, 4) == [winner]
        assert vote(bank, torch.tensor(labels), query, 4, 0.1) == [nearest]


def test_collapsed_representations_vote_like_any_other() -> None:
    bank, labels = torch.ones(400, 5), torch.arange(400) % 4
    votes = knn_votes(bank, labels, torch.ones(400, 5), k=200, temperature=0.1)
    assert torch.equal(votes.sum(1), torch.full((400,), 200.0, dtype=torch.float64))
    assert torch.equal(knn_votes(bank, labels, torch.zeros(3, 5), k=400), torch.full((3, 4), 100.0, dtype=torch.float64))


def test_neither_temperature_nor_length_nor_precision_of_rows_turns_a_vote() -> None:
    (bank, labels), (queries, _) = points(50), points(300, seed=1)
    for temperature, k in ((1e-30, 1), (1e-4, 1), (1e30, 9)):
        assert vote(bank, labels, queries, 9, temperature) == vote(bank, labels, queries, k)
    plain = vote(bank, labels, queries, 9, 0.1)
    assert vote(bank * torch.logspace(-11, 36, 50)[:, None], labels.int(), queries.double(), 9, 0.1) == plain
    assert not unit_rows(1e-14 * bank).any(), "as in the loss, rows as short as that have no direction"
    rounded = bank.bfloat16()
    assert vote(rounded, labels, queries, 9, 0.1) == vote(rounded.double(), labels, queries.double(), 9, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        assert vote(bank.requires_grad_(), labels, queries, 9, 0.1) == plain


def test_a_vote_needs_the_memory_of_a_tile() -> None:
    (bank, labels), (queries, _) = points(20000), points(600, seed=1)
    with Largest() as largest:
        knn_votes(bank, labels, queries, k=20, temperature=0.1)
    assert largest.numbers <= classifiers._SIMILARITIES, "all similarities at once would be 12 million"


def by_hand(rows: Tensor, labels: Tensor, settings: LinearProbeSettings) -> tuple[np.ndarray, list[float]]:
    """The linear probe's weights with their bias as last column, and the mean loss of each epoch, in float64."""
    generator = torch.Generator().manual_seed(settings.seed)
    classes, width = int(labels.max()) + 1, rows.shape[1]
    bound = 1 / math.sqrt(width)
    first = torch.empty(classes, width).uniform_(-bound, bound, generator=generator)
    bias = torch.empty(classes).uniform_(-bound, bound, generator=generator)
    weight = torch.cat((first, bias[:, None]), dim=1).double().numpy()
    x = np.c_[rows.double().numpy(), np.ones(len(rows))]
    target = np.eye(classes)[labels.numpy()]
    velocity, step, losses = np.zeros_like(weight), 0, []
    steps = settings.epochs * math.ceil(len(rows) / settings.batch_size)
    for _ in range(settings.epochs):
        order, total = torch.randperm(len(rows), generator=generator).numpy(), 0.0
        for start in range(0, len(rows), settings.batch_size):
            chosen = order[start : start + settings.batch_size]
            share = np.exp(x[chosen] @ weight.T)
            share /= share.sum(axis=1, keepdims=True)
            total -= np.log((share * target[chosen]).sum(axis=1)).sum()
            gradient = (share - target[chosen]).T @ x[chosen] / len(chosen) + settings.weight_decay * weight
            velocity = gradient if step == 0 else settings.momentum * velocity + gradient
            decay = math.cos(math.pi * step / (2 * steps)) ** 2 if settings.schedule == "cosine" else 1
            weight = weight - settings.learning_rate * decay * velocity
            step += 1
        losses.append(total / len(rows))
    return weight, losses


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_linear_probe_is_stochastic_gradient_descent_with_momentum(schedule: str) -> None:
    rows, labels = points(23, 3, 5)
    settings = LinearProbeSettings(4, 5, 0.3, 0.8, 0.05, schedule, seed=7)
    expected, losses = by_hand(rows, labels, settings)
    told: list[tuple[int, float]] = []
    before = torch.get_rng_state()
    model = fit_linear_probe(rows, labels, settings, progress=lambda epoch, loss: told.append((epoch, loss)))
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"
    found = torch.cat((model.weight, model.bias[:, None]), dim=1).detach().double().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert [epoch for epoch, _ in told] == [1, 2, 3, 4]
    assert [loss for _, loss in told] == pytest.approx(losses, rel=1e-5)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        inside = fit_linear_probe(rows.requires_grad_(), labels.int(), settings)
    assert torch.equal(inside.weight, model.weight), "in full precision wherever it is called"
    assert rows.grad is None
    assert fit_linear_probe(rows, labels, settings, classes=9).weight.shape == (9, 5)
    others = points(9, 3, 5, seed=1)[0]
    assert torch.equal(linear_scores(model, rows, others.double()), model(others))


def test_recipes_of_the_linear_probe_are_the_papers() -> None:
    assert PROBES["lightly"] == LinearProbeSettings() == LinearProbeSettings(90, 256, 0.1, 0.9, 0.0, "cosine", 0)
    assert LinearProbeSettings(100, 128, 0.02, 0.9, 0.0, "constant") == MACL_CIFAR10


def test_the_machine_is_scikit_learns_on_rows_of_unit_length() -> None:
    train, labels, test, truth = digits()
    machine = LinearSVC(C=1.0, random_state=42).fit(unit(train), labels.numpy())
    found = svc_probe(train, labels, test)
    assert found.dtype == torch.int64
    assert (found.numpy() == machine.predict(unit(test))).mean() > 0.997, "float32 rows may turn a close call"
    assert accuracy(truth, found) > 93
    assert torch.equal(svc_probe(train.half() / 32, labels.int(), 100 * test), found), "the length of rows does not count"
    seen = labels % 3 == 1
    assert set(svc_probe(train[seen], labels[seen], test, classes=10).tolist()) == {1, 4, 7}


def test_few_images_are_drawn_from_each_class_alike() -> None:
    labels = torch.tensor([2] * 50 + [0] * 7 + [5] * 300)[torch.randperm(357, generator=torch.Generator().manual_seed(3))]
    before = torch.get_rng_state()
    chosen = few_shot_indices(labels, 7)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.bincount(labels[chosen]), torch.tensor([7, 0, 7, 0, 0, 7]))
    assert torch.equal(chosen, chosen.unique()), "in ascending order, none twice"
    assert torch.equal(chosen, few_shot_indices(labels, 7, seed=42))
    draws = torch.cat([few_shot_indices(labels, 1, seed) for seed in range(200)])
    assert len(draws[labels[draws] == 2].unique()) > 40, "every image has its chance"


def test_few_labels_are_logistic_regression_on_as_many_images_of_each_class() -> None:
    (train, labels), (test, truth) = points(24, 3, 4, spread=1.5), points(600, 3, 4, 1, spread=1.5)
    assert int(labels.bincount().max()) <= 10, "all of them are taken"
    found = few_label_accuracies(train, labels, test, truth)
    machine = LogisticRegression(C=1.0, solver="newton-cg", tol=1e-8).fit(train.double(), labels)  # another minimiser
    expected = 100 * machine.score(test.double(), truth)
    assert found == pytest.approx({f"{count} labels": expected for count in LABELS}, abs=0.2)
    (train, labels), (test, truth) = points(1500, 3, 4, 2, spread=1.5), points(3000, 3, 4, 3, spread=1.5)
    by_seed = [few_label_accuracies(train, labels, test, truth, seed=seed) for seed in (0, 0, 1)]
    assert by_seed[0] == by_seed[1]
    assert by_seed[0]["10 labels"] != by_seed[2]["10 labels"]
    assert all(each["10 labels"] < each["500 labels"] for each in by_seed)
    # classes of other sizes give as many images
    labels = torch.tensor([0] * 2000 + [1] * 11 + [2] * 11)
    rows, (test, truth) = torch.eye(4)[labels] + 0.05 * torch.rand(len(labels), 4), points(50, 3, 4, 1, spread=0.05)
    assert few_label_accuracies(rows, labels, test, truth)["10 labels"] == 100


(TRAIN, CLASSES), (TEST, _) = points(40), points(30, seed=1)
ONE = LinearProbeSettings(1)
FAULTS: dict[type[Exception], dict[str, Callable[[], object]]] = {
    ShapeError: {
        r"queries of shape \[30, 5\] must be \[M, 6\], as wide as": lambda: vote(TRAIN, CLASSES, TEST[:, :5], 3),
        r"bank_labels of shape \[39\] must be \[40\]": lambda: vote(TRAIN, CLASSES[1:], TEST, 3),
        r"bank of shape \[0, 6\] must be \[N, F\]": lambda: vote(TRAIN[:0], CLASSES[:0], TEST, 3),
    },
    ConfigError: {
        "k=0 neighbours must be an integer, at least 1": lambda: vote(TRAIN, CLASSES, TEST, 0),
        "queries are the representations of bank: each would be": lambda: vote(TRAIN, CLASSES, TRAIN.clone(), 3),
        "bank_labels 0 to 3 must be in 0 to 2: there": lambda: knn_votes(TRAIN, CLASSES, TEST, k=3, classes=3),
        r"bank_labels of dtype torch\.float32 must be integers": lambda: vote(TRAIN, CLASSES.float(), TEST, 3),
        r"queries of dtype torch\.int64 must be floating point": lambda: vote(TRAIN, CLASSES, TEST.long(), 3),
        "temperature=0 of the vote must be greater": lambda: vote(TRAIN, CLASSES, TEST, 3, 0.0),
        "temperature=nan of the vote must be greater": lambda: vote(TRAIN, CLASSES, TEST, 3, math.nan),
        "batch_size=0": lambda: LinearProbeSettings(batch_size=0),
        "learning_rate=0 of the linear probe must be greater than 0": lambda: LinearProbeSettings(learning_rate=0.0),
        "momentum=1 of the linear probe must be at least 0 and less than 1": lambda: LinearProbeSettings(momentum=1.0),
        "test are the rep.* of train": lambda: linear_scores(fit_linear_probe(TRAIN, CLASSES, ONE), TRAIN, TRAIN.clone()),
        "train_labels 0 to 3 must be in 0 to 1": lambda: fit_linear_probe(TRAIN, CLASSES, ONE, classes=2),
        "class 0 has 7 images, too few for per_class=8": lambda: few_shot_indices(torch.tensor([0] * 7), 8),
        "per_class=0 images must be an integer, at least 1": lambda: few_shot_indices(CLASSES, 0),
        "train_labels hold class 4 only, but a classifier needs two": lambda: svc_probe(TRAIN, 0 * CLASSES + 4, TEST),
        "train_labels hold class 0 only": lambda: few_label_accuracies(TRAIN, 0 * CLASSES, TEST, TEST[:, 0]),
        "test are the representations of train": lambda: few_label_accuracies(TRAIN, CLASSES, TRAIN, CLASSES),
    },
    NonFiniteError: {
        "queries hold NaN or infinite values": lambda: vote(TRAIN, CLASSES, TEST / 0, 3),
        "train hold NaN": lambda: fit_linear_probe(TRAIN / 0, CLASSES, ONE),
        r"diverged at learning_rate=1e\+38: lower it or scale": lambda: fit_linear_probe(
            100 * TRAIN, CLASSES, LinearProbeSettings(3, 8, 1e38)
        ),
    },
}


@pytest.mark.parametrize("error", FAULTS)
def test_faults_are_named(error: type[Exception]) -> None:
    for message, call in FAULTS[error].items():
        with pytest.raises(error, match=message):
            call()
