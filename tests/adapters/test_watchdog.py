"""A process of a training that stops is named by the others, which save and end with their own status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from launcher import launched, torchrun
from method_toys import run
from torch import distributed

from tempplug.errors import ConfigError
from tempplug_adapters.training import watchdog
from tempplug_adapters.training.termination import ProcessLost, Terminated, on_termination
from tempplug_adapters.training.watchdog import Watchdog

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are killed by their descriptors")
BEAT = 0.02


class Other:
    """Another process on this machine; the test writes its notes."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.note = folder / ".rank1.0.tmp"
        self.say("runs", 3)

    def say(self, state: str, number: int) -> None:
        self.note.write_text(f"{state} 36 {number}")


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Other]:
    monkeypatch.setattr(watchdog, "BEAT", BEAT)
    monkeypatch.setattr(watchdog, "GRACE", 0.2)
    other = Other(tmp_path)

    def gather(every: list[Any], own: tuple[Any, ...]) -> None:
        every[:] = [own, (other.note.name, "there", own[2], other.process.pid)]

    monkeypatch.setattr(distributed, "all_gather_object", gather)
    yield other
    other.process.kill()
    other.process.communicate()


def begun(folder: Path, timeout: float = 60.0) -> Watchdog:
    found = Watchdog(folder)
    found.start(0, 2, timeout)
    return found


@contextmanager
def beating(other: Other) -> Iterator[None]:
    """Lets the other process write notes, often enough for a busy machine."""
    over = threading.Event()

    def beat() -> None:
        number = 3
        while not over.wait(BEAT / 10):
            other.say("runs", number := number + 1)

    with ThreadPoolExecutor() as threads:
        threads.submit(beat)
        try:
            yield
        finally:
            over.set()


def failing(folder: Path, said: str = "Connection closed by peer", timeout: float = 60.0) -> None:
    with begun(folder, timeout):
        raise RuntimeError(said)


def wait_for_its_end(folder: Path, other: Other) -> None:
    """As in a collective, which fails when the other process is dead."""
    with begun(folder, timeout=0.5):
        with beating(other):
            time.sleep(1.0)
        assert other.process.poll() is None, "it lived as long as it wrote"
        assert other.process.wait(timeout=30) == -signal.SIGKILL
        raise RuntimeError("Connection closed by peer")


def test_a_process_that_writes_no_notes_is_killed_and_named(other: Other, tmp_path: Path) -> None:
    with pytest.raises(ProcessLost) as lost:
        wait_for_its_end(tmp_path, other)
    said = rf"rank 1 \(process {other.process.pid} on there\), last heard of at step 36, has shown no sign of life for [01] s"
    assert lost.value.code == lost.value.status == 75
    lost.match(said)
    lost.match("resume-from-checkpoint auto goes on where it stopped. The error here was: Connection closed by peer")
    assert not list(tmp_path.iterdir()), "no process is left that would read the notes"


def test_a_main_thread_that_cannot_end_is_ended(
    other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", lambda status: (ended.append(status), threading.Event().wait()))
    with begun(tmp_path, timeout=0.1):
        deadline = time.monotonic() + 30
        while not ended and time.monotonic() < deadline:
            time.sleep(BEAT)
    assert ended == [75]
    assert "rank 0: the training ends because rank 1 (process" in capsys.readouterr().err


def test_the_end_of_another_process_is_told_by_its_cause(other: Other, tmp_path: Path) -> None:
    other.say("ended", 4)
    with pytest.raises(ProcessLost, match="at step 36, ended, and its own message says why"):
        failing(tmp_path)
    other.say("runs", 5)
    with pytest.raises(ProcessLost, match="has shown no sign of life for 0 s"):
        failing(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {other.note.name, f".rank0.{os.getpid()}.tmp"}, "it may yet read them"
    other.process.kill()
    with pytest.raises(ProcessLost, match="was killed or has crashed"):
        failing(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_error_of_its_own_stays_what_it_is(other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "BEAT", 10 * BEAT)  # three times this is what a busy machine has for the next note
    with beating(other):
        with pytest.raises(RuntimeError, match="out of memory"):
            failing(tmp_path, "out of memory")
        with pytest.raises(ProcessLost, match="hangs: the others waited for it until --ddp-timeout"):
            failing(tmp_path, "Timed out waiting 1800000ms")
    with pytest.raises(ConfigError, match="alike everywhere"), begun(tmp_path):
        raise ConfigError("alike everywhere")


def test_what_ends_well_leaves_nothing(other: Other, tmp_path: Path) -> None:
    other.note.unlink()
    with begun(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"rank_timeout=9 must be at least 10 seconds\."):
        run(tmp_path, training={"rank_timeout": 9})


@pytest.mark.slow
def test_a_training_ends_and_goes_on_when_one_process_gets_sigterm_or_sigkill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one launch, which torchrun restarts once; the first process ends by itself."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # see docs/clusters.md
    ranks = launched([*torchrun(2), "--max-restarts=1"], "train_lost.py", tmp_path)
    first = json.loads((tmp_path / "first0.json").read_text())
    assert not (tmp_path / "first1.json").exists()
    status, said, saved = first["terminated"]
    assert (status, saved) == (143, ["checkpoint-6", "checkpoint-8"])
    assert said.startswith("ended by SIGTERM after step 8 of 12, which is saved:")
    status, said, saved = first["killed"]
    assert (status, saved) == (75, ["checkpoint-6", "checkpoint-7"])
    assert re.match(
        r"rank 0: the training ends because rank 1 \(process \d+ on .*\), last heard of at step \d+, was killed or", said
    )
    assert "It is saved as checkpoint-7. The same command with" in said
    for rank in ranks:
        whole, *others = rank["weights"]
        for each in others:
            assert all(torch.equal(value, each[name]) for name, value in whole.items())
    # of the epoch that was interrupted, the loss is that of the first process alone
    history, whole = (json.loads((tmp_path / name / "metrics.json").read_text())["history"] for name in ("killed", "whole"))
    assert (history[2].pop("loss"), history) == (pytest.approx(whole[2].pop("loss"), rel=0.1), whole)


def test_a_signal_of_the_launcher_does_not_hide_which_process_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(number: int) -> None:
        raise Terminated(number=number)

    def search(timed_out: bool) -> list[str]:
        os.kill(os.getpid(), signal.SIGTERM)
        return ["rank 1 was killed"]

    def end(*, finished: bool) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    watching = Watchdog(tmp_path)
    watching._note, watching._thread = tmp_path / "note", threading.Thread(target=lambda: None)
    watching._thread.start()
    monkeypatch.setattr(watching, "_search", search)
    monkeypatch.setattr(watching, "_end", end)
    with pytest.raises(ProcessLost, match="rank 1 was killed"), on_termination(raises), watching:
        raise RuntimeError("Connection closed by peer")
