"""A case in a process of its own, so that no case meets the memory, the threads or the caches that another one left.

`in_child` is the side of the program; run as a module, this file is the side of the child.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tempplug.errors import TempplugError
from tempplug_benchmarks.speed.case import Case, Setting

LAST_WORDS = 2000


class ChildError(TempplugError):
    """The process of a case ended without a result."""


def in_child(case: Case, setting: Setting) -> dict[str, Any]:
    """Returns what the child wrote: ``outcomes`` by implementation, ``versions`` and ``hardware``.

    A memory case has a child for each of its implementations.

    Args:
        case: what to measure.
        setting: how.

    Raises:
        ChildError: a child ended without a result; the message holds its last words.
    """
    if case.quantity != "memory":
        return _ask(case, setting)
    answers = [_ask(case, setting, name) for name in case.implementations]
    outcomes = {name: outcome for answer in answers for name, outcome in answer["outcomes"].items()}
    return {**answers[0], "outcomes": outcomes}


def _ask(case: Case, setting: Setting, only: str = "") -> dict[str, Any]:
    threads = str(setting.threads)
    limits = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="tempplug-speed-") as folder:
        answer, words = Path(folder) / "answer.json", Path(folder) / "words"
        request = json.dumps({"case": case.to_dict(), "setting": asdict(setting), "only": only, "answer": str(answer)})
        with words.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "tempplug_benchmarks.speed.child", request],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                env={**os.environ, **limits, **case.environment},
            )
            try:
                code = process.wait()
            finally:
                process.kill()
                if process.stdin:
                    process.stdin.close()
                process.wait()
        if code == 0 and answer.exists():
            return dict(json.loads(answer.read_text(encoding="utf-8")))
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        last = words.read_text(encoding="utf-8", errors="replace").strip()[-LAST_WORDS:]
        raise ChildError(f"its process ended without a result ({cause}). {last}".strip())


def main() -> None:
    """Measures the case of the request and writes the answer."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    request = json.loads(sys.argv[1])
    case, setting = Case.read(request["case"]), Setting(**request["setting"])

    from tempplug_benchmarks.environment import hardware, versions
    from tempplug_benchmarks.speed.measure import measure
    from tempplug_benchmarks.speed.memory import limit_memory

    if setting.device == "cpu":
        limit_memory()
    outcomes = measure(case, setting, request["only"])
    answer = {
        "outcomes": {name: asdict(outcome) for name, outcome in outcomes.items()},
        "versions": versions(("lightly", "pytorch-metric-learning")),
        "hardware": hardware(),
    }
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")


def _end_with_parent() -> None:
    """Ends this process when nobody holds the other end of its standard input any more, that is, when its parent is gone."""
    os.read(sys.stdin.fileno(), 1)  # not through the buffer, whose lock would be held when the interpreter ends
    os._exit(1)


if __name__ == "__main__":
    main()
