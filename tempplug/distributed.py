"""Gathering over torch.distributed with the exact gradient; without a process group every function is the identity.

The processes are those of the default group, or of the group that `using_group` sets. Each has the loss of its local rows
against global columns, and returns the mean over its own rows. A gathered tensor therefore receives gradient from every rank's
loss, and the backward pass sums it over ranks. After DDP has averaged the gradients over ranks, loss and gradients equal those
of one process (a raw ``x.grad`` is world times its slice).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tempplug.errors import ConfigError, ProcessError, ShapeError, quoted
from tempplug.transforms import shared
from tempplug.types import Gather

# What a process announces in place of its number of rows when it cannot go on.
REFUSED = -1
# So many numbers of a batch tell it from another.
MARKING = 1 << 14


class LossGroup:
    """The processes that contrast their rows: a ``ProcessGroup``, or a one-dimensional ``DeviceMesh``; else `ConfigError`."""

    def __init__(self, group: Any, gather: Gather) -> None:
        if not gather:
            raise ConfigError("group= names the processes of gather=True, and gather is False.")
        if dist.is_available() and isinstance(group, dist.ProcessGroup):
            self.group = group
        elif getattr(group, "ndim", None) == 1 and hasattr(group, "get_group"):
            self.group = group.get_group()
        else:
            raise ConfigError(
                f"group={group!r} must be a torch.distributed.ProcessGroup or one dimension of a DeviceMesh, e.g. mesh['dp']."
            )

    def __deepcopy__(self, memo: Any) -> LossGroup:
        """Returns itself: copies of a loss have the same processes."""
        return self

    def __reduce__(self) -> Any:
        """Raises, as a group exists in this run alone."""
        raise ConfigError("a loss with group= cannot be pickled: its processes exist in this run alone. Save its state_dict().")


_processes: ContextVar[LossGroup | None] = ContextVar("processes", default=None)


@contextmanager
def using_group(processes: LossGroup | None) -> Iterator[None]:
    """Makes all functions of this module use these processes during the block; None means the default group."""
    token = _processes.set(processes)
    try:
        yield
    finally:
        _processes.reset(token)


def chosen_processes() -> LossGroup | None:
    """Returns the processes that `using_group` has set; None means the default group."""
    return _processes.get()


def _group() -> Any:
    processes = _processes.get()
    return None if processes is None else processes.group


@dataclass(slots=True)
class Rows:
    """How the rows of a global batch are distributed over the ranks.

    Attributes:
        sizes: rows of each rank.
        rank: of this process within the group; None as ``group`` means the default one.
        offset: global position of this rank's first row.
        total: rows of all ranks together.
        longest: most rows of a rank.
        even: whether all ranks have the same number.
    """

    sizes: tuple[int, ...]
    rank: int
    group: Any = None
    offset: int = field(init=False)
    total: int = field(init=False)
    world: int = field(init=False)
    longest: int = field(init=False)
    even: bool = field(init=False)

    def __post_init__(self) -> None:
        self.offset, self.total, self.world = sum(self.sizes[: self.rank]), sum(self.sizes), len(self.sizes)
        self.longest, self.even = max(self.sizes), min(self.sizes) == max(self.sizes)

    def times(self, count: int) -> Rows:
        """Returns the rows of a tensor that has ``count`` for each of these."""
        return Rows(tuple(count * size for size in self.sizes), self.rank, self.group)


@dataclass(frozen=True)
class Agreement:
    """What the calls of all processes must have in common.

    Attributes:
        facts: names and values in words, such as ``("view_a", "float32 [B, 6]")``.
        number: a number in which calls with other facts differ, the same in every process, of 63 bits.
    """

    facts: tuple[tuple[str, str], ...] = ()
    number: int = field(init=False)

    def __post_init__(self) -> None:
        digest = blake2b(repr(self.facts).encode(), digest_size=8).digest()
        object.__setattr__(self, "number", int.from_bytes(digest) >> 1)


OF_ROWS_ALONE = Agreement()


@shared
def rows_of_one(size: int) -> Rows:
    """Returns the rows of a process alone."""
    return Rows((size,), 0)


def active() -> bool:
    """Returns whether there is a process group of more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(_group()) > 1


