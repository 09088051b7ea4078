"""Logit maps: similarity to logit, element by element, in at least float32; which pairs are positives they must not know."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from tempplug.logit_map import LOG2E, LogitMap, Rows
from tempplug.precision import at_least_float32
from tempplug.transforms import shared

__all__ = ["LogOddsMap", "LogitMap", "PairTemperatureMap", "Profile", "ProfileMap", "ScaleMap", "constant_scale"]

# sin²(πs/2) as a polynomial in s², weighted least squares refined until the error levels out: 5.9e-9 on [-1, 1].
SINE_SQUARED = (
    2.467400730063237,
    -2.029348819755412,
    0.6675841374741044,
    -0.1175232549956865,
    0.012686260528983695,
    -0.000799059238448252,
)

Profile = Literal["cosine", "linear", "exponential", "monotonic", "shifted"]


class ScaleMap(LogitMap):
    """l = scale · s, with one scale for all pairs or one per anchor.

    Args:
        scale: [] or [N], 1/τ, greater than 0; may carry gradient.
        number: the scale where it is the same in every batch.

    >>> ScaleMap(torch.tensor(10.0)).logit(torch.tensor([0.5, -0.2]))
    tensor([ 5., -2.])
    """

    linear = True

    def __init__(self, scale: Tensor, number: float | None = None) -> None:
        self.scale = scale
        self.uniform = self.symmetric = scale.ndim == 0
        self._number = number
        self._bare = scale.detach() if scale.requires_grad else scale
        self._base_two = self._bare * LOG2E

    @property
    def bound(self) -> float:
        """The largest scale."""
        if self._number is not None:
            return self._number
        return self._bare.max().item() if self._bare.is_cpu else math.inf

    def logit(self, similarity: Tensor) -> Tensor:
        """Returns scale · s."""
        return at_least_float32(similarity) * self.scale

    def slope(self, similarity: Tensor) -> Tensor:
        """Returns the scale, in the shape of the similarities."""
        return self._bare.expand_as(similarity).to(at_least_float32(similarity).dtype)

    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns 1/scale, in the shape of the similarities."""
        return self.slope(similarity).reciprocal()

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        """Returns the map of these anchors."""
        if self.uniform:
            return self
        scale = self.scale[rows]
        return _BoundScaleMap(scale if paired else scale[:, None])

    def tensors(self) -> tuple[Tensor, ...]:
        """Returns the scale where it is learned."""
        return (self.scale,) if self.scale.requires_grad else ()

    def detached(self) -> ScaleMap:
        """Returns the map of the scale without gradient."""
        if not self.scale.requires_grad:
            return self
        twin = copy.copy(self)
        twin.scale = self._bare
        return twin

    def logit_and_slopes_(self, similarity: Tensor) -> tuple[Tensor, ...]:
        """Returns scale · s."""
        return (similarity.mul_(self._base_two),)

    def exponential_and_slopes_(self, similarity: Tensor) -> tuple[Tensor, ...]:
        """Returns exp(scale · s)."""
        return (similarity.mul_(self._base_two).exp2_(),)


@shared
def constant_scale(scale: float, dtype: torch.dtype, device: torch.device) -> ScaleMap:
    """Returns the map of one scale, 1/τ, that no batch changes."""
    return ScaleMap(torch.full((), scale, dtype=dtype, device=device), scale)


class _BoundScaleMap(ScaleMap):
    """A per-anchor scale already shaped for its tile."""

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        raise RuntimeError("this map is already bound to a tile.")


