"""What a suite that measures speed must reach at least, and that suite; both are filled from ``cases.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tempplug_benchmarks.suite import Suite


@dataclass(frozen=True, kw_only=True)
class Target:
    """One figure that is wanted. It holds on a quiet machine; there are no targets beside busy processes.

    Attributes:
        case: name of the case.
        against: implementation that ``of`` is compared with; ``of`` itself where its own number is limited.
        at_least: how many times better than ``against`` it must be; None where its own number is limited.
        at_most: limit of its own number; None where it is compared.
        share: least share of the matrix rate that its products must reach, in [0, 1]; None elsewhere.
        device: that the target is for.
        of: implementation that must reach it.
        cold: whether the time after a network's step is meant.
    """

    case: str
    against: str
    at_least: float | None = None
    at_most: float | None = None
    share: float | None = None
    device: str = "cpu"
    of: str = "tempplug"
    cold: bool = False

    def reached(self, numbers: Mapping[str, float | None]) -> bool | None:
        """Returns whether it is reached; None where the number is missing.

        Args:
            numbers: ``ratio`` (of ``against`` over ``of``), ``own`` (of ``of``) and ``share``, those that were measured.
        """
        name = "ratio" if self.at_least is not None else "share" if self.share is not None else "own"
        if (number := numbers.get(name)) is None:
            return None
        least = self.at_least if self.at_least is not None else self.share
        return number <= self.at_most if self.at_most is not None else least is not None and number >= least

    def words(self) -> str:
        """Returns the target as tables show it.

        >>> Target(case="any", against="eager", at_least=6).words()
        '≥ 6×'
        """
        before = f"{self.of} " * (self.of not in ("tempplug", self.against)) + "cold " * self.cold
        if self.share is not None:
            return f"{before}≥ {self.share:.0%} of matmul rate"
        return before + (f"≥ {self.at_least:.3g}×" if self.at_least is not None else f"≤ {self.at_most:g}")


@dataclass(frozen=True)
class SpeedSuite(Suite):
    """Tasks whose arms are cases, each one loss at one size.

    Attributes:
        targets: what must be reached at least.
    """

    kind: ClassVar[str] = "suites that measure speed"

    targets: tuple[Target, ...] = ()
