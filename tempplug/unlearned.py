"""Parameters of a loss that should be learned and that no optimizer has: noticed during training, told once.

A parameter of the loss that has a gradient and stays the same, while a parameter of the encoder does not, is in no optimizer.
Where neither changes (accumulated gradients, a gradient scaler that skips steps) nothing is wrong. torch counts in ``_version``
how often a tensor was changed in place, as most optimizers do, also with a learning rate of 0: what it counted needs no look at
values, so that a device is waited for once in a hundred calls, and no more after the first change.
"""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn

CALLS = 100
"""In training that find a gradient at a parameter, before the encoder is looked at."""
MOST_CALLS = 1000
"""After which watching ends in any case, because it costs a few microseconds a call."""
_MOST_NODES = 1000
_SOME = 1024


class Unlearned:
    """What is watched of one loss, until each of its parameters has changed once, or long enough."""

    __slots__ = ("_calls", "_encoder", "_watched", "_with_gradient")

    def __init__(self) -> None:
        self._watched: dict[str, tuple[nn.Parameter, int, Tensor]] | None = None
        self._encoder: tuple[weakref.ref[nn.Parameter], int, Tensor] | None = None
        self._calls = self._with_gradient = 0

    def begin(self, loss_fn: nn.Module) -> bool:
        """Looks at what changed since the last call; returns whether anything is left to watch.

        Args:
            loss_fn: that is called.
        """
        if self._watched is None:
            self._watched = {
                name: (each, each._version, each.detach().clone())
                for name, each in loss_fn.named_parameters()
                if _readable(each)
            }
        else:
            self._watched = {name: seen for name, seen in self._watched.items() if seen[0]._version == seen[1]}
        self._calls += 1
        training = loss_fn.training and torch.is_grad_enabled()
        if training and self._encoder is not None and any(_has_gradient(each) for each, *_ in self._watched.values()):
            self._with_gradient += 1
            if self._with_gradient % CALLS == 0 and _changed(*self._encoder):
                self._warn(dict(loss_fn.named_parameters()))
                return False
        return bool(self._watched) and self._calls < MOST_CALLS

    def end(self, view: Tensor | Sequence[Tensor]) -> None:
        """Notes what the call itself changed, as a strategy that keeps its parameter within bounds does.

        Args:
            view: embeddings of the call, or those of several heads.
        """
        if self._watched is not None:
            self._watched = {name: (each, each._version, start) for name, (each, _, start) in self._watched.items()}
        embeddings = view if isinstance(view, Tensor) else view[0]
        if self._encoder is None and embeddings.grad_fn is not None:
            encoder = _parameter_of(embeddings)
            if encoder is None:
                self._watched = {}
            else:
                self._encoder = weakref.ref(encoder), encoder._version, _some(encoder).clone()

    def _warn(self, parameters: dict[str, nn.Parameter]) -> None:
        unlearned = [
            name
            for name, (each, _, start) in (self._watched or {}).items()
            # A parameter of the strategy that was replaced is no fault.
            if parameters.get(name) is each and _has_gradient(each) and torch.equal(each, start)
        ]
        if unlearned:
            warnings.warn(
                f"{', '.join(unlearned)} of the loss should be learned, but did not change in {self._with_gradient} calls "
                "with a gradient while the encoder did: add loss_fn.parameters() to the optimizer (docs/loss.md, "
                "docs/trainers.md), or keep the value on purpose with loss_fn.requires_grad_(False).",
                RuntimeWarning,
                stacklevel=7,
            )


def _readable(parameter: object) -> TypeGuard[nn.Parameter]:
    """Returns whether this is a parameter of no subclass, as parts on several devices are, and with a version."""
    return type(parameter) is nn.Parameter and not parameter.is_inference()


def _has_gradient(parameter: nn.Parameter) -> bool:
    return parameter.requires_grad and parameter.grad is not None


def _some(parameter: nn.Parameter) -> Tensor:
    """Returns some of its numbers, [at most `_SOME`]; none while FSDP has taken its memory away."""
    if parameter.untyped_storage().nbytes() < parameter.nbytes:
        return parameter.new_empty(0)
    return parameter.detach().flatten()[:_SOME]


def _changed(reference: weakref.ref[nn.Parameter], version: int, start: Tensor) -> bool:
    """Returns whether a parameter is still there and was changed; its numbers tell where its optimizer leaves no version."""
    parameter = reference()
    if parameter is None or parameter._version != version:
        return parameter is not None
    now = _some(parameter)
    return now.shape == start.shape and not torch.equal(now, start)


def _parameter_of(embeddings: Tensor) -> nn.Parameter | None:
    """Returns a parameter that the embeddings were computed from, one of the last layers; None where none is near."""
    nodes, seen = deque([embeddings.grad_fn]), {embeddings.grad_fn}
    for _ in range(_MOST_NODES):
        if not nodes:
            break
        node = nodes.popleft()
        variable = getattr(node, "variable", None)
        if _readable(variable):
            return variable
        following = {each for each, _ in (() if node is None else node.next_functions) if each is not None} - seen
        seen |= following
        nodes.extend(following)
    return None
