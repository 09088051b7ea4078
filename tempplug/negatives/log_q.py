"""Sampling correction: popular candidates are negatives more often, and get a lower weight for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from torch import Tensor

from tempplug import distributed
from tempplug.errors import ConfigError, ShapeError
from tempplug.inputs import check_finite, check_row_integers, check_within, unread
from tempplug.negatives.base import NegativeTerm, Pairs, Rows, TermMap
from tempplug.options import Number
from tempplug.transforms import valueless

if TYPE_CHECKING:
    from tempplug.layouts.base import PairLayout

HIGHEST = 1e-3
"""Of ln q, which is at most 0 but for rounding."""


@dataclass(eq=False, repr=False)
class LogQ(NegativeTerm):
    """Subtracts ln q_j from the logit of a negative, q_j the probability that candidate j is in a batch.

    Without ``size`` the call passes ``candidate_log_q=``: [B] ln q of the rows of view_b, at most 0, or a dictionary of those
    of ``view_a``, ``view_b``, ``hard_negatives`` and ``queue``. One tensor [B] also serves view_a, where its rows are
    candidates. With ``size`` q is counted: the call passes ``index=`` [B], the number of each row in the data set (its item),
    or a dictionary as before, and q is the item's share of all rows of view_b (of view_a where there is no other) in the
    training so far.

    Args:
        size: how many different items there are, from 1 to 1e10; none: the call gives ln q.

    Raises:
        ConfigError: an option is out of range; at a call, an index is, or ln q is above 0 (on CUDA, in the first call).

    The positive keeps its logit, which the formula of Yi et al. corrects as well; TensorFlow Recommenders also keeps it.

    Source: Yi et al. 2019, Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations, eq. 4 and 5.
    """

    name: ClassVar[str] = "log-q"
    formula: ClassVar[str] = "-ln q_j, q_j the probability that candidate j is sampled"
    source: ClassVar[str] = "Yi et al. 2019, Sampling-Bias-Corrected Neural Modeling, eq. 4"
    takes: ClassVar[frozenset[str]] = frozenset({"candidate_log_q", "index"})
    cosines_only = False

    size: Annotated[
        int | None, Number(at_least=1, at_most=1e10, integer=True, optional=True, help="items to count; none: given")
    ] = None
    counts: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._looked = False
        self.takes = frozenset({"candidate_log_q" if self.size is None else "index"})  # type: ignore[misc]
        if self.size is not None:
            self.register_buffer("counts", torch.zeros(self.size, dtype=torch.int64))

    @property
    def observes(self) -> bool:
        """Whether it counts."""
        return self.size is not None

    def observe(self, given: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Counts the items of a batch, those of all processes."""
        rows = given.get("index", {})
        index = rows.get("view_b", rows.get("view_a"))
        if self.size is None or index is None:
            return
        index = check_row_integers("index", index)
        everyone = distributed.gather(index, distributed.share_rows(len(index), index.device, gather=True))
        self.counts.index_add_(0, self._inside(everyone), torch.ones_like(everyone))

    def _inside(self, index: Tensor) -> Tensor:
        return index if valueless() else check_within(self, "index", index, self.counts, f"size={self.size}")

    def check_arguments(self, given: Mapping[str, Mapping[str, Tensor]], layout: PairLayout) -> None:
        """Raises where items lie outside of those that are counted, and where ln q has another shape or type, or is above 0."""
        items = given.get("index", {})
        for source, index in items.items() if self.size is not None else ():
            if source != "view_a" or "view_b" not in items:  # those of view_a are mostly no candidates
                self._inside(check_row_integers("index", index))
        for log_q in {id(tensor): tensor for tensor in given.get("candidate_log_q", {}).values()}.values():
            if log_q.ndim != 1 or not log_q.is_floating_point():
                raise ShapeError(
                    f"candidate_log_q= holds {log_q.dtype} of shape {list(log_q.shape)}; wanted a floating-point number a row."
                )
            # Who passes q itself does so from the first call on, which alone waits for a device.
            if not (valueless() or (unread(log_q.device) and self._looked)):
                low, high = (extreme.item() for extreme in torch.aminmax(log_q))
                if not (low > -math.inf and high <= HIGHEST):
                    _refuse(log_q, low, high)
                self._looked = True

    def prepare(self, pairs: Pairs) -> TermMap:
        """Returns the term of each candidate."""
        if self.size is None:
            return OfCandidate(-pairs.of_candidates("candidate_log_q").to(pairs.candidates.dtype))
        index = self._inside(check_row_integers("index", pairs.of_candidates("index")))
        # An item that was never counted, as in evaluation, counts as one occurrence.
        count, total = self.counts[index].clamp(min=1), self.counts.sum().clamp(min=1)
        return OfCandidate((total.double() / count).log().to(pairs.candidates.dtype))


def _refuse(log_q: Tensor, low: float, high: float) -> None:
    check_finite("candidate_log_q", log_q)
    if low >= 0 and high <= 1:
        remedy = "all values lie in [0, 1], so if they are q itself, pass q.log()"
    else:
        remedy = (
            "of counts, pass (counts / total).log(); of their logarithms, subtract the logarithm of total, that of all items"
        )
    raise ConfigError(f"candidate_log_q holds {high:g}, and the logarithm of a probability is at most 0: {remedy}.")


class OfCandidate(TermMap):
    """One number for each candidate, [M], or in the shape of its tile."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> TermMap:
        """Returns the term of these candidates."""
        return OfCandidate(self.values[columns])

    def term(self, similarity: Tensor) -> Tensor:
        """Returns the number of each candidate."""
        return self.values
