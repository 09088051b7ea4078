"""Maps, negative terms and pair functions as third parties may write them, for tests of the engines."""

from __future__ import annotations

from collections.abc import Callable

import torch
from engine_cases import Case
from torch import Tensor

from tempplug.negatives.base import TermMap, WeightMap
from tempplug.pair_functions import PairFunction, Softplus
from tempplug.strategies.maps import LogitMap, LogOddsMap, PairTemperatureMap, ProfileMap, Rows, ScaleMap


def number(value: float) -> Tensor:
    return torch.tensor(float(value), dtype=torch.float64, requires_grad=True)


def spread(low: float, high: float, count: int) -> Tensor:
    return torch.linspace(low, high, count, dtype=torch.float64)


class ThirdParty(LogitMap):
    """The three methods that a third party must write, and ``tensors`` where something is learned."""

    learned: tuple[Tensor, ...] = ()

    def temperature(self, similarity: Tensor) -> Tensor:
        return similarity / self.logit(similarity).detach()

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(each for each in self.learned if each.requires_grad)


class Bent(ThirdParty):
    """l = w₀ s + w₁ s³."""

    def __init__(self, first: float = 4.0, second: float = 2.0, learned: bool = False) -> None:
        self.weights = torch.tensor([first, second], dtype=torch.float64, requires_grad=learned)
        self.learned = (self.weights,)

    def logit(self, similarity: Tensor) -> Tensor:
        return self.weights[0] * similarity + self.weights[1] * similarity**3

    def slope(self, similarity: Tensor) -> Tensor:
        weights = self.weights.detach()
        return weights[0] + 3 * weights[1] * similarity**2


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

    def __init__(self, of_anchors: Tensor, of_candidates: Tensor) -> None:
        super().__init__(learned=True)
        self.of_anchors, self.of_candidates = of_anchors, of_candidates

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        bound = object.__new__(PerPair)
        bound.weights = self.weights
        anchors, candidates = self.of_anchors[rows], self.of_candidates[columns]
        bound.factor = anchors / candidates if paired else anchors[:, None] / candidates
        return bound

    def logit(self, similarity: Tensor) -> Tensor:
        return super().logit(similarity) * self.factor

    def slope(self, similarity: Tensor) -> Tensor:
        return super().slope(similarity) * self.factor


class Identity(ThirdParty):
    """l = s, which is its argument itself, with a slope that has one number in memory."""

    def logit(self, similarity: Tensor) -> Tensor:
        return similarity

    def slope(self, similarity: Tensor) -> Tensor:
        return torch.ones((), dtype=similarity.dtype).expand_as(similarity)


class View(Identity):
    """l = s, a view of its argument."""

    def logit(self, similarity: Tensor) -> Tensor:
        return similarity[:]


class HalfSquare(ThirdParty):
    """l = s²/2, whose slope is its argument itself."""

    def logit(self, similarity: Tensor) -> Tensor:
        return similarity.square() / 2

    def slope(self, similarity: Tensor) -> Tensor:
        return similarity


class Steeper(ScaleMap):
    """A built-in map with another logit; everything that it inherits is of the old one."""

    def logit(self, similarity: Tensor) -> Tensor:
        return self.scale * similarity + 2 * similarity**3

    def slope(self, similarity: Tensor) -> Tensor:
        return super().slope(similarity) + 6 * similarity**2


class Affine(ThirdParty):
    """l = t s + b, as of a sigmoid loss, both learned."""

    def __init__(self, scale: float, bias: float) -> None:
        self.learned = self.scale, self.bias = number(scale), number(bias)

    def logit(self, similarity: Tensor) -> Tensor:
        return self.scale * similarity + self.bias

    def slope(self, similarity: Tensor) -> Tensor:
        return self.scale.detach().expand_as(similarity)


