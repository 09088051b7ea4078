"""Trains one small model for each temperature and strategy, and measures each on held-out pairs at several lengths."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
STRATEGIES = ("macl", "dystress", "temperature-free", "learnable")
"""Those that need no other input than pairs and do not depend on the length of the training."""
FOLDS = 2
HELD_OUT = 0.2
LONGEST = 32
"""Epochs of the longest training; large batches need more, for `LEAST_STEPS` steps."""
LEAST_STEPS = 256
"""Steps before which a training does not end, as accuracy may begin to rise late."""
_LEARNING_RATE = 0.01
_PATIENCE = 2


@dataclass(frozen=True)
class Course:
    """What was measured for one temperature or strategy.

    Attributes:
        spec: spec string.
        credits: by epoch, for each held-out anchor of all folds 1 if its positive is the most similar candidate, 1/k if it
            shares that with k - 1 others, otherwise 0; [T].
        temperatures: by epoch, the mean temperature of the last batch.
    """

    spec: str
    credits: dict[int, Tensor]
    temperatures: dict[int, float]

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

    def __init__(self, spec: str, trainee: Trainee, train: Tensor, batch_size: int, seed: int) -> None:
        self.trainee, self.train, self.batch_size = trainee.copy(), train, batch_size
        self.generator = torch.Generator().manual_seed(seed)
        width = self.trainee(train[:1])[0].shape[1]
        self.loss_fn = ContrastiveLoss(_strategy(spec, int(train.max()) + 1, width), layout="cross-view")
        self.optimizers = [self.trainee.optimizer()]
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
        """Returns the credit of each held-out anchor; its candidates are the positives and hard negatives of all of them."""
        anchors, positives, *others = (torch.nn.functional.normalize(view, dim=1) for view in self.trainee(held_out))
        similarity = anchors @ torch.cat([positives, *others]).T
        of_positive = similarity.diagonal()[:, None]
        return (similarity <= of_positive).all(dim=1) / (similarity == of_positive).sum(dim=1)


def train(
    pairs: Pairs, specs: Sequence[str], batch_size: int, planned: int, progress: Callable[[int], None] | None = None
) -> list[Course]:
    """Trains for 1, 2, 4, ... epochs: for at least `LEAST_STEPS` steps, and at most `LONGEST` epochs.

    It ends earlier if the best accuracy has not risen for two lengths.

    Args:
        pairs: to train on; a fifth of them is held out, another fifth in each fold.
        specs: spec strings of the strategies, from `compared`.
        batch_size: pairs per batch, at most those that are trained on.
        planned: epochs of the planned training, which is measured as well if it is reached.
        progress: called with the number of epochs after each length.
    """
    order = torch.randperm(pairs.size, generator=torch.Generator().manual_seed(1))
    size = int(HELD_OUT * pairs.size)
    held_out = [order[fold * size : (fold + 1) * size] for fold in range(FOLDS)]
    kept = [torch.cat([order[: fold * size], order[(fold + 1) * size :]]) for fold in range(FOLDS)]
    batch_size = min(batch_size, pairs.size - size)
    courses = [Course(spec, {}, {}) for spec in specs]
    done = 0
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning), _one_thread():  # of temperatures on their bounds
        runs = [[_Run(spec, pairs.trainee, kept[fold], batch_size, fold) for fold in range(FOLDS)] for spec in specs]
        steps = (pairs.size - size) // batch_size
        for length in _lengths(steps, planned):
            for course, folds in zip(courses, runs, strict=True):
                for run in folds:
                    for _ in range(length - done):
                        run.epoch()
                course.credits[length] = torch.cat([run.credits(rows) for run, rows in zip(folds, held_out, strict=True)])
                course.temperatures[length] = float(folds[0].loss_fn.record.to_dict()["temperature_mean"])
            done = length
            if progress is not None:
                progress(length)
            if length * steps >= LEAST_STEPS and stopped(courses):
                break
    return courses


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sets one thread during the block, because several are slower for so small a model."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def stopped(courses: Sequence[Course]) -> bool:
    """Returns whether the best accuracy has not risen for two lengths."""
    best = [max(course.accuracy(length) for course in courses) for length in courses[0].credits]
    return len(best) > _PATIENCE and max(best[-_PATIENCE:]) <= max(best[:-_PATIENCE])


def _lengths(steps: int, planned: int) -> list[int]:
    """Returns the epochs at which accuracy is measured, given the steps of one."""
    longest = max(LONGEST, 2 ** math.ceil(math.log2(LEAST_STEPS / steps)))
    return sorted({*(2**power for power in range(int(math.log2(longest)) + 1)), min(planned, longest)})


def compared(strategies: Sequence[str] | None = None) -> list[str]:
    """Returns the spec strings that are compared: fixed temperatures in ascending order, then strategies, each once.

    Args:
        strategies: beside `TEMPERATURES`; by default `STRATEGIES`.

    Raises:
        ConfigError: an option is out of range, or a strategy needs more than pairs, or follows the length of the training.
        UnknownNameError: a strategy or an option is unknown.
    """
    temperatures, others = set(TEMPERATURES), []
    for spec in STRATEGIES if strategies is None else strategies:
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
