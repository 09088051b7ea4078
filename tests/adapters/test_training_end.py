"""The end of a run: one that was killed ends as if it had not been; signals save first."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from method_toys import METHOD, Kill, Killed, ToyMethod, assert_same_end, run
from recommendation_toys import walks, write_log
from transformers import TrainerCallback

from tempplug_adapters.training.callbacks import TemperatureStatistics
from tempplug_adapters.training.checkpoints import checkpoints
from tempplug_adapters.training.method import Method
from tempplug_adapters.training.termination import Terminated
from tempplug_adapters.training.trainer import MethodTrainer
from tempplug_adapters.watch.command import read_logs

SCHEDULE = "schedule:temperature_min=0.2,temperature_max=0.9,period=4"
BEST: dict[str, Any] = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
BEST |= {"metric_for_best_model": "spread", "greater_is_better": True}
EARLY = {**BEST, "greater_is_better": False, "early_stopping_patience": 1}
STEPS = {**BEST, "save_strategy": "steps", "save_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True}
STEPS |= {"logging_strategy": "steps", "logging_steps": 1}
GO_ON = "the same command with --resume-from-checkpoint auto goes on where it stopped."


def go_on(folder: Path, training: dict[str, Any] | None = None, strategy: str = SCHEDULE) -> dict[str, Any]:
    """Resumes the killed run, and makes sure that it ends like the whole one."""
    torch.manual_seed(99)
    results = run(folder / "killed", strategy, resume_from_checkpoint="auto", training=training)
    assert_same_end(folder)
    return results


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation that draws from every generator there is."""
    original = ToyMethod.evaluate

    def drawn(self: ToyMethod, *given: Any) -> dict[str, float]:
        drawn = {"torch": float(torch.rand(())), "numpy": float(numpy.random.rand()), "python": random.random()}
        return {**original(self, *given), **drawn}

    monkeypatch.setattr(ToyMethod, "evaluate", drawn)


def kill(*_: Any, **__: Any) -> None:
    raise Killed


def kill_at_the_last_evaluation(patch: pytest.MonkeyPatch) -> None:
    original = ToyMethod.evaluate
    patch.setattr(ToyMethod, "evaluate", lambda *given: kill() if given[-1].final else original(*given))


MOMENTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "after the last checkpoint": lambda patch: patch.setattr(MethodTrainer, "_finalize_training", kill),
    "in the evaluation": kill_at_the_last_evaluation,
    "before the encoder": lambda patch: patch.setattr(Method, "save", kill),
    "before the metrics": lambda patch: patch.setattr(Method, "kept", kill),
}


@pytest.mark.usefixtures("chance")
@pytest.mark.parametrize(
    ("moment", "training", "steps"),
    [*((moment, {}, 9) for moment in MOMENTS), ("in the evaluation", {"max_steps": 4}, 4), ("in the evaluation", EARLY, 6)],
)
def test_a_run_killed_at_its_end_is_only_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, training: dict[str, Any], steps: int
) -> None:
    assert run(tmp_path / "whole", SCHEDULE, training=training)["steps"] == steps
    with monkeypatch.context() as patch:
        MOMENTS[moment](patch)
        with pytest.raises(Killed):
            run(tmp_path / "killed", SCHEDULE, training=training)
    saved = {file: file.read_bytes() for file in (tmp_path / "killed").glob("checkpoint-*/*")}
    assert saved
    for _ in "after the kill", "after its end":
        assert go_on(tmp_path, training)["seconds_per_epoch"] is None
    assert {file: file.read_bytes() for file in (tmp_path / "killed").glob("checkpoint-*/*")} == saved, "no step is trained"


@pytest.mark.usefixtures("chance")
@pytest.mark.parametrize(
    ("strategy", "step"), [(SCHEDULE, 1), ("learnable+sogclr:gamma=0.3,decay=0.9,rho=1", 5), ("individual", 6), (SCHEDULE, 8)]
)
def test_a_run_killed_in_the_middle_ends_as_if_it_had_not_been(tmp_path: Path, strategy: str, step: int) -> None:
    run(tmp_path / "whole", strategy, training=STEPS)
    with pytest.raises(Killed):
        run(tmp_path / "killed", strategy, training=STEPS, callbacks=[Kill(step)])
    logs = read_logs(tmp_path / "killed")
    assert ([each["step"] for each in logs.entries], logs.ended) == (list(range(1, step + 1)), False)
    history = go_on(tmp_path, STEPS, strategy)["history"]
    assert len([entry for entry in history if "eval_spread" in entry]) == 11, "each evaluation once"
    logs, again = (read_logs(tmp_path / name) for name in ("whole", "killed"))
    assert logs == again
    assert logs.ended


