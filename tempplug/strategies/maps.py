"""Logit maps: how a similarity becomes a logit. The vocabulary that strategies and engines share.

Engines implement maps, not strategies. A map works element by element, on any tile of the similarity matrix; it must not
know which pairs are positive or negative. All maps compute in at least float32 (float64 stays float64).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from tempplug.precision import HALF, at_least_float32
from tempplug.strategies.tile_forms import CosineForm, LogOddsForm, PlainForm, ScaleForm, TileForm

Profile = Literal["cosine", "linear", "exponential", "monotonic", "shifted"]
Rows = slice | Tensor


class LogitMap(ABC):
    """An immutable, element-wise map of cosine similarities in [-1, 1] to logits in nats.

    Attributes:
        uniform: the same map for every pair.
        symmetric: the logit of (i, j) is that of (j, i), so that half of a square matrix is enough.
    """

    uniform: bool = True
    symmetric: bool = True

    @abstractmethod
    def logit(self, similarity: Tensor) -> Tensor:
        """Returns the logits; autograd through them gives `slope`."""

    @abstractmethod
    def slope(self, similarity: Tensor) -> Tensor:
        """Returns the derivative of the logit that training uses, under the paper's stop-gradient."""

    @abstractmethod
    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns similarity / logit, the temperature in force, for logs and plots."""

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        """Returns the map bound to a tile, or to index pairs.

        Args:
            rows: anchors of the tile, or with ``paired`` the anchor of each pair.
            columns: candidates of the tile, or with ``paired`` the candidate of each pair.
            paired: whether ``rows`` and ``columns`` run together (similarities of shape [P]) or span a tile [R, C].
        """
        return self

    def tensors(self) -> tuple[Tensor, ...]:
        """Returns what carries gradient beside the similarity."""
        return ()

    def detached(self) -> LogitMap:
        """Returns the same map without gradient; maps that hold no tensors are that already."""
        return self

    def tile_form(self, columns: int, dtype: torch.dtype) -> TileForm | None:
        """Returns the in-place form for rows of this many columns; None leaves the map to its ``logit``."""
        return None


# Forms of constants alone, which every batch would make anew.
_log_odds_form = lru_cache(maxsize=64)(LogOddsForm)
_cosine_form = lru_cache(maxsize=64)(CosineForm)


@lru_cache(maxsize=64)
def _constant_form(scale: float, columns: int) -> ScaleForm:
    return ScaleForm(scale, scale, columns, constant=True)


class ScaleMap(LogitMap):
    """l = scale · s, with one scale for all pairs or one per anchor.

    Args:
        scale: [] or [N], 1/τ, greater than 0; may carry gradient.
        constant: whether later batches have the same [].

    >>> ScaleMap(torch.tensor(10.0)).logit(torch.tensor([0.5, -0.2]))
    tensor([ 5., -2.])
    """

    _number: float | None = None

    def __init__(self, scale: Tensor, constant: bool = False) -> None:
        self.scale = scale
        self.uniform = self.symmetric = scale.ndim == 0
        if constant:
            self._number = scale.item()

    def logit(self, similarity: Tensor) -> Tensor:
        """Returns scale · s."""
        return (similarity.float() if similarity.dtype in HALF else similarity) * self.scale

    def slope(self, similarity: Tensor) -> Tensor:
        """Returns the scale, in the shape of the similarities."""
        return self.scale.detach().expand_as(similarity).to(at_least_float32(similarity).dtype)

    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns 1/scale, in the shape of the similarities."""
        return self.slope(similarity).reciprocal()

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
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
        if type(self) is ScaleMap:  # made sooner than copied
            return ScaleMap(self.scale.detach(), self._number is not None)
        twin = copy.copy(self)
        twin.scale = self.scale.detach()
        return twin

    def tile_form(self, columns: int, dtype: torch.dtype) -> TileForm:
        """Returns the form that folds the scale into the anchors' rows."""
        if self._number is not None:
            return _constant_form(self._number, columns)
        if self.uniform:
            value = self.scale.item()
            return ScaleForm(value, value, columns)
        scale = self.scale.detach()
        return ScaleForm(scale, float(scale.max()), columns)


@lru_cache(maxsize=64)
def constant_scale(scale: float, dtype: torch.dtype, device: torch.device) -> ScaleMap:
    """Returns the map of one scale that no batch changes.

    Args:
        scale: 1/τ, greater than 0.
        dtype: of the similarities.
        device: of the similarities.
    """
    # Not of inference mode, because training will use it as well.
    with torch.inference_mode(False):
        return ScaleMap(torch.tensor(scale, dtype=dtype, device=device), constant=True)


