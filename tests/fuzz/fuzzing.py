"""The harness of all fuzzers: ``python tests/fuzz/run.py [NAME ...] [--seconds N] [--seed S] [--cases N]``.

A fuzzer is a module ``fuzz_NAME.py`` in this folder with a function ``case(number: int) -> Verdict``. It draws what it tries
from ``random.Random(number)`` alone, so that the same number is the same case everywhere, and leaves nothing behind.
``test_fuzz.py`` tries a fixed few in every test run. `main` prints every fault with the command that tries it again, and counts
at the end; the exit status is 1 where there was a fault.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
Kind = Literal["right", "refused", "silent", "obscure", "wrong"]
FAULTS = ("silent", "obscure", "wrong")
# Seconds of one fuzzer before it is the next one's turn.
ROUND = 3.0


@dataclass(frozen=True)
class Verdict:
    """What came of one case.

    Attributes:
        kind: ``right`` (it did what it should), ``refused`` (with a clear error, as it should be); or a fault: ``silent``
            (accepted what is wrong), ``obscure`` (an error that does not name what was wrong), ``wrong`` (another result).
        case: what was tried, in one line.
        detail: of a fault, what was seen.
    """

    kind: Kind
    case: str
    detail: str = ""


def names() -> list[str]:
    """Returns the names of all fuzzers."""
    return sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.py"))


def verdicts(name: str, first: int, *, cases: int | None = None, seconds: float | None = None) -> Iterator[tuple[int, Verdict]]:
    """Yields the numbers from ``first`` on and their verdicts, until so many cases or seconds are over."""
    # Cases and toys of other tests serve here too, also where pytest has not put them on the path.
    for folder in (HERE, HERE.parent / "parity", HERE.parent / "adapters"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    case, end = importlib.import_module(f"fuzz_{name}").case, None if seconds is None else time.monotonic() + seconds
    for number in itertools.count(first) if cases is None else range(first, first + cases):
        if end is not None and time.monotonic() >= end:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdict = case(number)
        yield number, verdict


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Tries random cases until it is interrupted.")
    parser.add_argument("fuzzers", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; all by default")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of all together; by default until Ctrl-C")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, help="how many of each fuzzer")
    flags = parser.parse_args(words)
    if unknown := set(flags.fuzzers) - set(names()):
        parser.error(f"no fuzzer {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    counts: dict[str, Counter[str]] = {name: Counter() for name in flags.fuzzers or names()}
    end = time.monotonic() + flags.seconds
    try:
        for name in counts if flags.cases is not None else itertools.cycle(counts):
            left = end - time.monotonic()
            if left <= 0:
                break
            turn = left if flags.cases is not None else min(ROUND, left)
            following = flags.seed + counts[name].total()
            for number, verdict in verdicts(name, following, cases=flags.cases, seconds=turn):
                counts[name][verdict.kind] += 1
                if verdict.kind in FAULTS:
                    print(f"{verdict.kind}: {verdict.case}\n    {verdict.detail}")
                    print(f"    python tests/fuzz/run.py {name} --seed {number} --cases 1", flush=True)
    except KeyboardInterrupt:
        print()
    for name, found in counts.items():
        print(f"{name}: {found.total()} cases: {', '.join(f'{found[kind]} {kind}' for kind in ('right', 'refused', *FAULTS))}")
    return int(any(found[kind] for found in counts.values() for kind in FAULTS))
