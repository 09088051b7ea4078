"""The cases of `matrix` and `triton_cases` on a GPU, without pytest: ``python tests/parity/on_device.py [--device cuda]``.

Prints the cases that fail and their number; the exit status is 1 if one failed. On the CPU the kernels are interpreted.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="where the loss runs; 'pretend' is none (default: cuda)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try one case in N (default: all)")
    flags = parser.parse_args()
    os.environ["TEMPPLUG_TEST_DEVICE"] = flags.device
    # What deterministic algorithms need of CUDA, and kernels of a CPU.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if flags.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    sys.path[:0] = [str(TESTS), str(TESTS / "parity"), str(TESTS.parent)]
    import matrix
    import pretend_device
    import triton_cases

    if flags.device == pretend_device.NAME:
        pretend_device.install()
    warnings.simplefilter("ignore")
    modules = (matrix,) if flags.device == pretend_device.NAME else (matrix, triton_cases)
    failed = 0
    every = [(each.check, case) for each in modules for case in each.CASES][:: flags.every]
    for check, case in every:
        try:
            check(case)
        except Exception as error:
            failed += 1
            print(f"{check.__module__}: {' '.join(map(str, case))}: {type(error).__name__}: {error}", flush=True)
    print(f"{failed} of {len(every)} cases failed on {flags.device}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
