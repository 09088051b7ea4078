"""Small batches with one positive an anchor: a call from raw embeddings to the loss in one tile, by closed forms.

The parts are those of `tempplug.loss`: strategy, objective and layout are asked for what they know in closed form, the engine's
single tile does the rest, and nothing is made that only larger or stranger calls need. Whatever does not fit, wrong arguments
among it, is left to the long way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.claims import holds
from tempplug.engine.single import Closed, Places, SingleTile, find_places, has_form, reduced
from tempplug.inputs import FLOATS, check_integers, check_uncertainty
from tempplug.layouts import Direction, PairLayout
from tempplug.objectives.base import Objective
from tempplug.record import Step, Trace
from tempplug.strategies.maps import LogitMap
from tempplug.transforms import transformed
from tempplug.types import Auxiliary, Batch

if TYPE_CHECKING:
    from tempplug.loss import ContrastiveLoss

_PLAIN = (Tensor, nn.Parameter)
_CPU = torch.device("cpu")
# What may stand behind the views among all rows, and where.
_BEHIND = (("queue", 2), ("hard_negatives", -1))


def small_loss(
    loss_fn: ContrastiveLoss, view_a: Tensor, view_b: Tensor | None, given: Mapping[str, Any], step: Step
) -> tuple[Tensor | None, LogitMap | None]:
    """Returns the loss of a head; None where the call must go the long way, and then its logit map if that is made already.

    Args:
        loss_fn: the loss that was called; its strategy is not to observe this batch.
        view_a: the argument of the call.
        view_b: likewise.
        given: the optional arguments by name, None where left out.
        step: where the pieces of the record go.
    """
    strategy, objective, layout = loss_fn.strategy, loss_fn.objective, loss_fn.layout
    closed_forms = not objective.top and _closed(type(strategy), type(objective))  # type: ignore[arg-type]
    if not closed_forms or loss_fn.engine not in ("auto", "tiled") or transformed():
        return None, None
    raw = _plain_rows(view_a, view_b, given)
    if raw is None or (loss_fn.gather and distributed.active()):
        return None, None
    places = _places(layout, view_a.shape[0], *[0 if given[name] is None else raw[at].shape[0] for name, at in _BEHIND])
    of_anchors = _of_anchors(loss_fn, given, view_a.shape[0])
    if places is None or of_anchors is None or (of_anchors and places.mirrored):
        return None, None
    tile = SingleTile(places, raw)
    if not tile.ordinary:
        return None, None
    similarity = tile.positive_similarity
    logit_map = objective.first_map(strategy.prepare(Batch(similarity, **of_anchors)))
    if not has_form(type(logit_map)) or (places.mirrored and not (logit_map.uniform and logit_map.symmetric)):
        return None, logit_map
    scale = next(iter(logit_map.tensors()), None)
    detached = logit_map if scale is None else logit_map.detached()
    second_map = objective.second_map(detached)
    second = None if second_map is None else tile.copy()
    if (second is not None and second_map is not None and not second.read(second_map)) or not tile.read(detached):
        return None, logit_map
    closed = [
        objective.closed_form(statistics, Auxiliary(similarity, None if second is None else second.statistics[direction]))
        for direction, statistics in enumerate(tile.statistics)
    ]
    row_losses = closed[0][0] if len(closed) == 1 else (closed[0][0] + closed[1][0]) / 2
    step.engine = "tiled"
    step.row_losses.append((row_losses, None))
    step.traces += [partial(_trace, tile, detached, direction) for direction in range(len(closed))]
    learning = raw if scale is None else [scale, *raw]
    if not (torch.is_grad_enabled() and any(each.requires_grad for each in learning)):
        return reduced(row_losses, loss_fn.reduction), None
    loss: Tensor = Closed.apply(tile, closed, loss_fn.reduction, scale, *raw)  # type: ignore[no-untyped-call]
    return loss, None


@cache
def _closed(strategy: Any, objective: Any) -> bool:
    """Returns whether both say what this way needs to know, and no subclass has made it untrue."""
    claims = ((strategy, "needs_embeddings", "prepare"), (objective, "closed_form", "row_loss"))
    true = all(holds(*claim) for claim in claims)
    return true and not strategy.needs_embeddings and objective.closed_form is not Objective.closed_form


def _plain_rows(view_a: Tensor, view_b: Tensor | None, given: Mapping[str, Any]) -> list[Tensor] | None:
    """Returns all embeddings in the order of `PairLayout.only_block` where nothing is to be said about them, else None."""
    if type(view_a) not in _PLAIN or view_a.is_nested:
        return None
    raw = [view_a, view_b, *(given[name] for name, _ in _BEHIND if given[name] is not None)]
    dtype, dimension = view_a.dtype, view_a.shape[-1:]
    for each in raw:
        if type(each) not in _PLAIN or each.dtype is not dtype or not each.is_cpu or each.layout is not torch.strided:
            return None
        if each.is_nested or not each.numel():
            return None
    if given["hard_negatives"] is not None and raw[-1].ndim == 3 and raw[-1].shape[:1] == view_a.shape[:1]:
        raw[-1] = raw[-1].flatten(0, 1)
    if any(each.ndim != 2 or each.shape[1:] != dimension for each in raw):
        return None
    return raw if view_b is not None and view_a.shape == view_b.shape and dtype in FLOATS.dtypes else None


@lru_cache(maxsize=64)
def _places(layout: PairLayout, size: int, queued: int, extra: int) -> Places | None:
    """Returns where the roles of a call of this shape are in one tile, None where they are not."""
    found = layout.only_block(size, queued, extra) if holds(type(layout), "only_block", "directions") else None
    ends = tuple(accumulate(rows for rows in (size, size, queued, extra) if rows))
    return None if found is None else find_places(*found, ends)


def _of_anchors(loss_fn: ContrastiveLoss, given: Mapping[str, Any], size: int) -> dict[str, Tensor] | None:
    """Returns what is known of each anchor, by name; None where only the long way can say whether that is so."""
    found: dict[str, Tensor] = {}
    for name, value in given.items():
        if value is None:
            continue
        joins = loss_fn.layout.joins_views
        if name not in loss_fn.takes or "mask" in name:
            return None
        if name in ("labels", "index"):
            one = check_integers(name, value, _CPU, size)
            found[name] = torch.cat([one, one]) if joins else one  # type: ignore[list-item, assignment]
        elif name == "uncertainty":
            some = check_uncertainty(value, _CPU, size)
            if isinstance(some, tuple) is not joins:
                return None
            found[name] = torch.cat(some) if joins else some  # type: ignore[arg-type, assignment]
    return found


def _trace(tile: SingleTile, logit_map: LogitMap, direction: int) -> Trace:
    """Returns what the record says of a direction from."""
    ends = (tile.anchors, tile.candidates) if direction == 0 else (tile.candidates, tile.anchors)
    return Trace(Direction(anchors=ends[0], candidates=ends[1], roles=tile.places.roles), logit_map, tile.statistics[direction])
