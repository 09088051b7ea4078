"""Sequences of items by user, split by time: the last item is for testing, that before it for validation in some users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tempplug.errors import DataError, UnknownNameError, nearest, quoted
from tempplug_adapters.data_files.roles import Assigned

TRAIN, VALIDATION, TEST = 1, 2, 3
_SPLIT_SEED = 0
"""The validation users do not depend on the seed of a training, so that trainings are compared on the same ones."""


@dataclass(frozen=True)
class Ranges:
    """Ranges of the concatenated items of all users: ``items[start:end]``.

    Attributes:
        users: [R] the user of each.
        starts: [R].
        ends: [R].
    """

    users: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.users)

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the positions of all items and the number of the range of each, both [sum of lengths]."""
        lengths = self.ends - self.starts
        owner = np.repeat(np.arange(len(self)), lengths)
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.arange(len(owner)) - first + self.starts[owner], owner

    def __getitem__(self, rows: NDArray[np.int64]) -> Ranges:
        return Ranges(self.users[rows], self.starts[rows], self.ends[rows])


class Interactions:
    """Items of users in order of time; ``len`` is the number of training examples.

    An example is a history and the next item, its target. Each item is a target of one split, or of none, and an example if
    items precede it. Without ``splits``, the last item of a sequence is a target of the test, the others of the training. Of a
    sequence of targets, only the newest ``max_length`` + 1 items are used, as in DCRec's files. Without targets of the
    validation, the last training target of a share of the users becomes one.

    Args:
        sequences: items of each user, oldest first, numbered from 1.
        items: I, the number of items, including items of no sequence.
        max_length: most items of a history.
        validation_share: of the users.
        users: name of each user; empty: their numbers, from 0.
        names: name of each item; empty: their numbers, from 1.
        splits: for each item of each sequence `TRAIN`, `VALIDATION`, `TEST`, or 0 if it is no target.
        tables: the files that were read.
        notes: how they were read, in words.

    Attributes:
        items: [n] of all users, concatenated.
        item_count: I.
        train: the examples: histories, each followed by its target.
        validation: likewise.
        test: likewise.

    Raises:
        DataError: there is nothing to train on, to validate or to test with.
    """

    def __init__(
        self,
        sequences: Sequence[NDArray[np.int64]],
        items: int,
        max_length: int = 50,
        validation_share: float = 0.1,
        users: Sequence[str] = (),
        names: Sequence[str] = (),
        splits: Sequence[NDArray[np.int8]] = (),
        tables: Sequence[Assigned] = (),
        notes: Sequence[str] = (),
    ) -> None:
        splits = splits or [np.append(np.full(len(each) - 1, TRAIN, np.int8), np.int8(TEST)) for each in sequences]
        firsts = [-max_length - 1 if split.all() else 0 for split in splits]
        kept = [sequence[first:] for sequence, first in zip(sequences, firsts, strict=True)]
        self.items, self.item_count, self.max_length = np.concatenate(kept), items, max_length
        self.users, self.names = users or list(map(str, range(len(kept)))), names or list(map(str, range(1, items + 1)))
        lengths = np.array([len(each) for each in kept])
        self._ends = np.cumsum(lengths)
        self._starts = self._ends - lengths
        self._owner = np.repeat(np.arange(len(kept)), lengths)
        self._splits = np.concatenate([split[first:] for split, first in zip(splits, firsts, strict=True)])
        follows = np.arange(len(self.items)) > self._starts[self._owner]
        if not (self._splits == VALIDATION).any():
            trained = np.flatnonzero(follows & (self._splits == TRAIN))
            last = np.full(len(kept), -1)
            np.maximum.at(last, self._owner[trained], trained)
            drawn = np.random.default_rng(_SPLIT_SEED).random(len(kept)) < validation_share
            self._splits[last[drawn & (last >= 0)]] = VALIDATION

        def examples(split: int) -> Ranges:
            targets = np.flatnonzero(follows & (self._splits == split))
            users = self._owner[targets]
            return Ranges(users, np.maximum(self._starts[users], targets - max_length), targets)

        self.train, self.validation, self.test = map(examples, (TRAIN, VALIDATION, TEST))
        cut, lone = sum(map(len, sequences)) - len(self.items), int((lengths == 1).sum())
        self.tables, self.notes = tuple(tables), list(notes)
        if cut:
            self.notes.append(f"left out: {cut} items before the newest {max_length + 1} of their user")
        if lone:
            self.notes.append(f"without an example: {lone} of {len(kept)} users, who have one item")
        for name, part in (("train on", self.train), ("validate with", self.validation), ("test with", self.test)):
            if not len(part):
                sizes = f"{len(kept)} users with at most {lengths.max()} items each"
                needed = "training needs users with three or more items, of whom a share validates, and testing users with two"
                raise DataError(f"there is nothing to {name}: {sizes}; {needed}.")

    def __len__(self) -> int:
        return len(self.train)

    @property
    def user_count(self) -> int:
        """Number of users."""
        return len(self._ends)

    @cached_property
    def user_numbers(self) -> dict[str, int]:
        """The position of each user by name."""
        return {name: number for number, name in enumerate(self.users)}

    @cached_property
    def item_numbers(self) -> dict[str, int]:
        """The number of each item by name."""
        return {name: number for number, name in enumerate(self.names, 1)}

    def known(self, name: object) -> list[int]:
        """Returns the newest items of a user by name, for what comes next; raises `UnknownNameError`."""
        user = numbered(self.user_numbers, name, "user")
        return list(self.items[self._starts[user] : self._ends[user]][-self.max_length :].tolist())

    def padded(self, histories: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Returns the newest items of histories [B, L], padded with 0 at the right, and their lengths [B]."""
        rows = [torch.tensor(each[-self.max_length :], dtype=torch.int64) for each in histories]
        return pad_sequence(rows, batch_first=True), torch.tensor([len(each) for each in rows])

    def saved(self) -> dict[str, Any]:
        """Returns what `restored` needs, as tensors and words."""
        lengths = torch.from_numpy(self._ends - self._starts)
        items, splits = torch.from_numpy(self.items).to(torch.int32), torch.from_numpy(self._splits)
        return {"items": items, "lengths": lengths, "splits": splits, "users": list(self.users), "names": list(self.names)}

    @classmethod
    def restored(cls, saved: Mapping[str, Any], max_length: int, validation_share: float) -> Self:
        """Returns the interactions of `saved`."""
        ends = saved["lengths"].cumsum(0)[:-1].tolist()
        sequences = np.split(saved["items"].numpy().astype(np.int64), ends)
        splits = np.split(saved["splits"].numpy(), ends) if "splits" in saved else ()  # older folders have none
        return cls(sequences, len(saved["names"]), max_length, validation_share, saved["users"], saved["names"], splits)

    def histories(self, split: str) -> Ranges:
        """Returns the items of each user before the last target of ``train``, or the first of ``validation`` or ``test``."""
        if split == "train":
            ends, targets = self._starts.copy(), np.flatnonzero(self._splits == TRAIN)
            np.maximum.at(ends, self._owner[targets], targets)
        else:
            ends, least = self._ends.copy(), {"validation": VALIDATION, "test": TEST}[split]
            targets = np.flatnonzero(self._splits >= least)
            np.minimum.at(ends, self._owner[targets], targets)
        return Ranges(np.arange(self.user_count), self._starts, ends)

    def popularity(self, split: str) -> Tensor:
        """Returns how often each item is in the histories of a split, [I + 1] with 0 for number 0."""
        places, _ = self.histories(split).places()
        return torch.from_numpy(np.bincount(self.items[places], minlength=self.item_count + 1))

    def last_targets(self) -> Tensor:
        """Returns how often each item is one of the last two of a sequence, [I + 1]: the targets of DCRec's files."""
        last = self.items[self.test.ends]
        before = self.items[self.test.ends[self.test.ends - self.test.starts >= 2] - 1]
        return torch.from_numpy(np.bincount(np.concatenate([last, before]), minlength=self.item_count + 1))

    def batch(self, examples: Ranges) -> tuple[Tensor, Tensor, Tensor]:
        """Returns histories [B, L], padded with 0 at the right to the longest, their lengths [B] and the targets [B]."""
        places, owner = examples.places()
        lengths = examples.ends - examples.starts
        histories = np.zeros((len(examples), max(1, int(lengths.max(initial=0)))), np.int64)
        histories[owner, places - examples.starts[owner]] = self.items[places]
        return torch.from_numpy(histories), torch.from_numpy(lengths), torch.from_numpy(self.items[examples.ends])


def numbered(numbers: Mapping[str, int], name: object, what: str) -> int:
    """Returns the number of a user or an item; raises `UnknownNameError` with the nearest name."""
    if (found := numbers.get(str(name))) is None:
        raise UnknownNameError(f"no {what} {quoted(str(name))} in the training.{nearest(str(name), numbers)}")
    return found
