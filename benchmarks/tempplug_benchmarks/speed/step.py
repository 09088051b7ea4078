"""One forward and backward pass of an implementation on made-up embeddings, ready to be repeated, and a network's step.

It must not know clocks.
"""

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
    """Returns two correlated gaussian views [N, D], positives at a cosine similarity of about one half.

    Args:
        case: whose sizes, seed, device and precision are used.
        dtype: instead of the case's precision.
        rows: instead of the case's.
    """
    generator = torch.Generator().manual_seed(case.seed)
    shared, first, second = (torch.randn(rows or case.rows, case.dimension, generator=generator) for _ in range(3))
    made = (shared + NOISE * first, shared + NOISE * second)
    kind = dtype or getattr(torch, case.precision)
    # Leaves of their own, so that nothing of how they were made is on the graph.
    view_a, view_b = (view.to(case.device, kind).requires_grad_() for view in made)
    return view_a, view_b


def network_step(device: str) -> Callable[[], None]:
    """Returns a training step of a small network: forward, backward and SGD.

    Args:
        device: that the network is on.
    """
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
        view_a: [N, D] a leaf.
        view_b: [N, D] a leaf.

    Attributes:
        function: the loss.
        value: of the last call, detached; waiting for it may wait for a device.
    """

    def __init__(self, function: LossFunction, view_a: Tensor, view_b: Tensor) -> None:
        self.function = function
        self.value = torch.zeros(())
        self._views = view_a, view_b

    def __call__(self) -> None:
        """Goes forward and backward once; the gradients of the call before are dropped first."""
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
        """The engine that tempplug ran in the last call; empty for everything else."""
        return self.function.record.engine if isinstance(self.function, ContrastiveLoss) else ""

    @property
    def note(self) -> dict[str, str]:
        """The engine as an outcome notes it."""
        return {"note": self.engine} if self.engine else {}

    def _autocast(self) -> AbstractContextManager[object]:
        view = self._views[0]
        if view.dtype in (torch.bfloat16, torch.float16):
            return torch.autocast(view.device.type, dtype=view.dtype)
        return nullcontext()  # a region that is not enabled costs some microseconds, too
