"""Folders that prove themselves, and are written to by one process at a time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.lock import LOCK_FILE, locked
from tempplug_adapters.storage.manifest import MANIFEST, seal, verify

HOLDS = """
import sys, time
from tempplug_adapters.storage.lock import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def sealed(folder: Path) -> Path:
    (folder / "below").mkdir(parents=True)
    for name, content in [("a.pt", bytes(range(200))), ("below/b.json", b"{}"), ("empty", b"")]:
        (folder / name).write_bytes(content)
    seal(folder)
    return folder


def test_a_sealed_folder_is_as_it_was(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "made")
    verify(folder, ["a.pt", "below/b.json"])
    (folder / "later").touch()
    verify(folder)
    seal(folder)
    for change, message in [
        (lambda: (folder / "a.pt").write_bytes(bytes(200)), r"^its a\.pt is damaged: it is not as it was written\.$"),
        (lambda: (folder / "a.pt").write_bytes(b"12"), r"^its a\.pt has 2 bytes instead of 200\.$"),
        (lambda: (folder / "a.pt").unlink(), r"^its a\.pt is missing\.$"),
        (lambda: (folder / MANIFEST).write_text("[" * 100_000), r"^its manifest\.json is damaged\.$"),
        (lambda: (folder / MANIFEST).unlink(), r"^it is incomplete: it has no manifest\.json\.$"),
    ]:
        change()
        with pytest.raises(DataError, match=message):
            verify(folder)
    seal(folder)
    with pytest.raises(DataError, match=r"^its optimizer\.pt is missing\.$"):
        verify(folder, ["optimizer.pt"])


def test_every_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    folder, chance = sealed(tmp_path / "made"), random.Random(0)
    for file in (folder / "a.pt", folder / "below" / "b.json", folder / MANIFEST):
        whole = file.read_bytes()
        for _ in range(100):
            at, bit = chance.randrange(len(whole)), chance.randrange(8)
            for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]):
                file.write_bytes(damaged)
                with pytest.raises(DataError, match=r"^its [a-z./]+ (is|has) .*\.$"):
                    verify(folder)
        file.write_bytes(whole)
    verify(folder)


def test_one_process_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == str(os.getpid())
    assert list(tmp_path.iterdir()) == []
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(ConfigError, match=rf"^output_dir='.*' is being written to by process {other.pid}: wait for its end"),
            locked(tmp_path),
        ):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert (tmp_path / LOCK_FILE).exists()
        with locked(tmp_path):
            assert (tmp_path / LOCK_FILE).read_text() == str(os.getpid())


def test_a_folder_without_locks_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.warns(UserWarning, match="cannot be locked .No locks available.: make sure"), locked(tmp_path):
        pass


def test_a_full_disk_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DataError, match=r"output_dir='.*' cannot be written: No space left on device\.$"), locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
