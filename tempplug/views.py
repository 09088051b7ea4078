"""The arguments of a call of the loss, checked, as unit rows of all processes: what a layout works on.

It must not know engines, and of strategies and objectives only what they read.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.agreement import call_of
from tempplug.distributed import Rows
from tempplug.embeddings import unit_groups
from tempplug.errors import ShapeError
from tempplug.inputs import (
    check_embeddings,
    check_finite,
    check_hard_negatives,
    check_integers,
    check_mask,
    check_padding,
    check_read,
    check_row_argument,
    check_uncertainty,
    common_type,
)
from tempplug.layouts import Views
from tempplug.memory import Memory, Setting
from tempplug.parts import Parts
from tempplug.strategies.base import Strategy
from tempplug.transforms import refuse_fake

_PLAIN = (Tensor, nn.Parameter)
# Arguments whose checks ask for nothing but type and shape, given that integers are int64.
_BY_SHAPE = frozenset({"queue", "hard_negatives", "hard_negative_mask", "labels", "index", "positive_mask", "negative_mask"})
SCALE = 10
"""Temperatures from here on are taken for scales, 1/temperature: with cosines, no paper has one above 5."""
# Beside the kinds: that rows of the processes were seen to differ.
_MARKED = "marked"


@dataclass(slots=True)
class Inputs:
    """The arguments of a call of one head, checked; the embeddings have one type."""

    view_a: Tensor
    view_b: Tensor | None
    queue: Tensor | None
    hard_negatives: Tensor | None
    labels: Tensor | None
    index: Tensor | None
    uncertainty: Tensor | tuple[Tensor, Tensor] | None = None


def split_heads(
    view_a: Tensor | Sequence[Tensor], view_b: Tensor | Sequence[Tensor] | None
) -> list[tuple[Tensor, Tensor | None]]:
    """Returns the pair of views of each projection head; one pair where the views are tensors.

    Raises:
        ShapeError: only one of them is a list, or the lists differ in length or are empty.
    """
    if isinstance(view_a, list | tuple):
        if not isinstance(view_b, list | tuple) or len(view_a) != len(view_b) or not view_a:
            raise ShapeError("view_a is a list of heads, so view_b must be a list of as many, at least one.")
        return list(zip(view_a, view_b, strict=True))
    if isinstance(view_b, list | tuple):
        raise ShapeError("view_b is a list of heads, so view_a must be a list of as many.")
    return [(view_a, view_b)]  # type: ignore[list-item]


def device_of(views: object) -> torch.device:
    """Returns the device of a view, or of the first of a list; the CPU where it is no tensor, which is refused later."""
    first = views[0] if isinstance(views, list | tuple) and views else views
    return first.device if isinstance(first, Tensor) else torch.device("cpu")


def views_of_embeddings(
    setting: Setting, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any]
) -> tuple[Views, Tensor | None]:
    """Returns the views of one head of a call, and which rows have no norm, None where all have one; raises as a call."""
    parts, memory = setting.parts, setting.memory
    if not parts.gather:
        return _own_views(setting, view_a, view_b, given)
    device = device_of(view_a)
    with distributed.refused_together(device, True):
        views, without = _own_views(setting, view_a, view_b, given)
        if not distributed.active():
            return views, without
        of_anchors = {"labels": views.labels, "index": views.index}
        for part in (parts.strategy, parts.objective):
            part.check_call({name: each for name, each in of_anchors.items() if each is not None})
        mark = 0 if _MARKED in memory.checked else distributed.mark_of(view_a)
        call = call_of(setting, views, {"view_a": view_a, "view_b": view_b, **given})
    # Nothing that this process alone could refuse comes after this line.
    hard = 0 if views.hard_negatives is None else views.hard_negatives.shape[0]
    rows, of_hard = distributed.share_sizes(views.size, hard, device, mark, call)
    memory.checked.add(_MARKED)
    if views.hard_rows is not None:
        views.hard_rows = views.hard_rows + rows.offset
    if parts.gather == "ring":
        views.chunk, views.hard_sizes = rows.rank, of_hard.sizes
    views.set_rows(rows)
    if parts.gather != "ring":
        _gather(views, of_hard)
    return views, without


def _gather(views: Views, of_hard: Rows) -> None:
    """Sets the rows of all processes, by one collective."""
    view_a, view_b = (views.view_a, views.view_b) if views.joined is None else views.joined.split_with_sizes([views.size] * 2)
    of_views = {"all_a": view_a, "all_b": view_b, "all_labels": views.labels}
    of_negatives = {"hard_negatives": views.hard_negatives, "hard_rows": views.hard_rows, "hard_mask": views.hard_mask}
    parts = {name: each for name, each in (of_views | of_negatives).items() if each is not None}
    # A queue is the same in every process.
    arguments = [(values, part) for values in views.row_arguments.values() for part in values if part != "queue"]
    rows = [of_hard if name in of_negatives else views.rows for name in (*parts, *(part for _, part in arguments))]
    found = distributed.gather_all([*parts.values(), *(values[part][0] for values, part in arguments)], rows)
    for name, each in zip(parts, found, strict=False):
        setattr(views, name, each)
    for (values, part), each in zip(arguments, found[len(parts) :], strict=True):
        values[part] = values[part][0], each
    if views.joined is not None and views.all_a is not None and views.all_b is not None:
        views.all_joined = torch.cat([views.all_a, views.all_b])


def _own_views(setting: Setting, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any]) -> tuple[Views, Tensor | None]:
    """Returns what `views_of_embeddings` does, of this process alone."""
    parts, inputs = setting.parts, _inputs(setting, view_a, view_b, given)
    size, hard = view_a.shape[0], given.get("hard_negatives")
    views = Views(
        size=size,
        rows=distributed.rows_of_one(size),
        device=view_a.device,
        precision=inputs.view_a.dtype,
        labels=inputs.labels,
        all_labels=inputs.labels,
        index=inputs.index,
        uncertainty=inputs.uncertainty,
        positive_mask=given.get("positive_mask"),
        negative_mask=given.get("negative_mask"),
    )
    without = _normalise(parts, inputs, views, setting.plain)
    if without is not None:
        for name in ("view_a", "view_b", "queue", "hard_negatives"):
            if getattr(inputs, name) is not None:
                check_finite(name, getattr(inputs, name))
        if hard is not None:
            told = check_padding(without, hard, given.get("hard_negative_mask"))
            if told:
                setting.memory.warn("padding", told)
    if hard is not None and hard.ndim == 3:
        views.hard_rows = torch.arange(hard.shape[0], device=views.device).repeat_interleave(hard.shape[1])
        mask = given.get("hard_negative_mask")
        views.hard_mask = None if mask is None else mask.flatten()
    if parts.terms:
        rows = {"view_a": inputs.view_a, "view_b": inputs.view_b, "queue": inputs.queue, "hard_negatives": hard}
        views.row_arguments = read_row_arguments(parts, given, rows)
    return views, without


def _normalise(parts: Parts, inputs: Inputs, views: Views, plain: bool) -> Tensor | None:
    """Sets the unit rows of the views; returns which rows of all have no norm, None where all have one."""
    view_a, view_b, queue, hard = inputs.view_a, inputs.view_b, inputs.queue, inputs.hard_negatives
    joins = view_b is not None and parts.layout.joins_views
    groups = [[view_a]] if view_b is None else [[view_a, view_b]] if joins else [[view_a], [view_b]]
    others = [each for each in (queue, hard) if each is not None]
    # Rows of a group are one tensor: fewer passes over memory, each of which takes time of a small batch.
    together = view_b is not None and not joins and not parts.gather
    if together:
        groups[1] += others
    else:
        groups += [[each] for each in others]
    (first, *rest), without = unit_groups(groups, parts.engine == "dense", plain)
    if together and others:
        views.candidates = rest[0]
        rest = list(rest[0].split_with_sizes([each.shape[0] for each in groups[1]]))
    if joins:
        views.joined = views.all_joined = first
    else:
        views.view_a = views.all_a = first
        if view_b is not None:
            views.view_b = views.all_b = rest.pop(0)
    views.queue = None if queue is None else rest.pop(0)
    views.hard_negatives = None if hard is None else rest.pop(0)
    return without


def _inputs(setting: Setting, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any]) -> Inputs:
    """Returns the arguments of a call, checked; of a kind of call once, while graphs and transforms keep nothing."""
    parts, memory, hard = setting.parts, setting.memory, given.get("hard_negatives")
    kind = None if setting.plain else _kind(parts, view_a, view_b, given)
    if kind is not None and kind in memory.checked:
        hard = hard if hard is None or hard.ndim == 2 else hard.flatten(0, 1)
        return Inputs(view_a, view_b, given.get("queue"), hard, given.get("labels"), given.get("index"))
    refuse_fake(view_a, view_b, *given.values())
    inputs = _check(parts, memory, view_a, view_b, given)
    raw = {"view_a": view_a, "view_b": view_b, **given}
    # What the checks convert to another type, they must see again.
    by_shape = kind is not None and given.keys() <= _BY_SHAPE
    if by_shape and all(each is None or getattr(inputs, name, each).dtype is each.dtype for name, each in raw.items()):
        memory.check_passed(kind)
    return inputs


def _kind(parts: Parts, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any]) -> Hashable:
    """Returns what the checks of shapes depend on; None where an argument is no ordinary tensor."""
    kind: list[Hashable] = [parts.layout, parts.strategy.name, parts.objective.name]
    for name, each in {"view_a": view_a, "view_b": view_b, **given}.items():
        if each is not None:
            if type(each) not in _PLAIN or each.is_nested or each.layout is not torch.strided:
                return None
            kind += name, each.shape, each.dtype, each.device
    return tuple(kind)


def _check(parts: Parts, memory: Memory, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any]) -> Inputs:
    """Raises what is wrong; returns the arguments in their types."""
    layout, read_by_terms = parts.layout, parts.read_by_terms
    _warn_of_scale(parts.strategy, memory)
    device = device_of(view_a)
    size, dimension = check_embeddings("view_a", view_a, device).shape
    if view_b is not None:
        check_embeddings("view_b", view_b, device, dimension)
        if view_b.shape[0] != size and layout.name != "masks":
            raise ShapeError(f"view_b has {view_b.shape[0]} rows where view_a has {size}; row i must pair with row i.")
    check_read(given, parts.strategy, layout, read_by_terms | parts.objective.takes)
    queue = check_embeddings("queue", given["queue"], device, dimension) if "queue" in given else None
    hard, mask = given.get("hard_negatives"), given.get("hard_negative_mask")
    extra = check_hard_negatives(hard, device, size, dimension)
    if mask is not None:
        if hard is None or hard.ndim != 3:
            raise ShapeError("hard_negative_mask= says which hard_negatives [B, k, D] there are: pass those.")
        check_mask("hard_negative_mask", mask, device, tuple(hard.shape[:2]))
    rows = check_rows(given, device, size, size if view_b is None else view_b.shape[0], read_by_terms)
    return Inputs(*common_type(view_a, view_b, queue, extra), *rows)


def _warn_of_scale(strategy: Strategy, memory: Memory) -> None:
    """Warns where a temperature is so high that it must be a scale: cosines divided by it are all but equal."""
    for name, value in strategy.options.items():
        if "temperature" in name and name != "temperature_max" and isinstance(value, float | int) and value >= SCALE:
            memory.warn(
                "scale",
                f"{strategy.where(name, value)} divides cosines, which lie in [-1, 1], so that nearly nothing is left "
                f"of their differences: a scale of {value:g}, 1/temperature, is {name}={1 / value:g}.",
            )


def check_rows(
    given: Mapping[str, Any], device: torch.device, size: int, candidates: int, read_by_terms: Set[str]
) -> tuple[Any, ...]:
    """Returns labels and index as int64, and uncertainty, each None where not given; raises as `inputs.check_tensor`."""
    for name in ("positive_mask", "negative_mask"):
        check_mask(name, given.get(name), device, (size, candidates))
    labels, index = given.get("labels"), given.get("index")
    if isinstance(index, Mapping) and "index" in read_by_terms:
        index = index.get("view_a")
    labels, index = check_integers("labels", labels, device, size), check_integers("index", index, device, size)
    return labels, index, check_uncertainty(given.get("uncertainty"), device, size)


def read_row_arguments(
    parts: Parts, given: Mapping[str, Any], rows: Mapping[str, Tensor | None]
) -> dict[str, dict[str, tuple[Tensor, Tensor]]]:
    """Returns what terms on negatives read of the rows, as of `tempplug.layouts.Views`, of one process; they check it."""
    names = parts.read_by_terms & given.keys()
    found = {name: check_row_argument(name, given[name], rows) for name in sorted(names)}
    for term in parts.terms:
        term.check_arguments(found, parts.layout)
    return {name: {part: (local[part], local[part]) for part in sorted(local)} for name, local in found.items()}
