"""One thread a tile: results in order, the same digits whatever the number of threads, and no setting left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.engine import workers
from tempplug.engine.workers import in_order


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


@pytest.mark.parametrize("strategy", ["fixed", "amcl:dimension=8", "fixed:temperature=0.005"])
def test_the_number_of_threads_changes_no_digit(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WORTH_THREADS", 1)
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(1100, 8, generator=generator).requires_grad_() for _ in range(2))
    torch.manual_seed(0)
    loss_fn = ContrastiveLoss(strategy, "dcl")
    found: list[list[Tensor]] = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        loss = loss_fn(a, b)
        found.append([loss.detach(), *torch.autograd.grad(loss, [a, b])])
        assert torch.get_num_threads() == count
    for other in found[1:]:
        assert all(torch.equal(one, another) for one, another in zip(found[0], other, strict=True))
