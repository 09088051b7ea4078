"""What a loss keeps between its calls."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tempplug.call.between_calls import Unlearned
from tempplug.call.parts import Parts
from tempplug.call.record import Step
from tempplug.call.replay import Replay
from tempplug.distributed import Agreement, Rows
from tempplug.embeddings import RowOrder
from tempplug.layouts.base import BlockPlan
from tempplug.types import StepRecord

MOST_KINDS = 256


class Plan(NamedTuple):
    """What is the same in all calls of one kind, on one process.

    Attributes:
        order: of the rows of the arguments.
        rows: of view_a.
        blocks: of the layout.
        hard_rows: [H] the row of view_a that each hard negative belongs to; None where they belong to none.
    """

    order: RowOrder
    rows: Rows
    blocks: tuple[BlockPlan, ...]
    hard_rows: Tensor | None


class Memory:
    """What one loss keeps between its calls; copies and pickles keep which warnings were given, and nothing else.

    Attributes:
        step: what the last call left for its record; None before the first call and within transforms.
        record: of that call; None until it is read.
        checked: checks that are made once.
        plans: of kinds of calls whose arguments passed all checks.
        warned: kinds of warnings that were given.
        agreements: what all processes must have in common, by kind of call, with objects whose numbers are in the kind.
        replay: calls that a backward pass may compute again.
        unlearned: watches for parameters in no optimizer; None after all have moved.
    """

    __slots__ = ("agreements", "checked", "plans", "record", "replay", "step", "unlearned", "warned")

    def __init__(self, warned: frozenset[str] = frozenset()) -> None:
        self.step: Step | None = None
        self.record: StepRecord | None = None
        self.checked: set[Hashable] = set()
        self.plans: dict[Hashable, Plan] = {}
        self.warned = set(warned)
        self.agreements: dict[Hashable, tuple[Agreement, list[object]]] = {}
        self.replay = Replay()
        self.unlearned: Unlearned | None = Unlearned()

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns what copies are made of."""
        return Memory, (frozenset(self.warned),)

    def keep_plan(self, kind: Hashable, plan: Plan) -> None:
        """Keeps the plan of a kind of call, whose arguments passed all checks."""
        if len(self.plans) >= MOST_KINDS:
            self.plans.clear()
        self.plans[kind] = plan

    def may_read(self, what: str, device: torch.device) -> bool:
        """Returns whether values are looked at: where that does not wait for a device, and in the first call that asks."""
        if device.type == "cpu":
            return True
        first = what not in self.checked
        self.checked.add(what)
        return first

    def warn(self, kind: str, message: str) -> None:
        """Warns once in the life of the loss."""
        if kind not in self.warned:
            self.warned.add(kind)
            warnings.warn(message, RuntimeWarning, stacklevel=6)


@dataclass(slots=True)
class Call:
    """One head of one call of a loss.

    Attributes:
        parts: of the loss.
        memory: of the loss.
        training: whether the loss is in training mode.
        heads: how many heads the call has.
        step: what the call keeps for its record.
        plain: whether plain operations alone will do, as in graphs and in transforms of `torch.func`, of which nothing is kept.
    """

    parts: Parts
    memory: Memory
    training: bool
    heads: int
    step: Step
    plain: bool = False
