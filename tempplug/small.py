"""Small batches with one positive an anchor: a call from raw embeddings to the loss in one tile, by closed forms.

The parts are those of `tempplug.loss`: strategy, objective and layout are asked for what they know in closed form, the engine's
single tile does the rest, and nothing is made that only larger or stranger calls need. Whatever does not fit, wrong arguments
among it, is left to the long way, which says what is wrong. A call is so short that each function it enters is felt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.claims import holds
from tempplug.engine.single import LARGEST, Closed, Places, SingleTile, find_places, has_form
from tempplug.inputs import FLOATS, check_integers, check_uncertainty
from tempplug.layouts import Direction, Masks, PairLayout
from tempplug.objectives.base import Objective
from tempplug.precision import plain_precision
from tempplug.record import Step, Trace
from tempplug.roles import Pairing, PairRoles
from tempplug.strategies.maps import LogitMap
from tempplug.transforms import transformed
from tempplug.types import Auxiliary, Batch

if TYPE_CHECKING:
    from tempplug.loss import ContrastiveLoss

_PLAIN = (Tensor, nn.Parameter)
_CPU = torch.device("cpu")
_ENGINES = ("auto", "tiled")
_NOTHING: dict[str, Tensor] = {}
_NO_SCALE = (None,)


def small_loss(
    loss_fn: ContrastiveLoss,
    view_a: Tensor | Sequence[Tensor],
    view_b: Tensor | Sequence[Tensor] | None,
    given: Mapping[str, Any],
    step: Step,
) -> tuple[Tensor | None, LogitMap | None]:
    """Returns the loss of a head; None where the call must go the long way, and then its logit map if that is made already.

    The loss is finite, because all its logits are.

    Args:
        loss_fn: the loss that was called.
        view_a: the argument of the call.
        view_b: likewise.
        given: the optional arguments by name, None where left out.
        step: where the pieces of the record go.
    """
    # From the dict, because looking for a module in its parent takes as long as an operation on tensors.
    modules: dict[str, Any] = loss_fn._modules
    strategy, objective = modules["strategy"], modules["objective"]
    if not (_is_plain(view_a) and _is_plain(view_b)) or not _closed(type(strategy), type(objective)) or transformed():  # type: ignore[arg-type]
        return None, None
    if torch.is_autocast_enabled("cpu"):
        with plain_precision("cpu"):
            return small_loss(loss_fn, view_a, view_b, given, step)
    raw: list[Tensor] = [view_a, view_b]  # type: ignore[list-item]
    shape, dtype = raw[0].shape, raw[0].dtype
    if raw[1].dtype is not dtype or len(shape) != 2 or 0 in shape or dtype not in FLOATS.dtypes:
        return None, None
    if loss_fn.engine not in _ENGINES or (loss_fn.training and strategy.observes) or objective.top:
        return None, None
    extras = {}
    for name, value in given.items():
        if value is not None:
            extras[name] = value
    places, of_anchors = None, _NOTHING
    if extras or loss_fn.gather:
        found = _read(loss_fn, extras, raw)
        if found is not None:
            places, of_anchors = found
    elif raw[1].shape == shape:
        places = _places(loss_fn.layout, shape[0], 0, 0)
    if places is None or (of_anchors and places.mirrored):
        return None, None
    tile = SingleTile(places, raw)
    if not tile.ordinary:
        return None, None
    similarity = tile.positive_similarity
    logit_map = objective.first_map(strategy.prepare(Batch(similarity, **of_anchors)))
    if not has_form(type(logit_map)) or (places.mirrored and not (logit_map.uniform and logit_map.symmetric)):
        return None, logit_map
    learned = logit_map.tensors()
    detached = logit_map.detached() if learned else logit_map
    second_map = objective.second_map(detached)
    second = None if second_map is None else tile.copy()
    if (second is not None and not second.read(second_map)) or not tile.read(detached):
        return None, logit_map
    for direction, statistics in enumerate(tile.statistics):
        auxiliary = Auxiliary(similarity, None if second is None else second.statistics[direction])
        tile.closed.append(objective.closed_form(statistics, auxiliary))
        step.traces.append(partial(_trace, tile, detached, direction))
    step.engine = "tiled"
    step.row_losses.append((tile.row_losses, None))
    loss: Tensor = Closed.apply(tile, loss_fn.reduction, *(learned or _NO_SCALE), *raw)  # type: ignore[no-untyped-call]
    return loss, None


def _is_plain(rows: object) -> bool:
    """Returns whether this is a dense tensor on the CPU, of no subclass."""
    return type(rows) in _PLAIN and not rows.is_nested and rows.is_cpu and rows.layout is torch.strided  # type: ignore[attr-defined]


@cache
def _closed(strategy: Any, objective: Any) -> bool:
    """Returns whether both say what this way needs to know, and no subclass has made it untrue."""
    claims = ((strategy, "needs_embeddings", "prepare"), (objective, "closed_form", "row_loss"))
    true = all(holds(*claim) for claim in claims)
    return true and not strategy.needs_embeddings and objective.closed_form is not Objective.closed_form


@lru_cache(maxsize=64)
def _places(layout: PairLayout, size: int, queued: int, hard: int) -> Places | None:
    """Returns where the roles of a call of this shape are in one tile, None where they are not."""
    found = layout.only_block(size, queued, hard) if holds(type(layout), "only_block", "directions") else None
    ends = tuple(accumulate(rows for rows in (size, size, queued, hard) if rows))
    return None if found is None else find_places(*found, ends)


@lru_cache(maxsize=8)
def _diagonals(rows: int, columns: int, left_out: int | None) -> tuple[Tensor, Tensor, Places | None]:
    """Returns the masks of positives and negatives [N, M] where row i is positive to candidate i, and where their roles are.

    Args:
        rows: N.
        columns: M, at least N.
        left_out: row i has candidate i + ``left_out`` that is neither; None where all others are negatives.
    """
    ignored = None if left_out is None else Pairing(((0, rows, left_out),))
    roles = PairRoles(anchors=rows, candidates=columns, device=_CPU, positives=Pairing(((0, rows, 0),)), ignored=ignored)
    pairs = roles.tile(slice(None), slice(None))
    return roles.positive(*pairs), roles.negative(*pairs), find_places(roles, False, (rows, rows + columns))


def _places_of_masks(positive: Tensor, negative: Tensor) -> Places | None:
    """Returns where the roles are that two masks [N, M] say, None where they are not such `_diagonals`.

    What `roles_of_masks` finds out for the long way by a dozen operations is two comparisons with masks that are there already.
    """
    rows, columns = positive.shape
    if rows > columns or rows * columns > LARGEST:
        return None
    positives, negatives, places = _diagonals(rows, columns, None)
    if not torch.equal(positive, positives):
        return None
    if not torch.equal(negative, negatives):
        left_out = int((positive[0] | negative[0]).view(torch.uint8).argmin())
        if left_out + rows > columns:
            return None
        _, negatives, places = _diagonals(rows, columns, left_out)
        if not torch.equal(negative, negatives):
            return None
    return places


def _read(
    loss_fn: ContrastiveLoss, extras: Mapping[str, Any], raw: list[Tensor]
) -> tuple[Places | None, dict[str, Tensor]] | None:
    """Returns where the roles are, and what is known of each anchor by name; None where only the long way can tell.

    Rows of a queue and hard negatives join the raw ones.
    """
    (size, dimension), layout = raw[0].shape, loss_fn.layout
    if loss_fn.gather and distributed.active():
        return None
    behind = {"queue": 0, "hard_negatives": 0}
    masks: list[Tensor] = []
    of_anchors: dict[str, Tensor] = {}
    for name, value in extras.items():  # in the order of the arguments, a queue before hard negatives
        if name not in loss_fn.takes:
            return None
        if name in behind:
            if not _is_plain(value) or value.dtype is not raw[0].dtype:
                return None
            rows = value.flatten(0, 1) if name == "hard_negatives" and value.ndim == 3 and len(value) == size else value
            if rows.ndim != 2 or rows.shape[1] != dimension or not len(rows):
                return None
            behind[name] = len(rows)
            raw.append(rows)
        elif name in ("positive_mask", "negative_mask"):
            if not _is_plain(value) or value.dtype is not torch.bool or value.shape != (size, len(raw[1])):
                return None
            masks.append(value)
        elif name == "uncertainty":
            some = check_uncertainty(value, _CPU, size)
            if isinstance(some, tuple) is not layout.joins_views:
                return None
            of_anchors[name] = torch.cat(some) if layout.joins_views else some  # type: ignore[arg-type, assignment]
        else:
            one = check_integers(name, value, _CPU, size)
            of_anchors[name] = torch.cat([one, one]) if layout.joins_views else one  # type: ignore[list-item, assignment]
    if type(layout) is Masks:
        fits = len(masks) == 2 and len(raw[1]) > 0 and raw[1].shape[1:] == (dimension,)
        return (_places_of_masks(*masks), of_anchors) if fits else None
    fits = raw[1].shape == (size, dimension)
    return (_places(layout, size, *behind.values()), of_anchors) if fits else None


def _trace(tile: SingleTile, logit_map: LogitMap, direction: int) -> Trace:
    """Returns what the record says of a direction from."""
    ends = (tile.anchors, tile.candidates) if direction == 0 else (tile.candidates, tile.anchors)
    return Trace(Direction(anchors=ends[0], candidates=ends[1], roles=tile.places.roles), logit_map, tile.statistics[direction])
