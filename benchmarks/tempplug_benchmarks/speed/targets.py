"""The targets of speed suites, and the suite class; both are filled from ``cases.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tempplug_benchmarks.suite import Suite


@dataclass(frozen=True, kw_only=True)
class Target:
    """One performance target. It applies to an idle machine, not to measurements with busy processes.

    Attributes:
        case: name of the case.
        against: implementation that ``of`` is compared with; ``of`` itself if the target limits its own number.
        at_least: minimum ratio of ``against`` to ``of``; None if the target limits the number itself.
        at_most: maximum of the number itself; None for a comparison.
        share: minimum share of the matrix product rate, in [0, 1]; None without such a target.
        device: the device that the target applies to.
        of: implementation that must reach the target.
        cold: whether the target applies to the time after a network's step.
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
        """Returns whether measured ``numbers`` (``ratio``, ``own``, ``share``) reach the target; None if one is missing."""
        name = "ratio" if self.at_least is not None else "share" if self.share is not None else "own"
        if (number := numbers.get(name)) is None:
            return None
        least = self.at_least if self.at_least is not None else self.share
        return number <= self.at_most if self.at_most is not None else least is not None and number >= least

    def words(self) -> str:
        """Returns the target as shown in tables, e.g. ``≥ 6×``."""
        before = f"{self.of} " * (self.of not in ("tempplug", self.against)) + "cold " * self.cold
        if self.share is not None:
            return f"{before}≥ {self.share:.0%} of matmul rate"
        return before + (f"≥ {self.at_least:.3g}×" if self.at_least is not None else f"≤ {self.at_most:g}")


@dataclass(frozen=True)
class SpeedSuite(Suite):
    """A suite whose arms are cases, each one loss at one size.

    Attributes:
        targets: performance targets.
    """

    kind: ClassVar[str] = "suites that measure speed"

    targets: tuple[Target, ...] = ()
