"""Logits of a tile and their slopes, from the product of its rows: what a map is to `several`.

It knows maps, no roles.
"""

from __future__ import annotations

from torch import Tensor

from tempplug.engine import gemm
from tempplug.engine.tiles import part
from tempplug.precision import number
from tempplug.strategies.maps import LogitMap
from tempplug.strategies.tile_forms import LOG2E, ScaleForm, TileForm


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
        mutual: whether both halves of a square are one.
        reach: the largest base-2 logit, up or down.
        shift: what is subtracted from base-2 logits, so that no sum of their powers leaves the range.
    """

    scale: Tensor | float | None = None

    def __init__(self, anchors: Tensor, candidates: Tensor, logit_map: LogitMap, form: TileForm) -> None:
        self.anchors = anchors.detach() if anchors.requires_grad else anchors
        mutual = candidates is anchors and logit_map.uniform and logit_map.symmetric
        self.candidates = self.anchors if mutual else candidates.detach()
        self.mutual, self.reach, self.shift = mutual, form.reach, form.shift
        self._map = logit_map

    def similarities(self, rows: slice | None, columns: slice | None) -> Tensor:
        """Returns those of a tile, [R, C]."""
        return gemm.outer_in_short_chains(part(self.anchors, rows), part(self.candidates, columns))

    def bend(self, similarities: Tensor, rows: slice | None) -> tuple[Tensor, Tensor | None]:
        """Returns base-2 logits and slopes in nats of a tile of these rows, which may be overwritten; no slopes of a scale."""
        return self._map.logit(similarities).mul_(LOG2E), self._map.slope(similarities)


class ScaledLogits(TileLogits):
    """scale · s, in place."""

    def __init__(self, anchors: Tensor, candidates: Tensor, logit_map: LogitMap, form: ScaleForm) -> None:
        super().__init__(anchors, candidates, logit_map, form)
        scale, factor = form.slope, form.operand_scale
        self._of_rows = isinstance(factor, Tensor) and factor.ndim > 0
        if form.constant:
            scale, factor = number(float(scale), anchors.dtype), number(float(factor), anchors.dtype)
        self.scale, self._factor = scale, factor

    def bend(self, similarities: Tensor, rows: slice | None) -> tuple[Tensor, None]:
        """Returns base-2 logits."""
        factor = self._factor
        if self._of_rows and isinstance(factor, Tensor):
            factor = part(factor, rows).unsqueeze(1)
        return similarities.mul_(factor), None


def logits_of(anchors: Tensor, candidates: Tensor, logit_map: LogitMap) -> TileLogits | None:
    """Returns the logits of a map, None where it has no in-place form.

    Args:
        anchors: [N, D].
        candidates: [M, D]; the same tensor where they are the anchors.
        logit_map: of this batch.
    """
    form = logit_map.tile_form(candidates.shape[0], anchors.dtype)
    if isinstance(form, ScaleForm):
        return ScaledLogits(anchors, candidates, logit_map, form)
    return None if form is None else TileLogits(anchors, candidates, logit_map, form)
