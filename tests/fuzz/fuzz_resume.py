"""Trainings killed at any moment, up to three times, and resumed: they end with the files of one that was never killed.

A kill is the end of the process before one of its operations on a file, whichever it is, or after a random time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from fuzzing import Verdict

from tempplug.plugins import registry

KILLED = 137
STRATEGIES = ("fixed", "learnable", "macl", "individual", "schedule:period=2")
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"training": {"save_steps": 1, "save_total_limit": 1}},
    {"training": {"max_steps": 4}},
    {
        "training": {
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "load_best_model_at_end": True,
            "metric_for_best_model": "spread",
        }
    },
    {"training": {"gradient_accumulation_steps": 2, "save_steps": 3}},
)
OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"}


def _train(folder: Path, strategy: str, settings: dict[str, Any]) -> None:
    import method_toys  # needs transformers, which only those wait for who fuzz this

    method_toys.run(folder, strategy, resume_from_checkpoint="auto", **settings)


def _apart(work: Callable[[], None], told: Path) -> int:
    """Runs work in a process of its own and returns its exit status; what it raised is written to a file."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            torch.set_num_threads(1)  # the threads that others were started with are not in this process
            work()
            status = 0
        except BaseException:
            told.write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _dying(work: Callable[[], None], folder: Path, operation: int) -> Callable[[], None]:
    """Returns work that ends the process before its operation of that number on a file below a folder."""
    left = operation

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in OPERATIONS and str(arguments[0]).startswith(str(folder)):
            left -= 1
            if left < 0:
                os._exit(KILLED)

    def run() -> None:
        sys.addaudithook(count)
        work()

    return run


def _timed(work: Callable[[], None], seconds: float) -> Callable[[], None]:
    def run() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)

    return run


def _files(folder: Path) -> dict[str, Any]:
    """What a training leaves that must not depend on kills."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    metrics.pop("seconds_per_epoch")
    newest = max(folder.glob("checkpoint-*"), key=lambda each: int(each.name.split("-")[1]))
    state = torch.load(newest / "pytorch_model.bin", weights_only=True)
    tensors = {name: value.tolist() for name, value in state.items() if isinstance(value, torch.Tensor)}
    left = sorted(each.name for each in folder.rglob("*.tmp"))
    return {"metrics": metrics, "checkpoint": newest.name, "weights": tensors, "left behind": left}


@cache
def _whole(strategy: str, setting: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tempplug-fuzz-") as place:
        folder, told = Path(place) / "run", Path(place) / "told.txt"
        if _apart(lambda: _train(folder, strategy, SETTINGS[setting]), told):
            raise RuntimeError(told.read_text(encoding="utf-8"))
        return _files(folder)


def case(number: int) -> Verdict:
    import method_toys  # noqa: F401  # loads what trains once, before processes are made

    registry()
    chance = random.Random(number)
    strategy, setting = chance.choice(STRATEGIES), chance.randrange(len(SETTINGS))
    wanted = _whole(strategy, setting)
    ends: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tempplug-fuzz-") as place:
        folder, told = Path(place) / "run", Path(place) / "told.txt"

        def work() -> None:
            _train(folder, strategy, SETTINGS[setting])

        for _ in range(chance.choice([1, 1, 2, 3])):
            if chance.random() < 0.7:
                operation = chance.randrange(160)
                ends.append(f"operation {operation}")
                status = _apart(_dying(work, folder, operation), told)
            else:
                seconds = chance.uniform(0.01, 0.6)
                ends.append(f"{seconds:.3f} s")
                status = _apart(_timed(work, seconds), told)
            if status not in (0, KILLED, -signal.SIGALRM):
                break
        else:
            status = _apart(work, told)
        about = f"{strategy}, {SETTINGS[setting]}, killed at {', '.join(ends)}"
        if status:
            return Verdict(
                "obscure", about, told.read_text(encoding="utf-8")[-1500:] if told.is_file() else f"ends with {status}"
            )
        found = _files(folder)
    differing = [name for name in wanted if found[name] != wanted[name]]
    if differing:
        detail = f"{', '.join(differing)}: {str(found[differing[0]])[:600]} in place of {str(wanted[differing[0]])[:600]}"
        return Verdict("wrong", about, detail)
    return Verdict("right", about)
