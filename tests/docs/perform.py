"""Runs the snippets of a page in order, in one folder and one namespace.

Python is executed here, in a module of its own. So is a shell snippet of nothing but plain ``tempplug`` commands, by the
function behind the command: that spares the imports of each. Every other shell snippet is given to bash as a whole, where
``pip`` and ``make`` are those of the folder ``programs``, which check what they are asked and leave this environment as it is.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from shortened import shortened
from snippets import ROOT, RUN, Snippet, logical_lines

from tempplug.cli import main

PROGRAMS = Path(__file__).with_name("programs")
# what bash would do something with; inside of quotes, too, as it then only costs the time of a process
SHELL = re.compile(r"[|&;<>`(){}*?~]|\$(?!TEMPPLUG_DATA\b)")


class SnippetError(AssertionError):
    """A snippet that does not do what its page says."""


def perform(page: list[Snippet]) -> int:
    """Runs what is to be run in the present folder, and returns how many snippets those were.

    Raises:
        SnippetError: a command ended with another status than 0. What Python raises is raised as it is.
    """
    with a_main_module() as module:
        chosen = [each for each in page if not each.not_run and (each.title or each.language in RUN)]
        for snippet in chosen:
            if snippet.title:
                Path(snippet.title).parent.mkdir(parents=True, exist_ok=True)
                Path(snippet.title).write_text(shortened(snippet.code), encoding="utf-8")
            elif snippet.language == "python":
                run_python(snippet, module)
            else:
                run_shell(snippet)
    return len(chosen)


@contextmanager
def a_main_module() -> Iterator[ModuleType]:
    """A module that dataclasses and pickles find by its name, as they find that of a script."""
    module = ModuleType("page")
    sys.modules["page"] = module
    try:
        yield module
    finally:
        del sys.modules["page"]


def run_python(snippet: Snippet, module: ModuleType) -> None:
    """Executes a snippet as if its page were the file, so that an error shows the page's own line."""
    code = "\n" * (snippet.line - 1) + shortened(snippet.code)
    exec(compile(code, str(ROOT / snippet.page), "exec", dont_inherit=True), vars(module))


def run_shell(snippet: Snippet) -> None:
    """Runs the commands of a snippet."""
    commands = [shortened(line) for line in logical_lines(snippet.code)]
    plain = [re.sub(r"(['\"]).*?\1", "", line) for line in commands]
    if all(line.startswith("tempplug ") and not SHELL.search(bare) for line, bare in zip(commands, plain, strict=True)):
        for line in commands:
            if status := main(shlex.split(os.path.expandvars(line))[1:]):
                raise SnippetError(f"{snippet}\n{line}\nended with status {status}; what it printed is shown below")
        return
    environment = {
        **os.environ,
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(
            ["site", *(str(ROOT / name) for name in ("", "adapters", "benchmarks", "tests/launches"))]
        ),
        "CHECKOUT": str(ROOT),
        "PYTHON": sys.executable,
    }
    script = "\n".join(["set -euo pipefail", *commands])
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=500, check=False)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    if done.returncode:
        raise SnippetError(
            f"{snippet}\n{script}\nended with status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        )