@dataclass(eq=False, repr=False)
class PairTemperatureMap(LogitMap):
    """l_ij = s_ij/τ_ij - β·((D/2)·ln τ_ij + 1/τ_ij), τ_ij = span/(1 + exp⟨φ_i, φ_j⟩) + floor: one temperature a pair.

    Args:
        anchors: [N, D] φ of each anchor.
        candidates: [M, D] φ of each candidate; the same tensor where the candidates are the anchors.
        span: greater than 0, as ``floor``.
        beta: weight of the regulariser, at least 0.

    Source: AMCL, eqs. 5-7.

    >>> PairTemperatureMap(torch.zeros(1, 2), torch.zeros(1, 2), 2.0, 0.5, 1.0).temperature(torch.ones(1, 1))
    tensor([[1.5000]])
    """

    uniform = False

    anchors: Tensor
    candidates: Tensor
    span: float
    floor: float
    beta: float

    def __post_init__(self) -> None:
        self.products = ((self.anchors, self.candidates),)
        self.dimension = self.anchors.shape[-1]

    @staticmethod
    def temperature_at(product: Tensor, span: float, floor: float) -> Tensor:
        """Returns τ for ⟨φ_i, φ_j⟩, in the shape of ``product``."""
        return span * torch.sigmoid(-product) + floor

    @staticmethod
    def regularizer_at(temperature: Tensor, dimension: int) -> Tensor:
        """Returns Ω(τ), in the shape of ``temperature``."""
        return 0.5 * dimension * temperature.log() + temperature.reciprocal()

    def with_beta(self, beta: float) -> PairTemperatureMap:
        """Returns the same temperatures with another weight of the regulariser."""
        twin = copy.copy(self)
        twin.beta = beta
        return twin

    def _temperature(self) -> Tensor:
        """Returns τ of every pair, [N, M], with gradient."""
        return self.temperature_at(self.anchors @ self.candidates.T, self.span, self.floor)

    @property
    def bound(self) -> float:
        """No logit is larger, up or down, because every temperature lies between floor and floor + span."""
        logarithm = max(abs(math.log(self.floor)), abs(math.log(self.floor + self.span)))
        return (1 + self.beta) / self.floor + 0.5 * self.beta * self.dimension * logarithm

    def logit(self, similarity: Tensor) -> Tensor:
        """Returns s/τ - β·Ω(τ)."""
        temperature = self._temperature()
        # (s - β)/τ: one division for both.
        scaled = (at_least_float32(similarity) - self.beta) / temperature
        return scaled - (0.5 * self.beta * self.dimension) * temperature.log() if self.beta else scaled

    def slope(self, similarity: Tensor) -> Tensor:
        """Returns 1/τ: the derivative in s alone, φ held."""
        return self._temperature().detach().reciprocal().expand_as(similarity)

    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns τ."""
        return self._temperature().detach().expand_as(similarity)

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        """Returns the map of these anchors and candidates."""
        anchors = self.anchors[rows]
        if paired:
            # Of a selection the gradient is added up many times faster than of indexing.
            whole = self.candidates
            others = whole.index_select(0, columns) if isinstance(columns, Tensor) else whole[columns]
            product = torch.linalg.vecdot(anchors, others)
        else:
            # In two sums of half the length, which round away less: most of what the gradient errs is in these products.
            others, half = self.candidates[columns], self.anchors.shape[1] // 2
            product = anchors[:, :half] @ others[:, :half].T + anchors[:, half:] @ others[:, half:].T
        return _BoundPairTemperatureMap(self, product)

    def with_candidates(self, candidates: Sequence[Tensor]) -> PairTemperatureMap:
        """Returns the map of the same anchors and other candidates, given by their φ."""
        return PairTemperatureMap(self.anchors, candidates[0], self.span, self.floor, self.beta)

    def tensors(self) -> tuple[Tensor, ...]:
        """Returns φ of anchors and candidates, where it is learned."""
        both = (self.anchors,) if self.candidates is self.anchors else (self.anchors, self.candidates)
        return tuple(tensor for tensor in both if tensor.requires_grad)

    def detached(self) -> PairTemperatureMap:
        """Returns the map of φ without gradient."""
        anchors = self.anchors.detach()
        candidates = anchors if self.candidates is self.anchors else self.candidates.detach()
        return PairTemperatureMap(anchors, candidates, self.span, self.floor, self.beta)


class _BoundPairTemperatureMap(PairTemperatureMap):
    """The temperatures of one tile."""

    def __init__(self, whole: PairTemperatureMap, product: Tensor) -> None:
        super().__init__(whole.anchors, whole.candidates, whole.span, whole.floor, whole.beta)
        self._product = product
        self._bound = self.temperature_at(product, whole.span, whole.floor)

    def _temperature(self) -> Tensor:
        return self._bound

    def logit_and_slopes_(self, similarity: Tensor) -> tuple[Tensor, ...]:
        """Returns (s - β)/τ - β·(D/2)·ln τ, 1/τ and, with u = ⟨φ, φ⟩, ((s - β)/τ + β·D/2)/τ · span·sigmoid(u)·sigmoid(-u)."""
        weight = 0.5 * self.beta * self.dimension
        share = self._product.neg().sigmoid_()
        inverse = torch.mul(share, self.span).add_(self.floor)
        logit = similarity.sub_(self.beta)
        logarithm = inverse.log() if weight else None
        logit.mul_(inverse.reciprocal_())
        along = torch.ops.aten.sigmoid_backward((logit + weight).mul_(inverse).mul_(self.span), share)
        if logarithm is not None:
            logit.sub_(logarithm, alpha=weight)
        return logit.mul_(LOG2E), inverse, along

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        raise RuntimeError("this map is already bound to a tile.")


class LogOddsMap(LogitMap):
    """l = ln((1+s)/(1-s)) = 2·atanh(s), the similarity clamped to [-(1-eps), 1-eps].

    Args:
        eps: in [1.2e-7, 1); outside the clamp the slope is 0.

    Source: Temperature-Free InfoNCE, eqs. 11-12; the clamp is ours, the paper's logit is infinite at s = ±1.

    >>> LogOddsMap(1e-4).logit(torch.tensor([0.0, 0.2], dtype=torch.float64))
    tensor([0.0000, 0.4055], dtype=torch.float64)
    """

    def __init__(self, eps: float) -> None:
        self.eps = eps

    def _clamp(self, similarity: Tensor) -> Tensor:
        return at_least_float32(similarity).clamp(self.eps - 1, 1 - self.eps)

    def logit(self, similarity: Tensor) -> Tensor:
        """Returns log1p(s) - log1p(-s) of the clamped similarity."""
        clamped = self._clamp(similarity)
        return torch.log1p(clamped) - torch.log1p(-clamped)

    def slope(self, similarity: Tensor) -> Tensor:
        """Returns 2/(1-s²) inside the clamp, 0 outside."""
        clamped = self._clamp(similarity)
        inside = clamped == at_least_float32(similarity)
        return torch.where(inside, 2 / ((1 - clamped) * (1 + clamped)), 0.0)

    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns s/l(s), which tends to 1/2 at s = 0."""
        clamped = self._clamp(similarity)
        small = clamped.abs() < 1e-3
        ratio = clamped / torch.where(small, torch.ones_like(clamped), self.logit(clamped))
        return torch.where(small, 0.5 - clamped.square() / 6, ratio)

    @property
    def bound(self) -> float:
        """The logit where the clamp begins."""
        return math.log((2 - self.eps) / self.eps)

    def exponential_and_slopes_(self, similarity: Tensor) -> tuple[Tensor, ...]:
        """Returns (1 + s)/(1 - s), which needs no exponential, and the slope, 0 where the clamp holds."""
        low, high = self.eps - 1, 1 - self.eps
        clamped = similarity.clamp_(low, high)
        below, above = 1 - clamped, clamped + 1
        slope = torch.mul(above, below).reciprocal_().mul_(2)
        torch.ops.aten.hardtanh_backward.grad_input(slope, clamped, low, high, grad_input=clamped)
        return above.div_(below), clamped


