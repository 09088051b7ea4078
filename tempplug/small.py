"""Small batches: a call from raw embeddings to the loss in one function, by closed forms.

The parts are those of `tempplug.loss`: strategy, objective and layout are asked for what they know in closed form, the engine
does the rest, and nothing is made that only larger or stranger calls need. Whatever does not fit, wrong arguments among it, is
left to the long way, which says what is wrong. A call is so short that each function it enters is felt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.claims import holds
from tempplug.engine.raw import LARGEST, RawBlock, apply_closed
from tempplug.engine.several_positives import SeveralPositives
from tempplug.engine.single import Places, SingleTile, find_places, has_form
from tempplug.inputs import FLOATS, check_integers, check_uncertainty
from tempplug.layouts import Direction, Labels, Masks, PairLayout
from tempplug.objectives.base import Objective
from tempplug.precision import plain_precision
from tempplug.record import Step, Trace
from tempplug.roles import Pairing, PairRoles
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap
from tempplug.transforms import fake_mode, transformed
from tempplug.types import Auxiliary, Batch, ClosedForm, RowStatistics

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
        given: the optional arguments by name, without those that were left out.
        step: where the pieces of the record go.
    """
    # From the dict, because looking for a module in its parent takes as long as an operation on tensors.
    modules: dict[str, Any] = loss_fn._modules
    strategy, objective = modules["strategy"], modules["objective"]
    plain = _is_plain(view_a) and (view_b is None or _is_plain(view_b))
    if not plain or not _closed(type(strategy), type(objective), loss_fn.training) or transformed() or fake_mode():  # type: ignore[arg-type]
        return None, None
    if torch.is_autocast_enabled("cpu"):
        with plain_precision("cpu"):
            return small_loss(loss_fn, view_a, view_b, given, step)
    if loss_fn.engine not in _ENGINES or objective.top or "observe" in strategy.__dict__:
        return None, None
    raw: list[Tensor] = [view_a] if view_b is None else [view_a, view_b]  # type: ignore[list-item]
    of_anchors = _NOTHING
    if given or view_b is None or loss_fn.gather:
        block, of_anchors = _read(loss_fn, given, raw) if _is_usual(raw) else (None, _NOTHING)
    else:
        places = _places_of_views(loss_fn.layout, view_a.shape, view_b.shape, view_a.dtype, view_b.dtype)  # type: ignore[union-attr]
        block = None if places is None else SingleTile(places, raw)
    if block is None or not block.ordinary or (of_anchors and block.mirrored):
        return None, None
    similarity = block.positive_similarity if block.counted is None else block.positive_similarity[block.counted]
    batch = Batch(similarity, **of_anchors) if of_anchors else Batch(similarity)
    logit_map = objective.first_map(strategy.prepare(batch))
    if not has_form(type(logit_map)) or (block.mirrored and not (logit_map.uniform and logit_map.symmetric)):  # type: ignore[arg-type]
        return None, logit_map
    learned = logit_map.tensors()
    detached = logit_map.detached() if learned else logit_map
    second_map, second = objective.second_map(detached), None
    if second_map is not None:
        second = block.copy() if isinstance(block, SingleTile) else None
        if second is None or not second.read(second_map):
            return None, logit_map
    if not block.read(detached):
        return None, logit_map
    closed: list[ClosedForm] = []
    ends = block.anchors, block.candidates
    for statistics in block.statistics:
        # Not the block, whose tiles nobody needs after the backward pass.
        step.traces.append(partial(_trace, ends[::-1] if closed else ends, block.roles, detached, statistics))
        auxiliary = Auxiliary(similarity, None if second is None else second.statistics[len(closed)])
        closed.append(objective.closed_form(statistics, auxiliary))
    block.close(closed)
    block.given = step.given
    step.engine = "tiled"
    step.row_losses.append((block.row_losses, block.counted))
    loss: Tensor = apply_closed(block, loss_fn.reduction, *(learned or _NO_SCALE), *raw)  # type: ignore[no-untyped-call]
    return loss, None


