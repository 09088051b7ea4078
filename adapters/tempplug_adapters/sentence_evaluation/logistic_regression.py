"""SentEval's classifier, many fits at once: multinomial logistic regression by mini-batches, stopped early on a dev set.

Rows, order and first weights of each fit are those of a single fit, so that the numbers equal SentEval's digit for digit;
scikit-learn's regression differs by up to two points. Fits with equally many batches per epoch share every operation. The
three ways to compute an accuracy are SentEval's: nested folds, folds on the training rows, a dev split.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from tempplug.options import Choice, Number, check_fields
from tempplug_adapters.evaluation.linear_fits import LinearFits, with_ones

Rows = NDArray[np.int64]
"""Row numbers."""

SEED = 1111
"""SentEval's seed of folds, orders and first weights."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """Training settings of a classifier; the defaults are those of reported results.

    Attributes:
        optimizer: ``adam`` (rate 0.001) or ``rmsprop`` (rate 0.01), with torch's other defaults.
        batch_size: rows per step, at least 1.
        tenacity: number of evaluations without a better dev accuracy, in total, before training stops; at least 0.
        epoch_size: passes over the rows between two evaluations, at least 1.
        max_epoch: training stops at the first multiple of ``epoch_size`` above this number of passes, at least 0.

    Source:
        SentEval (Conneau and Kiela 2018), section 4, and its code.
    """

    optimizer: Annotated[str, Choice(("adam", "rmsprop"))] = "adam"
    batch_size: Annotated[int, Number(at_least=1, integer=True)] = 64
    tenacity: Annotated[int, Number(at_least=0, integer=True)] = 5
    epoch_size: Annotated[int, Number(at_least=1, integer=True)] = 4
    max_epoch: Annotated[int, Number(at_least=0, integer=True)] = 200

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Fit:
    """One classifier to train.

    Attributes:
        train: training rows [n], int64, n at least 1.
        dev: rows whose accuracy decides when to stop and which weights are kept [m], int64, m at least 1.
        l2: values of the weight decay, biases included; a classifier for each.
        drawn: length of the permutation that divided the rows, drawn before the orders; 0 without one.
    """

    train: Rows
    dev: Rows
    l2: tuple[float, ...]
    drawn: int = 0

    @classmethod
    def held_out(cls, rows: Rows, l2: tuple[float, ...]) -> Fit:
        """Returns a fit with 5 per cent of the rows, drawn at random, as dev rows."""
        order, kept = np.random.RandomState(SEED).permutation(len(rows)), int(0.05 * len(rows))
        return cls(rows[order[kept:]], rows[order[:kept]], l2, len(rows))

    def orders(self) -> Iterator[Rows]:
        """Yields the training rows in the order of each pass."""
        random = np.random.RandomState(SEED)
        random.permutation(self.drawn)
        while True:
            yield self.train[random.permutation(len(self.train))]


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of a `Fit`.

    Attributes:
        weights: weights by weight decay [R, C, D + 1], float32; the last column contains the biases.
        accuracy: best dev accuracy by weight decay [R], float64, 0 to 1.
    """

    weights: Tensor
    accuracy: Tensor

    def predict(self, features: Tensor) -> Tensor:
        """Returns the classes [R, N] of rows [N, D], int64."""
        return (with_ones(features) @ self.weights.transpose(1, 2)).argmax(2)


def fit_all(features: Tensor, labels: Tensor, fits: Sequence[Fit], classes: int, classifier: Classifier) -> list[Fitted]:
    """Returns the results of all fits, in order; fits with equally many steps per epoch are trained together.

    On a CPU, each thread trains a share of the fits: operations this small are much slower when threads divide each of them.

    Args:
        features: all rows [N, D], floating.
        labels: classes of the rows [N], int64, 0 to ``classes`` - 1.
        fits: training and dev rows of each fit.
        classes: number of classes, at least 2.
        classifier: training settings.
    """
    rows = with_ones(features)
    groups: dict[tuple[int, int], list[int]] = {}
    for place, fit in enumerate(fits):
        groups.setdefault((math.ceil(len(fit.train) / classifier.batch_size), len(fit.l2)), []).append(place)
    threads = torch.get_num_threads() if rows.device.type == "cpu" else 1
    shares = [share for members in groups.values() for start in range(threads) if (share := members[start::threads])]
    made = [_Together(rows, labels, [fits[place] for place in share], classes, classifier) for share in shares]
    own = torch.get_num_threads()
    torch.set_num_threads(1)  # the number that new threads begin with
    try:
        with ThreadPoolExecutor(threads) as pool:
            trained = list(pool.map(_Together.train, made))
    finally:
        torch.set_num_threads(own)
    found: dict[int, Fitted] = {}
    for share, fitted in zip(shares, trained, strict=True):
        found |= zip(share, fitted, strict=True)
    return [found[place] for place in range(len(fits))]


