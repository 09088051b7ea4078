"""Shared by all evaluations: evaluation mode during a block, and progress. It needs only torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

Progress = Callable[[float], None]
"""Called with the completed fraction."""


def silent(fraction: float) -> None:
    """Ignores the completed fraction."""


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Sets a module to evaluation mode during the block, and restores the mode of each of its parts afterwards."""
    modes = [(each, each.training) for each in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for each, training in modes:
            each.training = training
