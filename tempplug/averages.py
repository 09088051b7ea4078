"""Moving averages of one number for every example of a data set, kept as logarithms so that nothing overflows.

Every process updates them from the rows of all processes, because DDP copies the buffers of the first to the others.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Protocol

import torch
from torch import Tensor

from tempplug import distributed
from tempplug.errors import ConfigError
from tempplug.inputs import check_within
from tempplug.options import Flag, Number
from tempplug.types import Batch

EMPTY = -torch.inf
"""ln of the average of an example that was in no batch yet."""
Size = Annotated[int, Number(at_least=1, at_most=1e10, integer=True, help="examples of the data set")]
PerView = Annotated[bool, Flag(help="whether anchors of view_b have their own state")]
Relative = Annotated[bool, Flag(help="whether s⁺ is subtracted from the similarities of negatives")]


class Owner(Protocol):
    """A strategy or an objective with a state for every example."""

    name: ClassVar[str]
    kind: ClassVar[str]
    size: int
    per_view: bool


def entries(owner: Owner, batch: Batch, state: Tensor) -> Tensor:
    """Returns the position of the state of each anchor, [N]: that of its example, plus ``size`` for anchors of view_b.

    Raises `ConfigError` without an index or for one outside the data set, and `TensorError` for another device.
    """
    index = batch.index
    if index is None:
        raise ConfigError(
            f"{owner.kind} '{owner.name}' needs the position of each row in the data set: pass index= to the loss."
        )
    check_within(owner, "index", index, state, f"size={owner.size}", owner.size)
    if not owner.per_view or batch.of_view_a is None:
        return index
    return torch.cat([index[: batch.of_view_a], index[batch.of_view_a :] + owner.size])


def moved(old: Tensor, log_values: Tensor, gamma: float) -> Tensor:
    """Returns ln((1-γ)·e^old + γ·e^value); the value where there is no old one."""
    log_decay = math.log1p(-gamma) if gamma < 1 else EMPTY
    return torch.where(old == EMPTY, log_values, torch.logaddexp(old + log_decay, log_values + math.log(gamma)))


def of_all_processes(*values: Tensor) -> list[Tensor]:
    """Returns the rows of all processes, without gradient."""
    rows = distributed.share_rows(len(values[0]), values[0].device, gather=True)
    return [distributed.gather(value.detach().contiguous(), rows) for value in values]


def places(examples: Tensor) -> Tensor:
    """Returns a number below P for each of P rows: the same for rows of one example, and different for others.

    It never reads how many examples there are, because that would wait for a device.

    >>> places(torch.tensor([7, 3, 7]))
    tensor([1, 0, 1])
    """
    return torch.searchsorted(examples.sort().values, examples)


def log_means(log_values: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Returns for each row [P] ln of the mean of e^value over the rows of its example, and its own share in their sum.

    ``place`` [P] comes from `places`. Rows whose value is -inf count for nothing, and the mean of an example without others is
    -inf.
    """
    # Through the largest of each example, so that nothing overflows.
    highest = torch.full_like(log_values, EMPTY).scatter_reduce(0, place, log_values, "amax")[place]
    counted = log_values > EMPTY
    powers, zeros = torch.exp(log_values - highest).where(counted, 0.0), torch.zeros_like(log_values)
    total, count = (zeros.index_add(0, place, summand)[place] for summand in (powers, counted.to(powers)))
    return highest + torch.log(total / count), powers / total
