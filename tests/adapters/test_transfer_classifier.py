"""Many fits at once are each the fit that a plain loop over SentEval's rules comes to; folds and choices are its own too."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from covering import every_pair
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn

from tempplug.errors import ConfigError
from tempplug_adapters.sentence_evaluation import logistic_regression
from tempplug_adapters.sentence_evaluation.logistic_regression import (
    Classifier,
    Fit,
    Split,
    dev_split,
    fit_all,
    folds_on_train,
    nested_folds,
)

QUICK = Classifier(batch_size=16, tenacity=1, epoch_size=2, max_epoch=12)
FAST = Classifier(optimizer="rmsprop", batch_size=16, tenacity=1, epoch_size=1, max_epoch=8)

STRENGTHS = (1.0, 1e-5, 1e-2)  # the first of which decides accuracies


@pytest.fixture(autouse=True)
def strengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic_regression, "STRENGTHS", STRENGTHS)


def rows(count: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Clouds around a centre for each class, too near for a perfect score."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    centres = torch.randn(classes, 6, generator=torch.Generator().manual_seed(99))
    return centres[labels] + 1.5 * torch.randn(count, 6, generator=generator), labels


class Plain:
    """One classifier as SentEval trains it, written from its rules: a torch layer, a torch optimizer, one fit at a time."""

    def __init__(self, classes: int, l2: float, classifier: Classifier) -> None:
        self.random = np.random.RandomState(1111)
        torch.manual_seed(1111)
        self.layer, self.classifier = nn.Linear(6, classes), classifier
        kind: Any = torch.optim.Adam if classifier.optimizer == "adam" else torch.optim.RMSprop
        self.optimizer = kind(self.layer.parameters(), weight_decay=l2)

    def fit(self, x: Tensor, y: Tensor, dev: tuple[Tensor, Tensor] | None = None) -> float:
        if dev is None:
            order = torch.from_numpy(self.random.permutation(len(x)))
            kept = int(0.05 * len(x))
            dev, x, y = (x[order[:kept]], y[order[:kept]]), x[order[kept:]], y[order[kept:]]
        best, misses, passes = -1.0, 0, 0
        while passes <= self.classifier.max_epoch:
            for _ in range(self.classifier.epoch_size):
                for batch in torch.from_numpy(self.random.permutation(len(x))).split(self.classifier.batch_size):
                    loss = nn.functional.cross_entropy(self.layer(x[batch]), y[batch])
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
            passes += self.classifier.epoch_size
            if (accuracy := self.score(*dev)) > best:
                best, kept_state = accuracy, copy.deepcopy(self.layer.state_dict())
            elif misses >= self.classifier.tenacity:
                break
            else:
                misses += 1
        self.layer.load_state_dict(kept_state)
        return best

    def predict(self, x: Tensor) -> Tensor:
        return self.layer(x).argmax(1)

    def score(self, x: Tensor, y: Tensor) -> float:
        return float((self.predict(x) == y).double().mean())


def split(labels: Tensor, folds: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(StratifiedKFold(folds, shuffle=True, random_state=1111).split(np.zeros(len(labels)), labels.numpy()))


@pytest.mark.parametrize(("classes", "classifier", "cores"), every_pair((2, 3), (QUICK, FAST), (1, 2)))
def test_fits_together_are_fits_alone(classes: int, classifier: Classifier, cores: int) -> None:
    x, y = rows(100, classes)
    # of different lengths, one of them with another number of steps, one held out at random
    fits = [Fit(a, b, STRENGTHS) for a, b in split(y, 3)] + [Fit(np.arange(40), np.arange(40, 55), STRENGTHS)]
    fits += [Fit.held_out(np.arange(90), STRENGTHS)]
    own = torch.get_num_threads()
    torch.set_num_threads(cores)
    found = fit_all(x, y, fits, classes, classifier)
    torch.set_num_threads(own)
    for fit, fitted in zip(fits, found, strict=True):
        for place, l2 in enumerate(STRENGTHS):
            plain = Plain(classes, l2, classifier)
            data = (x[:90], y[:90]) if fit.drawn else (x[fit.train], y[fit.train], (x[fit.dev], y[fit.dev]))
            best = plain.fit(*data)
            assert float(fitted.accuracy[place]) == pytest.approx(best, abs=1e-12)
            wanted = torch.cat([plain.layer.weight, plain.layer.bias[:, None]], dim=1).detach()
            torch.testing.assert_close(fitted.weights[place], wanted, rtol=1e-3, atol=1e-4)
            assert torch.equal(fitted.predict(x)[place], plain.predict(x))


def chosen(x: Tensor, y: Tensor, folds: list[tuple[Any, Any]], classes: int) -> tuple[float, Plain]:
    """The dev accuracy of the best strength in per cent, and a classifier of that strength, not trained."""
    scores = [
        round(100 * np.mean([Plain(classes, l2, QUICK).fit(x[a], y[a], (x[b], y[b])) for a, b in folds]), 2) for l2 in STRENGTHS
    ]
    return max(scores), Plain(classes, STRENGTHS[int(np.argmax(scores))], QUICK)


def test_nested_folds_are_sentevals() -> None:
    x, y = rows(90, 2)
    dev, test, predicted = [], [], torch.empty_like(y)
    for train, held_out in split(y, 3):
        score, final = chosen(x[train], y[train], split(y[train], 3), 2)
        dev.append(score)
        final.fit(x[train], y[train])
        predicted[held_out] = final.predict(x[held_out])
        test.append(round(100 * final.score(x[held_out], y[held_out]), 2))
    found = nested_folds(Split(x, y), 2, 3, QUICK)
    assert (found.dev, found.test) == (round(np.mean(dev), 2), round(np.mean(test), 2))
    assert torch.equal(found.predicted, predicted)


def test_folds_on_train_and_a_dev_split_are_sentevals() -> None:
    (x, y), (more, labels), (last, wanted) = rows(90, 3), rows(40, 3, seed=1), rows(50, 3, seed=2)
    score, final = chosen(x, y, split(y, 3), 3)
    final.fit(x, y)
    found = folds_on_train(Split(x, y), Split(last, wanted), 3, 3, QUICK)
    assert (found.dev, found.test) == (score, round(100 * final.score(last, wanted), 2))
    every = torch.cat([x, more]), torch.cat([y, labels])
    score, final = chosen(*every, [(slice(90), slice(90, None))], 3)
    final.fit(x, y, (more, labels))
    found = dev_split(Split(x, y), Split(more, labels), Split(last, wanted), 3, QUICK)
    assert (found.dev, found.test) == (score, round(100 * final.score(last, wanted), 2))
    assert torch.equal(found.predicted, final.predict(last))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"optimizer": "sgd"}, "optimizer=sgd must be one of adam, rmsprop."),
        ({"batch_size": 0}, "batch_size=0 must be an integer, at least 1."),
        ({"epoch_size": True}, "epoch_size=true must be an integer."),
    ],
)
def test_options_are_checked(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Classifier(**option)
