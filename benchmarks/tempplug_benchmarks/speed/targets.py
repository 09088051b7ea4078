"""What the speed suite must reach at least, read from ``targets.json`` beside this file. It must not hold measured numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from tempplug.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Target:
    """One figure that is wanted. It holds on a quiet machine; a setting with busy neighbours has no targets.

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

    def reached(self, numbers: Mapping[str, float]) -> bool | None:
        """Returns whether it is reached; None where the number is missing.

        Args:
            numbers: ``ratio`` (of ``against`` over ``of``), ``own`` (of ``of``) and ``share``, those that were measured.
        """
        if self.at_least is not None:
            return numbers["ratio"] >= self.at_least if "ratio" in numbers else None
        if self.share is not None:
            return numbers["share"] >= self.share if "share" in numbers else None
        return numbers["own"] <= self.at_most if self.at_most is not None and "own" in numbers else None

    def words(self) -> str:
        """Returns the target as tables show it.

        >>> Target(case="any", against="eager", at_least=6).words()
        '≥ 6×'
        """
        before = f"{self.of} " * (self.of not in ("tempplug", self.against)) + "cold " * self.cold
        if self.share is not None:
            return f"{before}≥ {self.share:.0%} of matmul rate"
        return before + (f"≥ {self.at_least:.3g}×" if self.at_least is not None else f"≤ {self.at_most:g}")


def load_targets() -> tuple[Target, ...]:
    """Returns the targets of this version; the case of an entry is one name or several with spaces between.

    Raises:
        DataError: an entry has not exactly one limit, or a field that is not known.
    """
    text = files(__package__).joinpath("targets.json").read_text(encoding="utf-8")
    found: list[Target] = []
    for entry in json.loads(text)["targets"]:
        try:
            made = [Target(**{**entry, "case": name}) for name in entry["case"].split()]
        except TypeError as error:
            raise DataError(f"targets.json, entry {entry}: {error}.") from error
        if [made[0].at_least, made[0].at_most, made[0].share].count(None) != 2:
            raise DataError(f"targets.json, entry {entry} must have one of at_least, at_most and share.")
        found += made
    return tuple(found)
