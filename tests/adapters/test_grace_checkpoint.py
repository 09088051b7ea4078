"""Checkpoints: all that the next epoch depends on comes back, and whatever is wrong with a file is said."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.training.checkpoint import CHECKPOINT, Settings, load_checkpoint, resume_point, save_checkpoint


def draw(generator: torch.Generator) -> tuple[float, ...]:
    ours = torch.rand(1, generator=generator).item()
    return torch.rand(1).item(), np.random.standard_normal(), random.gauss(0, 1), ours


def trained(seed: int) -> tuple[torch.nn.Linear, torch.optim.Adam]:
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "a.pt"
    model, optimizer = trained(0)
    generator = torch.Generator().manual_seed(5)
    draw(generator)  # an odd number of normal draws leaves one in stock
    save_checkpoint(file, 7, model=model, optimizer=optimizer, generator=generator)
    drawn = draw(generator)
    other, other_optimizer = trained(1)
    again = torch.Generator()
    assert load_checkpoint(file, model=other, optimizer=other_optimizer, generator=again) == 7
    assert draw(again) == drawn
    assert torch.equal(other.weight, model.weight)
    moments = [state["exp_avg"] for state in other_optimizer.state_dict()["state"].values()]
    expected = [state["exp_avg"] for state in optimizer.state_dict()["state"].values()]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(moments, expected, strict=True))
    assert [each.name for each in file.parent.iterdir()] == ["a.pt"], "nothing is left beside it"


def test_without_a_file_nothing_was_done(tmp_path: Path) -> None:
    model, _ = trained(0)
    before = model.weight.clone()
    assert load_checkpoint(tmp_path / "none.pt", model=model) == 0
    assert torch.equal(model.weight, before)


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.pt"
    model, _ = trained(0)
    save_checkpoint(file, 1, model=model)

    def half(_: Any, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(DataError, match=r"a\.pt cannot be written: disk full\."):
        save_checkpoint(file, 2, model=model)
    assert [each.name for each in tmp_path.iterdir()] == ["a.pt"]
    assert load_checkpoint(file, model=model) == 1


@pytest.mark.parametrize("damage", ["truncated", "noise", "empty", "other"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "broken.pt"
    model, _ = trained(0)
    save_checkpoint(file, 1, model=model)
    whole = file.read_bytes()
    noise = bytes(random.Random(0).randrange(256) for _ in range(500))
    file.write_bytes({"truncated": whole[: len(whole) // 2], "noise": noise, "empty": b"", "other": b""}[damage])
    if damage == "other":
        torch.save([1, 2], file)
    with pytest.raises(DataError, match=r"broken\.pt") as raised:
        load_checkpoint(file, model=model)
    assert "\n" not in str(raised.value)


def test_the_state_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    model, optimizer = trained(0)
    save_checkpoint(file, 1, model=model)
    with pytest.raises(DataError, match=r"must hold epoch, model, optimizer, random_states"):
        load_checkpoint(file, model=model, optimizer=optimizer)
    with pytest.raises(DataError, match="size mismatch for weight") as raised:
        load_checkpoint(file, model=torch.nn.Linear(9, 2))
    assert "\n" not in str(raised.value)


def test_other_settings_are_refused_before_anything_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    model, _ = trained(0)
    save_checkpoint(file, 1, settings=Settings({"rate": 0.1, "widths": (3, 2)}), model=model)
    other, _ = trained(1)
    before = other.weight.clone()
    with pytest.raises(ConfigError, match=r"rate=0\.2 differs from the checkpoint's 0\.1"):
        load_checkpoint(file, settings=Settings({"rate": 0.2, "widths": (3, 2)}), model=other)
    with pytest.raises(ConfigError, match=r"rate=None differs"):
        load_checkpoint(file, settings=Settings({"widths": (3, 2)}), model=other)
    assert torch.equal(other.weight, before)
    assert load_checkpoint(file, settings=Settings({"rate": 0.1, "widths": (3, 2)}), model=other) == 1


def test_a_new_run_does_not_overwrite_an_earlier_one(tmp_path: Path) -> None:
    assert resume_point(tmp_path, None) == resume_point(tmp_path, "auto") == tmp_path / CHECKPOINT
    (tmp_path / CHECKPOINT).touch()
    assert resume_point(tmp_path, "auto") == tmp_path / CHECKPOINT
    assert resume_point(tmp_path / "new", str(tmp_path / CHECKPOINT)) == tmp_path / CHECKPOINT
    with pytest.raises(ConfigError, match="--resume-from-checkpoint auto"):
        resume_point(tmp_path, None)
    with pytest.raises(DataError, match="does not exist"):
        resume_point(tmp_path, str(tmp_path / "none.pt"))


@pytest.mark.parametrize(("saved", "there"), [(8, 1), (1, 2), (2, 2)])
def test_a_machine_may_have_other_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: int, there: int) -> None:
    states = [torch.full((16,), number, dtype=torch.uint8) for number in range(saved)]
    restored: dict[int, torch.Tensor] = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: restored.update({device: state}))
    save_checkpoint(tmp_path / CHECKPOINT, 3)
    assert load_checkpoint(tmp_path / CHECKPOINT) == 3
    assert restored.keys() == set(range(min(saved, there)))
    assert all(torch.equal(state, states[device]) for device, state in restored.items())


@pytest.mark.parametrize("asked", [None, "auto"])
def test_a_folder_that_cannot_be_written_is_said_before_the_run(tmp_path: Path, asked: str | None) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataError, match=f"output_dir='{folder}' cannot be written"):
            resume_point(folder, asked)
