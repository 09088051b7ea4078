"""A repeatable forward and backward pass of an implementation on generated embeddings, and a network's training step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss
from tempplug_benchmarks.speed.formulas import LossFunction
from tempplug_benchmarks.speed.recipe import SpeedRecipe

NOISE = 1.0
NETWORK_LAYERS, NETWORK_WIDTH, NETWORK_ROWS = 6, 1024, 32


def views(case: SpeedRecipe, dtype: torch.dtype | None = None, rows: int | None = None) -> tuple[Tensor, Tensor]:
    """Returns two correlated Gaussian views [N, D]; positives have a cosine similarity of about 0.5.

    Args:
        case: gives the sizes, seed, device and precision.
        dtype: overrides the precision of the case.
        rows: overrides N of the case.
    """
    generator = torch.Generator().manual_seed(case.seed)
    shared, first, second = (torch.randn(rows or case.rows, case.dimension, generator=generator) for _ in range(3))
    made = (shared + NOISE * first, shared + NOISE * second)
    kind = dtype or getattr(torch, case.precision)
    # Detached leaves, so that the graph does not include their generation.
    view_a, view_b = (view.to(case.device, kind).requires_grad_() for view in made)
    return view_a, view_b


def network_step(device: str) -> Callable[[], None]:
    """Returns a function that makes a training step of a small network on ``device``: forward, backward and SGD."""
    network = nn.Sequential(*(nn.Linear(NETWORK_WIDTH, NETWORK_WIDTH) for _ in range(NETWORK_LAYERS))).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6)
    rows = torch.randn(NETWORK_ROWS, NETWORK_WIDTH, device=device)

    def step() -> None:
        optimizer.zero_grad()
        network(rows).square().mean().backward()
        optimizer.step()

    return step


class Step:
    """A forward and backward pass.

    Args:
        function: the loss.
        view_a: [N, D], a leaf.
        view_b: [N, D], a leaf.

    Attributes:
        function: the loss.
        value: detached loss of the last call; reading it may synchronise with the device.
    """

    def __init__(self, function: LossFunction, view_a: Tensor, view_b: Tensor) -> None:
        self.function = function
        self.value = torch.zeros(())
        self._views = view_a, view_b

    def __call__(self) -> None:
        """Clears the gradients, then computes the loss and its gradients once."""
        view_a, view_b = self._views
        view_a.grad = view_b.grad = None
        with self._autocast():
            loss = self.function(view_a, view_b)
        loss.backward()  # type: ignore[no-untyped-call]
        self.value = loss.detach()

    def gradient(self) -> Tensor:
        """Returns the gradient of the last call for both views, [2N, D] in float64."""
        return torch.cat([torch.zeros_like(view) if view.grad is None else view.grad for view in self._views]).double()

    @property
    def engine(self) -> str:
        """The tempplug engine used in the last call; empty for other implementations."""
        return self.function.record.engine if isinstance(self.function, ContrastiveLoss) else ""

    @property
    def note(self) -> dict[str, str]:
        """The engine as a note of the measurement."""
        return {"note": self.engine} if self.engine else {}

    def _autocast(self) -> AbstractContextManager[object]:
        view = self._views[0]
        if view.dtype in (torch.bfloat16, torch.float16):
            return torch.autocast(view.device.type, dtype=view.dtype)
        return nullcontext()  # even a disabled autocast region costs a few microseconds
