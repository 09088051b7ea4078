"""Files that are whole or the old ones, tensors read without code, folders with checksums and with one writer at a time."""

from __future__ import annotations

import io
import os
import pickle
import random
import re
import resource
import signal
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.files import (
    make_folder,
    one_line,
    remove_leftovers,
    temporary_name,
    write_file,
    write_into,
    write_json,
)
from tempplug_adapters.storage.manifest import LOCK_FILE, MANIFEST, locked, seal, verify
from tempplug_adapters.storage.tensors import read_tensors, write_tensors
from tempplug_adapters.training.command_line import choose_device, plain_warnings


class Full(io.RawIOBase):
    def write(self, content: object) -> int:
        raise OSError(28, "No space left on device")


def refuse(**_: object) -> Any:
    raise PermissionError(13, "Permission denied")


def test_a_folder_is_made_and_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_folder(tmp_path / "a" / "b") == make_folder(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataError, match=f"plots='{folder}' cannot be written: it, or a folder above it, is a file"):
            make_folder(folder, "plots")
    for opened, reason in ((refuse, "Permission denied"), (lambda **_: Full(), "No space left on device")):
        monkeypatch.setattr("tempfile.TemporaryFile", opened)
        with pytest.raises(DataError, match=rf"output_dir='.*' cannot be written: {reason}\.$"):
            make_folder(tmp_path)


def test_tensors_that_find_no_room_say_so_in_words(tmp_path: Path) -> None:
    """A limit on the length of files stands for a full disk: PyTorch's own writer sees the same of both."""
    file, large, small = tmp_path / "a.pt", {"weights": torch.ones(100_000)}, {"weights": torch.ones(3000)}
    full, before = "the disk is full, or a limit on its use is reached", resource.getrlimit(resource.RLIMIT_FSIZE)
    for write, reason in (
        (lambda: write_tensors(file, large), f"File too large|{full}"),
        (lambda: write_file(file, lambda path: torch.save(large, path)), full),
        (lambda: write_file(file, lambda path: torch.save(small, path)), full),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
        try:
            with pytest.raises(DataError, match=rf"^{tmp_path}/a\.pt cannot be written: ({reason})\.$"):
                write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not list(tmp_path.iterdir())


class SafetensorError(Exception):
    """As safetensors raises it."""


@pytest.mark.parametrize(
    ("where", "fault", "told"),
    [
        ("write", RuntimeError("disk full\nat a place"), "disk full"),
        ("write", SafetensorError("I/O error: No space left on device (os error 28)"), "No space left on device"),
        ("write", SafetensorError("tensors share memory"), None),
        ("os.fsync", RuntimeError("disk full\nat a place"), "disk full"),
        ("pathlib.Path.replace", OSError(28, "disk full"), "disk full"),
    ],
)
def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, fault: Exception, told: str | None
) -> None:
    file = tmp_path / "deep" / "a.json"
    write_json(file, {"a": 1})

    def fail(*_: object) -> None:
        raise fault

    def half(path: Path) -> None:
        path.write_bytes(b"half")
        if where == "write":
            fail()

    if where != "write":
        monkeypatch.setattr(where, fail)
    error, message = (type(fault), str(fault)) if told is None else (DataError, rf"a\.json cannot be written: {told}\.$")
    with pytest.raises(error, match=message):
        write_file(file, half)
    monkeypatch.undo()
    assert [each.name for each in file.parent.iterdir()] == ["a.json"]
    assert file.read_text() == '{\n  "a": 1\n}\n'
    with pytest.raises(DataError, match="cannot be written"):
        write_json(file / "below.json", {})


KILLED_BEFORE_THE_RENAME = """
import os, signal, sys
from tempplug_adapters.storage.files import write_text
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
write_text(sys.argv[1], "new " * 10000)
"""


