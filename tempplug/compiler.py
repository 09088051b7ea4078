"""Leaves a method to Python alone where a model is compiled: a graph cannot hold what looks at values.

`torch.compiler.disable` does that, too, but it loads the compiler, which takes longer than all the rest of tempplug, and wraps
the function for good, which costs a small batch as much as an operation on tensors. So it is called where somebody compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

try:
    from torch._C._dynamo.eval_frame import (
        _FrameAction,
        _FrameExecStrategy,
        get_eval_frame_callback,
        set_code_exec_strategy,
    )

    _lean = True
except ImportError:  # private names, and another torch
    _lean = False

_F = TypeVar("_F", bound=Callable[..., Any])


def left_out(function: _F) -> _F:
    """Returns the function as one that no graph takes in; what it calls it calls through `alone`."""
    if not _lean:
        return _disabled(function)
    set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.DEFAULT))
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def alone(function: _F) -> _F:
    """Returns the function as one that compiles nothing while it runs; as it is where nobody compiles."""
    if not _lean or get_eval_frame_callback() is None:
        return function
    return _disabled(function)


def _disabled(function: _F) -> _F:
    disabled: _F = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return disabled
