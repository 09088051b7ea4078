"""Sums of rows over a sparse pattern, several times quicker than gathering and scattering. It must not know what a graph is."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowSums:
    """``sums(x)[i]`` is the sum of the rows j of x that the pattern pairs with i; a pair that is there twice counts twice.

    Attributes:
        pattern: [N, M] ones in compressed rows.
        transposed: [M, N] the same pattern turned, for the gradient.
    """

    pattern: Tensor
    transposed: Tensor

    @classmethod
    def from_pairs(cls, rows: Tensor, columns: Tensor, height: int, width: int) -> RowSums:
        """Returns the sums over pairs (rows[k], columns[k]).

        Args:
            rows: [E] in [0, height).
            columns: [E] in [0, width).
            height: rows of the result, N.
            width: rows of what is summed, M.
        """
        return cls(_compressed(rows, columns, height, width), _compressed(columns, rows, width, height))

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
        return cls(pattern, _pattern(places, group.to(torch.int32), len(group), groups))

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the sums, [N, D], for x [M, D]."""
        summed: Tensor = _Product.apply(x, self.pattern, self.transposed)  # type: ignore[no-untyped-call]
        return summed


class _Product(torch.autograd.Function):
    """PyTorch's own product would turn the matrix anew in every backward pass."""

    @staticmethod
    def forward(context: Any, x: Tensor, pattern: Tensor, transposed: Tensor) -> Tensor:
        context.transposed = transposed
        with torch.autocast(x.device.type, enabled=False):  # there are no sparse products in half precision on the CPU
            return pattern @ x.to(pattern.dtype)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return context.transposed @ gradient, None, None


def _compressed(rows: Tensor, columns: Tensor, height: int, width: int) -> Tensor:
    order = torch.argsort(rows, stable=True)
    return _pattern(_row_starts(rows, height), columns[order].to(torch.int32), height, width)


def _row_starts(rows: Tensor, height: int) -> Tensor:
    starts = torch.zeros(height + 1, dtype=torch.int32, device=rows.device)
    starts[1:] = torch.bincount(rows, minlength=height).cumsum(0)
    return starts


def _pattern(starts: Tensor, columns: Tensor, height: int, width: int) -> Tensor:
    ones = torch.ones(len(columns), device=columns.device)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
        return torch.sparse_csr_tensor(starts, columns, ones, (height, width), check_invariants=False)
