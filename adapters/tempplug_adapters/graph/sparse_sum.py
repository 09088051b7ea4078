"""Sums of rows over a sparse pattern, several times quicker than gathering and scattering. It must not know what a graph is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowSums:
    """``sums(x)[i]`` is the sum of the rows j of x that the pattern pairs with i; a pair that is there twice counts twice.

    Attributes:
        pattern: [N, M] ones, or the weights of the pairs, in compressed rows.
        turned: returns the same pattern [M, N] the other way round.
    """

    pattern: Tensor
    turned: Callable[[], Tensor]

    @cached_property
    def transposed(self) -> Tensor:
        """The pattern [M, N] that the gradient needs, made when one is asked for."""
        return self.turned()

    @classmethod
    def from_pairs(cls, rows: Tensor, columns: Tensor, height: int, width: int, weights: Tensor | None = None) -> RowSums:
        """Returns the sums over pairs (rows[k], columns[k]).

        Args:
            rows: [E] in [0, height).
            columns: [E] in [0, width).
            height: rows of the result, N.
            width: rows of what is summed, M.
            weights: [E] what a row is multiplied by for a pair; None for 1.
        """
        pattern = _compressed(rows, columns, height, width, weights)
        return cls(pattern, lambda: _compressed(columns, rows, width, height, weights))

    @classmethod
    def from_groups(cls, group: Tensor, groups: int) -> RowSums:
        """Returns the sums over the members of each group.

        Args:
            group: [M] the group of each row, ascending, in [0, groups).
            groups: rows of the result, N.
        """
        places = torch.arange(len(group) + 1, dtype=torch.int32, device=group.device)
        starts = _row_starts(group, groups)
        pattern = _pattern(starts, places[:-1], groups, len(group))
        return cls(pattern, lambda: _pattern(places, group.to(torch.int32), len(group), groups))

    def parts(self, rows: int) -> Iterator[Tensor]:
        """Yields the pattern in parts of so many rows, in order."""
        starts, columns, values = self.pattern.crow_indices(), self.pattern.col_indices(), self.pattern.values()
        for first in range(0, len(starts) - 1, rows):
            own = starts[first : first + rows + 1]
            place = slice(int(own[0]), int(own[-1]))
            yield _pattern(own - own[0], columns[place], len(own) - 1, self.pattern.shape[1], values[place])

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the sums, [N, D], for x [M, D]."""
        summed: Tensor = _Product.apply(x, self)  # type: ignore[no-untyped-call]
        return summed


class _Product(torch.autograd.Function):
    """PyTorch's own product would turn the matrix anew in every backward pass."""

    @staticmethod
    def forward(context: Any, x: Tensor, sums: RowSums) -> Tensor:
        context.sums = sums
        with torch.autocast(x.device.type, enabled=False):  # there are no sparse products in half precision on the CPU
            return sums.pattern @ x.to(sums.pattern.dtype)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.sums.transposed @ gradient, None


def _compressed(rows: Tensor, columns: Tensor, height: int, width: int, weights: Tensor | None) -> Tensor:
    order = torch.argsort(rows, stable=True)
    values = None if weights is None else weights[order]
    return _pattern(_row_starts(rows, height), columns[order].to(torch.int32), height, width, values)


def _row_starts(rows: Tensor, height: int) -> Tensor:
    starts = torch.zeros(height + 1, dtype=torch.int32, device=rows.device)
    starts[1:] = torch.bincount(rows, minlength=height).cumsum(0)
    return starts


def _pattern(starts: Tensor, columns: Tensor, height: int, width: int, values: Tensor | None = None) -> Tensor:
    values = torch.ones(len(columns), device=columns.device) if values is None else values
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, (height, width), check_invariants=False)
