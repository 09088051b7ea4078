"""Raw embeddings to unit rows: each over its norm, with the gradient of that.

It must not know layouts, strategies or engines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from tempplug.precision import HALF, at_least_float32
from tempplug.transforms import plain_only, valueless

# Rows shorter than this have no direction: similarity 0 and gradient 0, where torch's own normalize multiplies by 1e12.
SMALLEST_NORM = 1e-12
# By type: numbers of float16 below its smallest normal one lose digits, and gradients of shorter rows would overflow.
SMALLEST = {torch.float16: torch.finfo(torch.float16).tiny}
# Of norms of a size at which squares are exact.
EXACT_NORMS = 1e-6, 1e6
# The gradient of x/‖x‖ in one pass over memory: that of weights with a gain, here of unit rows with a gain of 1/‖x‖.
_normalised_backward = torch.ops.aten._weight_norm_interface_backward.default


class Spans(dict[str | tuple[str, ...], tuple[int, int]]):
    """The first row and the first behind the last, of an argument, or of several that lie one behind the other."""

    def __missing__(self, names: str | tuple[str, ...]) -> tuple[int, int]:
        """Returns and keeps the rows of several arguments."""
        if isinstance(names, str):
            raise KeyError(names)
        span = self[names] = self[names[0]][0], self[names[-1]][1]
        return span


class RowOrder:
    """How the rows of the arguments of a call lie one behind the other.

    Args:
        groups: names of the arguments, in groups whose rows are one tensor each where they have a graph.
        sizes: the number of rows of each argument by its name.

    Attributes:
        groups: rows of each group.
        ends: where the rows of each argument end, after 0.
    """

    __slots__ = ("ends", "groups", "names", "spans")

    def __init__(self, groups: Sequence[Sequence[str]], sizes: Mapping[str, int]) -> None:
        self.names = [name for group in groups for name in group]
        self.ends = [0, *accumulate(sizes[name] for name in self.names)]
        self.spans = Spans(zip(self.names, pairwise(self.ends), strict=True))
        self.groups = [self.spans[tuple(group)] for group in groups]


class Division:
    """Raw rows, one tensor behind the other, divided by their norms, without a graph; and the gradient of that.

    Attributes:
        unit: [n, D] in at least float32.
        without: [n] which rows have no norm, and are 0 with a gradient of 0; None where every norm is an ordinary number, so
            that no value is NaN or infinite either.
    """

    __slots__ = ("_dtype", "_ends", "_largest", "_norm", "unit", "without")

    def __init__(self, raw: Sequence[Tensor], ends: Sequence[int]) -> None:
        self._dtype, self._ends, self._largest, self.without = raw[0].dtype, ends, None, None
        copied = len(raw) > 1
        wide = raw[0].detach()
        if copied:
            parts = [wide]
            for tensor in raw[1:]:
                parts.append(tensor.detach())
            wide = torch.cat(parts)
        elif not wide.is_contiguous():
            wide, copied = wide.contiguous(), True
        if self._dtype in HALF:
            wide, copied = wide.float(), True
        norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        low, high = torch.aminmax(norm) if wide.is_cpu else (None, None)
        smallest = SMALLEST.get(self._dtype, SMALLEST_NORM)
        # A NaN fails both comparisons.
        if low is None or high is None or not (low.item() > max(EXACT_NORMS[0], smallest) and high.item() < EXACT_NORMS[1]):
            # The largest entry is divided out first, so that squares neither overflow nor underflow; the result does not
            # change with it, so neither does the gradient.
            without = norm < smallest
            self._largest = wide.abs().amax(1, keepdim=True).masked_fill_(without, 1)
            wide, copied = wide / self._largest, True
            norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True).masked_fill_(without, 1)
            self.without = without.squeeze(1)
        # By division, because a product with 1/‖x‖ is not exactly 1 or -1 where rows have one dimension.
        self.unit = wide.div_(norm) if copied else wide / norm
        if self.without is not None:
            self.unit.masked_fill_(self.without.unsqueeze(1), 0)
        self._norm = norm

    def learns(self, start: int, stop: int, needed: Sequence[bool]) -> bool:
        """Returns whether some rows lie in a raw tensor of which a gradient is needed."""
        return True in needed[bisect_left(self._ends, start) : bisect_left(self._ends, stop)]

    def gradients(self, pieces: Sequence[tuple[int, Tensor]], needed: Sequence[bool]) -> list[Tensor | None]:
        """Returns the gradient of each raw tensor that needs one.

        Args:
            pieces: gradients of unit rows, each with the row that it begins at, which is the first of some raw tensor.
            needed: of which raw tensors a gradient is wanted; the others have None.
        """
        raw_gradients: list[Tensor | None] = [None] * len(needed)
        if not pieces:
            return raw_gradients
        ends = self._ends
        start, gradient = pieces[0] if len(pieces) == 1 else _added(pieces)
        first, last = ends.index(start), ends.index(start + gradient.shape[0])
        # What comes before the first and behind the last that are needed, such as a queue, is left out.
        while first < last and not needed[first]:
            first += 1
        while first < last and not needed[last - 1]:
            last -= 1
        if first == last:
            return raw_gradients
        unit, norm, begin, stop = self.unit, self._norm, ends[first], ends[last]
        if stop - begin < unit.shape[0]:
            unit, norm, gradient = unit[begin:stop], norm[begin:stop], gradient[begin - start : stop - start]
        gain = _ones(stop - begin, norm.dtype, norm.device)
        of_rows = _normalised_backward(gradient.contiguous(), unit, norm.reciprocal(), gain, 0)[0]
        if self._largest is not None and self.without is not None:
            of_rows = (of_rows / self._largest[begin:stop]).masked_fill(self.without[begin:stop].unsqueeze(1), 0)
        if of_rows.dtype is not self._dtype:
            of_rows = of_rows.to(self._dtype)
        if last - first == 1:
            raw_gradients[first] = of_rows
        else:
            for number in range(first, last):
                if needed[number]:
                    raw_gradients[number] = of_rows[ends[number] - begin : ends[number + 1] - begin]
        return raw_gradients


def _added(pieces: Sequence[tuple[int, Tensor]]) -> tuple[int, Tensor]:
    """Returns gradients of rows, each with its first row, as one tensor with its first row."""
    ordered = sorted(pieces, key=itemgetter(0))
    start = stop = ordered[0][0]
    adjacent, gradients = True, []
    for begin, gradient in ordered:
        adjacent = adjacent and begin == stop
        stop = max(stop, begin + gradient.shape[0])
        gradients.append(gradient)
    if adjacent:
        return start, gradients[0] if len(gradients) == 1 else torch.cat(gradients)
    total = gradients[0].new_zeros(stop - start, gradients[0].shape[1])
    for begin, gradient in ordered:
        total[begin - start : begin - start + gradient.shape[0]] += gradient
    return start, total


@lru_cache(maxsize=64)
def _ones(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns the gain of each row, [count, 1]."""
    with torch.inference_mode(False):
        return torch.ones(count, 1, dtype=dtype, device=device)


