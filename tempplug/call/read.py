"""The arguments of a call of the loss, checked, as unit rows of all processes: what a layout works on.

It must not know engines, and of strategies and objectives only what they read.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.call.agreement import agreement_of
from tempplug.call.memory import Call, Memory, Plan
from tempplug.call.parts import Parts
from tempplug.distributed import Rows
from tempplug.embeddings import RowOrder, UnitRows, unit_groups
from tempplug.errors import ConfigError, ShapeError
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
    refuse_overlap,
)
from tempplug.layouts import Sizes, Views
from tempplug.layouts.base import plan_of
from tempplug.objectives.base import Objective
from tempplug.strategies.base import Strategy
from tempplug.targets import read_targets
from tempplug.transforms import refuse_fake, shared

_PLAIN = (Tensor, nn.Parameter)
# Arguments whose checks ask for nothing but type and shape, given that integers are int64.
_BY_SHAPE = frozenset(
    {"queue", "hard_negatives", "hard_negative_mask", "labels", "index", "positive_mask", "negative_mask", "targets"}
)
SCALE = 2
"""Temperatures above this are taken for scales, 1/temperature: with cosines, hardly any paper has one."""
# Of `Memory.checked`: that rows of the processes were seen to differ.
_MARKED = "marked"


def split_heads(
    view_a: Tensor | Sequence[Tensor], view_b: Tensor | Sequence[Tensor] | None, objective: Objective
) -> list[tuple[Tensor, Tensor | None]]:
    """Returns the pair of views of each projection head; one pair where the views are tensors.

    Raises:
        ShapeError: only one of them is a list, or the lists differ in length or are empty.
        ConfigError: the objective takes one head alone.
    """
    if isinstance(view_a, list | tuple):
        if not isinstance(view_b, list | tuple) or len(view_a) != len(view_b) or not view_a:
            raise ShapeError("view_a is a list of heads, so view_b must be a list of as many, at least one.")
        if len(view_a) > 1 and objective.observes:
            raise ConfigError(
                f"objective '{objective.name}' has one state for each example: it takes one head, not {len(view_a)}."
            )
        return list(zip(view_a, view_b, strict=True))
    if isinstance(view_b, list | tuple):
        raise ShapeError("view_b is a list of heads, so view_a must be a list of as many.")
    return [(view_a, view_b)]  # type: ignore[list-item]


def device_of(views: object) -> torch.device:
    """Returns the device of a view, or of the first of a list; the CPU where it is no tensor, which is refused later."""
    first = views[0] if isinstance(views, list | tuple) and views else views
    return first.device if isinstance(first, Tensor) else torch.device("cpu")


def read_embeddings(call: Call, view_a: Tensor, view_b: Tensor | None, arguments: dict[str, Any]) -> Views:
    """Returns the unit rows of one head of a call, and what describes them, of all processes; raises as a call."""
    parts, memory = call.parts, call.memory
    if not parts.gather:
        return _read_own(call, view_a, view_b, arguments)
    device = device_of(view_a)
    with distributed.refused_together(device, True):
        views = _read_own(call, view_a, view_b, arguments)
        if not distributed.active():
            return views
        groups = [values for values, _ in views.row_arguments.get("groups", {}).values()]
        of_anchors = {"labels": views.labels, "index": views.index, "groups": torch.cat(groups) if groups else None}
        for part in (parts.strategy, parts.objective):
            part.check_call({name: value for name, value in of_anchors.items() if value is not None})
        mark = 0 if _MARKED in memory.checked else distributed.mark_of(view_a)
        agreement = agreement_of(call, views, {"view_a": view_a, "view_b": view_b, **arguments})
    # Nothing that this process alone could refuse comes after this line.
    rows, of_hard = distributed.share_sizes(views.size, views.sizes().hard, device, mark, agreement)
    memory.checked.add(_MARKED)
    if views.hard_rows is not None:
        views.hard_rows = views.hard_rows + rows.offset
    views.rows, views.plan = rows, None
    if parts.gather == "ring":
        views.chunk, views.hard_sizes = rows.rank, of_hard.sizes
    else:
        _gather(views, of_hard)
    return views


def _gather(views: Views, of_hard: Rows) -> None:
    """Sets the rows of all processes, by one collective."""
    local = views.own.by_name()
    names = [name for name in local if name != "queue"]  # which is the same in every process
    of_negatives = {"hard_rows": views.hard_rows, "hard_mask": views.hard_mask}
    described = {"all_labels": views.labels, **of_negatives}
    fields = {name: value for name, value in described.items() if value is not None}
    arguments = [(values, source) for values in views.row_arguments.values() for source in values if source != "queue"]
    kinds = [*names, *fields, *(source for _, source in arguments)]
    rows = [of_hard if name == "hard_negatives" or name in of_negatives else views.rows for name in kinds]
    mine = [*(local[name] for name in names), *fields.values(), *(values[source][0] for values, source in arguments)]
    gathered = iter(distributed.gather_all(mine, rows))
    views.everyone = UnitRows.of_tensors(local | dict(zip(names, gathered, strict=False)))
    for name in fields:
        setattr(views, name, next(gathered))
    for values, source in arguments:
        values[source] = values[source][0], next(gathered)


def _read_own(call: Call, view_a: Tensor, view_b: Tensor | None, arguments: dict[str, Any]) -> Views:
    """Returns what `read_embeddings` does, of this process alone; of a kind of call the checks are made once."""
    parts, memory = call.parts, call.memory
    kind = None if call.plain else _kind(parts, view_a, view_b, arguments)
    plan, uncertainty = memory.plans.get(kind), None
    queue, labels, index = arguments.get("queue"), arguments.get("labels"), arguments.get("index")
    hard = owned = arguments.get("hard_negatives")
    if plan is None:
        plan, (view_a, view_b, queue, hard), labels, index, uncertainty = _check_and_plan(call, kind, view_a, view_b, arguments)
    elif hard is not None and hard.ndim == 3:
        hard = hard.flatten(0, 1)
    embeddings = [view_a]
    for tensor in (view_b, queue, hard):
        if tensor is not None:
            embeddings.append(tensor)
    units = unit_groups(plan.order, embeddings, call.plain or parts.engine == "dense")
    if units.without is not None:
        _check_rows_without_norm(call, units, arguments)
    device, precision = view_a.device, view_a.dtype
    views = Views(
        units, units, plan.rows, device, precision, plan.blocks, plan.hard_rows, None, labels, labels, index, uncertainty
    )
    if arguments:
        views.positive_mask, views.negative_mask = arguments.get("positive_mask"), arguments.get("negative_mask")
        if "targets" in arguments:  # here, before processes exchange anything, because one of them may refuse its own
            alone = not (parts.gather and distributed.active())
            views.targets = read_given_targets(parts, arguments["targets"], views.size, device, precision, alone)
        mask = arguments.get("hard_negative_mask")
        views.hard_mask = None if mask is None else mask.flatten()
        if parts.read_of_rows:
            rows = {"view_a": view_a, "view_b": view_b, "queue": queue, "hard_negatives": owned}
            views.row_arguments = read_row_arguments(parts, arguments, rows)
    return views


def _check_and_plan(
    call: Call, kind: Hashable, view_a: Tensor, view_b: Tensor | None, arguments: dict[str, Any]
) -> tuple[Plan, tuple[Any, ...], Tensor | None, Tensor | None, Any]:
    """Checks the first call of a kind, and has its plan kept; returns plan, embeddings, labels, index and uncertainty."""
    refuse_fake(view_a, view_b, *arguments.values())
    raw = {"view_a": view_a, "view_b": view_b, **arguments}
    embeddings, labels, index, uncertainty = _check(call.parts, call.memory, view_a, view_b, arguments)
    checked = dict(zip(("view_a", "view_b", "queue", "hard_negatives"), embeddings, strict=True)) | {
        "labels": labels,
        "index": index,
    }
    plan = _plan(call.parts, checked, arguments.get("hard_negatives"), device_of(view_a), "targets" in arguments)
    # What the checks convert to another type, they must see again.
    if kind is not None and arguments.keys() <= _BY_SHAPE and _same_types(raw, checked):
        call.memory.keep_plan(kind, plan)
    return plan, embeddings, labels, index, uncertainty


def _same_types(raw: Mapping[str, Tensor | None], checked: Mapping[str, Tensor | None]) -> bool:
    """Returns whether the checks converted no argument."""
    types = {name: value.dtype for name, value in checked.items() if value is not None}
    return all(value is None or types.get(name, value.dtype) is value.dtype for name, value in raw.items())


def _plan(parts: Parts, checked: Mapping[str, Tensor | None], hard: Tensor | None, device: torch.device, targets: bool) -> Plan:
    """Returns the plan of a call by its checked arguments; ``hard`` are the hard negatives as they were given."""
    layout, sizes = parts.layout, {name: 0 if tensor is None else tensor.shape[0] for name, tensor in checked.items()}
    owned = hard is not None and hard.ndim == 3
    # One tensor with a graph: the rows of both views, if these are the anchors; view_b, queue and hard negatives otherwise.
    groups = [("view_a", "view_b"), ("queue",), ("hard_negatives",)]
    if not layout.joins_views:
        together = [("view_b",), *groups[1:]] if parts.gather else [("view_b", "queue", "hard_negatives")]
        groups = [("view_a",), *together]
    groups = [tuple(name for name in group if sizes[name]) for group in groups]
    rows = distributed.rows_of_one(sizes["view_a"])
    of_layout = Sizes(
        rows.total, rows.total, 0, sizes["hard_negatives"], owned, sizes["queue"], bool(sizes["view_b"]), True, device, targets
    )
    hard_rows = None if hard is None or not owned else _rows_of_hard_negatives(hard.shape[0], hard.shape[1], device)
    order = RowOrder([group for group in groups if group], sizes)
    return Plan(order, rows, plan_of(layout, of_layout), hard_rows)


@shared
def _rows_of_hard_negatives(rows: int, of_each: int, device: torch.device) -> Tensor:
    """Returns the row that each hard negative belongs to, [B·k]."""
    return torch.arange(rows, device=device).repeat_interleave(of_each)


def _check_rows_without_norm(call: Call, units: UnitRows, arguments: Mapping[str, Any]) -> None:
    """Raises where the reason is that values are not finite, and warns of hard negatives that only fill up rows."""
    for name, tensor in zip(units.order.names, units.raw, strict=True):
        check_finite(name, tensor)
    if "hard_negatives" in arguments and units.without is not None:
        told = check_padding(units.without, arguments["hard_negatives"], arguments.get("hard_negative_mask"))
        if told:
            call.memory.warn("padding", told)


def _kind(parts: Parts, view_a: Tensor, view_b: Tensor | None, arguments: dict[str, Any]) -> Hashable:
    """Returns what the checks of shapes depend on; None where an argument is no ordinary tensor."""
    kind: list[Hashable] = [parts.layout, parts.strategy.name, parts.objective.name]
    tensors = {"view_a": view_a, **arguments} if view_b is None else {"view_a": view_a, "view_b": view_b, **arguments}
    for name, tensor in tensors.items():
        if type(tensor) not in _PLAIN or tensor.is_nested or tensor.layout is not torch.strided:
            return None
        kind += name, tensor.shape, tensor.dtype, tensor.device
    return tuple(kind)


def _check(parts: Parts, memory: Memory, view_a: Tensor, view_b: Tensor | None, arguments: dict[str, Any]) -> tuple[Any, ...]:
    """Raises what is wrong; returns the embeddings in one type, labels, index and uncertainty."""
    layout, read_of_rows = parts.layout, parts.read_of_rows
    _warn_of_scale(parts.strategy, memory)
    device = device_of(view_a)
    size, dimension = check_embeddings("view_a", view_a, device).shape
    if view_b is not None:
        check_embeddings("view_b", view_b, device, dimension)
        if view_b.shape[0] != size and layout.name != "masks":
            raise ShapeError(f"view_b has {view_b.shape[0]} rows where view_a has {size}; row i must pair with row i.")
    check_read(arguments, parts.strategy, layout, read_of_rows | parts.objective.takes)
    queue = check_embeddings("queue", arguments["queue"], device, dimension) if "queue" in arguments else None
    hard, mask = arguments.get("hard_negatives"), arguments.get("hard_negative_mask")
    extra = check_hard_negatives(hard, device, size, dimension)
    if mask is not None:
        if hard is None or hard.ndim != 3:
            raise ShapeError("hard_negative_mask= says which hard_negatives [B, k, D] there are: pass those.")
        check_mask("hard_negative_mask", mask, device, tuple(hard.shape[:2]))
    rows = check_rows(arguments, memory, device, size, size if view_b is None else view_b.shape[0], read_of_rows)
    return common_type(view_a, view_b, queue, extra), *rows


def _warn_of_scale(strategy: Strategy, memory: Memory) -> None:
    """Warns where a temperature is so high that it must be a scale: cosines divided by it are all but equal."""
    for name, value in strategy.options.items():
        if "temperature" in name and name != "temperature_max" and isinstance(value, float | int) and value > SCALE:
            memory.warn(
                "scale",
                f"{strategy.where(name, value)} divides cosines, which lie in [-1, 1], so that nearly nothing is left "
                f"of their differences: a scale of {value:g}, 1/temperature, is {name}={1 / value:g}.",
            )


def check_rows(
    arguments: Mapping[str, Any], memory: Memory, device: torch.device, size: int, candidates: int, read_of_rows: Set[str]
) -> tuple[Any, ...]:
    """Returns labels and index as int64, and uncertainty, each None where not given; raises as `inputs.check_tensor`."""
    positive, negative = (
        check_mask(name, arguments.get(name), device, (size, candidates)) for name in ("positive_mask", "negative_mask")
    )
    # Those of a CPU are compared by their layout in every call.
    if positive is not None and negative is not None and device.type != "cpu" and memory.may_read("overlap of masks", device):
        refuse_overlap(positive, negative)
    labels, index = arguments.get("labels"), arguments.get("index")
    if isinstance(index, Mapping) and "index" in read_of_rows:
        index = index.get("view_a")
    labels, index = check_integers("labels", labels, device, size), check_integers("index", index, device, size)
    return labels, index, check_uncertainty(arguments.get("uncertainty"), device, size)


def read_given_targets(
    parts: Parts, targets: object, size: int, device: torch.device, precision: torch.dtype, alone: bool = True
) -> dict[str, Tensor]:
    """Returns the targets of a call; the arguments and errors are those of `read_targets`."""
    of_pairs = parts.objective.pair_function is not None
    return read_targets(targets, parts.layout.blocks, size, device, precision, of_pairs, alone)


def read_row_arguments(
    parts: Parts, arguments: Mapping[str, Any], rows: Mapping[str, Tensor | None]
) -> dict[str, dict[str, tuple[Tensor, Tensor]]]:
    """Returns what terms on negatives and the strategy read of the rows, as of `tempplug.layouts.Views`, of one process."""
    names, row_arguments = parts.read_of_rows & arguments.keys(), {}
    sizes = {len(view) for view in (rows.get("view_a"), rows.get("view_b")) if view is not None}
    # What a strategy reads of anchors need not serve candidates that are no second view of them.
    of_anchors = rows if len(sizes) == 1 else {**rows, "view_b": None}
    for name in sorted(names):
        alone = name in parts.strategy.takes and isinstance(arguments[name], Tensor)
        row_arguments[name] = check_row_argument(name, arguments[name], of_anchors if alone else rows)
    for term in parts.terms:
        term.check_arguments(row_arguments, parts.layout)
    return {name: {source: (local[source], local[source]) for source in sorted(local)} for name, local in row_arguments.items()}
