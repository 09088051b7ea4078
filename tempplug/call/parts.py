"""The parts that a loss is made of, as its helpers take them; none of these takes the loss itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn

from tempplug.distributed import LossGroup
from tempplug.layouts import PairLayout
from tempplug.negatives.base import NegativeTerm
from tempplug.objectives.base import Objective
from tempplug.strategies.base import Strategy
from tempplug.types import EngineName, Gather, Reduction


class Parts(NamedTuple):
    """What a `tempplug.ContrastiveLoss` is made of at the time of a call; the fields are as of its arguments.

    Attributes:
        terms: on negatives.
        group: the processes of ``gather``; None means all.
    """

    strategy: Strategy
    objective: Objective
    layout: PairLayout
    terms: tuple[NegativeTerm, ...]
    engine: EngineName
    gather: Gather
    group: LossGroup | None
    reduction: Reduction

    @property
    def read_of_rows(self) -> frozenset[str]:
        """The names of the arguments of a call on its rows: those of terms on negatives and the layout, and groups."""
        return (self.strategy.takes & {"groups"}).union(self.layout.row_arguments, *(term.takes for term in self.terms))

    @property
    def takes(self) -> frozenset[str]:
        """The names of the optional arguments of a call that some part reads."""
        return self.layout.takes | self.strategy.takes | self.objective.takes | self.read_of_rows

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yields what the parts learn."""
        for part in (self.strategy, self.objective, *self.terms):
            yield from part.parameters()
