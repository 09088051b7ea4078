"""Files of training commands: folders are tried before any work, files are whole, and what is wrong fits in one line."""

from __future__ import annotations

import pickle
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.training.command_line import choose_device, plain_warnings
from tempplug_adapters.training.files import make_folder, one_line, read_tensors, write_file, write_json


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


@pytest.mark.parametrize("fault", [OSError("disk full"), RuntimeError("disk full\nat a place")])
def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, fault: Exception) -> None:
    file = tmp_path / "deep" / "a.json"
    write_json(file, {"a": 1})

    def half(path: Path) -> None:
        path.write_bytes(b"half")
        raise fault

    with pytest.raises(DataError, match=r"a\.json cannot be written: disk full\.$"):
        write_file(file, half)
    assert [each.name for each in file.parent.iterdir()] == ["a.json"]
    assert file.read_text() == '{\n  "a": 1\n}\n'
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        write_json(tmp_path / "file" / "a.json", {})


def test_unreadable_files_say_why_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    torch.save({"weights": torch.ones(2), "words": ["a", None]}, file)
    whole = file.read_bytes()
    assert torch.equal(read_tensors(file)["weights"], torch.ones(2))
    objects = pickle.dumps(Counter("a"), protocol=2)
    for content, message in [
        (b"", "it is empty or cut off."),
        (b"hello, I am a text", "it is no file of PyTorch."),
        (b"\x89PNG\r\n\x1a\n" * 50, "it is no file of PyTorch."),
        (objects, "Invalid magic number"),
        (whole[: len(whole) // 2], "PytorchStreamReader failed reading zip archive"),
    ]:
        file.write_bytes(content)
        with pytest.raises(DataError) as raised:
            read_tensors(file)
        assert str(raised.value).startswith(message)
        assert "\n" not in str(raised.value)
    torch.save({"counted": Path("a")}, file)
    with pytest.raises(DataError, match=r"^it holds other things than tensors, which could run code and are not read\.$"):
        read_tensors(file)
    with pytest.raises(DataError, match=r"^No such file or directory\.$"):
        read_tensors(tmp_path / "none.pt")
    assert one_line(ValueError()) == "ValueError"


def test_devices_are_processors_and_numbered_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [choose_device(name) for name in ("auto", "cuda", "cpu")] == [torch.device(each) for each in ("cuda", "cuda", "cpu")]
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    for name in ("mps", "meta", "cpu:0", "cuda:", "cuda:-1", "cuda:1x", "Cuda", ""):
        with pytest.raises(ConfigError, match=f"device='{name}' must be auto, cpu, cuda or cuda:N"):
            choose_device(name)
    for name in ("cuda:2", "cuda:99999999999999999999"):
        with pytest.raises(ConfigError, match=f"device='{name}' is not there, there are 2 GPUs"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match="device='cuda' is not there, there are 0 GPUs: pass --device cpu"):
        choose_device("cuda")


def test_warnings_are_one_line_for_a_while() -> None:
    before = warnings.formatwarning
    with plain_warnings():
        assert warnings.formatwarning("it is odd", UserWarning, "code.py", 3) == "warning: it is odd\n"
    assert warnings.formatwarning is before
