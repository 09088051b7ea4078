"""Matrix products of the tiled engine, through the fastest routine that this machine has for them.

torch hands float32 products on x86 to MKL, which leaves half of an AVX-512 processor unused where it is not Intel's. oneDNN
does not, and torch carries it; its door is a private operator, so it is probed once, compared with the plain product, and
left alone where it is missing or differs. ``TEMPPLUG_GEMM=mm`` in the environment turns it off.
"""

from __future__ import annotations

import os
from functools import cache

import torch
from torch import Tensor

# Below about so many multiplications the plain product's smaller overhead wins.
SMALL = 1 << 20


@cache
def accelerated() -> bool:
    """Returns whether oneDNN's product is there and right."""
    if os.environ.get("TEMPPLUG_GEMM") == "mm" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    a = torch.linspace(-1, 1, 33 * 17).reshape(33, 17)
    b = torch.linspace(2, -1, 9 * 17).reshape(9, 17)
    try:
        straight, turned = _linear(a, b), _linear(a.t(), a[:, :5].t().contiguous())
    except (RuntimeError, AttributeError):
        return False
    expected = a @ b.t(), a.t() @ a[:, :5]
    return torch.allclose(straight, expected[0], atol=1e-4) and torch.allclose(turned, expected[1], atol=1e-4)


def _linear(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b.T, a [N, K] and b [M, K] of any strides."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return product


def _fast(a: Tensor, multiplications: int) -> bool:
    return multiplications >= SMALL and a.dtype == torch.float32 and accelerated()


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b.T, [N, M], from a [N, K] and b [M, K]."""
    return _linear(a, b) if _fast(a, a.numel() * len(b)) else a @ b.t()


def times(tile: Tensor, b: Tensor) -> Tensor:
    """Returns tile @ b, [R, K], from a tile [R, C] and b [C, K]."""
    return _linear(tile, b.t()) if _fast(tile, tile.numel() * b.shape[1]) else tile @ b


def turned(a: Tensor, tile: Tensor) -> Tensor:
    """Returns a.T @ tile, [K, C], from a [R, K] and a tile [R, C]: the shape in which the product runs at full speed."""
    return _linear(a.t().contiguous(), tile.t()) if _fast(tile, tile.numel() * a.shape[1]) else a.t() @ tile
