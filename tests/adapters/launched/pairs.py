"""What every launched script trains: pairs of vectors, a tiny encoder, and the calls of the loss by name.

The scripts beside this file run once on every process; the tests run the same step on the joined batch and compare.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from covering import every_pair
from torch import Tensor, nn

import tempplug

DIMENSION = 6
# Of the rows: some have no other of their class in the batch, some have it on their own process, some on another one.
CLASSES = (0, 1, 2, 0, 3, 3, 1, 3, 0, 2)


class Case(NamedTuple):
    """One call of the loss: how it is built, and which tensors it gets."""

    strategy: str
    layout: str
    objective: str = "infonce"
    symmetric: bool = False
    tensors: tuple[str, ...] = ("a", "b")


CASES = {
    "two-view": Case("macl:base_temperature=0.1,alpha=1.5,threshold=0.2", "two-view", "reweighted"),
    "two-view-learnable": Case("learnable", "two-view"),
    "symmetric": Case("learnable:initial_temperature=0.2", "cross-view", symmetric=True),
    "per-pair": Case("dystress", "cross-view", "dclw", symmetric=True),
    "hard-negatives": Case("learnable", "two-view", tensors=("a", "b", "hard_negatives")),
    "labels": Case("macl", "labels", tensors=("a", "b", "labels")),
    "labels-one-view": Case("learnable", "labels", tensors=("a", "labels")),
    "queue": Case("macl", "queue", tensors=("a", "b", "queue")),
    "queue-learnable": Case("learnable", "queue", tensors=("a", "b", "queue")),
}
ENGINES = ("dense", "tiled")
# One positive an anchor; the interpreter is slow, so few of them.
KERNEL_CASES = ("two-view", "symmetric", "queue-learnable")
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}
# Rows of each process: equal, unequal, a single one on a process; three processes.
GROUPS = ("4,4", "4,3", "1,5", "2,4,3")
STEPS = every_pair(GROUPS, tuple(CASES), ENGINES, tuple(PRECISIONS))
"""Group, case, engine and precision of each step that is compared."""


def pairs(rows: int, seed: int = 0) -> dict[str, Tensor]:
    """Returns the joined batch in float64; the queue is the same on every process."""
    generator = torch.Generator().manual_seed(seed)
    a, noise, hard = (torch.randn(rows, DIMENSION, generator=generator, dtype=torch.float64) for _ in range(3))
    queue = torch.randn(7, DIMENSION, generator=generator, dtype=torch.float64)
    return {"a": a, "b": a + noise, "hard_negatives": hard, "queue": queue, "labels": torch.tensor(CLASSES)[:rows]}


class Encoder(nn.Module):
    """Two layers, whose weights are the same wherever it is made."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(DIMENSION, 12), nn.Tanh(), nn.Linear(12, DIMENSION))

    def forward(self, *views: Tensor) -> tuple[Tensor, ...]:
        """Encodes all views in one pass, as DistributedDataParallel wants it."""
        together: Tensor = self.layers(torch.cat(views))
        return together.split([len(view) for view in views])


def create_loss(case: Case, engine: str, gather: bool) -> tempplug.ContrastiveLoss:
    return tempplug.ContrastiveLoss(
        case.strategy, case.objective, case.layout, symmetric=case.symmetric, gather=gather, engine=engine
    )


def call(case: Case, encoder: nn.Module, loss_fn: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Returns the loss of a batch; ``encoder`` and ``loss_fn`` may be wrapped."""
    encoded = [name for name in case.tensors if name in ("a", "b", "hard_negatives")]
    views = dict(zip(encoded, encoder(*(batch[name] for name in encoded)), strict=True))
    given = {name: views.get(name, batch[name]) for name in case.tensors if name not in ("a", "b")}
    loss: Tensor = loss_fn(*(views[name] for name in ("a", "b") if name in views), **given)
    return loss


def gradients(*modules: nn.Module) -> dict[str, Tensor]:
    """Returns the gradient of every parameter, by position so that wrappers change no name."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return {str(place): parameter.grad for place, parameter in enumerate(parameters) if parameter.grad is not None}


def rows_of(sizes: tuple[int, ...], rank: int) -> slice:
    """Returns the rows of the joined batch that a process holds."""
    start = sum(sizes[:rank])
    return slice(start, start + sizes[rank])


def local(batch: dict[str, Tensor], rows: slice, dtype: torch.dtype) -> dict[str, Tensor]:
    """Returns the part of a process, floating tensors in ``dtype``."""
    part = {name: value if name == "queue" else value[rows] for name, value in batch.items()}
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in part.items()}


def save(folder: str | Path, rank: int, results: dict[Any, Any]) -> None:
    torch.save(results, Path(folder) / f"rank{rank}.pt")
