"""Calls that a backward pass computes a second time, as `torch.utils.checkpoint` does, when a state has moved on.

A strategy or an objective that observes batches, or a term that counts, changes its state once a call. The second computation
must use what the first one made of the state before that change. It must not know strategies, objectives, terms or engines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from tempplug.embeddings import UnitRows
from tempplug.errors import ConfigError
from tempplug.layouts import Views
from tempplug.transforms import may_be_recomputed, recomputing, shared

# Calls between a forward pass and its backward pass: heads times whatever one step puts together.
REMEMBERED = 512
# Numbers that a mark has of each tensor.
PROJECTIONS = 8
# Rows of a mask that become floating point at once.
ROWS_AT_ONCE = 1024
# Relative differences of marks. Rows of the same call may differ in their last digits when they are computed again; calls whose
# rows are nearer to each other than `ALIKE` cannot be told apart by them. Integers and booleans are the same or not.
SAME, ALIKE, EXACT = 1e-3, 1e-5, 1e-12
ADVICE = "call the loss outside of torch.utils.checkpoint"


@dataclass(slots=True, eq=False)
class RememberedCall:
    """One call of one head in training.

    Attributes:
        kind: number of the head, shapes and types of all that the call read.
        rows: `PROJECTIONS` numbers of each floating-point tensor that it read, one tensor behind the other.
        integers: the same of each tensor of integers or booleans.
        made: what came of the state, by names that the caller chooses.
        recalled: whether a backward pass has computed this call again.
    """

    kind: Hashable
    rows: Tensor
    integers: Tensor
    made: dict[Hashable, Any] = field(default_factory=dict)
    recalled: bool = False


class Replay:
    """The last calls of one loss in training whose state moves, each recognised by all that it read."""

    def __init__(self) -> None:
        self._calls: deque[RememberedCall] = deque(maxlen=REMEMBERED)

    def call(self, views: Views, head: int) -> tuple[RememberedCall | None, bool]:
        """Returns the memory of a call, and whether it holds what the first computation of this call made.

        None where no backward pass will compute the call again.

        Raises:
            ConfigError: a backward pass computes a call again that is none of those remembered, or as much like two of them.
        """
        again = recomputing()
        if not (again or may_be_recomputed()):  # as in a training without checkpoints, which marks would slow down
            return None, False
        learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in _tensors(views))
        with torch.no_grad():
            call = _remembered(views, head)
        if again:
            first = self._first(call)
            if first is not None:
                first.recalled = True
                return first, True
            if learns:
                raise ConfigError(
                    "a backward pass computes a call of the loss again whose inputs are those of none of its last "
                    f"{REMEMBERED} calls, or of one that an earlier backward pass computed again already, so that the state of "
                    f"that call is not known: {ADVICE}, or let the checkpointed function compute the same embeddings again "
                    "(preserve_rng_state=True)."
                )
        else:
            # Between two backward passes lies a forward pass: calls that the former recalled are done.
            self._calls = deque((earlier for earlier in self._calls if not earlier.recalled), maxlen=REMEMBERED)
        self._calls.append(call)
        return call, False

    def _first(self, call: RememberedCall) -> RememberedCall | None:
        """Returns the remembered call that read the same; None where there is none."""
        similar = [earlier for earlier in self._calls if earlier.kind == call.kind]
        if not similar:
            return None
        differences = zip(_differences("rows", similar, call), _differences("integers", similar, call), strict=True)
        matches = sorted(
            ((of_rows, position) for position, (of_rows, of_integers) in enumerate(differences) if of_integers <= EXACT)
        )
        matches = [match for match in matches if match[0] <= SAME]
        if len(matches) > 1 and matches[1][0] <= ALIKE + 2 * matches[0][0]:
            raise ConfigError(
                "a backward pass computes a call of the loss again, and two calls before it read the same embeddings and "
                f"arguments, so that it is not known which of them this is: {ADVICE}, or run one backward pass for each."
            )
        return similar[matches[0][1]] if matches else None


def _differences(name: str, similar: list[RememberedCall], call: RememberedCall) -> list[float]:
    """Returns how much each call's marks differ from those of ``call``: the most of all tensors, each relative to its marks."""
    marks = getattr(call, name).view(-1, PROJECTIONS)
    if not marks.numel():
        return [0.0] * len(similar)
    scales = marks.abs().amax(1).clamp(min=torch.finfo(marks.dtype).tiny)
    others = torch.stack([getattr(earlier, name).view(-1, PROJECTIONS) for earlier in similar])
    differences: list[float] = ((others - marks).abs().amax(2) / scales).amax(1).tolist()
    return differences


def _remembered(views: Views, head: int) -> RememberedCall:
    """Returns a call with its marks; they are copies, so that nothing of the call is kept alive."""
    tensors = list(_tensors(views))
    rows = [_marks(tensor.detach()) for tensor in tensors if tensor.is_floating_point()]
    integers = [_marks(tensor) for tensor in tensors if not tensor.is_floating_point()]
    nothing = torch.empty(0, device=views.device)
    kind = (head, views.chunk, *((tensor.shape, tensor.dtype) for tensor in tensors), views.device)
    return RememberedCall(kind, torch.cat([nothing, *rows]), torch.cat([nothing.double(), *integers]))


def _tensors(views: Views) -> Iterator[Tensor]:
    """Yields every tensor of a call once."""
    values: list[object] = [getattr(views, attribute.name) for attribute in fields(views)]
    seen: set[int] = set()
    while values:
        value = values.pop()
        if isinstance(value, Mapping):
            values += value.values()
        elif isinstance(value, tuple | list):
            values += value
        elif isinstance(value, UnitRows):
            values += value.learning
        elif isinstance(value, Tensor) and id(value) not in seen:
            seen.add(id(value))
            yield value


def _marks(values: Tensor) -> Tensor:
    """Returns `PROJECTIONS` weighted sums of all numbers of a tensor: float32 of half precision, float64 of integers."""
    dtype = torch.promote_types(values.dtype, torch.float32) if values.is_floating_point() else torch.float64
    matrix = values.reshape(values.shape[0], -1) if values.numel() else values.new_zeros(1, 1)
    of_rows, of_columns = (_weights(count, axis, dtype, values.device) for axis, count in enumerate(matrix.shape))
    products = torch.cat([some.to(dtype) @ of_columns for some in torch.split(matrix, ROWS_AT_ONCE)])
    return (products * of_rows).sum(0)


@shared
def _weights(count: int, axis: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns fixed pseudo-random weights, [count, `PROJECTIONS`], without the global generator."""
    generator = torch.Generator("cpu").manual_seed(2 * count + axis)
    return torch.randn(count, PROJECTIONS, generator=generator, dtype=torch.float64, device="cpu").to(device, dtype)
