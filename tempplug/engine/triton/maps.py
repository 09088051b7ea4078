"""Logit maps inside a kernel: a tile of similarities in, base-2 logits and slopes out, the map a compile-time choice.

The same formulas as `tempplug.strategies.maps`, which says where they come from; here in float32 and with short polynomials
for the circular functions. Must not depend on rows, roles or memory. Importing this module needs triton.
"""

# mypy: ignore-errors
# Kernels are a language of their own: their annotations mark what is compiled in, and triton ships no types.
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
PI = tl.constexpr(3.141592653589793)


@triton.jit
def quarter_sine(x):
    """Returns sin(πx/2) for x in [-1.01, 1.01], wrong by at most 4e-9."""
    square = x * x
    # Least maximum error on the interval among the odd polynomials of degree 9.
    value = 0.0001506329547755778 * square - 0.004671849206613787
    value = value * square + 0.07968822974572254
    value = value * square - 0.6459632996334868
    return x * (value * square + 1.5707962862284732)


@triton.jit
def quarter_cosine(x):
    """Returns cos(πx/2) for x in [-1.01, 1.01], wrong by at most 3e-10 and exactly 0 at ±1."""
    square = x * x
    # Least maximum error among the even polynomials of degree 10 with roots at ±1.
    value = 2.3789897748618255e-05 * square - 0.0008938543677380548
    value = value * square + 0.019968770105210254
    value = value * square - 0.23370053236514754
    return (1.0 - square) * (value * square + 0.9999999997448953)


@triton.jit
def one_minus_exp(x):
    """Returns 1 - e^-x for x of at least 0, to float32's relative precision also where x is small."""
    series = 1.0 - x * (1.0 / 6.0) * (1.0 - x * (1.0 / 7.0))
    series = 1.0 - x * (1.0 / 5.0) * series
    series = 1.0 - x * 0.25 * series
    series = 1.0 - x * (1.0 / 3.0) * series
    series = 1.0 - x * 0.5 * series
    return tl.where(x < 0.25, x * series, 1.0 - tl.exp2(x * -LOG2E))


@triton.jit
def profile_shape(s, curvature, offset, MAP: tl.constexpr):
    """Returns where between its smallest and largest value the temperature of these similarities lies, in [0, 1]."""
    if MAP == "cosine":
        root = quarter_sine(s)
        return root * root
    elif MAP == "linear":
        return tl.abs(s)
    elif MAP == "exponential":
        return offset * one_minus_exp(curvature * tl.abs(s))
    elif MAP == "monotonic":
        return 0.5 + 0.5 * quarter_sine(s)
    else:
        root = quarter_cosine(_phase(s, curvature, offset))
        return tl.where(_active(s, offset), root * root, 1.0)


@triton.jit
def profile_slope(s, curvature, offset, MAP: tl.constexpr):
    """Returns the derivative of `profile_shape`."""
    if MAP == "cosine":
        return quarter_sine(s) * quarter_cosine(s) * PI
    elif MAP == "linear":
        return _sign(s)
    elif MAP == "exponential":
        return _sign(s) * (curvature * offset) * tl.exp2(tl.abs(s) * curvature * -LOG2E)
    elif MAP == "monotonic":
        return quarter_cosine(s) * (0.25 * PI)
    else:
        phase = _phase(s, curvature, offset)
        return tl.where(_active(s, offset), quarter_sine(phase) * quarter_cosine(phase) * curvature * (-2.0 * PI), 0.0)


@triton.jit
def _phase(s, curvature, offset):
    """Returns twice the distance, in turns, of the shifted profile's wave from its crest before or behind: in [-1, 1]."""
    turns = curvature * (s + offset)
    return 2.0 * (turns - tl.floor(turns + 0.5))


@triton.jit
def _active(s, offset):
    return ((offset > 0.0) & (s >= -offset)) | ((offset <= 0.0) & (s <= -offset))


@triton.jit
def _sign(s):
    return tl.where(s > 0.0, 1.0, tl.where(s < 0.0, -1.0, 0.0))


@triton.jit
def exponents(s, factor, low, span, curvature, offset, MAP: tl.constexpr):
    """Returns the logits in base 2; ``factor`` is the scale in base 2, one for all or one per anchor."""
    if MAP == "scale":
        return s * factor
    else:
        return s * LOG2E * (1.0 / (low + span * profile_shape(s, curvature, offset, MAP)))


@triton.jit
def exponents_and_slopes(s, factor, low, span, curvature, offset, MAP: tl.constexpr, DETACH: tl.constexpr):
    """Returns the logits in base 2 and their slope in nats; that of ``scale`` is left to the caller and 1 here."""
    if MAP == "scale":
        return s * factor, 1.0
    else:
        temperature = low + span * profile_shape(s, curvature, offset, MAP)
        inverse = 1.0 / temperature
        slope = inverse
        if not DETACH:
            slope = (temperature - s * span * profile_slope(s, curvature, offset, MAP)) * inverse * inverse
        return s * LOG2E * inverse, slope


@triton.jit
def odds(s, eps):
    """Returns e to the log odds, (1 + s)/(1 - s) of the clamped similarity: no exponential is needed."""
    # Clamping 1 + s and 1 - s apart keeps the digits that 1 - (1 - eps) would lose.
    above = tl.minimum(tl.maximum(1.0 + s, eps), 2.0 - eps)
    below = tl.minimum(tl.maximum(1.0 - s, eps), 2.0 - eps)
    # The clamp would turn NaN into a number.
    return tl.where(s == s, above / below, s)


@triton.jit
def odds_slope(s, eps):
    """Returns `odds` times the slope of the log odds: 2/(1 - s)² inside the clamp, 0 outside."""
    inverse = 1.0 / (1.0 - s)
    return tl.where(tl.abs(s) > 1.0 - eps, 0.0, 2.0 * inverse * inverse)
