"""What a loss keeps between its calls."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any, NamedTuple

from tempplug.between_calls import Unlearned
from tempplug.distributed import Call
from tempplug.parts import Parts
from tempplug.record import Step
from tempplug.replay import Replay
from tempplug.types import StepRecord

MOST_KINDS = 256


class Setting(NamedTuple):
    """In what a call is made.

    Attributes:
        parts: of the loss.
        memory: of the loss.
        training: whether the loss is in training mode.
        heads: how many heads the call has.
        plain: whether plain operations alone will do, as in graphs and in transforms of `torch.func`, of which nothing is kept.
    """

    parts: Parts
    memory: Memory
    training: bool
    heads: int
    plain: bool = False


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
