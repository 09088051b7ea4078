"""How a block of the similarity matrix is cut into tiles, and which pairs of a tile are positives or have no role.

A square of anchors against themselves, under a symmetric map, is cut into tiles on and above its diagonal: what lies right of
the diagonal represents its mirror image as well. A small block is one tile; of a square that tile holds both halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from tempplug.roles import PairRoles, Shape

# Numbers of the largest block that is one tile on a CPU, half a MB in float32.
SINGLE = 1 << 17
# Rows and columns of a tile on a CPU: 1 MB runs in a core's own cache.
CPU_TILE = 256, 1024
# A GPU wants work for all its units at once.
GPU_TILE = 4096, 8192


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Some anchors against some candidates.

    Attributes:
        rows: the anchors; None means all.
        columns: the candidates; None means all.
        both: whether the tile also adds to the sums of its columns: they are anchors of this block or of its mirror image.
        transposed: whether some columns need the transposed tile: all but those on the diagonal of a square, where the tile
            holds both halves.
        inner: those columns, counted within the tile; None means all.
        outer: the same columns, counted among the candidates.
        blank: positions in the flattened tile that have no role; None where all have one.
        behind: whether the columns are hard negatives, which follow the other candidates and have no label.
    """

    rows: slice | None
    columns: slice | None
    both: bool
    transposed: bool
    inner: slice | None
    outer: slice | None
    blank: Tensor | None
    behind: bool


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of a block, in the order in which they are added up, and the number of pairs in them.

    With ``triangle`` half of a square represents all of it, or one tile holds both halves.
    """

    tiles: tuple[Tile, ...]
    triangle: bool
    pairs: int


@lru_cache(maxsize=64)
def make_tiling(shape: Shape, triangle: bool, mirrored: bool, device: torch.device) -> Tiling:
    """Returns the tiles of a block; with ``triangle`` the candidates are the anchors, and map and terms symmetric."""
    on_cpu = device.type == "cpu"
    rows, columns = CPU_TILE if on_cpu else GPU_TILE
    if shape.anchors * shape.candidates <= (SINGLE if on_cpu else rows * columns):
        rows, columns = shape.anchors, shape.candidates
    tiles, pairs = [], 0
    for top, bottom, left, right, behind in _cuts(shape, triangle, rows, columns):
        both = (triangle and not behind) or mirrored
        # Columns up to the last row are on the diagonal, where both halves are there.
        diagonal = max(0, bottom - left) if triangle and not behind else 0
        width = right - left
        tiles.append(
            Tile(
                rows=_span(top, bottom, shape.anchors),
                columns=_span(left, right, shape.candidates),
                both=both,
                transposed=diagonal < width,
                inner=_span(diagonal, width, width),
                outer=_span(left + diagonal, right, shape.candidates),
                blank=None if behind else _blank(shape.blanks, top, bottom, left, right, device),
                behind=behind,
            )
        )
        pairs += (bottom - top) * width
    return Tiling(tuple(tiles), triangle, pairs)


def _cuts(shape: Shape, triangle: bool, rows: int, columns: int) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yields top, bottom, left, right, and whether the columns are hard negatives."""
    behind = shape.behind
    for top in range(0, shape.anchors, rows):
        bottom = min(top + rows, shape.anchors)
        for left in range(top if triangle else shape.start, behind, columns):
            yield top, bottom, left, min(left + columns, behind), False
        for left in range(behind, shape.candidates, columns):
            if top < shape.seeing:
                yield top, min(bottom, shape.seeing), left, min(left + columns, shape.candidates), True


def _span(start: int, stop: int, count: int) -> slice | None:
    return None if stop - start == count else slice(start, stop)


def _blank(
    runs: tuple[tuple[int, int, int], ...], top: int, bottom: int, left: int, right: int, device: torch.device
) -> Tensor | None:
    """Returns where the runs pass through a tile; row i of a run holds column i + shift."""
    positions = []
    for start, stop, shift in runs:
        first = max(start, top, left - shift)
        rows = torch.arange(first, max(first, min(stop, bottom, right - shift)), device="cpu")
        positions.append((rows - top) * (right - left) + rows + shift - left)
    flat = torch.cat(positions) if positions else torch.empty(0, device="cpu")
    return flat.to(device) if flat.numel() else None


def select_tile(whole: Tensor, tile: Tile) -> Tensor:
    """Returns the pairs of a tile, [R, C], of all pairs [N, M]."""
    rows = whole if tile.rows is None else whole[tile.rows]
    return rows if tile.columns is None else rows[:, tile.columns]


class Marks:
    """The roles of a block's pairs, a tile at a time."""

    def __init__(self, roles: PairRoles, dtype: torch.dtype) -> None:
        self._masks = self._classes = None
        self._targets = roles.targets
        if roles.positive_mask is not None and roles.negative_mask is not None:
            # Bytes become floating-point numbers several times faster than booleans.
            self._masks = roles.positive_mask.view(torch.uint8), roles.negative_mask.view(torch.uint8)
            counts = roles.positive_count + roles.negative_count
            self._complete = counts.is_cpu and int(counts.min()) == roles.candidates
        elif roles.anchor_labels is not None:
            # Numbers from 0, so that they are exact in any floating-point type up to 16 million rows.
            anchors, candidates = roles.classes
            numbers = anchors.to(dtype)
            self._classes = numbers, numbers if candidates is anchors else candidates.to(dtype)

    def positive(self, tile: Tile, like: Tensor) -> Tensor | None:
        """Returns 1 where a pair of a tile is a positive and 0 elsewhere, as ``like``; None where positions decide it."""
        if self._targets is not None:
            return (select_tile(self._targets, tile) > 0).to(like.dtype)
        if self._masks is not None:
            return select_tile(self._masks[0], tile).to(like.dtype)
        if self._classes is None:
            return None
        if tile.behind:
            return torch.zeros_like(like)
        anchors, candidates = self._classes
        rows = anchors if tile.rows is None else anchors[tile.rows]
        columns = candidates if tile.columns is None else candidates[tile.columns]
        positive = torch.eq(rows[:, None], columns, out=torch.empty_like(like))
        return positive if tile.blank is None else self.blank_(positive, tile, 0.0)

    def share(self, tile: Tile, positive: Tensor) -> Tensor:
        """Returns what each pair [R, C] counts in means over the positives, given `positive`."""
        return positive if self._targets is None else select_tile(self._targets, tile).to(positive.dtype)

    def blank_(self, values: Tensor, tile: Tile, value: float) -> Tensor:
        """Writes a value over the pairs [R, C] of a tile that have no role."""
        if tile.blank is not None:
            values.view(-1).index_fill_(0, tile.blank, value)
        if self._masks is not None and not self._complete:
            either = torch.bitwise_or(*(select_tile(mask, tile) for mask in self._masks))
            values.masked_fill_(either == 0, value)
        return values
