"""Which checkpoint a run goes on with, and files of trainings that are whole or not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.training.checkpoints import COMPLETE, check_settings, checkpoints, resume_point, write_settings


def checkpoint(folder: Path, step: int, **settings: object) -> Path:
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    for name in COMPLETE:
        (made / name).write_text("{}")
    write_settings(made, {"method": "toy", "recipe": {"noise": 0.1}, **settings})
    return made


def test_the_newest_complete_checkpoint_counts(tmp_path: Path) -> None:
    found = [checkpoint(tmp_path, step) for step in (9, 100, 20)]
    assert checkpoints(tmp_path) == [found[0], found[2], found[1]]
    (found[1] / "optimizer.pt").unlink()
    (tmp_path / "checkpoint-final").mkdir()
    assert resume_point(tmp_path, "auto") == resume_point(tmp_path, "True") == found[2]
    assert resume_point(tmp_path, str(found[0])) == found[0]


def test_a_new_run_does_not_overwrite_an_earlier_one(tmp_path: Path) -> None:
    assert resume_point(tmp_path / "new", None) is None
    assert resume_point(tmp_path / "new", "auto") is None
    checkpoint(tmp_path, 3)
    for asked in (None, "false"):
        with pytest.raises(ConfigError, match=r"holds checkpoint-3 of an earlier run: pass --resume-from-checkpoint auto"):
            resume_point(tmp_path, asked)
    with pytest.raises(DataError, match=r"resume_from_checkpoint='.*none' is not a complete checkpoint"):
        resume_point(tmp_path, str(tmp_path / "none"))


@pytest.mark.parametrize("asked", [None, "auto"])
def test_a_folder_that_cannot_be_written_is_said_before_the_run(tmp_path: Path, asked: str | None) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataError, match=f"output_dir='{folder}' cannot be written"):
            resume_point(folder, asked)


def test_settings_are_compared_by_name(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, 1)
    ours = {"method": "toy", "recipe": {"noise": 0.1}}
    check_settings(made, ours)
    for changed, message in [
        ({**ours, "method": "other"}, "method=other differs from the checkpoint's toy"),
        ({**ours, "recipe": {"noise": 0.2}}, "noise=0.2 differs from the checkpoint's 0.1"),
        ({**ours, "recipe": {}}, "noise=None differs from the checkpoint's 0.1"),
        ({**ours, "recipe": {"noise": 0.1, "width": (3, 4)}}, r"width=\[3, 4\] differs from the checkpoint's None"),
    ]:
        with pytest.raises(ConfigError, match=message):
            check_settings(made, changed)
    for content in ("{", "[]", "{}", json.dumps({"recipe": 3})):
        (made / "settings.json").write_text(content)
        with pytest.raises(DataError, match=r"settings\.json is damaged"):
            check_settings(made, ours)