class _Together:
    """S fits with equally many steps per epoch and R values of the weight decay each, C classes, D + 1 columns."""

    def __init__(self, rows: Tensor, labels: Tensor, fits: Sequence[Fit], classes: int, classifier: Classifier) -> None:
        self.rows, self.classes, self.classifier = rows, classes, classifier
        self.targets = nn.functional.one_hot(labels, classes).to(rows.dtype)
        self.strengths = len(fits[0].l2)
        self.orders = [fit.orders() for fit in fits]
        weights = first_weights(rows.shape[1] - 1, classes).to(rows).repeat(len(fits), self.strengths, 1)
        rate = 0.001 if classifier.optimizer == "adam" else 0.01
        self.fits = LinearFits(weights, rows.new_tensor([fit.l2 for fit in fits]), classifier.optimizer, rate)
        dev, self.dev_weight = _padded([fit.dev for fit in fits], rows)
        self.dev, self.dev_labels = rows[dev], labels[dev]
        self.kept, self.best = weights.clone(), rows.new_full((len(fits), self.strengths), -1.0, dtype=torch.float64)
        self.misses, self.stopped = torch.zeros_like(self.best), torch.zeros_like(self.best, dtype=torch.bool)
        self.places = list(range(len(fits)))

    def train(self) -> list[Fitted]:
        """Trains until every fit has stopped, and returns the results in order."""
        found: dict[int, Fitted] = {}
        passes = 0
        while passes <= self.classifier.max_epoch and self.places:
            for _ in range(self.classifier.epoch_size):
                self._pass()
            passes += self.classifier.epoch_size
            self._look()
            found |= self._leave(self.stopped.all(1))
        found |= self._leave(torch.ones(len(self.places), dtype=torch.bool))
        return [found[place] for place in range(len(found))]

    def _pass(self) -> None:
        """Trains every fit for one pass over its rows."""
        order, weight = _padded([next(orders) for orders in self.orders], self.rows)
        size = self.classifier.batch_size
        for batch, share in zip(torch.split(order, size, 1), torch.split(weight, size, 1), strict=True):
            self.fits.step(self.rows[batch], self.targets[batch], share / share.sum(1, keepdim=True))

    def _look(self) -> None:
        """Keeps the weights that are better on the dev rows than all before, and stops fits after too many failures."""
        right = (self.fits.logits(self.dev).argmax(3) == self.dev_labels.unsqueeze(2)) * self.dev_weight.unsqueeze(2)
        accuracy = right.double().sum(1) / self.dev_weight.double().sum(1, keepdim=True)
        better = (accuracy > self.best) & ~self.stopped
        self.best = torch.where(better, accuracy, self.best)
        self.kept = torch.where(better.repeat_interleave(self.classes, 1).unsqueeze(2), self.fits.weights, self.kept)
        self.stopped |= ~better & (self.misses >= self.classifier.tenacity)
        self.misses += ~better

    def _leave(self, done: Tensor) -> dict[int, Fitted]:
        """Removes the fits that are done, [S], and returns their results by position."""
        found = {}
        for row in done.nonzero().flatten().tolist():
            kept = self.kept[row].reshape(self.strengths, self.classes, -1)
            found[self.places[row]] = Fitted(kept, self.best[row])
        if found:
            left = (~done).nonzero().flatten()
            self.orders, self.places = ([each[row] for row in left.tolist()] for each in (self.orders, self.places))
            self.fits.only(left)
            for name in ("dev", "dev_labels", "dev_weight", "kept", "best", "misses", "stopped"):
                setattr(self, name, getattr(self, name)[left])
        return found


