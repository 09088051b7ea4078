"""Any number of torch's threads, and several callers at once: the same loss and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.types import EngineName

# Of several tiles, each large enough for torch to split its operations among threads.
CALLS: dict[str, tuple[int, dict[str, Any]]] = {
    "two-view": (260, {"layout": "two-view"}),
    "two-view+hard": (260, {"layout": "two-view", "more": ("hard_negatives",)}),
    "symmetric": (520, {"layout": "cross-view", "symmetric": True}),
    "queue+hard": (400, {"layout": "queue", "more": ("queue", "hard_negatives")}),
    "labels": (260, {"layout": "labels"}),
}


@pytest.fixture(autouse=True)
def own_thread_count() -> Iterator[None]:
    """Leaves torch with as many threads as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def losses_and_gradients(call: str, strategy: str, engine: EngineName = "tiled") -> list[Tensor]:
    """The losses of the rows, and the gradients of a weighted sum of them."""
    rows, options = CALLS[call]
    generator = torch.Generator().manual_seed(0)
    names = ("view_a", "view_b", *options.get("more", ()))
    leaves = {name: torch.randn(rows, 5, generator=generator, dtype=torch.float64).requires_grad_() for name in names}
    given = {"labels": torch.arange(rows) // 3} if call == "labels" else {}
    arguments = {name: value for name, value in options.items() if name != "more"}
    loss_fn = ContrastiveLoss(strategy, engine=engine, reduction="none", **arguments).double()
    losses = loss_fn(**leaves, **given)
    weights = torch.rand(len(losses), generator=generator, dtype=torch.float64)
    return [losses.detach(), *torch.autograd.grad((losses * weights).sum(), [*leaves.values(), *loss_fn.parameters()])]


@pytest.mark.parametrize(
    ("call", "strategy"), [*((call, "learnable") for call in CALLS), ("two-view", "dystress:detach=false")]
)
def test_any_number_of_threads_gives_the_loss_and_gradients_of_the_dense_engine(call: str, strategy: str) -> None:
    torch.set_num_threads(1)
    expected = losses_and_gradients(call, strategy, "dense")
    for threads in (2, 3):
        torch.set_num_threads(threads)
        for ours, dense in zip(losses_and_gradients(call, strategy), expected, strict=True):
            torch.testing.assert_close(ours, dense, rtol=1e-10, atol=1e-12)


def test_callers_at_once_get_the_same_as_each_alone() -> None:
    """As with one model a thread; what calls share, such as the plans of tiles, serves them all."""
    torch.set_num_threads(2)
    expected = losses_and_gradients("two-view", "learnable")
    with ThreadPoolExecutor(4) as callers:
        answers = [callers.submit(losses_and_gradients, "two-view", "learnable") for _ in range(8)]
    for answer in answers:
        for ours, alone in zip(answer.result(timeout=60), expected, strict=True):
            torch.testing.assert_close(ours, alone, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradients_with_several_threads(mode: Any) -> None:
    a, b = torch.randn(2, 500, 4, generator=torch.Generator().manual_seed(0))
    expected = ContrastiveLoss(engine="dense")(a, b)
    torch.set_num_threads(2)
    with mode():
        loss = ContrastiveLoss(engine="tiled")(a, b)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
