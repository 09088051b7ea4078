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
        against: implementation that tempplug is compared with; ``tempplug`` where its own number is limited.
        at_least: how many times better than ``against`` tempplug must be; None where its own number is limited.
        at_most: limit of tempplug's own number; None where it is compared.
        share: least share of the GPU's matrix rate that tempplug's products must reach, in [0, 1]; None elsewhere.
        device: that the target is for.
    """

    case: str
    against: str
    at_least: float | None = None
    at_most: float | None = None
    share: float | None = None
    device: str = "cpu"

    def reached(self, numbers: Mapping[str, float]) -> bool | None:
        """Returns whether it is reached; None where the number is missing.

        Args:
            numbers: ``ratio`` (against over tempplug), ``own`` (tempplug's number) and ``share``, those that were measured.
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
        if self.share is not None:
            return f"≥ {self.share:.0%} of matmul rate"
        return f"≥ {self.at_least:g}×" if self.at_least is not None else f"≤ {self.at_most:g}"


def load_targets() -> tuple[Target, ...]:
    """Returns the targets of this version.

    Raises:
        DataError: an entry has not exactly one limit, or a field that is not known.
    """
    text = files(__package__).joinpath("targets.json").read_text(encoding="utf-8")
    found = []
    for entry in json.loads(text)["targets"]:
        try:
            target = Target(**entry)
        except TypeError as error:
            raise DataError(f"targets.json, entry {entry}: {error}.") from error
        if [target.at_least, target.at_most, target.share].count(None) != 2:
            raise DataError(f"targets.json, entry {entry} must have one of at_least, at_most and share.")
        found.append(target)
    return tuple(found)
