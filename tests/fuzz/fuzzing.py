"""What every fuzzer is: a function from a number to a verdict. The same number is the same case, for ever and everywhere.

A fuzzer is a module ``fuzz_NAME.py`` in this folder with a function ``case(number: int) -> Verdict``. It draws what it tries
from ``random.Random(number)`` alone, and leaves nothing behind. `run.py` finds it by its name; ``test_fuzz.py`` tries a fixed
few in every test run.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).resolve().parent
Kind = Literal["right", "refused", "silent", "obscure", "wrong"]
FAULTS = ("silent", "obscure", "wrong")


@dataclass(frozen=True)
class Verdict:
    """What came of one case.

    Attributes:
        kind: ``right`` (it did what it should), ``refused`` (with a clear error, as it should be); or a fault: ``silent``
            (accepted what is wrong), ``obscure`` (an error that does not say what was wrong), ``wrong`` (another result).
        case: what was tried, in one line.
        detail: of a fault, what was seen.
    """

    kind: Kind
    case: str
    detail: str = ""

    @property
    def fault(self) -> bool:
        return self.kind in FAULTS


@dataclass
class Tally:
    """The verdicts of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, Verdict]] = field(default_factory=list)

    def add(self, number: int, verdict: Verdict) -> None:
        self.counts[verdict.kind] += 1
        if verdict.fault:
            self.faults.append((number, verdict))

    def __str__(self) -> str:
        words = ", ".join(f"{self.counts[kind]} {kind}" for kind in ("right", "refused", *FAULTS))
        return f"{sum(self.counts.values())} cases: {words}"


def names() -> list[str]:
    """Returns the names of all fuzzers."""
    return sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.py"))


def load(name: str) -> Any:
    """Returns the module of a fuzzer."""
    # The oracle's cases of the parity tests serve here too, also where pytest has not put them on the path.
    for folder in (HERE, HERE.parent / "parity"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(f"fuzz_{name}")


def verdicts(name: str, first: int, *, cases: int | None = None, seconds: float | None = None) -> Iterator[tuple[int, Verdict]]:
    """Yields the numbers from ``first`` on and their verdicts, until so many cases or seconds are over."""
    module, number, end = load(name), first, None if seconds is None else time.monotonic() + seconds
    while (cases is None or number < first + cases) and (end is None or time.monotonic() < end):
        yield number, module.case(number)
        number += 1
