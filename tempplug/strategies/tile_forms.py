"""In-place forms of the built-in maps, for engines that stream tiles: E = exp(logit) and W = E · slope on a tile.

A form need not hold E itself: it holds u with E = factor · u + offset, which turns the 2·atanh map into one reciprocal. The
engine zeroes the entries of u that are no negatives, so a form must map u = 0 to W = 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from tempplug.precision import number

LOG2E = math.log2(math.e)
# sin²(πs/2) as a polynomial in s², weighted least squares refined until the error levels out: 5.9e-9 on [-1, 1].
SINE_SQUARED = (
    2.467400730063237,
    -2.029348819755412,
    0.6675841374741044,
    -0.1175232549956865,
    0.012686260528983695,
    -0.000799059238448252,
)


def top_anchor(largest_logit: float, columns: int) -> float:
    """Returns c, so that sums of 2^(logit·log₂e - c) over this many columns stay below float32's largest number.

    0 for all but small temperatures, and as small as it may be, because what lies far below the largest logit must not
    underflow either.

    Args:
        largest_logit: in nats.
        columns: M.
    """
    return max(0.0, LOG2E * largest_logit + math.log2(columns) - 126)


class TileForm(ABC):
    """The in-place form of one map.

    Attributes:
        operand_scale: what the anchors' rows are multiplied by before the product, [] or [N] or a number.
        reach: the largest base-2 logit, up or down.
        shift: c of `top_anchor`; u is in units of 2^c.
        factor: of E = factor · u + offset.
        offset: of E = factor · u + offset.
        slope: W · slope = E · d logit / d similarity; [] or [N] or a number.
        straight: whether ``slope`` is the derivative of the logit itself, for every pair, and u is E: nothing is left to do for
            `total` and `weigh_`.
        scratch: whether both methods need a second tile.
        constant: whether later batches have the same form, so that its numbers are worth keeping as tensors.
    """

    operand_scale: Tensor | float = 1.0
    reach: float = 0.0
    shift: float = 0.0
    factor: float = 1.0
    offset: float = 0.0
    slope: Tensor | float = 1.0
    straight: bool = False
    scratch: bool = False
    constant: bool = True

    def scale_(self, tile: Tensor) -> None:  # noqa: B027 - most forms have nothing to do
        """Multiplies a tile of all rows by ``operand_scale``.

        Args:
            tile: [N, C] similarities, overwritten.
        """

    @abstractmethod
    def exponentiate_(self, tile: Tensor, scratch: Tensor) -> None:
        """Turns similarities (times ``operand_scale``) into u.

        Args:
            tile: [R, C] similarities, overwritten.
            scratch: [R, C] of any content; what is left there is for `weigh_`.
        """

    @abstractmethod
    def weigh_(self, tile: Tensor, scratch: Tensor) -> None:
        """Turns u into W; called after `exponentiate_` with the same tensors."""

    def total(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Returns the sums of E, [N] in units of 2^shift, from those of u over ``counts`` [N] pairs."""
        return sums if self.factor == 1 and self.offset == 0 else sums * self.factor + counts.to(sums.dtype) * self.offset

    def logarithm(self, sums: Tensor) -> Tensor:
        """Returns the natural logarithm of the sums of E that `total` returned."""
        logarithm = sums.log()
        return logarithm.add_(self.shift * math.log(2)) if self.shift else logarithm


class ScaleForm(TileForm):
    """l = scale · s: base 2, the scale folded into the operand, and W is E.

    Args:
        scale: one, or [N], detached.
        largest: the largest scale.
        columns: M.
        constant: see `TileForm`.
    """

    straight = True

    def __init__(self, scale: Tensor | float, largest: float, columns: int, constant: bool = False) -> None:
        self.constant = constant
        self.operand_scale = scale * LOG2E
        self.slope = scale
        self.reach, self.shift = LOG2E * largest, top_anchor(largest, columns)

    def scale_(self, tile: Tensor) -> None:
        """Leaves x = scale · log₂e · s."""
        scale = self.operand_scale
        if self.constant:
            tile.mul_(number(scale, tile.dtype))
        else:
            tile.mul_(scale[:, None] if isinstance(scale, Tensor) and scale.ndim else scale)

    def exponentiate_(self, tile: Tensor, scratch: Tensor) -> None:
        """Leaves u = 2^(x - c)."""
        if self.shift:
            tile.sub_(self.shift)
        tile.exp2_()

    def weigh_(self, tile: Tensor, scratch: Tensor) -> None:
        """Leaves W = u."""


