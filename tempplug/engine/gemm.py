"""Matrix products of the tiled engine, through the fastest routine that this machine has for them.

torch hands float32 products on x86 to MKL, which leaves half of an AVX-512 processor unused where it is not Intel's, and beats
every other where it is. oneDNN, which torch carries behind a private operator, is the other way round. Which of them wins
depends on the shape as well, so each product is timed once for each class of shapes, on numbers of its own, in some
milliseconds: the plain product stays where the other fails, errs, or is not clearly faster. ``TEMPPLUG_GEMM=mm`` or ``onednn``
in the environment answers without a probe; so do torch's deterministic algorithms, with ``mm``, because a probe may decide
otherwise another day.

``into`` of a product is where its result goes: it is added to what is there, or with ``fresh`` overwrites it.

Products of gradients may be asked to round their operands to bfloat16, which processors with AMX multiply several times faster.
torch can do that, with sums in float32, by a setting of the process alone: it is on while such a product runs, so nothing else
may be multiplied at that moment.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

# Below about so many multiplications the plain product's smaller overhead wins. A probe, which repeats one product, would not
# see it: between other operations oneDNN's costs up to 30 µs more than in a row.
SMALL = 1 << 22
# So many summands MKL adds up in one go; of more it makes several sums itself.
CHAIN = 192
# The plain product is left only for one that is faster by more than this.
CLEARLY = 0.95
# Seconds that the rounds of a probe take at most, and how many rounds it makes at most and at least.
BUDGET, MOST, LEAST = 0.03, 7, 2
# Sides of the matrices that a probe multiplies.
LONGEST, DEEPEST = 2048, 1024
Product = Callable[[Tensor, Tensor], Tensor]


class ProductInto(Protocol):
    """`times` or `turned`."""

    def __call__(self, tile: Tensor, other: Tensor, into: Tensor | None = None, fresh: bool = False, /) -> Tensor:
        """Returns the product."""


_choices: dict[tuple[str, int, int, int], int] = {}
_lock = threading.Lock()


@cache
def accelerated() -> bool:
    """Returns whether oneDNN's product is there, right, and not turned off."""
    if os.environ.get("TEMPPLUG_GEMM") == "mm" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    a = torch.linspace(-1, 1, 33 * 17, device="cpu").reshape(33, 17)
    b = torch.linspace(2, -1, 9 * 17, device="cpu").reshape(9, 17)
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


# The plain way first; each of the others is one that oneDNN does at full speed on some machines.
_WAYS: dict[str, tuple[Product, ...]] = {
    "outer": (lambda a, b: torch.mm(a, b.t()), lambda a, b: _linear(a, b)),
    "times": (torch.mm, lambda tile, b: _linear(tile, b.t())),
    "turned": (
        lambda tile, a: torch.mm(tile.t(), a),
        lambda tile, a: _linear(a.t().contiguous(), tile.t()).t(),
        lambda tile, a: _linear(tile.t().contiguous(), a.t()),
    ),
}


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b.T, [N, M], from a [N, K] and b [M, K]."""
    if a.numel() * b.shape[0] < SMALL:
        return torch.mm(a, b.t())
    way = _way("outer", len(a), len(b), a.shape[1], a)
    return _WAYS["outer"][way](a, b)


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
    way = _way("times", len(tile), len(b), b.shape[1], tile) if tile.numel() * b.shape[1] >= SMALL else 0
    if way:
        return _put(_WAYS["times"][way](tile, b), into, fresh)
    if into is None or fresh:
        return torch.mm(tile, b, out=into)
    return into.addmm_(tile, b)


def turned(tile: Tensor, a: Tensor, into: Tensor | None = None, fresh: bool = False) -> Tensor:
    """Returns tile.T @ a, [C, K], from a tile [R, C] and a [R, K]."""
    way = _way("turned", len(a), tile.shape[1], a.shape[1], tile) if tile.numel() * a.shape[1] >= SMALL else 0
    if way:
        # Copied where the tile is cut: the fast product is slow on rows with gaps between them.
        return _put(_WAYS["turned"][way](tile.contiguous() if way == 1 else tile, a), into, fresh)
    if into is None or fresh:
        return torch.mm(tile.t(), a, out=into)
    return into.addmm_(tile.t(), a)


@cache
def rounding_pays() -> bool:
    """Returns whether the processor multiplies matrices of bfloat16 by AMX."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