def mark_of(rows: Tensor) -> int:
    """Returns a number in which different rows nearly always differ; 0 for rows without a finite one."""
    numbers = rows.detach().flatten()[:MARKING].double()
    mark = (numbers * torch.arange(1, len(numbers) + 1, device=rows.device)).sum()
    return int(mark.view(torch.int64)) if mark.isfinite() else 0


def share_rows(local: int, device: torch.device, gather: bool, agreement: Agreement = OF_ROWS_ALONE) -> Rows:
    """Returns how many rows every rank holds; one rank without gathering.

    The device must be one that the process group can communicate from.

    Raises:
        ProcessError: see `share_sizes`.
    """
    return share_sizes(local, 0, device, agreement=agreement)[0] if gather else rows_of_one(local)


def share_sizes(
    local: int, hard: int, device: torch.device, mark: int = 0, agreement: Agreement = OF_ROWS_ALONE
) -> tuple[Rows, Rows]:
    """Returns how many rows, and how many hard negatives, every rank holds, by one message of each rank.

    The message is sent from the CPU if the group has a backend for it, such as that of ``init_process_group()``; then no
    device is waited for. Only where calls differ, or a process refused its inputs, further messages say what each had.

    Args:
        local: rows of this process.
        hard: its hard negatives.
        device: a device that the process group can communicate from.
        mark: `mark_of` the rows if they must differ from those of other processes, else 0.
        agreement: what must be the same in all processes.

    Raises:
        ProcessError: another process refused its inputs, see `refused_together`, or its call is another, or it holds the same
            rows.
    """
    if not active():
        return rows_of_one(local), rows_of_one(hard)
    sizes, numbers, marks, calls = _announce([local, hard, mark, agreement.number], device)
    if REFUSED in sizes:
        raise ProcessError(_message_of_refused(_statements(device, {"facts": agreement.facts})))
    if calls.count(calls[0]) < len(calls):
        raise ProcessError(_message_of_different(_statements(device, {"facts": agreement.facts})))
    if len({announced for announced in marks if announced}) < len(marks) - marks.count(0):
        equal = _where(announced != 0 and marks.count(announced) > 1 for announced in marks)
        raise ProcessError(
            f"gather: {equal} of {len(sizes)} hold the same rows, which would count as "
            "negatives of themselves. With tensor, sequence or context parallelism pass group=, the processes that hold "
            "different data, such as mesh['dp'] of a DeviceMesh. With data parallelism give each process batches of its own, "
            "as by a DistributedSampler, or seeds of its own where data are random."
        )
    rank, group = dist.get_rank(_group()), _group()
    return Rows(tuple(sizes), rank, group), Rows(tuple(numbers), rank, group)


def _where(holds: Iterable[bool]) -> str:
    """Returns the processes for which something holds, as text."""
    ranks = [str(rank) for rank, applies in enumerate(holds) if applies]
    return f"process{'es' if len(ranks) > 1 else ''} {', '.join(ranks)}"


@contextmanager
def refused_together(device: torch.device, gather: bool) -> Iterator[None]:
    """Wraps the check of inputs: an error of this process also ends the call of processes that wait in `share_sizes`."""
    try:
        yield
    except Exception as error:
        if gather and active():
            # What the group itself cannot do is less of a reason than the error.
            with suppress(RuntimeError):
                _announce([REFUSED, 0, 0, 0], device)
                _statements(device, {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})
        raise


def _announce(numbers: Sequence[int], device: torch.device) -> list[list[int]]:
    """Returns the numbers that every process announces: of each, those of all ranks."""
    mine = torch.tensor(numbers, device=_device_of_messages(device))
    announced = [torch.empty_like(mine) for _ in range(dist.get_world_size(_group()))]
    dist.all_gather(announced, mine, _group())
    by_number: list[list[int]] = torch.stack(announced).T.tolist()
    return by_number


