"""Sums of rows over a sparse pattern, several times faster than gathering and scattering."""

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
    """``sums(x)[i]`` is the sum of the rows j of x paired with i; repeated pairs are counted repeatedly.

    Attributes:
        pattern: [N, M] sparse CSR matrix of ones or pair weights.
        transpose: returns the transposed pattern [M, N].
    """

    pattern: Tensor
    transpose: Callable[[], Tensor]

    @cached_property
    def transposed(self) -> Tensor:
        """The pattern [M, N] needed for gradients, created on first use."""
        return self.transpose()

    @classmethod
    def from_pairs(cls, rows: Tensor, columns: Tensor, height: int, width: int, weights: Tensor | None = None) -> RowSums:
        """Returns the sums [height, D] over pairs (rows[k], columns[k]) [E] of rows [width, D], each times its weight [E]."""
        pattern = _compressed(rows, columns, height, width, weights)
        return cls(pattern, lambda: _compressed(columns, rows, width, height, weights))

    @classmethod
    def from_groups(cls, group: Tensor, groups: int) -> RowSums:
        """Returns the sums [groups, D] over the members of each group, for the group of each row [M], ascending."""
        places = torch.arange(len(group) + 1, dtype=torch.int32, device=group.device)
        pattern = compressed_rows(row_starts(group, groups), places[:-1], groups, len(group))
        return cls(pattern, lambda: compressed_rows(places, group.to(torch.int32), len(group), groups))

    def parts(self, rows: int) -> Iterator[Tensor]:
        """Yields the pattern in blocks of a number of rows, in order."""
        starts, columns, values = self.pattern.crow_indices(), self.pattern.col_indices(), self.pattern.values()
        for first in range(0, len(starts) - 1, rows):
            own = starts[first : first + rows + 1]
            place = slice(int(own[0]), int(own[-1]))
            yield compressed_rows(own - own[0], columns[place], len(own) - 1, self.pattern.shape[1], values[place])

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the sums, [N, D], for x [M, D]."""
        summed: Tensor = _Product.apply(x, self)  # type: ignore[no-untyped-call]
        return summed


class _Product(torch.autograd.Function):
    """A product that caches the transposed matrix; PyTorch's product would transpose it in every backward pass."""

    @staticmethod
    def forward(context: Any, x: Tensor, sums: RowSums) -> Tensor:
        context.sums = sums
        with torch.autocast(x.device.type, enabled=False):  # there are no sparse products in half precision on the CPU
            return sums.pattern @ x.to(sums.pattern.dtype)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.sums.transposed @ gradient.contiguous(), None


def _compressed(rows: Tensor, columns: Tensor, height: int, width: int, weights: Tensor | None) -> Tensor:
    order = torch.argsort(rows, stable=True)
    values = None if weights is None else weights[order]
    return compressed_rows(row_starts(rows, height), columns[order].to(torch.int32), height, width, values)


def ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Returns the concatenated ranges of positions given by starts and counts."""
    shift = starts - (torch.cumsum(counts, 0) - counts)
    return torch.arange(int(counts.sum()), device=starts.device) + shift.repeat_interleave(counts)


def row_starts(rows: Tensor, height: int) -> Tensor:
    """Returns the CSR row pointers [height + 1] of entries with ascending rows [E]."""
    starts = torch.zeros(height + 1, dtype=torch.int32, device=rows.device)
    starts[1:] = torch.bincount(rows, minlength=height).cumsum(0)
    return starts


def compressed_rows(starts: Tensor, columns: Tensor, height: int, width: int, values: Tensor | None = None) -> Tensor:
    """Returns a sparse CSR matrix [height, width] without validation; values None means 1."""
    values = torch.ones(len(columns), device=columns.device) if values is None else values
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, (height, width), check_invariants=False)
