"""Batches without repeated keys: a sentence that occurs twice in a batch would be its own negative.

Swaps items between batches, so that number and sizes of the batches are unchanged. This module must not depend on the kind of
the items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np


def keep_apart(order: np.ndarray, starts: Sequence[int], end: int, keys: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns an order in which no batch contains a key twice, and the number of items that could not be placed.

    An item that shares a key with an earlier item of its batch is swapped with an item of the first following batch in which
    both fit. The running time depends on the number of such items, which are found by sorting.

    Args:
        order: [n] items in batch order.
        starts: position of the first item of each batch, beginning with 0.
        end: end of the last batch; items after it are in no batch and may share keys.
        keys: [n, K] keys of each item.
    """
    order = order.copy()
    limits = [*starts, end, len(order)]
    batch_of = np.repeat(np.arange(len(starts) + 1), np.diff(limits))
    counters: dict[int, Counter[int]] = {}

    def held(batch: int) -> Counter[int]:
        """Returns the number of items with each key in a batch; empty after the last batch."""
        if batch not in counters:
            rows = range(limits[batch], limits[batch + 1]) if batch < len(starts) else ()
            counters[batch] = Counter(key for position in rows for key in set(keys[order[position]].tolist()))
        return counters[batch]

    left = 0
    everywhere: set[int] = set()  # keys present in all batches; an item with such a key cannot be moved
    for position in _repeats(keys[order[:end]], batch_of[:end]):
        home = int(batch_of[position])
        own = set(keys[order[position]].tolist())
        if all(held(home)[key] < 2 for key in own):
            continue  # the earlier item with this key has been moved
        if own & everywhere:
            left += 1
            continue
        met: Counter[int] = Counter()
        for step in range(1, len(starts) + 1):
            away = (home + step) % (len(starts) + 1)
            shared = [key for key in own if held(away)[key]]
            met.update(shared)
            if shared:
                continue
            size = limits[away + 1] - limits[away]
            others = (limits[away] + (position + offset) % size for offset in range(size))
            fitting = next((other for other in others if _fits(keys[order[other]].tolist(), own, held(home))), None)
            if fitting is None:
                continue
            theirs = set(keys[order[fitting]].tolist())
            held(home).subtract(own)
            held(home).update(theirs)
            if away < len(starts):
                held(away).subtract(theirs)
                held(away).update(own)
            order[[position, fitting]] = order[[fitting, position]]
            break
        else:
            left += 1
            everywhere |= {key for key in own if met[key] == len(starts) - 1}
    return order, left


def _fits(theirs: list[int], own: set[int], home: Counter[int]) -> bool:
    """Returns whether an item can replace one with the keys ``own`` in a batch with the key counts ``home``."""
    return all(home[key] - (key in own) == 0 for key in theirs)


def _repeats(keys: np.ndarray, batch_of: np.ndarray) -> list[int]:
    """Returns the ascending positions that share a key with an earlier position of their batch."""
    columns = keys.shape[1]
    flat, batch = keys.reshape(-1), np.repeat(batch_of, columns)
    position = np.repeat(np.arange(len(keys)), columns)
    by_key = np.lexsort((position, flat, batch))
    same = (batch[by_key][1:] == batch[by_key][:-1]) & (flat[by_key][1:] == flat[by_key][:-1])
    same &= position[by_key][1:] != position[by_key][:-1]
    found: list[int] = np.unique(position[by_key][1:][same]).tolist()
    return found
