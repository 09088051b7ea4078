"""The arguments of a call of the loss, checked, as unit rows of all processes: what a layout works on.

It must not know strategies, objectives or engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tempplug import distributed
from tempplug.embeddings import check_embeddings, check_finite, unit_rows
from tempplug.errors import ConfigError, ShapeError
from tempplug.layouts import PairLayout, Views


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


def build_views(
    view_a: Tensor, view_b: Tensor | None, given: dict[str, Any], layout: PairLayout, gather: bool, twice: bool = False
) -> tuple[Views, list[Tensor]]:
    """Returns the views, and for every input that held rows without norm which rows those are.

    Args:
        view_a: [B, D] raw embeddings.
        view_b: [B, D] or [M, D] raw embeddings, or None.
        given: the optional arguments of the call by name, None where left out.
        layout: that will read the views.
        gather: whether candidates of all processes are wanted.
        twice: whether second derivatives are wanted.

    Raises:
        ShapeError: shapes do not fit each other.
        ConfigError: the layout has no use for an argument that was given.
        NonFiniteError: embeddings hold NaN or infinite values (on CPU).
    """
    zero: list[Tensor] = []
    device = view_a.device if isinstance(view_a, Tensor) else torch.device("cpu")
    with distributed.refused_together(device, gather):
        for name, value in given.items():
            if value is not None and name not in layout.takes:
                raise ConfigError(f"layout '{layout.name}' has no use for {name}=.")
        check_embeddings("view_a", view_a)
        size, dimension = view_a.shape
        if view_b is not None:
            check_embeddings("view_b", view_b, dimension)
            if view_b.shape[0] != size and layout.name != "masks":
                raise ShapeError(f"view_b has {view_b.shape[0]} rows where view_a has {size}; row i must pair with row i.")
        labels = _per_row("labels", given["labels"], size)
        index = _per_row("index", given["index"], size)
        uncertainty = _uncertainty(given["uncertainty"], size)
        queue, extra = given["queue"], _flat_hard_negatives(given["hard_negatives"], size)
        if queue is not None:
            check_embeddings("queue", queue, dimension)
            queue = _unit(twice, {"queue": queue}, zero)
        if extra is not None:
            check_embeddings("hard_negatives", extra, dimension)
            extra = _unit(twice, {"hard_negatives": extra}, zero)
        own: dict[str, Tensor | None]
        if view_b is not None and layout.joins_views:
            # One tensor from the start: half the passes over memory, and a small batch feels each of them.
            own = {"joined": _unit(twice, {"view_a": view_a, "view_b": view_b}, zero)}
        else:
            own = {
                "view_a": _unit(twice, {"view_a": view_a}, zero),
                "view_b": None if view_b is None else _unit(twice, {"view_b": view_b}, zero),
            }
    # Nothing that this process alone could refuse comes after this line.
    rows = distributed.share_rows(size, device, gather)
    if extra is not None and rows.world > 1:
        extra = distributed.gather(extra, distributed.share_rows(extra.shape[0], device, True))
    views = Views(
        size=size,
        rows=rows,
        device=device,
        precision=view_a.dtype,
        queue=queue,
        hard_negatives=extra,
        labels=labels,
        all_labels=None if labels is None else distributed.gather(labels, rows),
        index=index,
        uncertainty=uncertainty,
        positive_mask=given["positive_mask"],
        negative_mask=given["negative_mask"],
        **own,
        **_of_all(own, rows),
    )
    return views, zero


def _of_all(own: dict[str, Tensor | None], rows: distributed.Rows) -> dict[str, Tensor | None]:
    """Returns the embeddings of all processes for each of this one's; the very same tensors where there is one process."""
    joined = own.get("joined")
    if joined is not None:
        if rows.world == 1:
            return {"all_joined": joined}
        size = rows.sizes[rows.rank]
        return {"all_joined": torch.cat([distributed.gather(joined[:size], rows), distributed.gather(joined[size:], rows)])}
    return {
        name: None if unit is None else distributed.gather(unit, rows)
        for name, unit in (("all_a", own["view_a"]), ("all_b", own["view_b"]))
    }


def _unit(twice: bool, named: dict[str, Tensor], zero: list[Tensor]) -> Tensor:
    """Returns the unit rows of these embeddings, one behind the other, and notes rows without norm in ``zero``."""
    unit, without_norm = unit_rows(*named.values(), twice=twice)
    if without_norm is not None:
        for name, raw in named.items():
            check_finite(name, raw)
        zero.append(without_norm)
    return unit


def _flat_hard_negatives(hard_negatives: Tensor | None, size: int) -> Tensor | None:
    if hard_negatives is None or hard_negatives.ndim != 3:
        return hard_negatives
    if hard_negatives.shape[0] != size:
        raise ShapeError(f"hard_negatives of shape {list(hard_negatives.shape)} must be [H, D] or [{size}, k, D].")
    return hard_negatives.flatten(0, 1)


def _per_row(name: str, values: Tensor | None, size: int) -> Tensor | None:
    if values is not None and tuple(values.shape) != (size,):
        raise ShapeError(f"{name} of shape {list(values.shape)} must have shape [{size}], one value a row of view_a.")
    return values


def _uncertainty(values: Tensor | tuple[Tensor, Tensor] | None, size: int) -> Tensor | tuple[Tensor, Tensor] | None:
    if values is None or isinstance(values, Tensor):
        return _per_row("uncertainty", values, size)
    if len(values) != 2:
        raise ShapeError(f"uncertainty holds {len(values)} tensors; wanted one, or a pair (of view_a, of view_b).")
    for value in values:
        _per_row("uncertainty", value, size)
    return (values[0], values[1])
