"""What a loss keeps between calls.

- `Unchanged`: versions of the labels and masks, which are not copied: backward passes and the record read them again.
- `Unlearned`: whether some parameter of the loss is in no optimizer.
"""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import TypeGuard

import torch
from torch import Tensor, nn

# `Unlearned` compares the encoder after every CALLS calls with a gradient, and stops after MOST_CALLS calls,
# because it costs a few microseconds in each.
CALLS, MOST_CALLS = 100, 1000
_MOST_NODES, _SOME = 1000, 1024
_READ_AGAIN = ("labels", "positive_mask", "negative_mask", "targets")


class Unchanged:
    """The labels and masks of one call that its layout reads, each with torch's count of changes in place."""

    __slots__ = ("_seen",)

    def __init__(self, arguments: Mapping[str, object], layout_takes: Set[str]) -> None:
        given = [(name, arguments[name]) for name in _READ_AGAIN if name in arguments and name in layout_takes]
        pairs = [(name, value if isinstance(value, tuple | list) else (value,)) for name, value in given]
        read_again = [(name, value) for name, values in pairs for value in values]
        # What is no tensor is refused later. Changes of tensors made in inference mode are possible in that mode alone, and
        # torch does not count them.
        self._seen = [
            (name, value, value._version)
            for name, value in read_again
            if isinstance(value, Tensor) and not value.is_inference()
        ]

    def watch(self, loss: Tensor) -> None:
        """Makes the backward pass of the loss check first."""
        if loss.requires_grad:
            loss.register_hook(lambda gradient: self.check("backward pass"))  # type: ignore[no-untyped-call]

    def check(self, reader: str) -> None:
        """Raises `RuntimeError`, as autograd does, where a tensor was changed in place since the call; ``reader`` needs it."""
        for name, tensor, version in self._seen:
            if tensor._version != version:
                raise RuntimeError(
                    f"{name} was changed in place after the loss was called, but the {reader} of that call needs it unchanged: "
                    f"change it later, or give the loss a copy, {name}.clone()."
                )


class Unlearned:
    """Watches the parameters of one loss until each has changed once, and warns of those that no optimizer has.

    Such a parameter has a gradient and stays the same, while a parameter of the encoder does not. Where neither changes, as
    with accumulated gradients, nothing is wrong. torch counts in ``_version`` how often a tensor was changed in place, as most
    optimizers do. Values are compared only where that count did not change, so that a device is waited for once in a hundred
    calls, and no more after the first change.
    """

    __slots__ = ("_calls", "_encoder", "_watched", "_with_gradient")

    def __init__(self) -> None:
        self._watched: dict[str, tuple[nn.Parameter, int, Tensor]] | None = None
        self._encoder: tuple[weakref.ref[nn.Parameter], int, Tensor] | None = None
        self._calls = self._with_gradient = 0

    def begin(self, loss_fn: nn.Module) -> bool:
        """Checks what changed since the last call; returns whether anything is left to watch."""
        if self._watched is None:
            self._watched = {
                name: (parameter, parameter._version, parameter.detach().clone())
                for name, parameter in loss_fn.named_parameters()
                if _readable(parameter)
            }
        else:
            self._watched = {name: seen for name, seen in self._watched.items() if seen[0]._version == seen[1]}
        self._calls += 1
        training = loss_fn.training and torch.is_grad_enabled()
        if training and self._encoder is not None and any(_has_gradient(parameter) for parameter, *_ in self._watched.values()):
            self._with_gradient += 1
            if self._with_gradient % CALLS == 0 and _changed(*self._encoder):
                self._warn(dict(loss_fn.named_parameters()))
                return False
        return bool(self._watched) and self._calls < MOST_CALLS

    def end(self, view: Tensor | Sequence[Tensor]) -> None:
        """Notes what the call itself changed, as a strategy does that keeps its parameter within bounds."""
        if self._watched is not None:
            self._watched = {
                name: (parameter, parameter._version, start) for name, (parameter, _, start) in self._watched.items()
            }
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
            for name, (parameter, _, start) in (self._watched or {}).items()
            # A parameter of the strategy that was replaced is no fault.
            if parameters.get(name) is parameter and _has_gradient(parameter) and torch.equal(parameter, start)
        ]
        if unlearned:
            warnings.warn(
                f"{', '.join(unlearned)} of the loss should be learned, but did not change in {self._with_gradient} calls "
                "with a gradient, and the encoder did: add loss_fn.parameters() to the optimizer, or call "
                "loss_fn.requires_grad_(False).",
                RuntimeWarning,
                stacklevel=8,
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
        following = {
            next_node for next_node, _ in (() if node is None else node.next_functions) if next_node is not None
        } - seen
        seen |= following
        nodes.extend(following)
    return None
