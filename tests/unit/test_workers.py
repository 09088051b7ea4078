"""One thread a tile: the same bits whatever the number of threads, failures that come out, and processes that fork."""

from __future__ import annotations

import multiprocessing
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss, loss
from tempplug.engine import tiled, tiles, workers
from tempplug.engine.tiles import make_plan
from tempplug.engine.workers import InOrder, Turns, run


@pytest.fixture(autouse=True)
def own_thread_count() -> Iterator[None]:
    """Leaves torch with as many threads as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many small tiles, and as many threads as torch has."""
    for name, size in {"FINE_ROWS": 8, "FINE_COLUMNS": 16, "ROWS": 8, "COLUMNS": 16}.items():
        monkeypatch.setattr(tiles, name, size)
    monkeypatch.setattr(tiled, "_threads", lambda plan: torch.get_num_threads())
    monkeypatch.setattr(loss, "small_loss", lambda *arguments: (None, None))
    make_plan.cache_clear()
    yield
    make_plan.cache_clear()


def added_up(threads: int) -> float:
    """A sum of numbers of very different sizes; those that come first take longest."""
    summands = torch.tensor([1.0, 1e8, -1e8, 1e-3, 3.0, -7e7, 7e7, 0.1])
    total = torch.zeros(1)

    def work(index: int, turns: Turns | InOrder) -> None:
        time.sleep(0.02 * (7 - index) / 7)
        turns.take("sum", index, total.add_, summands[index])

    run(range(len(summands)), work, threads)
    return total.item()


def test_turns_keep_the_order_of_a_sum() -> None:
    expected = torch.zeros(1)
    for each in torch.tensor([1.0, 1e8, -1e8, 1e-3, 3.0, -7e7, 7e7, 0.1]):
        expected += each
    assert [added_up(threads) for threads in (1, 2, 3, 8)] == [expected.item()] * 4


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_task_is_done_once_without_gradients(threads: int) -> None:
    done: list[tuple[int, bool]] = []

    def work(index: int, turns: Turns | InOrder) -> None:
        done.append((index, torch.is_grad_enabled()))

    with torch.no_grad():
        run(range(20), work, threads)
    assert sorted(done) == [(index, False) for index in range(20)]


def test_tiles_are_worked_on_at_once_by_threads_that_do_not_split_further() -> None:
    meeting = threading.Barrier(2, timeout=20)
    seen: list[int] = []

    def work(index: int, turns: Turns | InOrder) -> None:
        meeting.wait()
        seen.append(torch.get_num_threads())

    torch.set_num_threads(2)
    run(range(2), work, 2)
    assert seen == [1, 1]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("failing", [0, 3, 9])
def test_a_failing_task_raises_and_nobody_waits_for_it(failing: int, threads: int) -> None:
    def work(index: int, turns: Turns | InOrder) -> None:
        if index == failing:
            raise ZeroDivisionError(f"task {index}")
        turns.take("sum", index, torch.zeros(1).add_, torch.ones(1))

    begun = time.monotonic()
    with pytest.raises(ZeroDivisionError, match=f"task {failing}"):
        run(range(10), work, threads)
    assert time.monotonic() - begun < 20
    assert added_up(threads) == added_up(1)  # the threads are of use again


def losses_and_gradients(layout: str, strategy: str, rows: int = 45, dimension: int = 5, **options: Any) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    names = ("view_a", "view_b", "queue", "hard_negatives")
    leaves = {name: torch.randn(rows, dimension, generator=generator).requires_grad_() for name in names}
    leaves = {name: leaves[name] for name in ("view_a", "view_b", *options.pop("more", ()))}
    loss_fn = ContrastiveLoss(strategy, layout=layout, engine="tiled", reduction="none", **options)
    losses = loss_fn(**leaves)
    weights = torch.rand(len(losses), generator=generator)
    return [losses.detach(), *torch.autograd.grad((losses * weights).sum(), [*leaves.values(), *loss_fn.parameters()])]


def assert_same_bits_with_several_threads(*arguments: Any, **options: Any) -> None:
    found = {}
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found[threads] = losses_and_gradients(*arguments, **options)
        assert threads == 1 or (workers._pool is not None and workers._pool[1] == threads)
    for threads in (2, 3):
        for position, (one, several) in enumerate(zip(found[1], found[threads], strict=True)):
            assert torch.equal(one, several), f"result {position} differs with {threads} threads"


@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "again"])
@pytest.mark.parametrize("strategy", ["learnable", "dystress", "temperature-free"])
@pytest.mark.parametrize(
    ("layout", "options"),
    [
        ("two-view", {}),
        ("two-view", {"more": ("hard_negatives",)}),
        ("cross-view", {"symmetric": True}),
        ("queue", {"more": ("queue", "hard_negatives")}),
    ],
    ids=["two-view", "two-view+hard", "symmetric", "queue+hard"],
)
def test_losses_and_gradients_are_the_same_bits_whatever_the_number_of_threads(
    layout: str, options: dict[str, Any], strategy: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:
        monkeypatch.setattr(tiles, "KEPT", 0)
    assert_same_bits_with_several_threads(layout, strategy, **options)


@pytest.mark.parametrize("layout", ["two-view", "cross-view"])
def test_large_products_are_the_same_bits_whatever_the_number_of_threads(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of the usual size, whose products a library may split among threads of its own."""
    monkeypatch.setattr(tiled, "_threads", lambda plan: torch.get_num_threads())
    assert_same_bits_with_several_threads(layout, "fixed", rows=1200, dimension=64)


@pytest.mark.usefixtures("tiny_tiles")
def test_two_callers_at_once_get_the_same_as_each_alone() -> None:
    """As with one model a thread; the caller's threads share one pool."""
    torch.set_num_threads(2)
    expected = losses_and_gradients("two-view", "learnable")
    with ThreadPoolExecutor(4) as callers:
        answers = [callers.submit(losses_and_gradients, "two-view", "learnable") for _ in range(12)]
    for answer in answers:
        assert all(torch.equal(ours, alone) for ours, alone in zip(answer.result(timeout=60), expected, strict=True))


def _in_the_child(answer: Any) -> None:
    answer.send(added_up(2))


def test_a_fork_of_a_process_with_threads_makes_its_own() -> None:
    """As a data loader's worker does, forked after the first step."""
    expected = added_up(2)
    ours, theirs = multiprocessing.Pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on a fork of several threads warns; that it works here all the same is what is tested.
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=_in_the_child, args=(theirs,))
        child.start()
    try:
        assert ours.poll(30), "the forked process hangs"
        assert ours.recv() == expected
    finally:
        child.kill()
        child.join()


def test_threads_of_torch_are_followed() -> None:
    for threads in (2, 3, 2):
        assert added_up(threads) == added_up(1)
        assert workers._pool is not None
        assert workers._pool[1] == threads
