"""A ring buffer of embeddings: MoCo's queue and NNCLR's support set.

All its data are part of ``state_dict``. With one process, no operation synchronises with the device.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.errors import ConfigError, ShapeError


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
        call = distributed.Agreement((("rows of a ring buffer", f"{rows.dtype} [B, {rows.shape[1]}]"),))
        rows = distributed.gather(rows, distributed.share_rows(len(rows), rows.device, self.gather, call))
        size, count = len(self.rows), len(rows)
        passed = max(0, count - size)
        # The position stays on the device, because reading it would synchronise.
        places = (torch.arange(passed, count, device=self.position.device) + self.position) % size
        self.rows.index_copy_(0, places, rows[passed:].to(self.rows.dtype))
        self.position.add_(count).remainder_(size)

    @torch.no_grad()
    def nearest(self, embeddings: Tensor) -> Tensor:
        """Returns for each embedding [B, D] the row of highest cosine similarity, [B, D]; the rows must be unit rows."""
        self._check("embeddings", embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.rows[(embeddings.to(self.rows.dtype) @ self.rows.T).argmax(1)]

    def _check(self, name: str, given: Tensor) -> None:
        if given.ndim != 2 or given.shape[1] != self.rows.shape[1]:
            raise ShapeError(f"{name} of shape {list(given.shape)} must be [B, {self.rows.shape[1]}] for this ring buffer.")
