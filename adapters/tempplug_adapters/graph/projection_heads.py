"""The projection head of GRACE, GraphCL and the pre-training on molecules: two linear layers, which only the loss uses."""

from __future__ import annotations

from torch import nn


def projection_head(width: int, inside: int, outside: int, between: nn.Module, last_batch_norm: bool | None) -> nn.Sequential:
    """Returns two linear layers, of representations [N, width] to embeddings [N, outside], with ``between`` in their middle.

    Batch normalisation without weights follows with ``last_batch_norm``; the methods' papers have none.
    """
    head = nn.Sequential(nn.Linear(width, inside), between, nn.Linear(inside, outside))
    return head.append(nn.BatchNorm1d(outside, affine=False)) if last_batch_norm else head


__all__ = ["projection_head"]
