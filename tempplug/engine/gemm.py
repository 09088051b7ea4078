"""Matrix products of the tiled engine, by the routine that `tempplug.processor` names for this machine.

On a CUDA device the products of bfloat16 embeddings have bfloat16 factors and are added up in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.processor import onednn_product, product_route

# Up to about so many multiplications torch's own product is faster everywhere: oneDNN's costs up to 30 µs more to start.
SMALL = 1 << 22
# So many summands MKL adds up in one go; of more it makes several sums itself.
CHAIN = 192


# From torch 2.8 on a product may have another type than its factors; on CUDA devices alone.
WIDENS = torch.version.cuda is not None and hasattr(torch.ops.aten.mm, "dtype")


def in_bfloat16(anchors: Tensor, precision: torch.dtype) -> bool:
    """Returns whether products have bfloat16 factors: those of bfloat16 embeddings, on a device that adds up in float32."""
    return WIDENS and anchors.is_cuda and precision is torch.bfloat16


def split(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Returns bfloat16 factors [N, 3D] and [M, 3D] whose product is that of the rows, up to about 2e-6 from 128 dimensions on.

    Rows are high + low parts: [h | h | l] times [h | l | h] leaves out only l · l. On an H100 this product takes a third of the
    time of one in float32 with 128 dimensions, and a fifth with 768.
    """
    parts = [(high := matrix.bfloat16(), (matrix - high).bfloat16()) for matrix in rows]
    (first, low), (second, other_low) = parts
    return torch.cat([first, first, low], 1), torch.cat([second, other_low, second], 1)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b; in float32 where ``a`` is bfloat16."""
    return torch.mm(a, b.to(a.dtype), out_dtype=torch.float32) if a.dtype is torch.bfloat16 else torch.mm(a, b)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b.T, [N, M], from a [N, K] and b [M, K]."""
    if a.numel() * b.shape[0] >= SMALL and a.dtype is torch.float32 and a.is_cpu and product_route() == "onednn":
        return onednn_product(a, b)
    return torch.mm(a, b.t()) if a.dtype is not torch.bfloat16 else _product(a, b.t())


def outer_in_short_chains(a: Tensor, b: Tensor) -> Tensor:
    """Returns what `outer` does, added up in two sums of half the length where one would be long, which round away less.

    With several positives an anchor, or a temperature for every pair, that is most of what the gradient errs.
    """
    depth = a.shape[1]
    if not 1 < depth <= CHAIN or not a.is_cpu:
        return outer(a, b)
    halves = [matrix.split_with_sizes((depth // 2, depth - depth // 2), 1) for matrix in ((a,) if b is a else (a, b))]
    if a.numel() * b.shape[0] >= SMALL:
        # Copied, because oneDNN takes a hundred times as long for rows with gaps between them.
        halves = [(first.contiguous(), second.contiguous()) for first, second in halves]
    (first, second), (third, fourth) = halves[0], halves[-1]
    return outer(first, third).add_(outer(second, fourth))


def times(tile: Tensor, b: Tensor) -> Tensor:
    """Returns tile @ b, [R, K], from a tile [R, C] and b [C, K]."""
    if tile.numel() * b.shape[1] >= SMALL and tile.dtype is torch.float32 and tile.is_cpu and product_route() == "onednn":
        return onednn_product(tile, b.t())
    return _product(tile, b)


def times_transposed(tile: Tensor, a: Tensor) -> Tensor:
    """Returns tile.T @ a, [C, K], from a tile [R, C] and a [R, K]."""
    if tile.numel() * a.shape[1] >= SMALL and tile.dtype is torch.float32 and tile.is_cpu and product_route() == "onednn":
        # Copied where the tile is cut: oneDNN takes a hundred times as long for rows with gaps between them.
        return onednn_product(a.t().contiguous(), tile.contiguous().t()).t()
    return _product(tile.t(), a)
