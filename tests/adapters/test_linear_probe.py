"""Linear classifiers: SGD written out in NumPy, scikit-learn on real digits, draws of few images, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.vision.evaluation.classifiers import fit_linear_probe, linear_scores
from tempplug_adapters.vision.evaluation.scores import accuracy
from tempplug_adapters.vision.evaluation.settings import MACL_CIFAR10, PROBES, LinearProbeSettings


def linear_probe(
    train: Tensor, labels: Tensor, test: Tensor, settings: LinearProbeSettings, classes: int | None = None
) -> Tensor:
    return linear_scores(fit_linear_probe(train, labels, settings, classes=classes), train, test).argmax(dim=1)


def points(count: int, classes: int = 3, width: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    return torch.randn(count, width, generator=generator) + torch.eye(width)[labels], labels


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load_digits()
    pixels, labels = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return pixels[train], labels[train], pixels[test], labels[test]


def by_hand(rows: Tensor, labels: Tensor, settings: LinearProbeSettings) -> tuple[np.ndarray, list[float]]:
    """The weights with their bias as last column, and the mean loss of each epoch, in float64."""
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
            rate = settings.learning_rate
            if settings.schedule == "cosine":
                rate *= math.cos(math.pi * step / (2 * steps)) ** 2
            weight = weight - rate * velocity
            step += 1
        losses.append(total / len(rows))
    return weight, losses


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_it_is_stochastic_gradient_descent_with_momentum(schedule: str) -> None:
    rows, labels = points(23)
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


def test_what_is_reported_is_the_last_epoch() -> None:
    (train, labels), (test, truth) = points(40), points(30, seed=1)
    settings = LinearProbeSettings(5, 8, 0.1)
    model = fit_linear_probe(train, labels, settings)
    found = linear_probe(train, labels, test, settings)
    assert torch.equal(found, model(test).argmax(dim=1))
    assert accuracy(truth, found) == pytest.approx(100 * int((found == truth).sum()) / 30)


def test_digits_are_told_apart_as_well_as_by_a_converged_classifier() -> None:
    train, labels, test, truth = digits()
    share = accuracy(truth, linear_probe(train, labels, test, LinearProbeSettings(epochs=40, batch_size=64)))
    converged = 100 * LogisticRegression(C=100, max_iter=5000).fit(train, labels).score(test, truth)
    assert converged > 94
    assert share == pytest.approx(converged, abs=2.5)


def test_the_seed_decides() -> None:
    rows, labels = points(40)
    weights = [fit_linear_probe(rows, labels, LinearProbeSettings(2, 8, seed=seed)).weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_it_learns_in_full_precision_wherever_it_is_called() -> None:
    (train, labels), (test, _) = points(40), points(3000, seed=1)
    settings = LinearProbeSettings(3, 8)
    plain = fit_linear_probe(train, labels, settings)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        inside = fit_linear_probe(train.requires_grad_(), labels.int(), settings)
        found = linear_probe(train.double(), labels, test.double(), settings)
    assert torch.equal(inside.weight, plain.weight)
    assert train.grad is None
    assert torch.equal(found, plain(test).argmax(dim=1))


def test_a_class_without_a_training_image_has_its_row() -> None:
    rows, labels = points(20)
    assert fit_linear_probe(rows, labels, LinearProbeSettings(1), classes=9).weight.shape == (9, 5)


def test_recipes_are_the_papers() -> None:
    assert PROBES["lightly"] == LinearProbeSettings() == LinearProbeSettings(90, 256, 0.1, 0.9, 0.0, "cosine", 0)
    assert LinearProbeSettings(100, 128, 0.02, 0.9, 0.0, "constant") == MACL_CIFAR10


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("epochs", 0, "epochs=0 of the linear probe must be an integer, at least 1"),
        ("batch_size", 0, "batch_size=0"),
        ("learning_rate", 0.0, "learning_rate=0 of the linear probe must be greater than 0"),
        ("learning_rate", math.inf, "learning_rate=inf"),
        ("momentum", 1.0, "momentum=1 of the linear probe must be at least 0 and less than 1"),
        ("momentum", -0.1, "momentum=-0.1"),
        ("weight_decay", -1.0, "weight_decay=-1 of the linear probe must be at least 0"),
        ("schedule", "step", "schedule=step of the linear probe must be one of cosine, constant"),
    ],
)
def test_settings_out_of_range_are_refused(option: str, value: float | str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LinearProbeSettings(**{option: value})  # type: ignore[arg-type]


def test_faults_are_named() -> None:
    (train, labels), (test, _) = points(40), points(30, seed=1)
    settings = LinearProbeSettings(1)
    with pytest.raises(ConfigError, match="test are the representations of train"):
        linear_probe(train, labels, train.clone(), settings)
    with pytest.raises(ShapeError, match=r"test of shape \[30, 4\] must be \[M, 5\], as wide as train"):
        linear_probe(train, labels, test[:, :4], settings)
    with pytest.raises(ShapeError, match=r"train_labels of shape \[39\] must be \[40\]"):
        linear_probe(train, labels[1:], test, settings)
    with pytest.raises(ConfigError, match="train_labels 0 to 2 must be in 0 to 1"):
        linear_probe(train, labels, test, settings, classes=2)
    with pytest.raises(NonFiniteError, match="train hold NaN"):
        linear_probe(train / 0, labels, test, settings)
    with pytest.raises(NonFiniteError, match=r"has diverged at learning_rate=1e\+38: lower it or scale"):
        fit_linear_probe(100 * train, labels, LinearProbeSettings(3, 8, 1e38))