class _WithGraph(torch.autograd.Function):
    """The unit rows of a division, a tensor for each group, as functions of the raw rows."""

    @staticmethod
    def forward(ctx: Any, division: Division, order: RowOrder, *raw: Tensor) -> tuple[Tensor, ...]:
        ctx.division, ctx.groups = division, order.groups
        ctx.set_materialize_grads(False)  # no engine multiplies for the gradient of a group without one, such as a queue
        ctx.save_for_backward(division.unit)
        needed = ctx.needs_input_grad[2:]
        rows = tuple(division.unit[start:stop] for start, stop in order.groups)
        constant = [group for group, span in zip(rows, order.groups, strict=True) if not division.learns(*span, needed)]
        ctx.mark_non_differentiable(*constant)
        return rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "this engine has no second derivative: call backward without create_graph=True, or use engine='dense'."
            )
        _ = ctx.saved_tensors  # raises where the graph is gone
        pieces = [(start, gradient) for (start, _), gradient in zip(ctx.groups, gradients, strict=True) if gradient is not None]
        return None, None, *ctx.division.gradients(pieces, ctx.needs_input_grad[2:])


# Without what `torch.autograd.Function` does for the transforms of `torch.func`, for which there are plain operations.
_with_graph: Any = super(torch.autograd.Function, _WithGraph).apply


