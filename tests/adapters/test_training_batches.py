"""Batches: every item once an epoch, equal shares for processes, and a random state that follows from the seed."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from tempplug.errors import ConfigError, DataError
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


def test_the_shares_of_processes_are_the_batch_of_one() -> None:
    one = BatchOrder(23, 6, 5).indices(2)
    for world in (2, 3):
        shares = [BatchOrder(23, 6, 5, rank=rank, world=world).indices(2) for rank in range(world)]
        joined = [torch.cat(parts) for parts in zip(*shares, strict=True)]
        assert torch.equal(torch.cat(joined), torch.cat(one))
        assert min(len(each) for parts in shares for each in parts) >= 2


def test_the_first_order_may_serve_all_epochs() -> None:
    order = BatchOrder(20, 8, 0, reshuffled=False)
    assert all(torch.equal(a, b) for a, b in zip(order.indices(0), order.indices(7), strict=True))
    seeds = []
    for epoch in (0, 7):
        order.set_epoch(epoch)
        seeds += [draw.seed for draw in order]
    assert len(set(seeds)) == 6, "what is drawn for a batch differs all the same"


def test_too_few_items_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"1 items are too few for 1 process\(es\)"):
        BatchOrder(1, None, 0)
    with pytest.raises(ConfigError, match=r"3 items are too few for 2 process\(es\)"):
        BatchOrder(3, 2, 0, world=2)
    with pytest.raises(ConfigError, match="the batch size of 9 must be at most 5, the number of items"):
        BatchOrder(5, 9, 0, drop_last=True)
    with pytest.raises(ConfigError, match=r"the batch size of 3 must be at least 2 for each of the 2 process\(es\)"):
        BatchOrder(8, 3, 0, world=2)


def collate(index: torch.Tensor) -> dict[str, Any]:
    if 99 in index:
        raise DataError("item 99 is damaged.")
    return {"index": index, "noise": torch.rand(3)}


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_what_is_drawn_depends_on_seed_epoch_and_batch_alone(workers: int) -> None:
    torch.manual_seed(1)
    loader = BatchLoader(BatchOrder(10, 4, 3), collate, workers=workers)
    loader.set_epoch(2)
    first = list(loader)
    torch.manual_seed(2)
    plain = BatchLoader(BatchOrder(10, 4, 3), collate)
    plain.set_epoch(2)
    second = list(plain)
    assert len(first) == len(second) == 3
    for ours, theirs in zip(first, second, strict=True):
        assert torch.equal(ours["index"], theirs["index"])
        assert torch.equal(ours["noise"], theirs["noise"])
    assert len({tuple(each["noise"].tolist()) for each in first}) == 3


def test_a_fault_comes_out_as_it_was_said() -> None:
    found = list(BatchLoader(BatchOrder(100, None, 0), collate))
    assert isinstance(found[0]["fault"], DataError)
    assert str(found[0]["fault"]) == "item 99 is damaged."


def repeats(order: BatchOrder, keys: np.ndarray, epoch: int) -> int:
    """How many pairs of items share a key inside a batch, counted pair by pair."""
    return sum(
        bool(set(keys[a].tolist()) & set(keys[b].tolist()))
        for batch in order.indices(epoch)
        for a, b in combinations(batch.tolist(), 2)
    )


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 3])
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
        assert torch.equal(torch.cat(dealt), torch.cat(order.indices(0)))
    assert found > 20, "there was something to keep apart"


def test_what_occurs_too_often_to_be_kept_apart_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    keys = np.arange(20)[:, None]
    keys[:7] = 0
    dealt = BatchOrder(20, 5, 0, keys=keys).indices(1)
    assert sorted(int((keys[each] == 0).sum()) for each in dealt)[0] >= 1, "every batch has one of them"
    assert "3 of 20 items are in a batch with another one" in caplog.text


def test_processes_share_batches_without_repeated_keys() -> None:
    keys = np.random.default_rng(0).integers(0, 60, (40, 2))
    one = BatchOrder(40, 8, 5, keys=keys).indices(2)
    shares = [BatchOrder(40, 8, 5, rank=rank, world=2, keys=keys).indices(2) for rank in range(2)]
    assert torch.equal(torch.cat([torch.cat(parts) for parts in zip(*shares, strict=True)]), torch.cat(one))
