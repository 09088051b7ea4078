"""What a graph of `torch.compile` or `torch.export` holds of the loss, and what stays outside of it, in Python.

Inside are blocks of all pairs at once, as plain operations that a compiler fuses; outside is what reads values: labels, masks,
strategies and terms that learn from batches, and the tiles of large blocks. `torch.compiler.disable` would load the compiler,
which takes longer than all the rest of tempplug, and costs a small batch as much as an operation on tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from tempplug import distributed
from tempplug.call.parts import Parts

try:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

    _lean = True
except ImportError:  # private names, and another torch
    _lean = False

_TRACES = hasattr(torch.compiler, "is_exporting")  # from torch 2.7 on
LARGEST, LARGEST_ON_CPU = 1 << 22, 1 << 15
"""Pairs of a block that a graph takes in with ``engine="auto"``.

Compiled for a CPU (AMD EPYC, one thread, sizes that vary, D = 128, calls one behind the other), ``two-view`` takes 1.07, 1.16,
1.33, 1.47, 1.82 and 1.95 times as long as uncompiled for 32, 64, 128, 256, 512 and 1024 rows, and ``cross-view`` 1.07, 1.04,
1.08, 1.16, 1.11 and 1.16 times. An export, which has to be a graph, takes in `LARGEST`.
"""
OUTSIDE = (
    "this call of the loss stays outside of graphs, as do engine='tiled' and 'triton', 'auto' with more than 32,768 pairs on a "
    "CPU or 4 million elsewhere ('dense' takes any number), layouts 'labels' and 'masks', targets=, positives=keys, gather "
    "over processes, and strategies, objectives or terms in training that learn from every batch"
)

F = TypeVar("F", bound=Callable[..., Any])


def takes_in(
    parts: Parts,
    training: bool,
    view_a: Tensor | Sequence[Tensor],
    view_b: Tensor | Sequence[Tensor] | None,
    arguments: dict[str, Any],
) -> bool:
    """Returns whether a graph holds a call of the loss: its roles follow from sizes, and its block is small or dense."""
    layout = parts.layout
    observes = training and any(part.observes for part in (parts.strategy, parts.objective, *parts.terms))
    if not (_TRACES and layout.by_position) or "targets" in arguments or observes or (parts.gather and distributed.active()):
        return False
    candidates = [view_b, arguments.get("queue"), arguments.get("hard_negatives")]
    of_one_head = [value if isinstance(value, Tensor) else value[0] for value in (view_a, *candidates) if value is not None]
    rows, *others = [tensor.shape[:-1].numel() for tensor in of_one_head]
    pairs = 2 * rows * (rows + sum(others)) if layout.joins_views else rows * sum(others)
    largest = LARGEST_ON_CPU if of_one_head[0].device.type == "cpu" and not torch.compiler.is_exporting() else LARGEST
    return parts.engine == "dense" or (parts.engine == "auto" and pairs <= largest)


def stays_outside(reason: str) -> Callable[[F], F]:
    """Returns a decorator for functions that stay outside of graphs, uncompiled; ``fullgraph=True`` reports the reason."""

    def decorate(function: F) -> F:
        if not _lean:
            why = {"reason": reason} if _TRACES else {}
            disabled: F = torch.compiler.disable(function, **why)  # type: ignore[no-untyped-call]
            return disabled
        set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
        return function

    return decorate
