"""Files that cannot be written end a command in one line that says how to go on, and earlier checkpoints remain.

A limit on the length of files stands for a full disk: writers see the same of both.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from method_toys import Kill, Killed, run
from safetensors.torch import save_file
from transformers import TrainerCallback

from tempplug.errors import DataError
from tempplug_adapters.storage.files import NotWrittenError, write_file, write_into
from tempplug_adapters.training.checkpoints import checkpoints

FULL = "the disk is full, or a limit on its use is reached|File too large"


@contextmanager
def limit(size: int) -> Iterator[None]:
    """Limits the length of the files that this process writes during the block, in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Limit(TrainerCallback):
    """Limits the length of files from the beginning of a step."""

    def __init__(self, step: int, size: int) -> None:
        self.step, self.size = step, size

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


WRITTEN = (
    "settings.json",
    "data.json",
    "pytorch_model.bin",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "trainer_state.json",
)


def test_each_file_of_a_checkpoint_is_named_and_the_checkpoint_before_it_remains(tmp_path: Path) -> None:
    """The limit is a byte less than the length of a file that is longer than those written before it."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(60):
        (data / f"{number}.txt").touch()
    files: dict[str, Any] = {f"dataset/{number}.txt": data / f"{number}.txt" for number in range(60)}
    settings: dict[str, Any] = {"files": lambda: files, "training": {"logging_strategy": "no", "save_total_limit": 9}}
    run(tmp_path / "whole", "learnable", **settings)
    sizes = {name: (tmp_path / "whole" / "checkpoint-6" / name).stat().st_size for name in WRITTEN}
    told: dict[str, str] = {}
    for place, name in enumerate(WRITTEN):
        if sizes[name] <= max((sizes[other] for other in WRITTEN[:place]), default=0):
            continue
        folder = tmp_path / name
        with limit(2**30), pytest.raises(DataError) as ended:
            run(folder, "learnable", callbacks=[Limit(5, sizes[name] - 1)], **settings)
        assert [each.name for each in checkpoints(folder)] == ["checkpoint-2", "checkpoint-4"], name
        told[name] = str(ended.value)
        go_on = "When it can be written again, the same command with --resume-from-checkpoint auto goes on from checkpoint-4."
        assert told[name].startswith(f"{folder}/checkpoint-6/{name} cannot be written: ")
        assert told[name].endswith(go_on)
        assert "\n" not in told[name]
        if len(told) == 1:
            assert run(folder, "learnable", resume_from_checkpoint="auto", **settings)["steps"] == 9
    assert {"settings.json", "pytorch_model.bin", "optimizer.pt", "rng_state.pth"} <= told.keys()


@pytest.mark.parametrize("name", ["encoder.pt", "README.md", "metrics.json"])
def test_the_end_of_a_run_that_finds_no_room_goes_on_from_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    original = Path.replace

    def refuse(self: Path, target: Any) -> Any:
        if Path(target).name == name:
            raise OSError(28, "No space left on device")
        return original(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(DataError) as ended:
            run(tmp_path / "run")
    go_on = "When it can be written again, the same command with --resume-from-checkpoint auto goes on from checkpoint-9."
    assert str(ended.value) == f"{tmp_path}/run/{name} cannot be written: No space left on device. {go_on}"
    assert run(tmp_path / "run", resume_from_checkpoint="auto")["seconds_per_epoch"] is None


class Remove(TrainerCallback):
    """Removes or renames the output folder at the beginning of a step."""

    def __init__(self, step: int, renamed: Path | None) -> None:
        self.step, self.renamed = step, renamed

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step and self.renamed is None:
            shutil.rmtree(args.output_dir)
        elif state.global_step == self.step:
            os.rename(args.output_dir, str(self.renamed))  # noqa: PTH104


@pytest.mark.parametrize("renamed", [False, True])
def test_an_output_folder_that_is_gone_ends_the_training_and_is_not_made_again(tmp_path: Path, renamed: bool) -> None:
    folder = tmp_path / "run"
    with pytest.raises(DataError) as ended:
        run(folder, callbacks=[Remove(5, tmp_path / "renamed" if renamed else None)])
    assert str(ended.value) == (
        f"{folder} cannot be written: it was removed or renamed during the training. When it can be written again, the same "
        "command begins anew."
    )
    assert not folder.exists()
    if renamed:
        (tmp_path / "renamed").rename(folder)
        assert run(folder, resume_from_checkpoint="auto")["steps"] == 9


def test_writers_of_other_libraries_are_understood(tmp_path: Path) -> None:
    rows = np.zeros((10_000, 4))

    def arrays(path: Path) -> None:
        with path.open("wb") as stream:
            np.save(stream, rows)

    def table(path: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"a": np.random.default_rng(0).random(100_000)}), path)

    writers = {
        "arrays": arrays,
        "table": table,
        "tensors": lambda path: torch.save(torch.zeros(40_000), path),
        "text": lambda path: path.write_text("a" * 100_000),
    }
    for name, write in writers.items():
        with limit(65_536), pytest.raises(NotWrittenError, match=rf"^{tmp_path}/{name} cannot be written: ({FULL})\.$"):
            write_file(tmp_path / name, write)
        assert not (tmp_path / name).exists()

    def weights(folder: Path) -> None:
        save_file({"a": torch.zeros(40_000)}, folder / "model.safetensors")

    with limit(65_536), pytest.raises(NotWrittenError, match=rf"^{tmp_path} cannot be written: ({FULL})\.$"):
        write_into(tmp_path, weights)


def test_a_killed_run_is_not_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "run", callbacks=[Kill(5)])
    assert [each.name for each in checkpoints(tmp_path / "run")] == ["checkpoint-2", "checkpoint-4"]
