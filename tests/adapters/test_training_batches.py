"""Batches: every item once an epoch, equal shares for processes, and a random state that follows from the seed."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.training import batches
from tempplug_adapters.training.batches import BatchLoader, BatchOrder


@pytest.mark.parametrize(
    ("items", "size", "drop", "sizes"),
    [
        (20, 8, False, [8, 8, 4]),
        (17, 8, False, [8, 9]),
        (17, 8, True, [8, 8]),
        (5, None, False, [5]),
        (5, 9, False, [5]),
        (2, 2, True, [2]),
    ],
)
def test_every_item_is_dealt_once_and_none_is_left_alone(items: int, size: int | None, drop: bool, sizes: list[int]) -> None:
    order = BatchOrder(items, size, 0, drop_last=drop)
    dealt = order.indices(3)
    assert [len(each) for each in dealt] == sizes
    assert len(order) == len(sizes)
    assert len(set(torch.cat(dealt).tolist())) == sum(sizes)
    assert not torch.equal(torch.cat(dealt), torch.cat(order.indices(4))) or items < 6


@pytest.mark.parametrize("keys", [None, np.random.default_rng(0).integers(0, 60, (40, 2))], ids=["plain", "keys"])
def test_the_shares_of_processes_are_the_batch_of_one(keys: np.ndarray | None) -> None:
    one = torch.cat(BatchOrder(40, 11, 5, keys=keys).indices(2))
    for world in (2, 3):
        shares = [BatchOrder(40, 11, 5, rank=rank, world=world, keys=keys).indices(2) for rank in range(world)]
        assert torch.equal(torch.cat([torch.cat(parts) for parts in zip(*shares, strict=True)]), one)
        assert min(len(each) for parts in shares for each in parts) >= 2
    seeds = [draw.seed for rank in range(2) for draw in BatchOrder(40, 11, 5, rank=rank, world=2, keys=keys)]
    assert len(set(seeds)) == 8, "each process draws something of its own"


def test_the_first_order_may_serve_all_epochs() -> None:
    order, seeds = BatchOrder(20, 8, 0, reshuffled=False), []
    assert all(torch.equal(a, b) for a, b in zip(order.indices(0), order.indices(7), strict=True))
    for epoch in (0, 7):
        order.set_epoch(epoch)
        seeds += [draw.seed for draw in order]
    assert len(set(seeds)) == 6, "what is drawn for a batch differs all the same"


@pytest.mark.parametrize(
    ("items", "size", "more", "message"),
    [
        (1, None, {}, r"1 items are too few for 1 process\(es\)"),
        (3, 2, {"world": 2}, r"3 items are too few for 2 process\(es\)"),
        (5, 9, {"drop_last": True}, "the batch size of 9 must be at most 5, the number of items"),
        (8, 3, {"world": 2}, r"the batch size of 3 must be at least 2 for each of the 2 process\(es\)"),
    ],
)
def test_too_few_items_are_refused(items: int, size: int | None, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BatchOrder(items, size, 0, **more)


def collate(index: torch.Tensor) -> dict[str, Any]:
    if 99 in index:
        raise DataError("item 99 is damaged.")
    return {"index": index, "noise": torch.rand(3)}


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_what_is_drawn_depends_on_seed_epoch_and_batch_alone(workers: int) -> None:
    batches = []
    for seed, processes in ((1, workers), (2, 0)):
        torch.manual_seed(seed)
        loader = BatchLoader(BatchOrder(10, 4, 3), collate, workers=processes)
        loader.set_epoch(2)
        batches.append(list(loader))
    assert len({tuple(each["noise"].tolist()) for each in batches[0]}) == 3
    for ours, theirs in zip(*batches, strict=True):
        assert torch.equal(ours["index"], theirs["index"])
        assert torch.equal(ours["noise"], theirs["noise"])
    (faulty,) = BatchLoader(BatchOrder(100, None, 0), collate, workers=workers)
    assert isinstance(faulty["fault"], DataError)
    assert str(faulty["fault"]) == "item 99 is damaged."


def repeats(order: BatchOrder, keys: np.ndarray, epoch: int) -> int:
    """How many pairs of items share a key inside a batch, counted pair by pair."""
    return sum(
        bool(set(keys[a].tolist()) & set(keys[b].tolist()))
        for batch in order.indices(epoch)
        for a, b in combinations(batch.tolist(), 2)
    )


@pytest.mark.parametrize(("columns", "drop"), [(1, False), (2, True), (3, False), (3, True)])
def test_no_batch_holds_a_key_twice_where_that_is_possible(columns: int, drop: bool) -> None:
    rng, found = np.random.default_rng(columns), 0
    for trial in range(20):
        items = int(rng.integers(40, 90))
        keys = rng.integers(0, 10 * items, (items, columns))
        keys[rng.permutation(items)[:3]] = keys[0]
        order, plain = (BatchOrder(items, 8, trial, drop_last=drop, keys=each) for each in (keys, None))
        found += repeats(plain, keys, 0)
        assert repeats(order, keys, 0) == 0
        dealt, before = order.indices(0), plain.indices(0)
        assert [len(each) for each in dealt] == [len(each) for each in before]
        assert len(set(torch.cat(dealt).tolist())) == len(torch.cat(before)), "every item at most once"
    assert found > 20, "there was something to keep apart"


def test_the_order_is_the_same_where_few_batches_are_sorted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = np.random.default_rng(0).integers(0, 150, (90, 3))
    whole = BatchOrder(90, 8, 0, keys=keys, drop_last=True).indices(0)
    monkeypatch.setattr(batches, "_TOGETHER", 3)
    assert torch.equal(torch.cat(BatchOrder(90, 8, 0, keys=keys, drop_last=True).indices(0)), torch.cat(whole))


def test_what_occurs_too_often_to_be_kept_apart_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    keys = np.arange(20)[:, None]
    keys[:7] = 0
    dealt = BatchOrder(20, 5, 0, keys=keys).indices(1)
    assert min(int((keys[each] == 0).sum()) for each in dealt) >= 1, "every batch has one of them"
    assert "3 of 20 items are in a batch with another one" in caplog.text
