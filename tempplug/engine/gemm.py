"""Matrix products of the tiled engine, by the routine that `tempplug.processor` names for this machine.

``into`` of a product is where its result goes: it is added to what is there, or with ``fresh`` overwrites it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.processor import onednn_product, product_route

# Up to about so many multiplications torch's own product is faster everywhere: oneDNN's costs up to 30 µs more to start.
SMALL = 1 << 22
# So many summands MKL adds up in one go; of more it makes several sums itself.
CHAIN = 192


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b.T, [N, M], from a [N, K] and b [M, K]."""
    return onednn_product(a, b) if _large(a, len(b)) else torch.mm(a, b.t())


def outer_in_short_chains(a: Tensor, b: Tensor) -> Tensor:
    """Returns what `outer` does, added up in shorter chains, which round away less: two where MKL and oneDNN make one.

    With several positives an anchor, or a temperature for every pair, that is most of what the gradient errs.
    """
    depth = a.shape[1]
    if not 1 < depth <= CHAIN:
        return torch.mm(a, b.t())
    half = depth // 2
    parts = a.tensor_split((half,), 1)
    others = parts if b is a else b.tensor_split((half,), 1)
    if a.numel() * b.shape[0] < SMALL:
        return torch.mm(parts[0], others[0].t()).addmm_(parts[1], others[1].t())
    # Copied, because oneDNN takes a hundred times as long for rows with gaps between them.
    first, second = (outer(one.contiguous(), other.contiguous()) for one, other in zip(parts, others, strict=True))
    return first.add_(second)


def times_in_short_chains(tile: Tensor, b: Tensor) -> Tensor:
    """Returns what `times` does, added up in shorter chains; never through oneDNN, which adds up all columns in one go."""
    columns = tile.shape[1]
    if not 1 < columns <= CHAIN:
        return torch.mm(tile, b)
    half = columns // 2
    (left, right), (top, bottom) = tile.tensor_split((half,), 1), b.tensor_split((half,))
    return torch.mm(left, top).addmm_(right, bottom)


def times(tile: Tensor, b: Tensor, into: Tensor | None = None, fresh: bool = False) -> Tensor:
    """Returns tile @ b, [R, K], from a tile [R, C] and b [C, K]."""
    if _large(tile, b.shape[1]):
        return _put(onednn_product(tile, b.t()), into, fresh)
    return torch.mm(tile, b, out=into) if into is None or fresh else into.addmm_(tile, b)


def turned(tile: Tensor, a: Tensor, into: Tensor | None = None, fresh: bool = False) -> Tensor:
    """Returns tile.T @ a, [C, K], from a tile [R, C] and a [R, K]."""
    if _large(tile, a.shape[1]):
        # Copied where the tile is cut, for the same reason as above.
        return _put(onednn_product(a.t().contiguous(), tile.contiguous().t()).t(), into, fresh)
    return torch.mm(tile.t(), a, out=into) if into is None or fresh else into.addmm_(tile.t(), a)


def _large(first: Tensor, others: int) -> bool:
    """Returns whether oneDNN computes this product, of ``first`` and so many further rows or columns."""
    return first.numel() * others >= SMALL and first.dtype == torch.float32 and product_route() == "onednn"


def _put(product: Tensor, into: Tensor | None, fresh: bool) -> Tensor:
    if into is None:
        return product
    return into.copy_(product) if fresh else into.add_(product)