def _is_plain(rows: object) -> bool:
    """Returns whether this is a dense tensor on the CPU, of no subclass."""
    return type(rows) in _PLAIN and not rows.is_nested and rows.is_cpu and rows.layout is torch.strided  # type: ignore[attr-defined]


@cache
def _closed(strategy: Any, objective: Any, training: bool) -> bool:
    """Returns whether both classes say what this way needs to know, no subclass has made it untrue, and nobody observes."""
    if training and strategy.observe is not Strategy.observe:  # what `Strategy.observes` says of the class, asked once
        return False
    claims = ((strategy, "needs_embeddings", "prepare"), (objective, "closed_form", "row_loss"))
    true = all(holds(*claim) for claim in claims)
    return true and not strategy.needs_embeddings and objective.closed_form is not Objective.closed_form


@lru_cache(maxsize=64)
def _places(layout: PairLayout, size: int, queued: int, hard: int) -> Places | None:
    """Returns where the roles of a call of this shape are in one tile, None where they are not."""
    found = layout.only_block(size, queued, hard) if holds(type(layout), "only_block", "directions") else None
    sizes = tuple(rows for rows in (size, size, queued, hard) if rows)
    return None if found is None else find_places(*found, sizes)


@lru_cache(maxsize=64)
def _places_of_views(
    layout: PairLayout, shape: torch.Size, other: torch.Size, dtype: torch.dtype, other_dtype: torch.dtype
) -> Places | None:
    """Returns where the roles of two views are that nothing else comes with, None where one tile or the views do not do."""
    fits = shape == other and dtype is other_dtype and _is_matrix(shape, dtype)
    return _places(layout, shape[0], 0, 0) if fits else None


def _is_matrix(shape: torch.Size, dtype: torch.dtype) -> bool:
    """Returns whether these are embeddings, [B, D] of floating-point numbers."""
    return len(shape) == 2 and 0 not in shape and dtype in FLOATS.dtypes


def _is_usual(raw: list[Tensor]) -> bool:
    """Returns whether views are embeddings of one type."""
    return raw[-1].dtype is raw[0].dtype and _is_matrix(raw[0].shape, raw[0].dtype)


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
    return roles.positive(*pairs), roles.negative(*pairs), find_places(roles, False, (rows, columns))


def _places_of_masks(positive: Tensor, negative: Tensor) -> Places | None:
    """Returns where the roles are that two masks [N, M] say, None where they are not such `_diagonals`.

    What `roles_of_masks` finds out for the long way by a dozen operations is two comparisons with masks that are there already.
    """
    rows, columns = positive.shape
    if rows > columns or rows * columns > LARGEST:
        return None
    # Neither one square nor two: a look at two positives side by side saves making a diagonal to compare with.
    if columns % rows and bool(positive[0, 1]):
        return None
    # Of two squares the second one's own rows are what is mostly left out: the anchors' other selves.
    positives, negatives, places = _diagonals(rows, columns, rows if columns == 2 * rows else None)
    if not torch.equal(positive, positives):
        return None
    if torch.equal(negative, negatives):
        return places
    others = (positive[0] | negative[0]).view(torch.uint8)
    left_out = None if bool(others.all()) else int(others.argmin())
    if left_out is not None and left_out + rows > columns:
        return None
    _, negatives, places = _diagonals(rows, columns, left_out)
    return places if torch.equal(negative, negatives) else None


def _single(places: Places | None, raw: list[Tensor]) -> RawBlock | None:
    """Returns the tile of these places, where they were found."""
    return None if places is None else SingleTile(places, raw)