class LogOddsForm(TileForm):
    """l = ln((1+s)/(1-s)): no exponential at all, because E = 2/(1-s) - 1; u = 1/(s-1), E = -2u - 1, W = 2u².

    Args:
        eps: of the clamp.
        dtype: of the tiles.
    """

    factor = -2.0
    offset = -1.0
    slope = 2.0
    scratch = True

    def __init__(self, eps: float, dtype: torch.dtype) -> None:
        # The bounds as the tile will see them, so that a clamped entry is recognised by equality.
        self.low, self.high = torch.tensor([eps - 2, -eps], dtype=dtype, device="cpu").tolist()
        self.steepest, self.flattest = torch.tensor([-eps, eps - 2], dtype=dtype, device="cpu").reciprocal().tolist()

    def exponentiate_(self, tile: Tensor, scratch: Tensor) -> None:
        """Leaves u = 1/(s - 1), the similarity clamped."""
        tile.sub_(1).clamp_(self.low, self.high).reciprocal_()

    def weigh_(self, tile: Tensor, scratch: Tensor) -> None:
        """Leaves W = u², and 0 where the clamp holds, as everywhere where the gradient of a clamp is 0."""
        torch.square(tile, out=scratch)
        torch.ops.aten.hardtanh_backward.grad_input(scratch, tile, self.steepest, self.flattest, grad_input=tile)


class CosineForm(TileForm):
    """DySTreSS's cosine profile with a detached temperature: τ(s) as a polynomial, W = E/τ.

    Args:
        temperature_min: smallest temperature.
        spread: largest minus smallest.
        columns: M.
        dtype: of the tiles.
    """

    slope = math.log(2)
    scratch = True

    def __init__(self, temperature_min: float, spread: float, columns: int, dtype: torch.dtype) -> None:
        self.reach, self.shift = LOG2E / temperature_min, top_anchor(1 / temperature_min, columns)
        # Everything times ln 2, so that s/t is a base-2 logit and W·ln 2 = E/τ.
        self.base = torch.tensor(temperature_min * math.log(2), dtype=dtype, device="cpu")
        self.spread = spread * math.log(2)
        self.coefficients = [torch.tensor(c * self.spread, dtype=dtype, device="cpu") for c in SINE_SQUARED]

    def _temperature(self, tile: Tensor, out: Tensor) -> None:
        if tile.dtype != torch.float32:  # the polynomial is exact to float32 only
            torch.mul(tile, math.pi, out=out).cos_().mul_(-0.5 * self.spread).add_(self.base + 0.5 * self.spread)
            return
        squared = torch.square(tile)
        *others, first = self.coefficients
        torch.add(others[-1], squared, alpha=first.item(), out=out)
        for coefficient in reversed(others[:-1]):
            torch.addcmul(coefficient, out, squared, out=out)
        torch.addcmul(self.base, out, squared, out=out)

    def exponentiate_(self, tile: Tensor, scratch: Tensor) -> None:
        """Leaves u = 2^(s/(τ ln 2) - c), and τ ln 2 in the scratch."""
        self._temperature(tile, scratch)
        tile.div_(scratch)
        if self.shift:
            tile.sub_(self.shift)
        tile.exp2_()

    def weigh_(self, tile: Tensor, scratch: Tensor) -> None:
        """Leaves W = u/(τ ln 2)."""
        tile.div_(scratch)


class PlainForm(TileForm):
    """Any map of which the largest logit is known, through its own ``logit`` and ``slope``.

    Args:
        logit: similarity to logit.
        slope: its derivative.
        largest_logit: over [-1, 1], in nats.
        columns: M.
    """

    scratch = True

    def __init__(
        self, logit: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor], largest_logit: float, columns: int
    ) -> None:
        self.logit = logit
        self.derivative = derivative
        self.reach, self.shift = LOG2E * largest_logit, top_anchor(largest_logit, columns)

    def exponentiate_(self, tile: Tensor, scratch: Tensor) -> None:
        """Leaves u = 2^(l·log₂e - c), and the slope in the scratch."""
        scratch.copy_(self.derivative(tile))
        torch.mul(self.logit(tile), LOG2E, out=tile)
        if self.shift:
            tile.sub_(self.shift)
        tile.exp2_()

    def weigh_(self, tile: Tensor, scratch: Tensor) -> None:
        """Leaves W = u · slope."""
        tile.mul_(scratch)
