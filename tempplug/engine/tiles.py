"""How a block of the similarity matrix is cut into tiles, and in which order their sums are added up.

A plan is made once for each shape and kept; it knows positions, never similarities.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tempplug.roles import PairRoles

# One tile of 2 MB runs in a core's own cache; smaller ones start too many products, larger ones leave the cache.
ROWS, COLUMNS = 512, 1024
# Where all tiles fit into this many numbers they are kept from the forward pass, finer ones that waste less of the triangle.
KEPT = 16 << 20
FINE_ROWS, FINE_COLUMNS = 256, 1024


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Rows ``top`` to ``bottom`` against columns ``left`` to ``right`` of a panel.

    Attributes:
        panel: 0 for the candidates, 1 for hard negatives.
        top, bottom, left, right: where it lies.
        mirrored_from: columns of the tile from here on also stand for their mirror images; the width where none do.
        zeroes: positions in the flattened tile that hold no negatives; None where all are.
        mirrors: whether any of its columns do.
        row_turn: how many tiles add to the same rows before it.
        group: of columns whose sums come from the same tiles.
        column_turn: how many tiles add to them before it.
    """

    panel: int
    top: int
    bottom: int
    left: int
    right: int
    mirrored_from: int
    mirrors: bool
    zeroes: Tensor | None
    row_turn: int
    group: int
    column_turn: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The tiles of a block, in an order in which each finds its predecessors done.

    Attributes:
        tiles: all of them.
        keep: whether the forward pass keeps them for the backward pass.
        triangle: the candidates are the anchors, and half of the square stands for all of it.
        largest: numbers of the largest tile.
        extra_columns: hard negatives behind the candidates.
        mirrors: whether a tile of each panel has columns that stand for more than its rows.
    """

    tiles: tuple[Tile, ...]
    keep: bool
    triangle: bool
    largest: int
    extra_columns: int
    mirrors: tuple[bool, bool]


@lru_cache(maxsize=64)
def make_plan(shape: Shape, triangle: bool) -> Plan:
    """Returns the tiles.

    Args:
        shape: the block's shape and pairings.
        triangle: whether the map is symmetric and the block square, so that half of it is enough.
    """
    side = shape.anchors
    total = side * (side + FINE_ROWS) // 2 if triangle else side * shape.columns
    total += shape.extra_anchors * shape.extra_columns
    keep = total <= KEPT
    rows, columns = (FINE_ROWS, FINE_COLUMNS) if keep else (ROWS, COLUMNS)
    tiles = list(_numbered(shape, triangle, rows, columns))
    largest = max((tile.bottom - tile.top) * (tile.right - tile.left) for tile in tiles)
    first, second = (any(tile.mirrors and tile.panel == panel for tile in tiles) for panel in (0, 1))
    return Plan(tuple(tiles), keep, triangle, largest, shape.extra_columns, (first, second))


class Shape(NamedTuple):
    """What a plan depends on, hashable.

    Attributes:
        anchors: N.
        columns: candidates that may be negatives, hard negatives apart.
        extra_columns: hard negatives.
        extra_anchors: anchors that see them.
        runs: of the pairs that are no negatives, relative to the first such column.
    """

    anchors: int
    columns: int
    extra_columns: int
    extra_anchors: int
    runs: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, roles: PairRoles) -> Shape:
        """Returns the shape of roles that positions alone decide."""
        end = roles.candidates if roles.extra_start is None else roles.extra_start
        first, positives, ignored = roles.negatives_start, roles.positives, roles.ignored
        runs = _shifted(first, () if positives is None else positives.runs, () if ignored is None else ignored.runs)
        return cls(roles.anchors, end - first, roles.candidates - end, roles.extra_anchors, runs)


Runs = tuple[tuple[int, int, int], ...]


@lru_cache(maxsize=64)
def _shifted(first: int, *runs: Runs) -> Runs:
    """Returns these runs relative to column ``first``, without those that end before it."""
    return tuple((start, stop, shift - first) for each in runs for start, stop, shift in each if stop + shift > first)


def _numbered(shape: Shape, triangle: bool, rows: int, columns: int) -> Iterator[Tile]:
    row_turns: dict[int, int] = defaultdict(int)
    column_turns: dict[int, int] = defaultdict(int)
    for panel, top, bottom, left, right in _cuts(shape, triangle, rows, columns):
        mirrored_from = max(0, bottom - left) if triangle and panel == 0 else 0
        # Panels number their columns apart: those of hard negatives come behind all others.
        group = left // columns + panel * (shape.columns // columns + 1)
        mirrors = mirrored_from < right - left
        yield Tile(
            panel,
            top,
            bottom,
            left,
            right,
            mirrored_from,
            mirrors,
            _zeroes(shape.runs, top, bottom, left, right) if panel == 0 else None,
            row_turns[top],
            group,
            column_turns[group],
        )
        row_turns[top] += 1
        column_turns[group] += mirrors


def _cuts(shape: Shape, triangle: bool, rows: int, columns: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields panel, top, bottom, left, right; of a triangle what lies on or above the diagonal."""
    for top in range(0, shape.anchors, rows):
        bottom = min(top + rows, shape.anchors)
        for start in range(top // columns * columns if triangle else 0, shape.columns, columns):
            left = max(start, top) if triangle else start
            yield 0, top, bottom, left, min(start + columns, shape.columns)
        if top < shape.extra_anchors:
            for start in range(0, shape.extra_columns, columns):
                yield 1, top, min(bottom, shape.extra_anchors), start, min(start + columns, shape.extra_columns)


def _zeroes(runs: tuple[tuple[int, int, int], ...], top: int, bottom: int, left: int, right: int) -> Tensor | None:
    found = []
    for start, stop, shift in runs:
        # Row i of the run holds column i + shift; keep the rows whose column lies in the tile.
        first = max(start, top, left - shift)
        rows = torch.arange(first, max(first, min(stop, bottom, right - shift)), device="cpu")
        found.append((rows - top) * (right - left) + rows + shift - left)
    flat = torch.cat(found) if found else torch.empty(0, device="cpu")
    return flat if flat.numel() else None


def span(start: int, stop: int, count: int) -> slice | None:
    """Returns rows ``start`` to ``stop`` of ``count``; None where they are all, which saves an operation."""
    return None if stop - start == count else slice(start, stop)


def part(whole: Tensor, where: slice | None) -> Tensor:
    """Returns the rows that `span` says."""
    return whole if where is None else whole[where]
