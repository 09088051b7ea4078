"""The one writer: folders are tried before any work, files are whole or the old ones, and what is wrong fits in one line."""

from __future__ import annotations

import io
import pickle
import random
import re
import signal
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

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
from tempplug_adapters.storage.tensors import read_tensors, write_tensors
from tempplug_adapters.training.command_line import choose_device, plain_warnings


def test_a_folder_is_made_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b") == make_folder(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataError, match=f"plots='{folder}' cannot be written: it, or a folder above it, is a file"):
            make_folder(folder, "plots")


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(DataError, match=r"output_dir='.*' cannot be written: Permission denied\.$"):
        make_folder(tmp_path)


def test_a_full_disk_is_noticed_by_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.RawIOBase):
        def write(self, content: object) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Full())
    with pytest.raises(DataError, match=r"output_dir='.*' cannot be written: No space left on device\.$"):
        make_folder(tmp_path)


LIMITED = """
import resource, sys, torch
from tempplug.cli import shell
from tempplug_adapters.storage.files import write_file
from tempplug_adapters.storage.tensors import write_tensors
content = {"weights": torch.ones(100_000)}
write = {
    "stream": lambda: write_tensors(sys.argv[2], content),
    "path": lambda: write_file(sys.argv[2], lambda file: torch.save(content, file)),
    "small": lambda: write_file(sys.argv[2], lambda file: torch.save({"weights": torch.ones(3000)}, file)),
}[sys.argv[1]]
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
sys.exit(shell(write))
"""


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("stream", "File too large|the disk is full, or a limit on its use is reached"),
        ("path", "the disk is full, or a limit on its use is reached"),
        ("small", "the disk is full, or a limit on its use is reached"),
    ],
)
def test_tensors_that_find_no_room_say_so_in_words(tmp_path: Path, how: str, reason: str) -> None:
    """A limit on the length of files stands for a full disk: PyTorch's own writer sees the same of both."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, how, tmp_path / "a.pt"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 2
    assert re.fullmatch(rf"error: {tmp_path}/a\.pt cannot be written: ({reason})\.\n", done.stderr)
    assert not list(tmp_path.iterdir())


def test_writers_with_errors_of_their_own_say_it_in_words(tmp_path: Path) -> None:
    class SafetensorError(Exception):
        """As safetensors raises it."""

    def full(file: Path) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    def broken(file: Path) -> None:
        raise SafetensorError("tensors share memory")

    with pytest.raises(DataError, match=r"a cannot be written: No space left on device\.$"):
        write_file(tmp_path / "a", full)
    with pytest.raises(SafetensorError):
        write_file(tmp_path / "a", broken)


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


@pytest.mark.parametrize("where", ["write", "os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize("fault", [OSError(28, "disk full"), RuntimeError("disk full\nat a place")])
def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, fault: Exception
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
    with pytest.raises(DataError, match=r"a\.json cannot be written: disk full\.$"):
        write_file(file, half)
    monkeypatch.undo()
    assert [each.name for each in file.parent.iterdir()] == ["a.json"]
    assert file.read_text() == '{\n  "a": 1\n}\n'
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        write_json(tmp_path / "file" / "a.json", {})


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
    objects = pickle.dumps(Counter("a"), protocol=2)
    for content, message in [
        (b"", "it is empty or cut off."),
        (b"hello, I am a text", "it is not a PyTorch file."),
        (b"\x89PNG\r\n\x1a\n" * 50, "it is not a PyTorch file."),
        (objects, "Invalid magic number"),
        (whole[: len(whole) // 2], "PytorchStreamReader failed reading zip archive"),
    ]:
        file.write_bytes(content)
        with pytest.raises(DataError) as raised:
            read_tensors(file)
        assert str(raised.value).startswith(message)
        assert "\n" not in str(raised.value)
    torch.save({"counted": Path("a")}, file)
    with pytest.raises(
        DataError, match=r"^it holds pathlib\S*\.PosixPath, and reading that could run code: save the file anew with"
    ):
        read_tensors(file)
    with pytest.raises(DataError, match=r"^No such file or directory\.$"):
        read_tensors(tmp_path / "none.pt")
    assert one_line(ValueError()) == "ValueError"


def test_no_bit_of_an_archive_changes_its_tensors_unseen(tmp_path: Path) -> None:
    file, chance = tmp_path / "a.pt", random.Random(0)
    content = {"weights": torch.arange(200.0), "count": 3}
    write_tensors(file, content)
    whole = file.read_bytes()
    # in an archive's list of its parts, the attribute by which PyTorch takes one for a folder and reads nothing
    folders = [each.start() + 38 for each in re.finditer(b"PK\x01\x02", whole)]
    assert len(folders) >= 4
    refused = 0
    for at, bit in [
        *((each, 4) for each in folders),
        *((chance.randrange(len(whole)), chance.randrange(8)) for _ in range(300)),
    ]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        file.write_bytes(damaged)
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
    assert [choose_device(name) for name in ("auto", "cuda", "cpu")] == [torch.device(each) for each in ("cuda", "cuda", "cpu")]
    assert choose_device("cuda:1") == torch.device("cuda", 1)
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
