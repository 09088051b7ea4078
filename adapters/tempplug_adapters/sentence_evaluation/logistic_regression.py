"""SentEval's classifier, many fits at once: multinomial logistic regression by mini-batches, stopped early on a dev set.

Each fit has the rows, the order and the start that it would have alone, for SentEval's numbers digit for digit, from
which scikit-learn's regression departs by up to two points; those with as many batches an epoch share every operation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tempplug.errors import ConfigError
from tempplug_adapters.evaluation.linear_fits import LinearFits, with_ones

Rows = NDArray[np.int64]
"""Numbers of rows."""

SEED = 1111
"""SentEval's, of folds, orders and first weights."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """How a classifier is trained; the defaults are those under which results are reported.

    Attributes:
        optimizer: ``adam`` (rate 0.001) or ``rmsprop`` (rate 0.01), with torch's other defaults.
        batch_size: rows a step, at least 1.
        tenacity: how often the dev accuracy may fail to rise, in all, before training stops; at least 0.
        epoch_size: passes over the rows between two looks at the dev accuracy, at least 1.
        max_epoch: no look later than after the first multiple of ``epoch_size`` above this many passes, at least 0.

    Source:
        SentEval (Conneau and Kiela 2018), section 4, and its code for what the paper leaves open.
    """

    optimizer: str = "adam"
    batch_size: int = 64
    tenacity: int = 5
    epoch_size: int = 4
    max_epoch: int = 200

    def __post_init__(self) -> None:
        if self.optimizer not in ("adam", "rmsprop"):
            raise ConfigError(f"optimizer='{self.optimizer}' must be adam or rmsprop.")
        least = {"batch_size": 1, "tenacity": 0, "epoch_size": 1, "max_epoch": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < bound:
                raise ConfigError(f"{name}={value!r} must be an integer, at least {bound}.")


@dataclass(frozen=True, slots=True)
class Fit:
    """One classifier to train.

    Attributes:
        train: rows to learn from [n], int64, n at least 1.
        dev: rows whose accuracy decides when to stop and which weights stay [m], int64, m at least 1.
        l2: strengths of the weight decay, biases included; a classifier for each.
        drawn: length of the permutation that decided which rows are which, 0 where none did: orders are drawn after it.
    """

    train: Rows
    dev: Rows
    l2: tuple[float, ...]
    drawn: int = 0

    @classmethod
    def held_out(cls, rows: Rows, l2: tuple[float, ...], share: float = 0.05) -> Fit:
        """Returns the fit that keeps a random share of the rows to choose by."""
        order, kept = np.random.RandomState(SEED).permutation(len(rows)), int(share * len(rows))
        return cls(rows[order[kept:]], rows[order[:kept]], l2, len(rows))

    def orders(self) -> Iterator[Rows]:
        """Yields the rows to learn from in the order of each pass."""
        random = np.random.RandomState(SEED)
        random.permutation(self.drawn)
        while True:
            yield self.train[random.permutation(len(self.train))]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a `Fit` came to.

    Attributes:
        weights: of each strength [R, C, D + 1], float32; the last column holds the biases.
        accuracy: best dev accuracy of each strength [R], float64, 0 to 1.
    """

    weights: Tensor
    accuracy: Tensor

    def predict(self, features: Tensor) -> Tensor:
        """Returns the classes [R, N] of rows [N, D], int64."""
        return (with_ones(features) @ self.weights.transpose(1, 2)).argmax(2)


def fit_all(features: Tensor, labels: Tensor, fits: Sequence[Fit], classes: int, classifier: Classifier) -> list[Fitted]:
    """Returns every fit, in order; all that have as many steps an epoch and as many strengths are trained together.

    On a CPU each core trains its share of them: operations so small take many times longer when threads divide each.

    Args:
        features: all rows [N, D], floating.
        labels: their classes [N], int64, 0 to ``classes`` - 1.
        fits: rows to train on and to choose by.
        classes: their number, at least 2.
        classifier: how each is trained.
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
    """Fits with as many steps an epoch and as many strengths: S of them, R strengths, C classes, D + 1 columns."""

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
        """Trains until every fit has stopped, and returns them in order."""
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
        """Every fit sees all of its rows once."""
        order, weight = _padded([next(orders) for orders in self.orders], self.rows)
        size = self.classifier.batch_size
        for batch, share in zip(torch.split(order, size, 1), torch.split(weight, size, 1), strict=True):
            self.fits.step(self.rows[batch], self.targets[batch], share / share.sum(1, keepdim=True))

    def _look(self) -> None:
        """Keeps the weights that are better on the dev rows than all before, and stops what failed once too often."""
        right = (self.fits.logits(self.dev).argmax(3) == self.dev_labels.unsqueeze(2)) * self.dev_weight.unsqueeze(2)
        accuracy = right.double().sum(1) / self.dev_weight.double().sum(1, keepdim=True)
        better = (accuracy > self.best) & ~self.stopped
        self.best = torch.where(better, accuracy, self.best)
        self.kept = torch.where(better.repeat_interleave(self.classes, 1).unsqueeze(2), self.fits.weights, self.kept)
        self.stopped |= ~better & (self.misses >= self.classifier.tenacity)
        self.misses += ~better

    def _leave(self, done: Tensor) -> dict[int, Fitted]:
        """Returns the fits that are done [S], by place, and goes on without them."""
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
    """Returns the weights [C, D + 1] that a linear layer of torch starts with under SentEval's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = nn.Linear(dimension, classes)
    return torch.cat([layer.weight.detach(), layer.bias.detach().unsqueeze(1)], dim=1)


def _padded(rows: Sequence[Rows], like: Tensor) -> tuple[Tensor, Tensor]:
    """Returns rows of several lengths as [S, longest], padded with row 0, and 1 for what is no padding."""
    longest = max(map(len, rows))
    padded = np.zeros((len(rows), longest), dtype=np.int64)
    weight = np.zeros((len(rows), longest), dtype=np.float32)
    for place, each in enumerate(rows):
        padded[place, : len(each)], weight[place, : len(each)] = each, 1
    return torch.from_numpy(padded).to(like.device), torch.from_numpy(weight).to(like.device)
