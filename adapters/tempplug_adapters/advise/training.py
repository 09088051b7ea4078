"""Trains small models for each temperature and strategy, at three learning rates, and measures them on held-out pairs."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from typing import cast

import torch
from torch import Tensor

from tempplug import ContrastiveLoss, Fixed, Strategy
from tempplug.arguments import parse_spec
from tempplug.create import load_class
from tempplug.errors import ConfigError
from tempplug.plugins import StrategyInfo, registry
from tempplug_adapters.advise.pairs import Pairs, Trainee
from tempplug_adapters.contexts import in_context

TEMPERATURES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
RATES = (1 / 3, 1.0, 3.0)
"""Learning rates that each temperature and strategy is trained at, in multiples of the usual one of the trained model."""
FEWEST_FOLDS, MOST_FOLDS = 2, 5
"""Repetitions, each with other pairs held out."""
HELD_OUT = 0.2
LONGEST = 32
"""Epochs of the longest training; large batches need more, for `LEAST_STEPS` steps."""
LEAST_STEPS = 256
"""Steps that the longest training has at least."""
OVERTIME = 1.1
"""Share of the seconds after which no further fold begins."""
_LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Course:
    """What was measured for one temperature or strategy, at the most accurate of the learning rates of each length.

    Attributes:
        spec: spec string.
        credits: by epoch, for each held-out anchor of each fold 1 if its positive is the most similar candidate, 1/k if it
            shares that with k - 1 others, otherwise 0; [folds, anchors].
        temperatures: by epoch, the mean temperature of the last batch.
        by_rate: by epoch, the accuracy in percent at each of the learning rates.
    """

    spec: str
    credits: dict[int, Tensor]
    temperatures: dict[int, float]
    by_rate: dict[int, dict[float, float]] = field(default_factory=dict)

    @property
    def temperature(self) -> float | None:
        """The fixed temperature; None for a strategy."""
        name, options = parse_spec(self.spec)
        return float(options["temperature"]) if name == "fixed" else None

    def accuracy(self, epoch: int) -> float:
        """Returns how often the positive of a held-out anchor ranks first, in percent."""
        return 100 * float(self.credits[epoch].mean())


class _Run:
    """A training on one fold: a model, a loss and their optimizers."""

    def __init__(self, spec: str, rate: float, trainee: Trainee, train: Tensor, batch_size: int, seed: int) -> None:
        self.trainee, self.train, self.batch_size = trainee.copy(), train, batch_size
        self.generator = torch.Generator().manual_seed(seed)
        width = self.trainee(train[:1])[0].shape[1]
        self.loss_fn = ContrastiveLoss(_strategy(spec, int(train.max()) + 1, width), layout="cross-view")
        self.optimizers = [self.trainee.optimizer(rate)]
        if learned := list(self.loss_fn.parameters()):
            self.optimizers.append(torch.optim.Adam(learned, lr=_LEARNING_RATE))

    def epoch(self) -> None:
        order = self.train[torch.randperm(len(self.train), generator=self.generator)]
        for rows in order.split(self.batch_size):  # type: ignore[no-untyped-call]
            if len(rows) < self.batch_size:
                break
            view_a, view_b, *others = self.trainee(rows)
            given = {"index": rows} if "index" in self.loss_fn.strategy.takes else {}
            loss = self.loss_fn(view_a, view_b, hard_negatives=others[0] if others else None, **given)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in self.optimizers:
                optimizer.step()

    @torch.no_grad()
    def credits(self, held_out: Tensor) -> Tensor:
        """Returns the credit of each held-out anchor; its candidates are the positives and hard negatives of all pairs."""
        normalize = partial(torch.nn.functional.normalize, dim=1)
        anchors, *others = map(normalize, self.trainee(held_out))
        similarity = anchors @ torch.cat([*others, *map(normalize, self.trainee(self.train)[1:])]).T
        of_positive = similarity.diagonal()[:, None]
        return (similarity <= of_positive).all(dim=1) / (similarity == of_positive).sum(dim=1)


def train(
    pairs: Pairs,
    specs: Sequence[str],
    batch_size: int,
    planned: int,
    seconds: float = math.inf,
    progress: Callable[[str], None] | None = None,
) -> list[Course]:
    """Trains at each learning rate, and measures after 1, 2, 4, ... epochs.

    The seconds decide what is trained: at least the first epoch, as many epochs as are planned with two folds, then up to five
    folds, then more epochs: at most `LONGEST`, or what has `LEAST_STEPS` steps.

    Args:
        pairs: to train on; a fifth of them is held out, another fifth in each fold.
        specs: spec strings of the strategies, from `compared`.
        batch_size: pairs per batch, at most those that are trained on.
        planned: epochs of the planned training, which is measured as well if it is reached.
        seconds: that the training may take.
        progress: called with how much is done and how long the rest will take, in words.
    """
    order = torch.randperm(pairs.size, generator=torch.Generator().manual_seed(1))
    size = int(HELD_OUT * pairs.size)
    batch_size = min(batch_size, pairs.size - size)
    measured: dict[tuple[str, float, int], list[Tensor]] = {}
    temperatures: dict[tuple[str, float, int], float] = {}
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning), _one_thread():  # of temperatures on their bounds
        fold_epoch = len(RATES) * sum(_epoch_seconds(pairs, spec, order[size:], batch_size) for spec in specs)
        lengths, folds = _plan(_lengths((pairs.size - size) // batch_size, planned), planned, seconds, fold_epoch)
        began, done, total = time.monotonic(), 0, folds * len(specs) * len(RATES)
        for fold in range(folds):
            spent = time.monotonic() - began
            if fold >= FEWEST_FOLDS and spent * (fold + 1) / fold > OVERTIME * seconds:
                break
            held_out = order[fold * size : (fold + 1) * size]
            trained = torch.cat([order[: fold * size], order[(fold + 1) * size :]])
            for spec, rate in product(specs, RATES):
                run = _Run(spec, rate, pairs.trainee, trained, batch_size, fold)
                for previous, length in pairwise([0, *lengths]):
                    for _ in range(length - previous):
                        run.epoch()
                    measured.setdefault((spec, rate, length), []).append(run.credits(held_out))
                    temperatures.setdefault((spec, rate, length), float(run.loss_fn.record.to_dict()["temperature_mean"]))
                done += 1
                if progress is not None:
                    left = (time.monotonic() - began) * (total - done) / done
                    progress(f"{done} of {total} trainings done; about {left:.0f} s left")
    courses = [Course(spec, {}, {}) for spec in specs]
    for course, length in product(courses, lengths):
        credits = {rate: torch.stack(measured[course.spec, rate, length]) for rate in RATES}
        course.by_rate[length] = {rate: 100 * float(each.mean()) for rate, each in credits.items()}
        rate = max(RATES, key=lambda rate: course.by_rate[length][rate])
        course.credits[length], course.temperatures[length] = credits[rate], temperatures[course.spec, rate, length]
    return courses


def _epoch_seconds(pairs: Pairs, spec: str, trained: Tensor, batch_size: int) -> float:
    """Returns the seconds of the second epoch of a training; the first one also loads what it needs."""
    run = _Run(spec, 1.0, pairs.trainee, trained, batch_size, 0)
    run.epoch()
    began = time.monotonic()
    run.epoch()
    return time.monotonic() - began


def _plan(lengths: list[int], planned: int, seconds: float, fold_epoch: float) -> tuple[list[int], int]:
    """Returns the lengths and the number of folds that take at most so many seconds, as `train` says.

    Args:
        lengths: all that may be measured, in ascending order.
        planned: epochs of the planned training.
        seconds: that the training may take.
        fold_epoch: seconds of one epoch of all trainings of a fold.
    """

    def fitting(folds: int, longest: float) -> list[int]:
        return [length for length in lengths if length <= longest and length * folds * fold_epoch <= seconds] or lengths[:1]

    reached = fitting(FEWEST_FOLDS, planned)
    affordable = seconds / max(reached[-1] * fold_epoch, 1e-9)
    folds = MOST_FOLDS if affordable >= MOST_FOLDS else max(FEWEST_FOLDS, int(affordable))
    return (fitting(folds, math.inf) if folds == MOST_FOLDS else reached), folds


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sets one thread during the block, because several are slower for so small a model."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _lengths(steps: int, planned: int) -> list[int]:
    """Returns the epochs at which accuracy is measured, given the steps of one."""
    longest = max(LONGEST, 2 ** math.ceil(math.log2(LEAST_STEPS / steps)))
    return sorted({*(2**power for power in range(int(math.log2(longest)) + 1)), min(planned, longest)})


def compared(strategies: Sequence[str] = (), current: float | None = None) -> list[str]:
    """Returns the spec strings that are compared: fixed temperatures in ascending order, then strategies, each once.

    Args:
        strategies: beside `TEMPERATURES`.
        current: temperature of the planned training, which is compared as well.

    Raises:
        ConfigError: an option is out of range, or a strategy needs more than pairs, or follows the length of the training.
        UnknownNameError: a strategy or an option is unknown.
    """
    temperatures, others = {*TEMPERATURES, *([] if current is None else [current])}, []
    for spec in strategies:
        strategy = _strategy(spec, 2, 2)
        if isinstance(strategy, Fixed):
            temperatures.add(strategy.temperature)
        else:
            others.append(spec)
    return list(dict.fromkeys([*(Fixed(each).spec() for each in sorted(temperatures)), *others]))


def _strategy(spec: str, size: int, dimension: int) -> Strategy:
    """Returns a strategy; raises ConfigError if it needs more than pairs or depends on the length of the training."""
    name = parse_spec(spec)[0]
    target = cast(type[Strategy], load_class(registry().get(StrategyInfo, name)))
    if missing := sorted(target.takes - {"index"}):
        raise ConfigError(f"strategy '{name}' needs {' and '.join(missing)}, which pairs do not contain: leave it out.")
    strategy = in_context(spec, {}, size=size, dimension=dimension)
    if getattr(strategy.set_progress, "__func__", None) is not Strategy.set_progress:
        raise ConfigError(
            f"strategy '{name}' follows the length of the training, but advise compares lengths: use `tempplug sweep` for it."
        )
    return strategy