class Linear(Affine):
    """l = t s with a learned t, by a map that is declared linear and is no built-in one."""

    linear = True

    def __init__(self, scale: float) -> None:
        self.learned = (number(scale),)
        self.scale, self.bias = self.learned[0], torch.zeros((), dtype=torch.float64)

    # Without them a subclass that writes no logit keeps those of its base.
    logit, slope = Affine.logit, Affine.slope


def pairs(case: Case, learned: bool = True) -> PairTemperatureMap:
    """A temperature of each pair, from rows that learn or not."""
    anchors, more = (spread(-1, 1.3, 3 * count).sin().view(count, 3) for count in case.positive.shape)
    more.requires_grad_()
    anchors.requires_grad_(learned or case.block.roles.square)
    candidates = more
    if case.block.roles.square:  # the first candidates are the anchors
        candidates = anchors if anchors.shape == more.shape else torch.cat([anchors, more[len(anchors) :]])
    found = PairTemperatureMap(anchors, candidates, 2, 0.1, 0.3)
    found.learned = (anchors,) if candidates is anchors else (anchors, more)
    return found


MAPS: dict[str, Callable[[Case], LogitMap]] = {
    "bent": lambda case: Bent(),
    "learned": lambda case: Bent(learned=True),
    "large": lambda case: Bent(900.0, 700.0, learned=True),  # sums of exp overflow, which no bound tells
    "small": lambda case: Bent(-900.0, -200.0),  # every exp of a row underflows
    "by columns": lambda case: ByColumns(),
    "per pair": lambda case: PerPair(
        *(spread(low, 3 - low, size) for low, size in zip((1, 2), case.positive.shape, strict=True))
    ),
    "identity": lambda case: Identity(),
    "view": lambda case: View(),
    "half square": lambda case: HalfSquare(),
    "steeper": lambda case: Steeper(number(3)),
    "linear": lambda case: Linear(6),
    "affine": lambda case: Affine(8, -3),
    "scale": lambda case: ScaleMap(number(7)),
    "small temperature": lambda case: ScaleMap(number(900)),
    "profile": lambda case: ProfileMap("cosine", 0.1, 0.2, detach=False),
    "log-odds": lambda case: LogOddsMap(1e-2),
    "scale of each anchor": lambda case: ScaleMap(spread(3, 9, len(case.positive)).requires_grad_()),
    "pairs": pairs,
    "pairs, candidates learn": lambda case: pairs(case, learned=False),
}


class TooSimilar(TermMap):
    """Leaves out negatives with a similarity above a limit of each anchor: not those of the pair turned round."""

    bound = 0.0

    def __init__(self, limit: Tensor) -> None:
        self.limit = limit

    def restrict(self, rows: Rows, columns: Rows) -> TermMap:
        return TooSimilar(self.limit[rows][:, None])

    def term(self, similarity: Tensor) -> Tensor:
        return torch.where(similarity > self.limit, -torch.inf, 0.0)


class Weighted(WeightMap):
    """A weight of each candidate, [1, C] of a tile."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> TermMap:
        return Weighted(self.numbers[columns])

    def weight(self, similarity: Tensor) -> Tensor:
        return self.numbers.to(similarity.dtype)[None, :]


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

    def restrict(self, rows: Rows, columns: Rows) -> TermMap:
        return Frequent(self.numbers[columns])

    def term(self, similarity: Tensor) -> Tensor:
        return self.numbers[None, :]


TERMS: dict[str, Callable[[Case], TermMap]] = {
    "too similar": lambda case: TooSimilar(spread(0, 0.7, len(case.positive))),
    "hardness": lambda case: Hardness(-5),
    "the similarity itself": lambda case: Hardness(1),
    "of each candidate": lambda case: Frequent(spread(-2, 1, case.positive.shape[1])),
    "weights": lambda case: Weighted(spread(0, 2, case.positive.shape[1])),
    "far apart": lambda case: Frequent(spread(-300, 100, case.positive.shape[1])),
}


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


FUNCTIONS: dict[str, PairFunction] = {"softplus": Softplus(), "square": Square(), "itself": Itself()}
