"""Whether a call runs inside a transform of `torch.func`, where tensors may have no value that Python could look at.

There the loss takes its plainest way: the dense engine on plain operations, no look at values under `torch.func.vmap`, no
record and no state. Only what no transform can do is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch._C import _are_functorch_transforms_active
from torch._C._functorch import TransformType, get_interpreter_stack

from tempplug.errors import ConfigError

transformed: Callable[[], bool] = _are_functorch_transforms_active
"""Returns whether any transform of `torch.func` is at work."""


def vectorised() -> bool:
    """Returns whether one of them is `torch.func.vmap`."""
    return any(each.key() == TransformType.Vmap for each in get_interpreter_stack() or ())


@contextmanager
def explained(layout: str, strategy: str) -> Iterator[None]:
    """Says which layout and strategy look at values that `torch.func.vmap` does not have.

    Raises:
        ConfigError: in place of the error of torch, which is its cause.
    """
    try:
        yield
    except RuntimeError as error:
        if not vectorised() or "vmap" not in str(error):
            raise
        raise ConfigError(
            f"torch.func.vmap cannot run layout '{layout}' with strategy '{strategy}' here, because it has to look at values: "
            "labels, index and masks must not be among what it maps over, and strict=true must not be set. Else loop over the "
            "batches."
        ) from error
