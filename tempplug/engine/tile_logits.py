"""Logits of a tile and their slopes, from the product of its rows: what a map is to `several`.

It knows maps, no roles.
"""

from __future__ import annotations

from torch import Tensor

from tempplug.engine import gemm
from tempplug.strategies.maps import LogitMap
from tempplug.strategies.tile_forms import LOG2E, ScaleForm, TileForm, top_anchor


class TileLogits:
    """Logits of any tile, through the map's own ``logit`` and ``slope``.

    Args:
        anchors: [N, D].
        candidates: [M, D]; the same tensor where they are the anchors.
        logit_map: the same for every pair.
        form: of the map.

    Attributes:
        anchors: detached.
        candidates: detached; the very ``anchors`` where the logit of (i, j) is that of (j, i).
        scale: a number or [N], of maps that are scale · s; else None.
        reach: the largest base-2 logit, up or down.
        shift: what is subtracted from base-2 logits, so that no sum of their powers leaves the range.
    """

    scale: Tensor | float | None = None

    def __init__(self, anchors: Tensor, candidates: Tensor, logit_map: LogitMap, form: TileForm) -> None:
        self.anchors = anchors.detach()
        mutual = candidates is anchors and logit_map.uniform and logit_map.symmetric
        self.candidates = self.anchors if mutual else candidates.detach()
        self.reach, self.shift = form.reach, top_anchor(form.reach / LOG2E, len(candidates))
        self._map = logit_map

    @property
    def mutual(self) -> bool:
        """Whether both halves of a square are one."""
        return self.candidates is self.anchors

    def product(self, rows: slice, columns: slice) -> Tensor:
        """Returns the similarities of a tile, [R, C], or base-2 logits of maps that are a scale."""
        return gemm.outer(self.anchors[rows], self.candidates[columns])

    def bend(self, product: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns base-2 logits and slopes in nats, from a `product` that may be overwritten; no slopes of a scale."""
        return self._map.logit(product).mul_(LOG2E), self._map.slope(product)


class ScaledLogits(TileLogits):
    """scale · s: folded into the anchors' rows, so that the product is the logit."""

    def __init__(self, anchors: Tensor, candidates: Tensor, logit_map: LogitMap, form: ScaleForm) -> None:
        super().__init__(anchors, candidates, logit_map, form)
        self.scale = form.slope
        factor = form.operand_scale
        self._scaled = self.anchors * (factor[:, None] if isinstance(factor, Tensor) else factor)

    def product(self, rows: slice, columns: slice) -> Tensor:
        """Returns base-2 logits."""
        return gemm.outer(self._scaled[rows], self.candidates[columns])

    def bend(self, product: Tensor) -> tuple[Tensor, None]:
        """Returns the product."""
        return product, None