class _BoundScaleMap(ScaleMap):
    """A per-anchor scale already shaped for its tile."""

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        raise RuntimeError("this map is already bound to a tile.")


class PairTemperatureMap(LogitMap):
    """l_ij = s_ij/τ_ij - β·((D/2)·ln τ_ij + 1/τ_ij), τ_ij = span/(1 + exp⟨φ_i, φ_j⟩) + floor: one temperature a pair.

    Args:
        anchors: [N, D] φ of each anchor.
        candidates: [M, D] φ of each candidate; the same tensor where the candidates are the anchors.
        span: greater than 0.
        floor: greater than 0.
        beta: weight of the regulariser, at least 0.

    Source: AMCL, eqs. 5-7.

    >>> PairTemperatureMap(torch.zeros(1, 2), torch.zeros(1, 2), 2.0, 0.5, 1.0).temperature(torch.ones(1, 1))
    tensor([[1.5000]])
    """

    uniform = False

    def __init__(self, anchors: Tensor, candidates: Tensor, span: float, floor: float, beta: float) -> None:
        self.anchors = anchors
        self.candidates = candidates
        self.span = span
        self.floor = floor
        self.beta = beta
        self.dimension = anchors.shape[-1]

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

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        """Returns the map of these anchors and candidates."""
        anchors = self.anchors[rows]
        if paired:
            # Of a selection the gradient is added up many times faster than of indexing.
            whole = self.candidates
            product = torch.linalg.vecdot(
                anchors, whole.index_select(0, columns) if isinstance(columns, Tensor) else whole[columns]
            )
        else:
            product = anchors @ self.candidates[columns].T
        return _BoundPairTemperatureMap(self, product)

    def tensors(self) -> tuple[Tensor, ...]:
        """Returns φ of anchors and candidates, where it is learned."""
        both = (self.anchors,) if self.candidates is self.anchors else (self.anchors, self.candidates)
        return tuple(each for each in both if each.requires_grad)

    def detached(self) -> PairTemperatureMap:
        """Returns the map of φ without gradient."""
        twin = copy.copy(self)
        twin.anchors = self.anchors.detach()
        twin.candidates = twin.anchors if self.candidates is self.anchors else self.candidates.detach()
        return twin


class _BoundPairTemperatureMap(PairTemperatureMap):
    """The temperatures of one tile."""

    def __init__(self, whole: PairTemperatureMap, product: Tensor) -> None:
        super().__init__(whole.anchors, whole.candidates, whole.span, whole.floor, whole.beta)
        self._bound = self.temperature_at(product, whole.span, whole.floor)

    def _temperature(self) -> Tensor:
        return self._bound

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
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

    def tile_form(self, columns: int, dtype: torch.dtype) -> TileForm:
        """Returns the form without an exponential."""
        return _log_odds_form(self.eps, dtype)


class ProfileMap(LogitMap):
    """l = s/τ(s), with τ(s) one of DySTreSS's curves between ``temperature_min`` and ``temperature_max``.

    Args:
        profile: ``cosine``, ``linear``, ``exponential``, ``monotonic`` or ``shifted``.
        temperature_min: smallest temperature, greater than 0.
        temperature_max: largest temperature, at least ``temperature_min``.
        shift: in [-1, 1]; of ``shifted``: minus the similarity where the flat part of the curve begins.
        width: greater than 0; of ``shifted``: half a period of the cosine.
        rate: greater than 0; of ``exponential``: how fast it saturates.
        detach: whether τ is a constant for the gradient (Algorithm 3), so that the slope is 1/τ.

    Source: DySTreSS, Algorithms 1-3 and Table 13. The curves of ``linear``, ``exponential`` and ``monotonic`` are not
    printed there; ours are the ones that its criteria force or that its released script comes closest to.
    """

    def __init__(
        self,
        profile: Profile,
        temperature_min: float,
        temperature_max: float,
        *,
        shift: float = 0.0,
        width: float = 0.5,
        rate: float = 3.5,
        detach: bool = True,
    ) -> None:
        self.profile = profile
        self.temperature_min = temperature_min
        self.range = temperature_max - temperature_min
        self.shift = shift
        self.width = width
        self.rate = rate
        self.detach = detach

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

    def tile_form(self, columns: int, dtype: torch.dtype) -> TileForm:
        """Returns the polynomial form of the published profile; the others go through ``logit`` and ``slope``."""
        if self.profile == "cosine" and self.detach:
            return _cosine_form(self.temperature_min, self.range, columns, dtype)
        return PlainForm(self.logit, self.slope, 1 / self.temperature_min, columns)
