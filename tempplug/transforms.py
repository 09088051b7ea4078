"""Whether a call runs where tensors may have no value that Python could read.

That is in transforms of `torch.func`, where a graph is traced (`torch.compile`, `torch.export`), and under FakeTensorMode. In
the first two the loss uses the dense engine on plain operations, reads no values under `torch.func.vmap` and in graphs, and
keeps no record. Fake tensors are refused outside of a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch._C import _are_functorch_transforms_active, _len_torch_dispatch_stack
from torch._C._functorch import TransformType, get_interpreter_stack
from torch._guards import detect_fake_mode

from tempplug.errors import ConfigError, TensorError

T = TypeVar("T")

dispatching: Callable[[], int] = _len_torch_dispatch_stack
"""Returns how many modes, FakeTensorMode among them, see every operation."""
transformed: Callable[[], bool] = _are_functorch_transforms_active
"""Returns whether any transform of `torch.func` is at work."""


def plain_only() -> bool:
    """Returns whether plain operations alone will do: in a transform of `torch.func`, and where a graph is traced."""
    return torch.compiler.is_compiling() or transformed()


def recomputing() -> bool:
    """Returns whether this code runs inside a backward pass, as the second computation of a checkpointed call does."""
    return torch._C._current_graph_task_id() != -1


# Not in the oldest releases of torch.
_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def may_be_recomputed() -> bool:
    """Returns whether a backward pass may compute this code again: checkpoints save tensors by hooks, or have no gradient."""
    return not torch.is_grad_enabled() or _top_hooks is None or _top_hooks(True) is not None


def refuse_fake(*arguments: object) -> None:
    """Raises `TensorError` where an argument, or one in a list, is a FakeTensor, or FakeTensorMode is active."""
    if not torch.compiler.is_compiling() and detect_fake_mode(arguments) is not None:
        raise TensorError(
            "an argument of the call is a FakeTensor, or FakeTensorMode is active: the loss needs tensors with values, so call "
            "it outside of that mode."
        )


def valueless() -> bool:
    """Returns whether Python cannot read values: under `torch.func.vmap`, and where a graph is traced."""
    return torch.compiler.is_compiling() or any(level.key() == TransformType.Vmap for level in get_interpreter_stack() or ())


def shared(make: Callable[..., T]) -> Callable[..., T]:
    """Returns the function as one whose results later calls share, but for what is made in a transform, a mode or a trace."""

    @lru_cache(maxsize=64)
    def cached(*arguments: Any) -> T:
        # Not of inference mode, because training will use it as well.
        with torch.inference_mode(False):
            return make(*arguments)

    def wrapper(*arguments: Any) -> T:
        # An export without Dynamo runs in a mode.
        alone = torch.compiler.is_dynamo_compiling() or transformed() or dispatching()
        return make(*arguments) if alone else cached(*arguments)

    wrapper.cache_info = cached.cache_info  # type: ignore[attr-defined]
    return wrapper


@contextmanager
def explained(layout: str, strategy: str) -> Iterator[None]:
    """Raises `ConfigError` in place of torch's error where layout or strategy read values that `torch.func.vmap` hides."""
    try:
        yield
    except RuntimeError as error:
        if not valueless() or "vmap" not in str(error):
            raise
        raise ConfigError(
            f"torch.func.vmap cannot run layout '{layout}' with strategy '{strategy}' here, because it has to look at values: "
            "labels, index and masks must not be among what it maps over, and strict=true must not be set. Else loop over the "
            "batches."
        ) from error
