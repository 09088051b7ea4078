"""A strategy with a logit map of its own: three methods are all that a map needs."""

from __future__ import annotations

from typing import Annotated, ClassVar

from torch import Tensor

from tempplug import Batch, LogitMap, Strategy
from tempplug.options import Number
from tempplug.precision import at_least_float32


class CubicMap(LogitMap):
    """l = (s + bend·s³)/τ₀."""

    def __init__(self, base_temperature: float, bend: float) -> None:
        self.base_temperature = base_temperature
        self.bend = bend

    def logit(self, similarity: Tensor) -> Tensor:
        s = at_least_float32(similarity)
        return s * (1 + self.bend * s * s) / self.base_temperature

    def slope(self, similarity: Tensor) -> Tensor:
        s = at_least_float32(similarity)
        return (1 + 3 * self.bend * s * s) / self.base_temperature

    def temperature(self, similarity: Tensor) -> Tensor:
        s = at_least_float32(similarity)
        return self.base_temperature / (1 + self.bend * s * s)


class Cubic(Strategy):
    """Divides by τ₀/(1 + bend·s²).

    >>> Cubic(bend=2).spec()
    'cubic:base_temperature=0.1,bend=2'
    """

    name: ClassVar[str] = "cubic"
    formula: ClassVar[str] = "l = (s + bend·s³) / τ₀"
    source: ClassVar[str] = "none"

    base_temperature: float
    bend: float

    def __init__(
        self,
        base_temperature: Annotated[float, Number(above=0, help="τ₀, in force at s = 0")] = 0.1,
        bend: Annotated[float, Number(at_least=0, at_most=10, help="how much colder at s = ±1")] = 0.5,
    ) -> None:
        super().__init__(base_temperature=base_temperature, bend=bend)

    def prepare(self, batch: Batch) -> LogitMap:
        return CubicMap(self.base_temperature, self.bend)