def _device_of_messages(device: torch.device) -> torch.device:
    """Returns the CPU if the group can send from it, else the device of the call, or where that is the CPU the group's."""
    backends = str(dist.get_backend_config(_group()))
    if "cpu:" in backends or device.type == "cpu":
        return torch.device("cpu" if "cpu:" in backends else backends.partition(":")[0])
    return device


def _statements(device: torch.device, statement: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what every process states of its call, its ``facts`` or the ``error`` that it raises, in the order of ranks."""
    text = bytearray(json.dumps(statement).encode())
    packed = torch.frombuffer(text, dtype=torch.uint8).to(_device_of_messages(device))
    (lengths,) = _announce([len(text)], device)
    everyone = _exchange([packed], [Rows(tuple(lengths), dist.get_rank(_group()), _group())])[0]
    return [json.loads(bytes(encoded.tolist())) for encoded in everyone.split_with_sizes(lengths)]


def _message_of_refused(statements: Sequence[dict[str, Any]]) -> str:
    """Returns the message of a process whose own inputs were right."""
    errors = [statement.get("error") for statement in statements]
    told = [f"{_where(other == error for other in errors)} raised {error}" for error in dict.fromkeys(errors) if error]
    return (
        f"gather: {_where(map(bool, errors))} of {len(errors)} refused its inputs, so no process has a loss: {'; '.join(told)}"
    )


def _message_of_different(statements: Sequence[dict[str, Any]]) -> str:
    """Returns the message of all processes where their calls differ: what each of them had."""
    calls = [dict(statement["facts"]) for statement in statements]
    different = []
    for name in dict.fromkeys(name for call in calls for name in call):
        values = [call.get(name) for call in calls]
        if values.count(values[0]) < len(values):
            had = [
                f"{'absent' if value is None else quoted(value)} in {_where(other == value for other in values)}"
                for value in dict.fromkeys(values)
            ]
            different.append(f"{name} is {' and '.join(had)}")
    return (
        f"gather: the calls of the {len(calls)} processes differ, so no process has a loss: {'; '.join(different)}. Every "
        "process must pass the same arguments, of the same types and dimensions, to an equal loss."
    )


def _exchange(parts: Sequence[Tensor], rows: Sequence[Rows]) -> list[Tensor]:
    """Returns the rows of all ranks of each part, by one collective over their bytes."""
    local = [_padded(tensor, tensor_rows) for tensor, tensor_rows in zip(parts, rows, strict=True)]
    packed = local[0] if len(local) == 1 else torch.cat(local)
    world = rows[0].world
    gathered = packed.new_empty(world * len(packed))
    _collective("all_gather_single", "all_gather_into_tensor")(gathered, packed, group=rows[0].group)
    ranks, results, start = gathered.view(world, -1), list[Tensor](), 0
    for tensor, tensor_rows, mine in zip(parts, rows, local, strict=True):
        stride = len(mine) // max(tensor_rows.longest, 1)
        pieces = [ranks[rank, start : start + size * stride] for rank, size in enumerate(tensor_rows.sizes)]
        whole = gathered if len(local) == 1 and tensor_rows.even else torch.cat(pieces)
        results.append(whole.view(tensor.dtype).view(tensor_rows.total, *tensor.shape[1:]))
        start += len(mine)
    return results


def _padded(tensor: Tensor, rows: Rows) -> Tensor:
    """Returns the bytes of a part, with zeros behind those of a rank with fewer rows: collectives take equal shapes."""
    if len(tensor) < rows.longest:
        tensor = torch.cat([tensor, tensor.new_zeros(rows.longest - len(tensor), *tensor.shape[1:])])
    return bytes_of(tensor)


def bytes_of(tensor: Tensor) -> Tensor:
    """Returns the bytes of a tensor, [n]."""
    flat = tensor.contiguous()
    # A tensor of one row is contiguous whatever its stride is, of which `view` wants 1.
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8)


def _by_rank(gradient: Tensor, rows: Rows) -> Tensor:
    """Returns the gradient of the rows of each rank, [W, longest * D], with zeros behind those of a rank with fewer rows."""
    if rows.even:
        return gradient.reshape(rows.world, -1)
    padded = gradient.new_zeros(rows.world, rows.longest, *gradient.shape[1:])
    for of_rank, piece in zip(padded, gradient.split_with_sizes(rows.sizes), strict=True):
        of_rank[: len(piece)] = piece
    return padded.flatten(1)


def _collective(name: str, before: str) -> Any:
    """Returns a collective by its name since PyTorch 2.13, or by the one before."""
    return getattr(dist, name, None) or getattr(dist, before)


class _Gather(torch.autograd.Function):
    """The rows of all ranks; backward, each rank receives the sum of its own rows' gradients (reduce-scatter)."""

    @staticmethod
    def forward(ctx: Any, rows: Sequence[Rows], *parts: Tensor) -> tuple[Tensor, ...]:
        results = _exchange(parts, rows)
        ctx.rows, ctx.dtypes = rows, [tensor.dtype for tensor in parts]
        ctx.mark_non_differentiable(
            *(result for result, tensor in zip(results, parts, strict=True) if not tensor.requires_grad)
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        needed = [place for place, needs_gradient in enumerate(ctx.needs_input_grad[1:]) if needs_gradient]
        packed = [_by_rank(gradients[place], ctx.rows[place]) for place in needed]
        wide = packed[0].contiguous() if len(packed) == 1 else torch.cat(packed, 1)
        local = wide.new_empty(wide.shape[1])
        _collective("reduce_scatter_single", "reduce_scatter_tensor")(local, wide.flatten(), group=ctx.rows[0].group)
        results: list[Tensor | None] = [None] * len(gradients)
        for place, mine in zip(needed, local.split_with_sizes([by_rank.shape[1] for by_rank in packed]), strict=True):
            rows, gradient = ctx.rows[place], gradients[place]
            rows_of_rank = mine.view(rows.longest, *gradient.shape[1:])[: rows.sizes[rows.rank]]
            results[place] = rows_of_rank.to(ctx.dtypes[place])
        return None, *results


def gather_all(parts: Sequence[Tensor], rows: Sequence[Rows]) -> list[Tensor]:
    """Returns the rows of all ranks of several tensors in rank order, with exact gradient, by one collective each way.

    Args:
        parts: each [B, ...], rows of this rank, of any type.
        rows: of each, from `share_sizes`.

    Raises:
        ShapeError: this rank's number of rows is not what it announced.
    """
    for tensor, tensor_rows in zip(parts, rows, strict=True):
        if len(tensor) != tensor_rows.sizes[tensor_rows.rank]:
            raise ShapeError(f"cannot gather {len(tensor)} rows where {tensor_rows.sizes[tensor_rows.rank]} were announced.")
    if rows[0].world == 1:
        return list(parts)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in parts):
        return list(_Gather.apply(rows, *parts))  # type: ignore[no-untyped-call]
    return _exchange(parts, rows)


def gather(local: Tensor, rows: Rows) -> Tensor:
    """Returns the rows of all ranks of one tensor, see `gather_all`."""
    return gather_all([local], [rows])[0]


def total(value: Tensor, rows: Rows, operation: Any = None) -> Tensor:
    """Returns the sum of a detached tensor over the ranks, elementwise, or another ``ReduceOp``."""
    if rows.world == 1:
        return value
    result = value.detach().clone()
    dist.all_reduce(result, dist.ReduceOp.SUM if operation is None else operation, rows.group)
    return result


def largest(value: Tensor, rows: Rows) -> Tensor:
    """Returns the largest of a detached tensor over the ranks, elementwise."""
    return value if rows.world == 1 else total(value, rows, dist.ReduceOp.MAX)
