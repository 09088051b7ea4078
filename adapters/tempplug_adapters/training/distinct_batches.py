"""Batches in which no two items have anything in common: a sentence that occurs twice would be a negative of itself.

Takes dealt batches and swaps what is in the wrong one, so that number and sizes of the batches stay. This module must not know
what the items are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np


def keep_apart(order: np.ndarray, starts: Sequence[int], end: int, keys: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns an order in which no batch holds a key twice, and the number of items for which there is none.

    An item that shares a key with an earlier one of its batch changes places with one of the next batches, the first with
    which both fit. Takes time for what has to move only: a sort finds it.

    Args:
        order: [n] items, dealt.
        starts: position of the first item of each batch, the first of them 0.
        end: where the last batch ends; items behind it are in no batch, and may share keys.
        keys: [n, K] numbers of each item, by item.
    """
    order = order.copy()
    limits = [*starts, end, len(order)]
    batch_of = np.repeat(np.arange(len(starts) + 1), np.diff(limits))
    counters: dict[int, Counter[int]] = {}

    def held(batch: int) -> Counter[int]:
        """Returns how many items of a batch have each key; what lies behind the last batch has none that count."""
        if batch not in counters:
            rows = range(limits[batch], limits[batch + 1]) if batch < len(starts) else ()
            counters[batch] = Counter(key for position in rows for key in set(keys[order[position]].tolist()))
        return counters[batch]

    left = 0
    everywhere: set[int] = set()  # keys that all batches hold, so that no item with one can leave its batch
    for position in _repeats(keys[order[:end]], batch_of[:end]):
        home = int(batch_of[position])
        own = set(keys[order[position]].tolist())
        if all(held(home)[key] < 2 for key in own):
            continue  # what it was like has moved
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
    """Returns whether an item can take the place of one with the keys ``own``, which are counted in ``home``."""
    return all(home[key] - (key in own) == 0 for key in theirs)


def _repeats(keys: np.ndarray, batch_of: np.ndarray) -> list[int]:
    """Returns the positions, ascending, that share a key with an earlier position of their batch."""
    columns = keys.shape[1]
    flat, batch = keys.reshape(-1), np.repeat(batch_of, columns)
    position = np.repeat(np.arange(len(keys)), columns)
    by_key = np.lexsort((position, flat, batch))
    same = (batch[by_key][1:] == batch[by_key][:-1]) & (flat[by_key][1:] == flat[by_key][:-1])
    same &= position[by_key][1:] != position[by_key][:-1]
    found: list[int] = np.unique(position[by_key][1:][same]).tolist()
    return found
