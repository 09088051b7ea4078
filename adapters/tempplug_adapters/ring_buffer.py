"""Ring buffers of embeddings: MoCo's queue, NNCLR's support set, and the memory of past batches of texts.

All their data are part of ``state_dict``. With one process, no operation synchronises with the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss, distributed
from tempplug.embeddings import unit_rows
from tempplug.errors import ConfigError, ShapeError
from tempplug.options import Number

SIZE = Number(at_least=1, integer=True)


class RingBuffer(nn.Module):
    """The last K rows that were enqueued; the newest rows replace the oldest ones.

    It starts with random unit rows from PyTorch's global generator, as MoCo's and NNCLR's do. K need not be a multiple of the
    batch size: rows that do not fit at the end go to the beginning.

    Args:
        size: K, at least 1.
        dimension: D, at least 1.
        gather: with a process group, enqueue the rows of all processes in the order of ranks, so that equal buffers stay
            equal. DistributedDataParallel makes them equal when it wraps them; ``broadcast_buffers=False`` avoids sending them
            again at every step.

    Attributes:
        rows: [K, D].
        position: [], of the next row.

    Raises:
        ConfigError: a size is less than 1.

    >>> buffer = RingBuffer(3, 1)
    >>> buffer.enqueue(torch.tensor([[1.0], [2.0]]))
    >>> buffer.enqueue(torch.tensor([[3.0], [4.0]]))
    >>> buffer.rows.flatten(), buffer.position
    (tensor([4., 2., 3.]), tensor(1))
    """

    rows: Tensor
    position: Tensor

    def __init__(self, size: int, dimension: int, *, gather: bool = True) -> None:
        super().__init__()
        for name, value in (("size", size), ("dimension", dimension)):
            if value < 1:
                raise ConfigError(f"{name}={value} of a ring buffer must be at least 1.")
        self.gather = gather
        self.register_buffer("rows", nn.functional.normalize(torch.randn(size, dimension)))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def enqueue(self, rows: Tensor) -> None:
        """Replaces the oldest rows by these, unchanged; of more than K rows the last K are stored.

        Args:
            rows: [B, D], of any floating dtype.

        Raises:
            ShapeError: they have another dimension.
        """
        with distributed.refused_together(rows.device, self.gather):
            self._check("rows", rows)
        self._store({"rows": rows})

    def _store(self, values: dict[str, Tensor]) -> int:
        """Replaces the oldest entries of some buffers by values of this process, or of all; returns how many there are."""
        rows = values["rows"]
        call = distributed.Agreement((("rows of a ring buffer", f"{rows.dtype} [B, {rows.shape[1]}]"),))
        shares = distributed.share_rows(len(rows), rows.device, self.gather, call)
        gathered = distributed.gather_all(list(values.values()), [shares] * len(values))
        size, count = len(self.rows), len(gathered[0])
        passed = max(0, count - size)
        # The position stays on the device, because reading it would synchronise.
        places = (torch.arange(passed, count, device=self.position.device) + self.position) % size
        for name, new in zip(values, gathered, strict=True):
            buffer: Tensor = getattr(self, name)
            buffer.index_copy_(0, places, new[passed:].to(buffer.dtype))
        self.position.add_(count).remainder_(size)
        return count

    @torch.no_grad()
    def nearest(self, embeddings: Tensor) -> Tensor:
        """Returns for each embedding [B, D] the row of highest cosine similarity, [B, D]; the rows must be unit rows."""
        self._check("embeddings", embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.rows[(embeddings.to(self.rows.dtype) @ self.rows.T).argmax(1)]

    def _check(self, name: str, embeddings: Tensor) -> None:
        shape, dimension = list(embeddings.shape), self.rows.shape[1]
        if embeddings.ndim != 2 or shape[1] != dimension:
            raise ShapeError(f"{name} of shape {shape} must be [B, {dimension}] for this ring buffer.")


class PastBatches(RingBuffer):
    """The unit rows of past batches with the keys of their texts, the last K of them: ``queue=`` of a loss.

    It starts empty, without a dimension.

    Args:
        size: K, at least 1.
        gather: as of `RingBuffer`.

    Attributes:
        keys: [K] int64.
        stored: number of rows that were stored, at most K; the others are 0.

    Raises:
        ConfigError: the size is less than 1.

    Source: Wang et al. 2020, Cross-Batch Memory for Embedding Learning, section 3.
    """

    keys: Tensor

    def __init__(self, size: int, *, gather: bool) -> None:
        nn.Module.__init__(self)
        SIZE.check(f"queue_size={size}", size)
        self.gather, self.stored = gather, 0
        self.register_buffer("rows", torch.zeros(size, 0))
        self.register_buffer("keys", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))
        self.register_load_state_dict_pre_hook(_take_dimension)  # type: ignore[no-untyped-call]

    def get_extra_state(self) -> Tensor:
        """Returns how many rows are stored."""
        return torch.tensor(self.stored)

    def set_extra_state(self, state: Tensor) -> None:
        """Sets what `get_extra_state` returns."""
        self.stored = int(state)

    @torch.no_grad()
    def enqueue(self, rows: Tensor, keys: Tensor) -> None:  # type: ignore[override]
        """Replaces the oldest rows, as `RingBuffer.enqueue`.

        Args:
            rows: [B, D] raw embeddings, which are stored as unit rows.
            keys: [B] int64.

        Raises:
            ShapeError: they have another dimension than before.
        """
        rows = unit_rows(rows.detach())[0]
        if not self.rows.shape[1]:
            self.rows = rows.new_zeros(len(self.rows), rows.shape[1])
        with distributed.refused_together(rows.device, self.gather):
            self._check("rows", rows)
        self.stored = min(len(self.rows), self.stored + self._store({"rows": rows, "keys": keys}))


def _take_dimension(buffer: PastBatches, state_dict: dict[str, Any], prefix: str, *_: object) -> None:
    """Gives the rows the dimension of those that are loaded."""
    saved = state_dict.get(f"{prefix}rows")
    if saved is not None:
        buffer.rows = buffer.rows.new_zeros(len(buffer.rows), saved.shape[1], dtype=saved.dtype)


def add_past_batches(loss: ContrastiveLoss, size: int) -> PastBatches:
    """Gives a loss a memory of past batches, which is saved with it; `loss_with_past_batches` uses it.

    Raises:
        ConfigError: the size is less than 1; the layout takes no queue; no term reads ``keys=``, or a term reads more.
    """
    setting = f"queue_size={size}"
    if "queue" not in loss.layout.takes:
        raise ConfigError(f"{setting}: layout '{loss.layout.name}' takes no past batches; 'cross-view' does.")
    read = frozenset().union(*(term.takes for term in loss.terms))
    if "keys" not in read:
        raise ConfigError(f"{setting} needs negatives='same-key', which leaves out past embeddings of the anchor's own text.")
    if others := read - {"keys"}:
        raise ConfigError(f"{setting}: past batches have no {', '.join(sorted(others))}=, which a term on negatives reads.")
    past = PastBatches(size, gather=bool(loss.gather))
    loss.add_module("past_batches", past)
    return past


def loss_with_past_batches(
    loss: ContrastiveLoss, past: PastBatches, view_a: Any, view_b: Any, arguments: dict[str, Any]
) -> Tensor:
    """Returns the loss of a batch against its own and the past rows of view_b, and stores those of this batch.

    Args:
        loss: the loss.
        past: its memory.
        view_a: [B, D] anchors.
        view_b: [B, D] their positives.
        arguments: other arguments of the loss; ``keys`` are numbers of the texts of view_b, equal for equal texts.

    Raises:
        ConfigError: there are no ``keys``; or ``targets`` with hard negatives that belong to no row.
    """
    keys = arguments.get("keys")
    if keys is None or not isinstance(view_b, Tensor):
        raise ConfigError("queue_size= needs view_b, one tensor, and keys=, numbers of its texts, equal for equal ones.")
    by_view = {"view_a": keys, "view_b": keys} if isinstance(keys, Tensor) else dict(keys)
    with_past = dict(arguments)
    if past.stored:
        with_past["queue"] = past.rows[: past.stored].to(view_b.dtype)
        with_past["keys"] = {**by_view, "queue": past.keys[: past.stored]}
        if (targets := arguments.get("targets")) is not None:
            with_past["targets"] = _without_share(targets, past.stored, arguments.get("hard_negatives"))
    value: Tensor = loss(view_a, view_b, **with_past)
    with distributed.using_group(loss.group):
        past.enqueue(view_b, by_view["view_b"])
    return value


def _without_share(targets: Tensor, stored: int, hard: Tensor | None) -> Tensor:
    """Returns targets [B, M] with a 0 for each past row, which lie between the rows of view_b and the hard negatives."""
    if hard is not None and hard.ndim != 3:
        raise ConfigError("queue_size= takes targets= with hard_negatives [B, k, D], which belong to rows, not with [H, D].")
    rows = targets.shape[1] if hard is None else targets.shape[1] // (1 + hard.shape[1])
    return torch.cat([targets[:, :rows], targets.new_zeros(len(targets), stored), targets[:, rows:]], 1)
