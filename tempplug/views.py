"""The arguments of a call of the loss, checked, as unit rows of all processes: what a layout works on.

It must not know objectives or engines, and of a strategy only what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tempplug import distributed
from tempplug.embeddings import unit_rows
from tempplug.errors import ShapeError
from tempplug.inputs import (
    check_embeddings,
    check_finite,
    check_hard_negatives,
    check_integers,
    check_mask,
    check_read,
    check_uncertainty,
    common_type,
)
from tempplug.layouts import PairLayout, Views
from tempplug.strategies.base import Strategy


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
    view_a: Tensor,
    view_b: Tensor | None,
    given: dict[str, Any],
    layout: PairLayout,
    strategy: Strategy,
    gather: bool,
    twice: bool = False,
) -> tuple[Views, list[Tensor]]:
    """Returns the views, and for every input that held rows without norm which rows those are.

    Args:
        view_a: [B, D] raw embeddings.
        view_b: [B, D] or [M, D] raw embeddings, or None.
        given: the optional arguments of the call by name, without those that were left out.
        layout: that will read the views.
        strategy: that will read some of the arguments.
        gather: whether candidates of all processes are wanted.
        twice: whether second derivatives are wanted.

    Raises:
        TensorError: an argument is no tensor, or one that the loss cannot take.
        ShapeError: shapes do not fit each other.
        ConfigError: neither layout nor strategy reads an argument that was given.
        NonFiniteError: embeddings hold NaN or infinite values (on CPU).
    """
    zero: list[Tensor] = []
    device = view_a.device if isinstance(view_a, Tensor) else torch.device("cpu")
    with distributed.refused_together(device, gather):
        check_read(given, strategy, layout)
        size, dimension = check_embeddings("view_a", view_a, device).shape
        if view_b is not None:
            check_embeddings("view_b", view_b, device, dimension)
            if view_b.shape[0] != size and layout.name != "masks":
                raise ShapeError(f"view_b has {view_b.shape[0]} rows where view_a has {size}; row i must pair with row i.")
        queue = check_embeddings("queue", given["queue"], device, dimension) if "queue" in given else None
        extra = check_hard_negatives(given.get("hard_negatives"), device, size, dimension)
        labels = check_integers("labels", given.get("labels"), device, size)
        index = check_integers("index", given.get("index"), device, size)
        uncertainty = check_uncertainty(given.get("uncertainty"), device, size)
        roles = (size, size if view_b is None else view_b.shape[0])
        masks = [check_mask(name, given.get(name), device, roles) for name in ("positive_mask", "negative_mask")]
        precision, (first, second, queue, extra) = common_type(view_a, view_b, queue, extra)
        queue = None if queue is None else _unit(twice, {"queue": queue}, zero)
        extra = None if extra is None else _unit(twice, {"hard_negatives": extra}, zero)
        own: dict[str, Tensor | None]
        if first is not None and second is not None and layout.joins_views:
            # One tensor from the start: half the passes over memory, and a small batch feels each of them.
            own = {"joined": _unit(twice, {"view_a": first, "view_b": second}, zero)}
        else:
            own = {
                name: None if each is None else _unit(twice, {name: each}, zero)
                for name, each in (("view_a", first), ("view_b", second))
            }
    # Nothing that this process alone could refuse comes after this line.
    rows = distributed.share_rows(size, device, gather)
    if extra is not None and rows.world > 1:
        extra = distributed.gather(extra, distributed.share_rows(extra.shape[0], device, True))
    views = Views(
        size=size,
        rows=rows,
        device=device,
        precision=precision,
        queue=queue,
        hard_negatives=extra,
        labels=labels,
        all_labels=None if labels is None else distributed.gather(labels, rows),
        index=index,
        uncertainty=uncertainty,
        positive_mask=masks[0],
        negative_mask=masks[1],
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
