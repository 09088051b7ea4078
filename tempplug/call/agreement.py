"""What the processes of a gathered call must have in common: the loss, and the type and dimensions of each argument.

Where they differ, collectives would wait for each other, or mix up their bytes. It must not know engines.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from tempplug.call.memory import MOST_KINDS, Call
from tempplug.call.parts import Parts
from tempplug.distributed import Agreement
from tempplug.layouts import Views
from tempplug.negatives.base import joined_spec
from tempplug.options import format_spec
from tempplug.part import Part

_SETTING = ("reduction", "gather", "training", "torch.is_grad_enabled()", "the number of heads", "the device")
_LEADING = {"queue": "K", "hard_negatives": "H"}
_START = re.compile(r"initial_.+|.+_init")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def agreement_of(call: Call, views: Views, raw: Mapping[str, Any]) -> Agreement:
    """Returns what every process must have in common with this one in the call of one head.

    Args:
        call: of one head.
        views: the checked arguments of this process.
        raw: all arguments as the call has them, None for those that it has not.
    """
    # Each part has its options in a dictionary of its own, which is another where they were set again.
    parts, memory = call.parts, call.memory
    configured = parts.strategy, parts.objective, parts.layout, *parts.terms
    options = [getattr(component, "options", component) for component in configured]
    modes = parts.reduction, parts.gather, call.training, torch.is_grad_enabled(), call.heads, views.device.type
    key = (*map(id, options), modes, _kind(raw))
    if key not in memory.agreements:
        if len(memory.agreements) >= MOST_KINDS:
            memory.agreements.clear()
        facts = [*_facts_of_loss(parts), *zip(_SETTING, map(str, modes), strict=True), *_facts_of_rows(views, raw)]
        memory.agreements[key] = Agreement(tuple(facts)), options  # which keeps their numbers from being given to others
    return memory.agreements[key][0]


def _kind(argument: Any) -> Hashable:
    """Returns what the facts of an argument depend on: equal kinds have equal facts."""
    if isinstance(argument, Tensor):
        return argument.shape, argument.dtype, argument.requires_grad
    if isinstance(argument, Mapping):
        return tuple((name, _kind(value)) for name, value in argument.items())
    return tuple(map(_kind, argument)) if isinstance(argument, tuple | list) else argument


def _facts_of_loss(parts: Parts) -> list[tuple[str, str]]:
    specs = {
        "strategy": _spec(parts.strategy),
        "objective": _spec(parts.objective),
        "layout": parts.layout.spec(),
        "negatives": joined_spec(parts.terms) or "none",
    }
    # An option of a third party's may be an object that is shown by its address.
    return [(name, _ADDRESS.sub("", spec)) for name, spec in specs.items()]


def _spec(part: Part) -> str:
    """Returns the spec string without where learning starts, of which DDP and FSDP copy the first process's to the others."""
    compared = {name: value for name, value in part.options.items() if not _START.fullmatch(name)}
    return part.spec() if compared == part.options else format_spec(part.name, compared)


def _facts_of_rows(views: Views, raw: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the type and dimensions of each argument, as it is after the checks where these convert it."""
    names = ("view_a", "view_b", "queue", "hard_negatives", "hard_negative_mask", "targets")
    tensors = {name: raw.get(name) for name in names} | {"labels": views.labels, "index": views.index}
    if isinstance(given := raw.get("targets"), tuple | list):
        tensors |= {f"targets[{number}]": of_block for number, of_block in enumerate(given)}
    pair = views.uncertainty if isinstance(views.uncertainty, tuple) else None
    tensors |= {"uncertainty": None if pair else views.uncertainty}
    of_rows = "hard_negative_mask", *(("hard_negatives",) if views.hard_rows is not None else ())
    facts = [
        (name, _fact(name, tensor, 1 + (name in of_rows))) for name, tensor in tensors.items() if isinstance(tensor, Tensor)
    ]
    by_row = {name: {source: local for source, (local, _) in of.items()} for name, of in views.row_arguments.items()}
    if pair:
        by_row["uncertainty"] = dict(zip(("view_a", "view_b"), pair, strict=True))
    for name, of in by_row.items():
        facts.append((name, ", ".join(f"{_fact(source, tensor, 1)} of {source}" for source, tensor in of.items())))
    return facts


def _fact(name: str, tensor: Tensor, free: int) -> str:
    """Returns type and dimensions, such as ``float32 [B, 6] with gradient``; the first ones, 1 or 2, are ``free`` to differ."""
    leading = ["B", "k"] if free == 2 else [_LEADING.get(name, "B")]
    shape = ", ".join([*leading, *map(str, tensor.shape[free:])])
    gradient = " with gradient" if tensor.requires_grad and torch.is_grad_enabled() else ""
    return f"{str(tensor.dtype).removeprefix('torch.')} [{shape}]{gradient}"
