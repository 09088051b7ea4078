"""Which checkpoint a run resumes from: the newest undamaged one of the same run, never a damaged file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from method_toys import Kill, Killed, assert_same_end, run

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.storage.manifest import seal
from tempplug_adapters.training.checkpoints import (
    COMPLETE,
    SETTINGS_FILE,
    TRAINER_STATE,
    check_settings,
    check_start,
    checkpoints,
    output_folder,
    remove_old,
    resume_point,
)


def checkpoint(folder: Path, step: int, best: int | None = None) -> Path:
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    for name in COMPLETE:
        (made / name).write_text("{}")
    (made / TRAINER_STATE).write_text(json.dumps({"best_global_step": best}))
    write_json(made / SETTINGS_FILE, {"method": "toy", "recipe": {"noise": 0.1}})
    seal(made)
    return made


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def test_the_newest_checkpoint_counts(tmp_path: Path) -> None:
    found = [checkpoint(tmp_path, step) for step in (9, 100, 20)]
    (tmp_path / "checkpoint-final").mkdir()
    assert checkpoints(tmp_path) == [found[0], found[2], found[1]]
    assert resume_point(tmp_path, "auto") == resume_point(tmp_path, "True") == found[1]
    assert resume_point(tmp_path, str(found[0])) == found[0]


def test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it(tmp_path: Path) -> None:
    found = [checkpoint(tmp_path, step) for step in (9, 20, 100)]
    (found[2] / "optimizer.pt").write_text("{]")
    (found[1] / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"checkpoint-100' is not a complete checkpoint: its optimizer\.pt is damaged: .* auto"):
        resume_point(tmp_path, str(found[2]))
    assert checkpoints(tmp_path) == found, "nothing is moved for a checkpoint that was named"
    with pytest.warns(UserWarning, match="is damaged") as said:
        assert resume_point(tmp_path, "auto") == found[0]
    then = "and the training goes on from checkpoint-9."
    assert [str(each.message).partition(" is damaged: ")[2] for each in said] == [
        f"its optimizer.pt is damaged: it is not as it was written. It is now damaged-checkpoint-100, {then}",
        f"it is incomplete: it has no manifest.json. It is now damaged-checkpoint-20, {then}",
    ]
    assert names(tmp_path) == {"checkpoint-9", "damaged-checkpoint-20", "damaged-checkpoint-100"}
    again = checkpoint(tmp_path, 100)
    (again / "scheduler.pt").unlink()
    (found[0] / "scheduler.pt").unlink()
    with pytest.warns(UserWarning, match="its scheduler.pt is missing. .* the training begins anew"):
        assert resume_point(tmp_path, "auto") is None
    assert not (tmp_path / "damaged-checkpoint-100" / "scheduler.pt").exists(), "the later one took its place"


def test_a_checkpoint_needs_the_best_one(tmp_path: Path) -> None:
    earlier, best, last = checkpoint(tmp_path, 4), checkpoint(tmp_path, 8, best=8), checkpoint(tmp_path, 12, best=8)
    assert resume_point(tmp_path, "auto") == last
    (best / "settings.json").write_text("")
    with pytest.warns(UserWarning, match="is damaged") as said:
        assert resume_point(tmp_path, "auto") == earlier
    assert "checkpoint-12 is damaged: the best checkpoint, checkpoint-8, is damaged: its" in str(said[0].message)


def test_a_training_goes_on_from_the_checkpoint_before_a_damaged_one(tmp_path: Path) -> None:
    run(tmp_path / "whole", "learnable")
    with pytest.raises(Killed):
        run(tmp_path / "killed", "learnable", callbacks=[Kill(8)])
    newest = checkpoints(tmp_path / "killed")[-1]
    assert {*COMPLETE, "rng_state.pth", "manifest.json"} == names(newest)
    (newest / "rng_state.pth").write_bytes(b"")
    with pytest.raises(DataError, match=rf"^resume_from_checkpoint='{newest}' is not a.*: its rng_state.pth has 0 bytes"):
        run(tmp_path / "killed", "learnable", resume_from_checkpoint=str(newest))
    with pytest.warns(UserWarning, match=r"checkpoint-8 is damaged: its rng_state.* the training goes on from checkpoint-6\.$"):
        run(tmp_path / "killed", "learnable", resume_from_checkpoint="auto")
    assert_same_end(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [(TRAINER_STATE, "[" * 100_000), (SETTINGS_FILE, "[1]"), (TRAINER_STATE, "{}"), (SETTINGS_FILE, "{"), (TRAINER_STATE, "3")],
)
def test_a_sealed_checkpoint_may_hold_other_things(tmp_path: Path, file: str, content: str) -> None:
    made = checkpoint(tmp_path, 4)
    (made / file).write_text(content)
    seal(made)
    told = "checkpoint-4' is not a complete checkpoint: its trainer_state.json or settings.json is invalid: [^\n]+$"
    with pytest.raises(DataError, match=told):
        resume_point(tmp_path, str(made))
    with pytest.warns(UserWarning, match="and the training begins anew"):
        assert resume_point(tmp_path, "auto") is None


def test_old_checkpoints_are_removed_but_never_the_newest_or_the_best(tmp_path: Path) -> None:
    for step in (1, 2, 3, 30, 40):
        checkpoint(tmp_path, step)
    remove_old(tmp_path, None, tmp_path / "checkpoint-3", None)
    assert len(checkpoints(tmp_path)) == 5
    remove_old(tmp_path, 3, tmp_path / "checkpoint-3", str(tmp_path / "checkpoint-1"))
    assert names(tmp_path) == {"checkpoint-1", "checkpoint-3", "checkpoint-40"}
    remove_old(tmp_path, 2, tmp_path / "checkpoint-40", str(tmp_path / "checkpoint-1"))
    assert names(tmp_path) == {"checkpoint-1", "checkpoint-40"}


def test_a_new_run_does_not_overwrite_an_earlier_one(tmp_path: Path) -> None:
    for asked in (None, "auto", "false"):
        check_start(tmp_path, asked)
        assert resume_point(tmp_path, asked) is None
    checkpoint(tmp_path, 3)
    check_start(tmp_path, "auto")
    for asked in (None, "false"):
        with pytest.raises(ConfigError, match=r"holds checkpoint-3 of an earlier run: pass --resume-from-checkpoint auto"):
            check_start(tmp_path, asked)
    for folder in (tmp_path / "none", checkpoint(tmp_path, 4)):
        (folder / "optimizer.pt").unlink(missing_ok=True)
        with pytest.raises(DataError, match=rf"resume_from_checkpoint='{folder}' is not a complete checkpoint: it"):
            check_start(tmp_path, str(folder))


def test_what_dead_runs_left_is_removed_by_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / ".checkpoint-8.999999999.tmp"
    left.mkdir()
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")
        with output_folder(tmp_path):
            assert names(tmp_path) == {left.name}
    with output_folder(tmp_path):
        assert names(tmp_path) == {".lock"}
    assert names(tmp_path) == set()


def test_settings_are_compared_by_name_and_another_machine_is_told(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, 1)
    ours, machine = {"method": "toy", "recipe": {"noise": 0.1}}, {"cpu": "Abacus", "products": "mm", "threads": 1}
    check_settings(made, ours)
    for changed, message in [
        ({"method": "other"}, "method=other differs from the checkpoint's toy"),
        ({"recipe": {"noise": 0.2}}, "noise=0.2 differs from the checkpoint's 0.1"),
        ({"recipe": {}}, "noise=None differs from the checkpoint's 0.1"),
        ({"recipe": {"noise": 0.1, "width": (3, 4)}}, r"width=\[3, 4\] differs from the checkpoint's None"),
    ]:
        with pytest.raises(ConfigError, match=message):
            check_settings(made, {**ours, **changed})
    write_json(made / SETTINGS_FILE, {**ours, "machine": machine})
    check_settings(made, {**ours, "machine": machine})
    wanted = r"checkpoint-1 was written on another machine: products onednn \(was mm\), threads 2 \(was 1\)\. The training"
    with pytest.warns(UserWarning, match=wanted):
        check_settings(made, {**ours, "machine": machine | {"products": "onednn", "threads": 2}})
