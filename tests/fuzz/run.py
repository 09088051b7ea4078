"""Runs fuzzers for as long as one likes: ``python tests/fuzz/run.py [NAME ...] [--seconds N] [--seed S] [--cases N]``.

Prints every fault with the command that tries it again, and counts at the end; the exit status is 1 where there was a fault.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

import fuzzing

# Seconds of one fuzzer before it is the next one's turn.
ROUND = 3.0


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Tries random cases until it is interrupted.")
    parser.add_argument("fuzzers", nargs="*", metavar="NAME", help=f"of {', '.join(fuzzing.names())}; all by default")
    parser.add_argument("--seconds", type=float, help="of all fuzzers together; by default until Ctrl-C")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, help="how many of each fuzzer")
    flags = parser.parse_args(words)
    unknown = set(flags.fuzzers) - set(fuzzing.names())
    if unknown:
        parser.error(f"no fuzzer {', '.join(sorted(unknown))}; there are {', '.join(fuzzing.names())}")
    chosen = flags.fuzzers or fuzzing.names()
    tallies = {name: fuzzing.Tally() for name in chosen}
    following = dict.fromkeys(chosen, flags.seed)
    end = None if flags.seconds is None else time.monotonic() + flags.seconds
    try:
        for name in chosen if flags.cases is not None else itertools.cycle(chosen):
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            turn = left if flags.cases is not None else ROUND if left is None else min(ROUND, left)
            for number, verdict in fuzzing.verdicts(name, following[name], cases=flags.cases, seconds=turn):
                following[name] = number + 1
                tallies[name].add(number, verdict)
                if verdict.fault:
                    print(f"{verdict.kind}: {verdict.case}\n    {verdict.detail}")
                    print(f"    python tests/fuzz/run.py {name} --seed {number} --cases 1", flush=True)
    except KeyboardInterrupt:
        print()
    for name, tally in tallies.items():
        print(f"{name}: {tally}")
    return int(any(tally.faults for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
