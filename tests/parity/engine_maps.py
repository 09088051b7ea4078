"""Maps, negative terms and pair functions as third parties may write them, for tests of the engines."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.negatives.base import TermMap
from tempplug.pair_functions import PairFunction
from tempplug.strategies.maps import LogitMap, Rows, ScaleMap


class Bent(LogitMap):
    """l = w₀ s + w₁ s³: the three methods that a third party must write, and ``tensors`` where the weights are learned."""

    def __init__(self, first: float, second: float, learned: bool = False) -> None:
        self.weights = torch.tensor([first, second], dtype=torch.float64, requires_grad=learned)

    def logit(self, similarity: Tensor) -> Tensor:
        logit: Tensor = self.weights[0] * similarity + self.weights[1] * similarity**3
        return logit

    def slope(self, similarity: Tensor) -> Tensor:
        weights = self.weights.detach()
        derivative: Tensor = weights[0] + 3 * weights[1] * similarity**2
        return derivative

    def temperature(self, similarity: Tensor) -> Tensor:
        return 1 / (self.weights.detach()[0] + self.weights.detach()[1] * similarity**2)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weights,) if self.weights.requires_grad else ()


class ByColumns(Bent):
    """The same, from a memory format of its own: values lie column after column."""

    def logit(self, similarity: Tensor) -> Tensor:
        logit = super().logit(similarity)
        return logit.t().contiguous().t() if logit.ndim == 2 else logit

    def slope(self, similarity: Tensor) -> Tensor:
        slope = super().slope(similarity)
        return slope.t().contiguous().t() if slope.ndim == 2 else slope


class PerPair(Bent):
    """Times a factor of each pair, from its two rows: another one for the pair turned round."""

    uniform = symmetric = False

    def __init__(self, of_anchors: Tensor, of_candidates: Tensor, learned: bool = False) -> None:
        super().__init__(4.0, 2.0, learned)
        self.of_anchors, self.of_candidates = of_anchors, of_candidates
        self.factor: Tensor | None = None

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        bound = object.__new__(PerPair)
        bound.weights = self.weights
        anchors, candidates = self.of_anchors[rows], self.of_candidates[columns]
        bound.factor = anchors / candidates if paired else anchors[:, None] / candidates
        return bound

    def logit(self, similarity: Tensor) -> Tensor:
        assert self.factor is not None, "an engine must bind the map first"
        return super().logit(similarity) * self.factor

    def slope(self, similarity: Tensor) -> Tensor:
        assert self.factor is not None
        return super().slope(similarity) * self.factor


class Identity(LogitMap):
    """l = s, which is its argument itself, with a slope that has one number in memory."""

    def logit(self, similarity: Tensor) -> Tensor:
        return similarity

    def slope(self, similarity: Tensor) -> Tensor:
        return torch.ones((), dtype=similarity.dtype).expand_as(similarity)

    def temperature(self, similarity: Tensor) -> Tensor:
        return torch.ones_like(similarity)


class View(Identity):
    """l = s, a view of its argument."""

    def logit(self, similarity: Tensor) -> Tensor:
        return similarity[:]


class HalfSquare(LogitMap):
    """l = s²/2, whose slope is its argument itself."""

    def logit(self, similarity: Tensor) -> Tensor:
        return similarity.square() / 2

    def slope(self, similarity: Tensor) -> Tensor:
        return similarity

    def temperature(self, similarity: Tensor) -> Tensor:
        return 2 / similarity


class Steeper(ScaleMap):
    """A built-in map with another logit; everything that it inherits speaks of the old one."""

    def logit(self, similarity: Tensor) -> Tensor:
        return super().logit(similarity) + 2 * similarity**3

    def slope(self, similarity: Tensor) -> Tensor:
        return super().slope(similarity) + 6 * similarity**2


class Linear(LogitMap):
    """l = t s with a learned t, by a map that says so and is no built-in one."""

    linear = True

    def __init__(self, scale: float) -> None:
        self.scale = torch.tensor(scale, dtype=torch.float64, requires_grad=True)

    def logit(self, similarity: Tensor) -> Tensor:
        return self.scale * similarity

    def slope(self, similarity: Tensor) -> Tensor:
        return self.scale.detach().expand_as(similarity)

    def temperature(self, similarity: Tensor) -> Tensor:
        return 1 / self.slope(similarity)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.scale,)


class Affine(LogitMap):
    """l = t s + b, as of a sigmoid loss, both learned."""

    def __init__(self, scale: float, bias: float) -> None:
        self.scale, self.bias = (torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (scale, bias))

    def logit(self, similarity: Tensor) -> Tensor:
        return self.scale * similarity + self.bias

    def slope(self, similarity: Tensor) -> Tensor:
        return self.scale.detach().expand_as(similarity)

    def temperature(self, similarity: Tensor) -> Tensor:
        return similarity / self.logit(similarity).detach()

    def tensors(self) -> tuple[Tensor, ...]:
        return self.scale, self.bias


class TooSimilar(TermMap):
    """Leaves out negatives with a similarity above a limit of each anchor: not those of the pair turned round."""

    bound = 0.0

    def __init__(self, limit: Tensor) -> None:
        self.limit = limit

    def at(self, rows: Rows, columns: Rows) -> TermMap:
        return TooSimilar(self.limit[rows][:, None])

    def term(self, similarity: Tensor) -> Tensor:
        return torch.where(similarity > self.limit, -torch.inf, 0.0)


class Hardness(TermMap):
    """Adds ``strength`` times the similarity; at 1 its argument itself."""

    symmetric = True

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def term(self, similarity: Tensor) -> Tensor:
        return similarity if self.strength == 1 else self.strength * similarity


class Frequent(TermMap):
    """Adds a number of each candidate, [1, C] of a tile."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers

    def at(self, rows: Rows, columns: Rows) -> TermMap:
        return Frequent(self.numbers[columns])

    def term(self, similarity: Tensor) -> Tensor:
        return self.numbers[None, :]


class Square(PairFunction):
    """f(l) = l²/2, whose derivative is its argument itself."""

    def value(self, logit: Tensor) -> Tensor:
        return logit.square() / 2

    def slope(self, logit: Tensor) -> Tensor:
        return logit


class Itself(PairFunction):
    """f(l) = l, its argument itself, with a derivative that has one number in memory."""

    def value(self, logit: Tensor) -> Tensor:
        return logit

    def slope(self, logit: Tensor) -> Tensor:
        return torch.ones((), dtype=logit.dtype).expand_as(logit)


def softplus(logit: Tensor) -> Tensor:
    return torch.log1p(logit.exp())
