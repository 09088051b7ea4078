"""What a loss keeps between its calls."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

from tempplug.between_calls import Unlearned
from tempplug.distributed import Call
from tempplug.record import Step
from tempplug.replay import Replay
from tempplug.types import StepRecord

MOST_KINDS = 256


class Memory:
    """What one loss keeps between its calls; copies and pickles keep which warnings were given, and nothing else.

    Attributes:
        step: what the last call left for its record; None before the first call and within transforms.
        record: of that call; None until it is read.
        checked: kinds of calls whose arguments passed all checks, and checks that are made once.
        warned: kinds of warnings that were given.
        agreements: what all processes must have in common, by kind of call, with objects whose numbers are in the kind.
        replay: calls that a backward pass may compute again.
        unlearned: watches for parameters in no optimizer; None after all have moved.
    """

    __slots__ = ("agreements", "checked", "record", "replay", "step", "unlearned", "warned")

    def __init__(self, warned: frozenset[str] = frozenset()) -> None:
        self.step: Step | None = None
        self.record: StepRecord | None = None
        self.checked: set[Hashable] = set()
        self.warned = set(warned)
        self.agreements: dict[Hashable, tuple[Call, list[object]]] = {}
        self.replay = Replay()
        self.unlearned: Unlearned | None = Unlearned()

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns what copies are made of."""
        return Memory, (frozenset(self.warned),)

    def begin_step(self, step: Step) -> Step:
        """Keeps what a new call leaves for its record; returns it."""
        self.step, self.record = step, None
        return step

    def check_passed(self, kind: Hashable) -> None:
        """Notes that the arguments of a kind of call passed all checks."""
        if len(self.checked) >= MOST_KINDS:
            self.checked.clear()
        self.checked.add(kind)

    def warn(self, kind: str, message: str) -> None:
        """Warns once in the life of the loss."""
        if kind not in self.warned:
            self.warned.add(kind)
            warnings.warn(message, RuntimeWarning, stacklevel=6)