def test_the_best_checkpoint_is_found_in_a_folder_that_has_moved(tmp_path: Path) -> None:
    """It is the first, and no other follows."""
    training = {**BEST, "greater_is_better": False, "save_strategy": "best"}
    run(tmp_path / "whole", SCHEDULE, training=training)
    with pytest.raises(Killed):
        run(tmp_path / "begun", SCHEDULE, training=training, callbacks=[Kill(7)])
    assert [each.name for each in checkpoints(tmp_path / "begun")] == ["checkpoint-3"]
    (tmp_path / "begun").rename(tmp_path / "killed")
    go_on(tmp_path, training)


class Send(TrainerCallback):
    """Sends a signal to this process at the beginning of a step, or after the last checkpoint."""

    def __init__(self, number: int, step: int) -> None:
        self.number, self.step = number, step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), self.number)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step == 9:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(
    ("number", "training", "step", "when"),
    [
        (signal.SIGTERM, {"save_strategy": "no"}, 4, "after step 5 of 9, which is saved"),
        (signal.SIGTERM, {"save_steps": 4, "eval_strategy": "epoch"}, 4, "after step 5 of 9, which is saved"),
        (signal.SIGTERM, {"save_steps": 4, "eval_strategy": "epoch"}, 8, "after step 9 of 9, which is saved"),
        (signal.SIGTERM, {}, 9, "after the last step"),
        (signal.SIGHUP, {}, 4, "after step 5 of 9, which is saved"),
    ],
)
def test_a_signal_saves_at_the_next_step(
    tmp_path: Path, number: signal.Signals, training: dict[str, Any], step: int, when: str
) -> None:
    before, saving = signal.getsignal(number), {**training, "save_strategy": "steps"}
    run(tmp_path / "whole", SCHEDULE, training=saving)
    with pytest.raises(Terminated) as ended:
        run(tmp_path / "killed", SCHEDULE, callbacks=[Send(number, step)], training=training)
    assert signal.getsignal(number) is before
    assert ended.value.code == 128 + number
    assert str(ended.value) == f"ended by {number.name} {when}: {GO_ON}"
    assert checkpoints(tmp_path / "killed")[-1].name == f"checkpoint-{min(step + 1, 9)}"
    assert not (tmp_path / "killed" / "metrics.json").exists()
    go_on(tmp_path, saving)


def test_a_hangup_that_is_ignored_stays_so_and_ctrl_c_is_left_to_the_shell(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        assert run(tmp_path / "on", callbacks=[Send(signal.SIGHUP, 4)])["steps"] == 9
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "off", callbacks=[Send(signal.SIGINT, 4)])


def words(folder: Path, *more: str) -> list[str]:
    return ["--dataset", "points", "--output-dir", str(folder), *more]


@pytest.mark.parametrize("where", ["load", "evaluate"])
def test_sigterm_outside_of_the_training_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ToyMethod, where, lambda *given: os.kill(os.getpid(), signal.SIGTERM))
        assert METHOD(words(tmp_path)) == 143
    assert capsys.readouterr().err.rstrip().splitlines()[-1] == f"ended by SIGTERM: {GO_ON}"
    assert METHOD(words(tmp_path, "--resume-from-checkpoint", "auto")) == 0


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_a_training_which_saves(tmp_path: Path) -> None:
    """What the training prints after it cannot be written any more."""
    ours, theirs = pty.openpty()
    given = f"train sasrec --dataset {write_log(tmp_path / 'log.csv', walks())} --hidden 8 --inner 16 --eval-strategy no"
    given += " --per-device-train-batch-size 8 --num-train-epochs 50000 --logging-strategy steps --logging-steps 1 --output-dir"
    process = subprocess.Popen(
        [sys.executable, "-m", "tempplug.cli", *given.split(), str(tmp_path / "out")],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    shown = b""
    while b"epoch 0." not in shown:
        shown += os.read(ours, 1000)
    os.close(ours)
    assert process.wait(timeout=120) == 129
    assert len(checkpoints(tmp_path / "out")) == 1


def test_the_mean_of_the_temperatures_is_that_of_all_steps_looked_at() -> None:
    class Cooling(torch.nn.Module):
        step = 0

        def measure(self) -> dict[str, float]:
            return {"temperature": 1 / self.step}

    module = Cooling()
    seen = TemperatureStatistics(module)
    for module.step in range(1, 251):
        seen.on_step_end(None, SimpleNamespace(global_step=module.step, max_steps=250), None)
    looked_at = [1, *range(3, 251, 3), 250]
    assert len(seen.course["temperature"]) == len(looked_at) == 85
    assert seen.seen["mean"] == pytest.approx(fmean(1 / step for step in looked_at))