def first_weights(dimension: int, classes: int) -> Tensor:
    """Returns the initial weights of a torch linear layer under SentEval's seed, [C, D + 1]."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = nn.Linear(dimension, classes)
    return torch.cat([layer.weight.detach(), layer.bias.detach().unsqueeze(1)], dim=1)


def _padded(rows: Sequence[Rows], like: Tensor) -> tuple[Tensor, Tensor]:
    """Returns row numbers as [S, longest], padded with 0, and a weight of 1 for each that is not padding."""
    padded = pad_sequence([torch.from_numpy(each) for each in rows], batch_first=True)
    weight = torch.arange(padded.shape[1]) < torch.tensor([[len(each)] for each in rows])
    return padded.to(like.device), weight.to(like)


STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2)
"""Candidates for the weight decay (L2)."""


class Split(NamedTuple):
    """Rows of a task, in the order that determines the folds.

    Attributes:
        features: [N, D], floating.
        labels: class numbers [N], int64.
    """

    features: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracies of a task in per cent, rounded to two decimals as in SentEval.

    Attributes:
        dev: accuracy of the best weight decay, on the rows that chose it.
        test: accuracy on held-out rows.
        predicted: class of each row [N], int64.
    """

    dev: float
    test: float
    predicted: Tensor


def nested_folds(rows: Split, classes: int, folds: int, classifier: Classifier) -> Accuracy:
    """Returns the mean over test folds; an inner cross-validation chooses the weight decay of each (MR, CR, SUBJ, MPQA).

    Args:
        rows: all rows of the task.
        classes: number of classes.
        folds: from 2 to the number of rows of the rarest class.
        classifier: see `Classifier`.
    """
    features, labels = rows
    codes = labels.cpu().numpy()
    outer = list(_folds(codes, folds))
    strengths, dev = [], []
    for train, _ in outer:
        inner = [Fit(train[a], train[b], STRENGTHS) for a, b in _folds(codes[train], folds)]
        best, score = _choice(fit_all(features, labels, inner, classes, classifier))
        strengths.append(best)
        dev.append(score)
    chosen = [Fit.held_out(train, (best,)) for (train, _), best in zip(outer, strengths, strict=True)]
    predicted, test = torch.empty_like(labels), []
    for (_, fold), fitted in zip(outer, fit_all(features, labels, chosen, classes, classifier), strict=True):
        where = torch.from_numpy(fold).to(labels.device)
        predicted[where] = fitted.predict(features[where])[0]
        test.append(_per_cent(predicted[where], labels[where]))
    return Accuracy(round(float(np.mean(dev)), 2), round(float(np.mean(test)), 2), predicted)


def folds_on_train(train: Split, test: Split, classes: int, folds: int, classifier: Classifier) -> Accuracy:
    """Returns the accuracy on the test rows; a cross-validation on the others chooses the weight decay (TREC, MRPC)."""
    fits = [Fit(a, b, STRENGTHS) for a, b in _folds(train.labels.cpu().numpy(), folds)]
    best, dev = _choice(fit_all(*train, fits, classes, classifier))
    (fitted,) = fit_all(*train, [Fit.held_out(np.arange(len(train.labels)), (best,))], classes, classifier)
    predicted = fitted.predict(test.features)[0]
    return Accuracy(dev, _per_cent(predicted, test.labels), predicted)


def dev_split(train: Split, dev: Split, test: Split, classes: int, classifier: Classifier) -> Accuracy:
    """Returns the accuracy on the test rows; the dev rows choose the weight decay and when to stop (SST2)."""
    rows = np.arange(len(train.labels) + len(dev.labels))
    fit = Fit(rows[: len(train.labels)], rows[len(train.labels) :], STRENGTHS)
    joined = Split(torch.cat([train.features, dev.features]), torch.cat([train.labels, dev.labels]))
    (fitted,) = fit_all(*joined, [fit], classes, classifier)
    best, score = _choice([fitted])
    predicted = fitted.predict(test.features)[STRENGTHS.index(best)]
    return Accuracy(score, _per_cent(predicted, test.labels), predicted)


def _folds(codes: NDArray[np.int64], folds: int) -> Iterator[tuple[Rows, Rows]]:
    return iter(StratifiedKFold(folds, shuffle=True, random_state=SEED).split(np.zeros(len(codes)), codes))


def _choice(fits: list[Fitted]) -> tuple[float, float]:
    """Returns the weight decay with the best mean dev accuracy, the weakest of equals, and that accuracy in per cent."""
    scores = np.round(100 * np.mean([fitted.accuracy.cpu().numpy() for fitted in fits], axis=0), 2)
    return STRENGTHS[int(scores.argmax())], float(scores.max())


def _per_cent(predicted: Tensor, labels: Tensor) -> float:
    return round(100 * float((predicted == labels).double().mean()), 2)
