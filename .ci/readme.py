"""Runs README from top to bottom in this environment, and says of each piece of Python and each command whether it works.

`.ci/readme.py python` leaves the commands out. Files and shortened commands are those of the tests of the documentation, as are
``pip`` and ``make``, which only check.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import transformers
from perform import a_main_module, run_python, run_shell
from shortened import FILES, named
from snippets import ROOT, RUN, logical_lines, snippets

import tempplug

OLD = int(transformers.__version__.partition(".")[0]) < 5
NEEDS_TRAINING = ("tempplug train", "tempplug watch", "tempplug bench")
"""Commands for transformers 5 alone, and one that reads what they wrote."""


def main(languages: Sequence[str]) -> int:
    """Prints a line for each piece in these languages, and returns how many failed."""
    failed = 0
    print(f"tempplug {tempplug.__version__} from {Path(tempplug.__file__).parent}, Python {platform.python_version()}")
    pieces = [piece for piece in snippets("README.md") if not piece.not_run and piece.language in languages]
    pieces = [
        replace(snippet, code=f"{line}\n") if snippet.language == "bash" else snippet
        for snippet in pieces
        for line in (logical_lines(snippet.code) if snippet.language == "bash" else [snippet.code])
    ]
    with tempfile.TemporaryDirectory() as folder, a_main_module() as module:
        os.chdir(folder)
        for name in ("adapters", "benchmarks", "docs", "constraints.txt"):
            Path(name).symlink_to(ROOT / name)
        for name in {name for piece in pieces for name in named(piece.code)}:
            FILES[name](Path(name))
        for piece in pieces:
            if OLD and piece.code.startswith(NEEDS_TRAINING):
                print(f"left out, as transformers is {transformers.__version__}: {piece}")
                continue
            try:
                if piece.language == "python":
                    run_python(piece, module)
                else:
                    run_shell(piece)
                print(f"ok: {piece}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAILED: {piece}: {type(error).__name__}: {error}", flush=True)
        os.chdir(ROOT)
    print(f"README: {len(pieces)} pieces, {failed} failed")
    return failed


if __name__ == "__main__":
    languages = sys.argv[1:] or RUN
    sys.argv = ["page"]
    sys.exit(min(main(languages), 1))