def of_gradients(rounded: bool) -> tuple[ProductInto, ProductInto]:
    """Returns `times` and `turned`.

    Args:
        rounded: whether they may round their operands, which they do where `rounding_pays`.
    """
    return (_rounded_times, _rounded_turned) if rounded and rounding_pays() else (times, turned)


def _rounded_times(tile: Tensor, b: Tensor, into: Tensor | None = None, fresh: bool = False, /) -> Tensor:
    """Returns what `times` does, operands rounded to bfloat16; for one thread at a time."""
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    try:  # torch hands its own product to oneDNN then, so there is nothing to choose
        return torch.mm(tile, b, out=into) if into is None or fresh else into.addmm_(tile, b)
    finally:
        settings.fp32_precision = before


def _rounded_turned(tile: Tensor, a: Tensor, into: Tensor | None = None, fresh: bool = False, /) -> Tensor:
    """Returns what `turned` does, likewise."""
    return _rounded_times(tile.t(), a, into, fresh)


def _put(product: Tensor, into: Tensor | None, fresh: bool) -> Tensor:
    if into is None:
        return product
    return into.copy_(product) if fresh else into.add_(product)


def _way(kind: str, rows: int, columns: int, depth: int, like: Tensor) -> int:
    """Returns which of the ways of a product to take, 0 for the plain one; nobody asks for one below `SMALL`."""
    if like.dtype != torch.float32 or not accelerated():
        return 0
    key = kind, rows.bit_length(), columns.bit_length(), depth.bit_length()
    way = _choices.get(key)
    if way is None:
        with _lock:
            if key not in _choices:
                _choices[key] = _probed(kind, rows, columns, depth)
        way = _choices[key]
    return way


def _probed(kind: str, rows: int, columns: int, depth: int) -> int:
    """Returns the fastest way of a product of about these shapes."""
    if os.environ.get("TEMPPLUG_GEMM") == "onednn":
        return 1
    if torch.are_deterministic_algorithms_enabled():
        return 0
    rows, columns, depth = min(rows, LONGEST), min(columns, LONGEST), min(depth, DEEPEST)
    with torch.inference_mode(False), torch.no_grad():
        a, b = (torch.linspace(-1, 1, each * depth, device="cpu").view(each, depth) for each in (rows, columns))
        tile = torch.linspace(-1, 1, rows * columns, device="cpu").view(rows, columns)
        operands = {"outer": (a, b), "times": (tile, b), "turned": (tile, a)}[kind]
        into = None if kind == "outer" else torch.zeros_like(a if kind == "times" else b)
        times_of: list[list[float]] = []
        ways = _WAYS[kind]
        for way in ways:
            _once(way, operands, into, way is ways[0])
            times_of.append([_once(way, operands, into, way is ways[0])])
        rounds = min(MOST, max(LEAST, int(BUDGET / sum(map(min, times_of)))))
        for _ in range(rounds):
            for way, found in zip(ways, times_of, strict=True):
                found.append(_once(way, operands, into, way is ways[0]))
    fastest = [min(found) for found in times_of]
    best = min(range(len(ways)), key=fastest.__getitem__)
    return best if fastest[best] < CLEARLY * fastest[0] else 0


def _once(way: Product, operands: tuple[Tensor, Tensor], into: Tensor | None, plain: bool) -> float:
    """Returns the seconds of a product and of its addition to what is there, after others that left the caches to them."""
    operands[0].mul_(1.0), operands[1].mul_(1.0)
    start = perf_counter()
    if into is None:
        way(*operands)
    elif plain:
        into.addmm_(operands[0].t() if way is _WAYS["turned"][0] else operands[0], operands[1])
    else:
        into.add_(way(*operands))
    return perf_counter() - start
