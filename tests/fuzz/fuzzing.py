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
from pathlib import Path
from typing import Literal, NamedTuple

HERE = Path(__file__).resolve().parent
NAMES = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.py"))
FAULTS = ("silent", "obscure", "wrong")


class Verdict(NamedTuple):
    """What came of one case.

    Attributes:
        kind: ``right`` (it did what it should), ``refused`` (with a clear error, as it should be); or a fault: ``silent``
            (accepted what is wrong), ``obscure`` (an error that does not name what was wrong), ``wrong`` (another result).
        case: what was tried, in one line.
        detail: of a fault, what was seen.
    """

    kind: Literal["right", "refused", "silent", "obscure", "wrong"]
    case: str
    detail: str = ""


def verdict(name: str, number: int) -> Verdict:
    """Tries one case of a fuzzer."""
    # Cases and toys of other tests serve here too, also where pytest has not put them on the path.
    sys.path.extend({*map(str, (HERE, HERE.parent, HERE.parent / "parity", HERE.parent / "adapters"))} - {*sys.path})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Verdict = importlib.import_module(f"fuzz_{name}").case(number)
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Tries random cases until it is interrupted.")
    parser.add_argument("fuzzers", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of all together; by default until Ctrl-C")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, help="how many of each fuzzer")
    flags = parser.parse_args(words)
    if unknown := set(flags.fuzzers) - set(NAMES):
        parser.error(f"no fuzzer {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    counts: dict[str, Counter[str]] = {name: Counter() for name in flags.fuzzers or NAMES}
    end = time.monotonic() + flags.seconds
    try:
        for number in itertools.count(flags.seed) if flags.cases is None else range(flags.seed, flags.seed + flags.cases):
            for name, seen in counts.items():
                if time.monotonic() >= end:
                    break
                found = verdict(name, number)
                seen[found.kind] += 1
                if found.kind in FAULTS:
                    print(f"{found.kind}: {found.case}\n    {found.detail}")
                    print(f"    python tests/fuzz/run.py {name} --seed {number} --cases 1", flush=True)
            if time.monotonic() >= end:
                break
    except KeyboardInterrupt:
        print()
    for name, seen in counts.items():
        print(f"{name}: {seen.total()} cases: {', '.join(f'{seen[kind]} {kind}' for kind in ('right', 'refused', *FAULTS))}")
    return int(any(seen[kind] for seen in counts.values() for kind in FAULTS))