def _several(loss_fn: ContrastiveLoss, roles: PairRoles, raw: list[Tensor]) -> RawBlock | None:
    """Returns the block of labels or masks; None where it is large, lacks what a loss needs, or the objective has no form."""
    modules: dict[str, Any] = loss_fn._modules
    if roles.anchors * roles.candidates > LARGEST or not modules["objective"].several_positives:
        return None
    if not roles.positive_range[1] or not roles.fewest_negatives:
        return None
    return SeveralPositives(roles, tuple(each.shape[0] for each in raw), raw)


def _read(loss_fn: ContrastiveLoss, extras: Mapping[str, Any], raw: list[Tensor]) -> tuple[RawBlock | None, dict[str, Tensor]]:
    """Returns the block, None where only the long way can tell, and what is known of each anchor by name.

    Rows of a queue and hard negatives join the raw ones.
    """
    (size, dimension), layout, second = raw[0].shape, loss_fn.layout, raw[1] if len(raw) > 1 else None
    if loss_fn.gather and distributed.active():
        return None, _NOTHING
    modules: dict[str, Any] = loss_fn._modules
    behind = {"queue": 0, "hard_negatives": 0}
    masks: list[Tensor] = []
    of_anchors: dict[str, Tensor] = {}
    joined = layout.joins_views and second is not None
    for name, value in extras.items():  # in the order of the arguments, a queue before hard negatives
        if name not in layout.takes and name not in modules["strategy"].takes:
            return None, _NOTHING
        if name in behind:
            if not _is_plain(value) or value.dtype is not raw[0].dtype:
                return None, _NOTHING
            rows = value.flatten(0, 1) if name == "hard_negatives" and value.ndim == 3 and len(value) == size else value
            if rows.ndim != 2 or rows.shape[1] != dimension or not len(rows):
                return None, _NOTHING
            behind[name] = len(rows)
            raw.append(rows)
        elif name in ("positive_mask", "negative_mask"):
            if second is None or not _is_plain(value) or value.dtype is not torch.bool or value.shape != (size, len(second)):
                return None, _NOTHING
            masks.append(value)
        elif name == "uncertainty":
            some = check_uncertainty(value, _CPU, size)
            if isinstance(some, tuple) is not joined:
                return None, _NOTHING
            of_anchors[name] = torch.cat(some) if joined else some  # type: ignore[arg-type, assignment]
        else:
            one = check_integers(name, value, _CPU, size)
            of_anchors[name] = torch.cat([one, one]) if joined else one  # type: ignore[list-item, assignment]
    if type(layout) is Masks:
        fits = len(masks) == 2 and second is not None and len(second) > 0 and second.shape[1:] == (dimension,)
        return (_of_masks(loss_fn, masks[0], masks[1], raw) if fits else None), of_anchors
    if second is not None and second.shape != (size, dimension):
        return None, _NOTHING
    if type(layout) is Labels:
        labels = of_anchors.get("labels")
        if labels is None:
            return None, _NOTHING
        roles = Labels.roles(labels, labels, size, 0, behind["hard_negatives"])
        return _several(loss_fn, roles, raw), of_anchors
    return (None if second is None else _single(_places(layout, size, *behind.values()), raw)), of_anchors


def _of_masks(loss_fn: ContrastiveLoss, positive: Tensor, negative: Tensor, raw: list[Tensor]) -> RawBlock | None:
    """Returns the block of two masks; None where they contradict each other, or see `_several`."""
    places = _places_of_masks(positive, negative)
    if places is not None or bool((positive.view(torch.uint8) & negative.view(torch.uint8)).max()):
        return _single(places, raw)
    rows, columns = positive.shape
    roles = PairRoles(anchors=rows, candidates=columns, device=_CPU, positive_mask=positive, negative_mask=negative)
    return _several(loss_fn, roles, raw)


def _trace(ends: tuple[Tensor, ...], roles: PairRoles, logit_map: LogitMap, statistics: RowStatistics) -> Trace:
    """Returns what the record says of a direction from these anchors to these candidates."""
    return Trace(Direction(anchors=ends[0], candidates=ends[1], roles=roles), logit_map, statistics)