def test_a_killed_writer_leaves_the_old_file_and_what_it_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    killed = subprocess.run([sys.executable, "-c", KILLED_BEFORE_THE_RENAME, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    (left,) = (each for each in tmp_path.iterdir() if each != path)
    mine, others = tmp_path / ".b.1.tmp", [tmp_path / name for name in (".notes.tmp", "b.1x.tmp", "99999999.tmp")]
    for each in (mine, *others):
        each.touch()
    temporary_name(tmp_path / "checkpoint-2").mkdir()
    assert left.name.startswith(".a.json.")
    remove_leftovers(tmp_path)
    assert set(tmp_path.iterdir()) == {path, mine, *others}, "process 1 lives, and the others are not of the writer"


def test_files_of_one_writer_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("stays")

    def write(folder: Path, text: str = "1", fails: bool = False) -> None:
        for name in ("a", "below/b"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
            if fails:
                raise OSError(28, "disk full")

    def texts() -> dict[str, str]:
        return {each.relative_to(tmp_path).as_posix(): each.read_text() for each in tmp_path.rglob("*") if each.is_file()}

    write_into(tmp_path, write)
    with pytest.raises(DataError, match="cannot be written: disk full"):
        write_into(tmp_path, lambda folder: write(folder, "2", fails=True))
    assert texts() == {"a": "1", "below/b": "1", "other": "stays"}
    write_into(tmp_path, lambda folder: write(folder, "2"))
    assert texts() == {"a": "2", "below/b": "2", "other": "stays"}


def test_unreadable_files_say_why_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    torch.save({"weights": torch.ones(2), "words": ["a", None]}, file)
    whole = file.read_bytes()
    assert torch.equal(read_tensors(file)["weights"], torch.ones(2))
    torch.save({"counted": Path("a")}, file)
    for content, message in [
        (file.read_bytes(), r"it holds pathlib\S*\.PosixPath, and reading that could run code: save the file anew with"),
        (b"", r"it is empty or cut off\."),
        (b"hello, I am a text", r"it is not a PyTorch file\."),
        (b"\x89PNG\r\n\x1a\n" * 50, r"it is not a PyTorch file\."),
        (pickle.dumps(Counter("a"), protocol=2), "Invalid magic number"),
        (whole[: len(whole) // 2], "PytorchStreamReader failed reading zip archive"),
        (None, r"No such file or directory\.$"),
    ]:
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(DataError, match=rf"^{message}") as raised:
            read_tensors(file)
        assert "\n" not in str(raised.value)
    assert one_line(ValueError()) == "ValueError"


def test_no_bit_of_an_archive_changes_its_tensors_unseen(tmp_path: Path) -> None:
    file, chance = tmp_path / "a.pt", random.Random(0)
    content = {"weights": torch.arange(200.0), "count": 3}
    write_tensors(file, content)
    whole = file.read_bytes()
    # in an archive's list of its parts, the attribute by which PyTorch takes one for a folder and reads nothing
    folders = [(each.start() + 38, 4) for each in re.finditer(b"PK\x01\x02", whole)]
    assert len(folders) >= 4
    refused = 0
    for at, bit in [*folders, *((chance.randrange(len(whole)), chance.randrange(8)) for _ in range(300))]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        try:
            found = read_tensors(file)
        except DataError:
            refused += 1
        else:  # a bit of no meaning: the padding of an archive, the time of a part
            assert torch.equal(found["weights"], content["weights"])
            assert found["count"] == 3
    assert refused > 150
    write_tensors(tmp_path / "b.pt", content)
    assert (tmp_path / "b.pt").read_bytes() == whole, "the name of a file is not part of it"


def test_devices_are_processors_and_numbered_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, device in (("auto", "cuda"), ("cuda", "cuda"), ("cpu", "cpu"), ("cuda:1", "cuda:1")):
        assert choose_device(name) == torch.device(device)
    for name in ("mps", "meta", "cpu:0", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999999999999", "Cuda", ""):
        with pytest.raises(ConfigError, match=f"device='{name}' must be auto, cpu, cuda or cuda:N"):
            choose_device(name)
    with pytest.raises(ConfigError, match="device='cuda:2' is not available \\(2 GPUs found\\)"):
        choose_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match="device='cuda' is not available \\(0 GPUs found\\): pass --device cpu"):
        choose_device("cuda")


def test_warnings_are_one_line_for_a_while() -> None:
    before = warnings.formatwarning
    with plain_warnings():
        assert warnings.formatwarning("it is odd", UserWarning, "code.py", 3) == "warning: it is odd\n"
    assert warnings.formatwarning is before


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
        (lambda: None, r"^its optimizer\.pt is missing\.$"),
        (lambda: (folder / "a.pt").write_bytes(bytes(200)), r"^its a\.pt is damaged: it is not as it was written\.$"),
        (lambda: (folder / "a.pt").write_bytes(b"12"), r"^its a\.pt has 2 bytes instead of 200\.$"),
        (lambda: (folder / "a.pt").unlink(), r"^its a\.pt is missing\.$"),
        (lambda: (folder / MANIFEST).write_text("[" * 100_000), r"^its manifest\.json is damaged\.$"),
        (lambda: (folder / MANIFEST).unlink(), r"^it is incomplete: it has no manifest\.json\.$"),
    ]:
        change()
        with pytest.raises(DataError, match=message):
            verify(folder, ["a.pt", "optimizer.pt"])


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


HOLDS = """
import sys
from tempplug_adapters.storage.manifest import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_one_process_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == str(os.getpid())
    assert list(tmp_path.iterdir()) == []
    command = [sys.executable, "-c", HOLDS, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        told = rf"^output_dir='.*' is being written to by process {other.pid}: wait for its end"
        with pytest.raises(ConfigError, match=told), locked(tmp_path):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert (tmp_path / LOCK_FILE).exists()
        with locked(tmp_path):
            assert (tmp_path / LOCK_FILE).read_text() == str(os.getpid())


def test_a_folder_without_locks_is_warned_of_and_a_full_disk_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int, reason: str) -> Any:
        def failing(*_: object) -> None:
            raise OSError(number, reason)

        return failing

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", fail(37, "No locks available"))
        with pytest.warns(UserWarning, match="cannot be locked .No locks available.: make sure"), locked(tmp_path):
            pass
    (tmp_path / LOCK_FILE).unlink(missing_ok=True)
    monkeypatch.setattr(Path, "write_text", fail(28, "No space left on device"))
    with pytest.raises(DataError, match=r"output_dir='.*' cannot be written: No space left on device\.$"), locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
