"""What the Triton engine decides before a kernel runs: the map's numbers, the roles' nine, the tiles of each kernel.

Plain Python, without triton: everything here can be read, tested and refused on a machine that has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tempplug.roles import Pairing, PairRoles
from tempplug.strategies.maps import LogitMap, LogOddsMap, ProfileMap, ScaleMap

LOG2E = math.log2(math.e)
# Operands are padded to a multiple of this many rows, the largest side of any tile.
PADDED_ROWS = 256
# What the largest tiles need of shared memory, and what the smallest do.
ROOMY = 200 * 1024
CRAMPED = 99 * 1024


@dataclass(frozen=True, slots=True)
class MapPlan:
    """A logit map as a kernel sees it.

    Attributes:
        kind: ``scale``, ``log-odds`` or the name of a profile; compiled in.
        detach: whether the temperature of a profile is a constant for the gradient; compiled in.
        low: smallest temperature of a profile, or the clamp of the log odds.
        span: largest temperature of a profile minus the smallest.
        curvature: rate of ``exponential``, turns per unit of similarity of ``shifted``.
        offset: 1/(1 - e^-rate) of ``exponential``, shift of ``shifted``.
        steepest: a bound of the slope, with a scale of 1.
        scale: [] or [N] of a scale map, with its gradient.
    """

    kind: str
    detach: bool = True
    low: float = 0.0
    span: float = 0.0
    curvature: float = 0.0
    offset: float = 0.0
    steepest: float = 1.0
    scale: Tensor | None = None

    @property
    def per_anchor(self) -> bool:
        """Whether every anchor has a scale of its own."""
        return self.scale is not None and self.scale.ndim == 1

    @property
    def steep(self) -> bool:
        """Whether the slope of a profile has a formula of its own."""
        return not self.detach and self.kind not in ("scale", "log-odds")

    def numbers(self) -> dict[str, float]:
        """Returns the arguments that all kernels share."""
        return {"low": self.low, "span": self.span, "curvature": self.curvature, "offset": self.offset}


def plan_map(logit_map: LogitMap) -> MapPlan | None:
    """Returns the plan of a map, None where there is no kernel for it, as for subclasses, which may compute anything."""
    kind = type(logit_map)
    if kind is ScaleMap and isinstance(logit_map, ScaleMap):
        return MapPlan("scale", scale=logit_map.scale)
    if kind is LogOddsMap and isinstance(logit_map, LogOddsMap):
        return MapPlan("log-odds", low=logit_map.eps, steepest=2 / (logit_map.eps * (2 - logit_map.eps)))
    if kind is ProfileMap and isinstance(logit_map, ProfileMap):
        return _plan_profile(logit_map)
    return None


def _plan_profile(profile: ProfileMap) -> MapPlan:
    curvature = offset = 0.0
    # Bounds of |s · shape'(s)| on [-1, 1].
    steepness = {"cosine": math.pi / 2, "linear": 1.0, "monotonic": math.pi / 4}.get(profile.profile, 0.0)
    if profile.profile == "exponential":
        curvature, offset = profile.rate, -1 / math.expm1(-profile.rate)
        most = min(1.0, 1 / profile.rate)
        steepness = curvature * offset * most * math.exp(-curvature * most)
    elif profile.profile == "shifted":
        curvature, offset = 1 / (2 * profile.width), profile.shift
        steepness = math.pi * curvature
    # The full derivative is (τ - s·τ')/τ²: at most 1/τ plus the curve's part over τ².
    through = 0.0 if profile.detach else profile.range * steepness / profile.temperature_min
    return MapPlan(
        profile.profile,
        profile.detach,
        profile.temperature_min,
        profile.range,
        curvature,
        offset,
        (1 + through) / profile.temperature_min,
    )


def plan_roles(roles: PairRoles) -> dict[str, int] | None:
    """Returns the roles as the numbers that kernels take, or None where positions alone do not tell them."""
    pairings = [pairing for pairing in (roles.positives, roles.ignored) if pairing is not None]
    if roles.positives is None or any(not 0 < len(pairing.runs) < 3 for pairing in pairings) or roles.negative_mask is not None:
        return None
    positive = _split(roles.positives)
    # Where no candidate is the anchor itself, leaving out the positive twice costs nothing.
    ignored = positive if roles.ignored is None else _split(roles.ignored)
    return {
        "anchors": roles.anchors,
        "candidates": roles.candidates,
        **dict(zip(("positive_split", "positive_first", "positive_second"), positive, strict=True)),
        **dict(zip(("own_split", "own_first", "own_second"), ignored, strict=True)),
        "negatives_start": roles.negatives_start,
        "extra_start": roles.candidates if roles.extra_start is None else roles.extra_start,
        "extra_anchors": roles.anchors if roles.extra_start is None else roles.extra_anchors,
    }


def _split(pairing: Pairing) -> tuple[int, int, int]:
    """Returns where the second run begins, and the shifts of both."""
    first, second = pairing.runs[0], pairing.runs[-1]
    return first[1], first[2], second[2]


@dataclass(frozen=True, slots=True)
class Tile:
    """How a kernel divides its work: rows, columns and depth of a tile, warps of a program and stages of the pipeline.

    ``registers`` is the most that a thread may have, where fewer let a second program run on the multiprocessor.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    registers: int | None = None

    def options(self) -> dict[str, int]:
        """Returns the sides of the tile and the launch options, as a kernel takes them."""
        # Fused multiply-adds are half of the speed; which default triton has for them depends on its version.
        sides = {"BLOCK_M": self.rows, "BLOCK_N": self.columns}
        most = {} if self.registers is None else {"maxnreg": self.registers}
        return {**sides, "num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": True, **most}


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of every kernel and the width of operands, for a storage precision.

    Those of square blocks in half precision are the fastest of a search on an H100 with triton 3.6, up to 14 for each kernel
    and width. Compiled for sm_90 with triton 3.9, only the gradient of the log odds spills registers to memory, 24 bytes a
    thread. With ``roomy`` a program may take 200 KiB of shared memory (H100, H200, B200), else 99 KiB.
    """

    precision: torch.dtype
    roomy: bool

    @property
    def widest(self) -> int:
        """The largest number of dimensions whose gradient is kept in registers; wider ones go through slabs."""
        return 256 if self.roomy and self.precision != torch.float32 else 128

    def width(self, dimension: int) -> int:
        """Returns how many numbers a row of an operand holds: a power of two, or beyond registers a multiple of 64."""
        if dimension <= self.widest:
            return max(16, 1 << (dimension - 1).bit_length())
        return -(-dimension // 64) * 64

    def sums(self, width: int, kind: str, square: bool) -> Tile:
        """Returns the tile of the row sums of a kind of map; in a ``square`` block, the candidates are the anchors."""
        if self.precision == torch.float32:
            return Tile(128, 64, min(width, 32), 8, 2)
        plain = kind in ("scale", "log-odds")
        if width > self.widest:
            return Tile(128, 256, 64, 8, 3) if self.roomy and kind == "scale" else Tile(128, 128, 64, 8, 3)
        # The curves of the profiles need the registers of eight warps.
        if plain and width <= 128:
            return Tile(128, 128, width, 4, 2) if square else Tile(128, 128, width, 8, 2, 128)
        return Tile(128, 128, width, 8, 2)

    def online(self, width: int) -> Tile:
        """Returns the tile of the row sums with a running maximum."""
        if self.precision == torch.float32:
            return Tile(128, 64, min(width, 32), 8, 2)
        return Tile(128, 64, min(width, 64), 8, 3)

    def gradient(self, width: int, steep: bool, square: bool) -> Tile:
        """Returns the tile of the gradient in registers; ``steep`` says that slopes have a formula of their own."""
        if self.precision == torch.float32:
            return Tile(64, 32, width, 8, 2)
        if square and width <= 128:
            return Tile(64, 32 if steep else 128, width, 4, 2)
        return Tile(128, 32 if steep else 64, width, 8, 3)

    def slab(self, steep: bool) -> Tile:
        """Returns the tile of the slabs of pair gradients."""
        if self.precision == torch.float32:
            return Tile(128, 64, 32, 8, 2)
        return Tile(128, 64 if steep else 128, 64, 8, 3)


def choose_tiles(precision: torch.dtype, device: torch.device) -> Tiles:
    """Returns the tiles for embeddings of this precision on this device."""
    # Triton's interpreter would multiply the bits of bfloat16 numbers: off CUDA they are stored as the float32 ones they are.
    stored = torch.float32 if precision == torch.bfloat16 and device.type != "cuda" else precision
    return Tiles(stored, shared_memory(device) >= ROOMY)


def shared_memory(device: torch.device) -> int:
    """Returns the bytes of shared memory that a program may take; an interpreter has enough."""
    if device.type != "cuda":
        return ROOMY
    properties: Any = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block))


# Of the product of a slab and an operand in float32.
PRODUCT_TILE = Tile(128, 64, 32, 8, 2)
# Pair gradients of 8192 × 8192: 128 MiB in half precision, long enough products to keep a device busy.
SLAB_SIDE = 8192


def slabs(begin: int, end: int, side: int = SLAB_SIDE) -> list[tuple[int, int]]:
    """Returns equal pieces of a range, none longer than ``side``, each beginning where a tile may.

    >>> slabs(130, 400, side=256)
    [(128, 384), (384, 400)]
    """
    # From a place between tiles the last one would reach behind the operand's padding.
    begin = begin // 128 * 128
    pieces = -(-(end - begin) // side)
    length = -(-(end - begin) // (pieces * 128)) * 128
    return [(start, min(start + length, end)) for start in range(begin, end, length)]