@dataclass(eq=False)
class ProfileMap(LogitMap):
    """l = s/τ(s), with τ(s) one of DySTreSS's curves between ``temperature_min`` and ``temperature_max``.

    Args:
        profile: ``cosine``, ``linear``, ``exponential``, ``monotonic`` or ``shifted``.
        temperature_min: greater than 0.
        temperature_max: at least ``temperature_min``.
        shift: in [-1, 1]; of ``shifted``: minus the similarity where the flat part of the curve begins.
        width: greater than 0; of ``shifted``: half a period of the cosine.
        rate: greater than 0; of ``exponential``: how fast it saturates.
        detach: whether τ is a constant for the gradient (Algorithm 3), so that the slope is 1/τ.

    Source: DySTreSS, Algorithms 1-3 and Table 13. The curves of ``linear``, ``exponential`` and ``monotonic`` are not
    printed there; ours are those that its criteria determine or that are closest to its released script.
    """

    profile: Profile
    temperature_min: float
    temperature_max: float
    shift: float = field(default=0.0, kw_only=True)
    width: float = field(default=0.5, kw_only=True)
    rate: float = field(default=3.5, kw_only=True)
    detach: bool = field(default=True, kw_only=True)

    @property
    def range(self) -> float:
        """Largest minus smallest temperature."""
        return self.temperature_max - self.temperature_min

    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns τ(s)."""
        s = at_least_float32(similarity)
        return self.temperature_min + self.range * self._shape(s)

    def _shape(self, s: Tensor) -> Tensor:
        """Returns (τ - temperature_min) / (temperature_max - temperature_min), in [0, 1]."""
        match self.profile:
            case "cosine":
                return 0.5 * (1 + torch.cos(math.pi * (1 + s)))
            case "linear":
                return s.abs()
            case "exponential":
                return torch.expm1(-self.rate * s.abs()) / math.expm1(-self.rate)
            case "monotonic":
                return 0.5 * (1 + torch.sin(0.5 * math.pi * s))
            case "shifted":
                wave = 0.5 * (1 + torch.cos(math.pi / self.width * (self.shift + s)))
                return torch.where(self._active(s), wave, 1.0)

    def _active(self, s: Tensor) -> Tensor:
        # Algorithm 2 prints `>= 0` in its second clause, which leaves no plateau at shift 0: strict is what its tables use.
        return s >= -self.shift if self.shift > 0 else s <= -self.shift

    def _shape_slope(self, s: Tensor) -> Tensor:
        """Returns the derivative of `_shape`."""
        match self.profile:
            case "cosine":
                return -0.5 * math.pi * torch.sin(math.pi * (1 + s))
            case "linear":
                return torch.sign(s)
            case "exponential":
                return torch.sign(s) * torch.exp(-self.rate * s.abs()) * (-self.rate / math.expm1(-self.rate))
            case "monotonic":
                return 0.25 * math.pi * torch.cos(0.5 * math.pi * s)
            case "shifted":
                wave = -0.5 * math.pi / self.width * torch.sin(math.pi / self.width * (self.shift + s))
                return torch.where(self._active(s), wave, 0.0)

    def logit(self, similarity: Tensor) -> Tensor:
        """Returns s/τ(s)."""
        s = at_least_float32(similarity)
        return s / self.temperature(s.detach() if self.detach else s)

    def slope(self, similarity: Tensor) -> Tensor:
        """Returns 1/τ, or with ``detach=False`` the full derivative (τ - s·τ')/τ²."""
        s = at_least_float32(similarity)
        temperature = self.temperature(s)
        if self.detach:
            return temperature.reciprocal()
        return (temperature - s * self.range * self._shape_slope(s)) / temperature.square()

    @property
    def bound(self) -> float:
        """The logit of 1 at the smallest temperature."""
        return 1 / self.temperature_min

    def logit_and_slopes_(self, similarity: Tensor) -> tuple[Tensor, ...]:
        """Returns s/τ and the slope; of the published profile in float32 by a polynomial."""
        if not self.detach:
            return super().logit_and_slopes_(similarity)
        if self.profile != "cosine" or similarity.dtype is not torch.float32 or not similarity.is_cpu:
            slope = self.temperature(similarity).reciprocal()
            return similarity.mul_(slope).mul_(LOG2E), slope
        lowest, *others, first = _polynomial(self.temperature_min, self.range)
        squared = torch.square(similarity)
        temperature = torch.addcmul(others[-1], squared, first)
        for coefficient in reversed(others[:-1]):
            torch.addcmul(coefficient, temperature, squared, out=temperature)
        slope = torch.addcmul(lowest, temperature, squared, out=temperature).reciprocal_()
        return similarity.mul_(slope).mul_(LOG2E), slope


@shared
def _polynomial(temperature_min: float, spread: float) -> tuple[Tensor, ...]:
    """Returns the coefficients of τ(s) of the cosine profile in s², as tensors: numbers would become some in every call."""
    numbers = (temperature_min, *(coefficient * spread for coefficient in SINE_SQUARED))
    return tuple(torch.tensor(number, dtype=torch.float32, device="cpu") for number in numbers)
