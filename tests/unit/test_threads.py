"""One thread a tile, any number of torch's threads, and several callers at once: the same digits, no setting left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.engine import workers
from tempplug.engine.workers import in_order
from tempplug.types import EngineName


@pytest.fixture(autouse=True)
def threads() -> Iterator[int]:
    own = torch.get_num_threads()
    yield own
    torch.set_num_threads(own)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_come_in_the_order_of_tasks(threads: int) -> None:
    def work(task: int) -> tuple[int, int]:
        time.sleep(0.02 / (task + 1))
        return task, torch.get_num_threads() if threads > 1 else 1

    assert list(in_order(work, range(9), threads)) == [(task, 1) for task in range(9)]


def test_tasks_run_at_once() -> None:
    both = threading.Barrier(2)
    assert list(in_order(lambda task: both.wait(timeout=60) >= 0, range(4), 2)) == [True] * 4


def test_few_results_wait_for_a_slow_caller() -> None:
    """Each holds products of a tile."""
    begun: list[int] = []
    results = in_order(begun.append, range(100), 2)
    next(results)
    time.sleep(0.2)
    assert len(begun) <= 1 + workers.AHEAD * 2
    assert len(list(results)) == 99


def test_an_error_reaches_the_caller_and_leaves_threads_as_they_were() -> None:
    torch.set_num_threads(3)

    def work(task: int) -> int:
        if task == 2:
            raise ValueError("task 2")
        return task

    with pytest.raises(ValueError, match="task 2"):
        list(in_order(work, range(5), 2))
    assert torch.get_num_threads() == 3
    assert list(in_order(lambda task: task, range(3), 2)) == [0, 1, 2]


def test_modes_of_torch_reach_the_threads() -> None:
    with torch.inference_mode():
        assert list(in_order(lambda task: torch.is_inference_mode_enabled(), range(3), 2)) == [True] * 3
    assert list(in_order(lambda task: torch.is_grad_enabled(), range(3), 2)) == [False] * 3


def losses_and_gradients(strategy: str, layout: Any, rows: int, engine: EngineName = "tiled") -> list[Tensor]:
    """The losses of the rows, and the gradients of a weighted sum of them."""
    generator = torch.Generator().manual_seed(0)
    names = ("view_a", "view_b", *(["queue", "hard_negatives"] if layout == "queue" else []))
    leaves = {name: torch.randn(rows, 8, generator=generator).requires_grad_() for name in names}
    torch.manual_seed(0)
    loss_fn = ContrastiveLoss(strategy, "dcl", layout, engine=engine, reduction="none")
    losses = loss_fn(**leaves, **loss_fn.accepted(labels=torch.arange(rows) // 3))
    weights = torch.rand(len(losses), generator=generator)
    return [losses.detach(), *torch.autograd.grad((losses * weights).sum(), [*leaves.values(), *loss_fn.parameters()])]


@pytest.mark.parametrize(
    ("strategy", "layout", "rows"),
    [
        ("learnable", "two-view", 260),
        ("fixed:temperature=0.005", "queue", 400),
        ("dystress:detach=false", "labels", 260),
        ("amcl:dimension=8", "two-view", 260),
    ],
)
def test_the_number_of_threads_changes_no_digit(strategy: str, layout: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several tiles, each large enough for torch to split its operations among threads."""
    monkeypatch.setattr(workers, "WORTH_THREADS", 1)
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(losses_and_gradients(strategy, layout, rows))
        assert torch.get_num_threads() == count
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=0)
    torch.testing.assert_close(losses_and_gradients(strategy, layout, rows, "dense"), found[0], rtol=1e-3, atol=1e-3)


def test_callers_at_once_get_the_same_as_each_alone() -> None:
    """As with one model a thread; what calls share, such as the plans of tiles, serves them all."""
    torch.set_num_threads(2)
    expected = losses_and_gradients("fixed", "two-view", 260)
    with ThreadPoolExecutor(4) as callers:
        answers = [callers.submit(losses_and_gradients, "fixed", "two-view", 260) for _ in range(8)]
    for answer in answers:
        torch.testing.assert_close(answer.result(timeout=60), expected, rtol=1e-5, atol=1e-6)