class UnitRows:
    """The unit rows of several arguments of a call.

    Args:
        order: of the arguments.
        raw: the raw rows [B, D] of each, all of one floating-point type.
        division: of all raw rows; None where ``rows`` are given.
        rows: of each group, with a graph of their own.
        without: [n] which rows have no norm; None where all have one.
    """

    __slots__ = ("division", "graph", "order", "raw", "without")

    def __init__(
        self,
        order: RowOrder,
        raw: Sequence[Tensor],
        division: Division | None = None,
        rows: Sequence[Tensor] | None = None,
        without: Tensor | None = None,
    ) -> None:
        self.order, self.raw, self.division, self.graph, self.without = order, raw, division, rows, without

    @classmethod
    def of_tensors(cls, rows: Mapping[str, Tensor]) -> UnitRows:
        """Returns unit rows that have a graph of their own, each argument in a group of its own."""
        order = RowOrder([(name,) for name in rows], {name: tensor.shape[0] for name, tensor in rows.items()})
        return cls(order, list(rows.values()), None, list(rows.values()))

    @property
    def of_groups(self) -> Sequence[Tensor]:
        """The rows of each group with their graph, which is made on first reading."""
        if self.graph is None:
            self.graph = _with_graph(self.division, self.order, *self.raw)
        return self.graph

    def rows(self, start: int, stop: int) -> Tensor:
        """Returns some rows with their graph."""
        pieces = []
        for (begin, end), group in zip(self.order.groups, self.of_groups, strict=True):
            first, last = max(begin, start), min(end, stop)
            if first < last:
                pieces.append(group if (first, last) == (begin, end) else group[first - begin : last - begin])
        if len(pieces) == 1:
            return pieces[0]
        return torch.cat(pieces) if pieces else self.of_groups[0][:0]

    def by_name(self) -> dict[str, Tensor]:
        """Returns the rows of each argument with their graph."""
        ends = self.order.ends
        tensors: list[Tensor] = []
        for (start, stop), group in zip(self.order.groups, self.of_groups, strict=True):
            sizes = [end - begin for begin, end in pairwise(ends[ends.index(start) : ends.index(stop) + 1])]
            tensors += [group] if len(sizes) == 1 else group.split_with_sizes(sizes)
        return dict(zip(self.order.names, tensors, strict=True))

    @property
    def learning(self) -> Sequence[Tensor]:
        """The tensors that the rows are functions of, with a gradient or without."""
        return self.raw if self.division is not None else self.of_groups


class Selection:
    """Rows of a call that are the anchors or the candidates of a block.

    Args:
        units: where they lie; None of ``rows`` that lie nowhere else.
        span: the first of them and the first behind them.
        rows: with their graph, where that is there.

    Attributes:
        detached: [N, D] without gradient.
    """

    __slots__ = ("detached", "graph", "span", "units")

    def __init__(self, units: UnitRows | None, span: tuple[int, int] = (0, 0), rows: Tensor | None = None) -> None:
        self.units, self.span, self.graph = units, span, rows
        if units is None or units.division is None:
            self.graph = rows if rows is not None or units is None else units.rows(*span)
            self.detached: Tensor = self.graph.detach()  # type: ignore[union-attr]
        else:
            unit = units.division.unit
            self.detached = unit if span[1] - span[0] == unit.shape[0] else unit[span[0] : span[1]]

    @property
    def rows(self) -> Tensor:
        """[N, D] with their graph."""
        if self.graph is None:
            self.graph = self.detached if self.units is None else self.units.rows(*self.span)
        return self.graph


def unit_groups(order: RowOrder, raw: Sequence[Tensor], plain: bool) -> UnitRows:
    """Returns the unit rows of several arguments; with ``plain`` by plain operations, which have second derivatives."""
    if not plain:
        division = Division(raw, order.ends)
        return UnitRows(order, raw, division, None, division.without)
    # Groups apart, because a compiler would write one tensor of all anew.
    ends = order.ends
    groups: list[tuple[Tensor, Tensor]] = []
    for start, stop in order.groups:
        parts = raw[ends.index(start) : ends.index(stop)]
        groups.append(_plain_unit_rows(parts[0] if len(parts) == 1 else torch.cat(list(parts))))
    without = torch.cat([without_norm for _, without_norm in groups])
    ordinary = without.is_cpu and not valueless() and bool(torch.stack([unit.isfinite().all() for unit, _ in groups]).all())
    return UnitRows(order, raw, None, [unit for unit, _ in groups], None if ordinary and not bool(without.any()) else without)


def unit_rows(*embeddings: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns the rows of one or several [B, D] divided by their norm, in at least float32, and which rows had none.

    The latter are [B] booleans: True where the norm is below the smallest that has a direction; those rows are 0 with zero
    gradient. None in their place means that every norm is an ordinary number, so that no value is NaN or infinite either.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([False,  True]))
    """
    names = [str(number) for number in range(len(embeddings))]
    order = RowOrder([names], dict(zip(names, map(len, embeddings), strict=True)))
    units = unit_groups(order, embeddings, plain_only())
    return units.rows(0, order.ends[-1]), units.without


def _plain_unit_rows(raw: Tensor) -> tuple[Tensor, Tensor]:
    """Returns unit rows in plain operations, and which have no norm."""
    wide = at_least_float32(raw)
    whole = wide.detach()
    without = torch.linalg.vector_norm(whole, dim=1, keepdim=True) < SMALLEST.get(raw.dtype, SMALLEST_NORM)
    scaled = wide / whole.abs().amax(1, keepdim=True).masked_fill(without, 1)
    norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True).masked_fill(without, 1)
    return (scaled / norm).masked_fill(without, 0), without.squeeze(1)
