"""``tempplug watch``: trainings that are well, and some that were made ill on purpose, each of which it names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_toys import Data, Encoder, MyTrainer
from method_toys import Kill, Killed, Points, run
from transformers import TrainingArguments

import tempplug
from tempplug.cli import main
from tempplug.errors import DataError
from tempplug_adapters.watch.command import SHOWN, curve
from tempplug_adapters.watch.logs import read_logs
from tempplug_adapters.watch.problems import problems

EVERY_STEP = {"logging_strategy": "steps", "logging_steps": 1.0, "report_to": [], "save_strategy": "no"}


def watched(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["watch", str(folder), "--once"]) == 0
    return capsys.readouterr().out.splitlines()


def named(lines: list[str]) -> list[str]:
    return [line[2:].partition(":")[0] for line in lines if line.startswith("! ")]


def test_a_healthy_training_shows_its_course_and_nothing_harmful(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, data=Points(64), evaluate=True, training=EVERY_STEP)
    lines = watched(tmp_path, capsys)
    assert lines[0].startswith(f"{tmp_path}: step 24 of 24, epoch 3, ended, fixed:temperature=0.3")
    assert [line.split()[0] for line in lines[1:8]] == list(SHOWN)
    assert "eval_spread" in lines[8]
    assert named(lines) == []
    assert lines[-1] == "nothing harmful is seen"


ILL = {
    "floor": (
        "macl:base_temperature=0.3,alpha=2,threshold=0.9,floor_ratio=0.5",
        {"noise": 3.0},
        ["the temperature is at its floor"],
        "floor_ratio * base_temperature = 0.15",
        "choose a smaller alpha or threshold",
    ),
    "ceiling": (
        "individual:temperature_min=0.05,temperature_max=0.11,temperature_init=0.1,rho=3,learning_rate=0.1",
        {},
        ["the temperature is at its ceiling"],
        "temperature_max = 0.11",
        "widen temperature_min or temperature_max",
    ),
    "gradient": (
        "fixed:temperature=0.01",
        {"noise": 0.05, "dropout": 0.0, "learning_rate": 0.03, "num_train_epochs": 40, "data": Points(16)},
        ["the gradient scale has collapsed"],
        "most pairs have no gradient any more",
        "raise the temperature",
    ),
    "positives": (
        "fixed:temperature=0.5",
        {"noise": 0.0, "dropout": 0.0},
        ["positives are alike"],
        "since step 1:",
        "augment more strongly",
    ),
    # a weight decay that leaves nothing of the matrices lets their biases decide alone
    "uniformity": (
        "fixed:temperature=0.3",
        {"dropout": 0.0, "learning_rate": 0.01, "weight_decay": 60.0, "optimizer": "adamw"},
        ["uniformity has collapsed"],
        "all embeddings lie on nearly one point",
        "lower the temperature",
    ),
}


@pytest.mark.filterwarnings("ignore:strategy '.*':RuntimeWarning")
@pytest.mark.parametrize("harm", ILL)
def test_an_ill_training_is_named_with_the_remedy(harm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strategy, settings, names, seen, remedy = ILL[harm]
    run(tmp_path, strategy, evaluate=False, training=EVERY_STEP, **{"data": Points(64), **settings})
    lines = watched(tmp_path, capsys)
    assert named(lines) == names
    first = next(line for line in lines if line.startswith("! "))
    assert seen in first
    assert remedy in first.partition(" Remedy: ")[2]


def entries(**columns: list[float]) -> list[dict[str, float]]:
    length = len(next(iter(columns.values())))
    return [{"step": row + 1, "loss": 1.0, **{name: values[row] for name, values in columns.items()}} for row in range(length)]


def test_a_uniformity_that_falls_apart_is_told_before_it_is_gone() -> None:
    (problem,) = problems(entries(uniformity=[-1.5, -3.0, -2.9, -1.4, -1.2, -1.1]))
    assert problem.name == "uniformity is collapsing"
    assert problem.seen == "it was -3 and is above -1.5 since step 4: -1.1"
    assert problems(entries(uniformity=[-1.5, -3.0, -2.9, -1.4, -1.2, -1.6])) == [], "it recovers"
    assert problems(entries(uniformity=[-0.5, -0.9, -0.4, -0.4, -0.4])) == [], "what never was uniform cannot collapse"


def test_one_odd_batch_is_nothing() -> None:
    assert problems(entries(gradient_scale=[0.5, 0.5, 0.001, 0.001])) == []
    assert [each.name for each in problems(entries(gradient_scale=[0.5, 0.001, 0.001, 0.001]))] == [
        "the gradient scale has collapsed"
    ]
    assert problems(entries(gradient_scale=[0.001, 0.001, 0.001, 0.5])) == []


def test_bounds_that_are_not_known_are_told_as_such() -> None:
    (problem,) = problems(entries(temperature_at_bound=[1.0] * 3, temperature=[0.07] * 3))
    assert (problem.name, problem.remedy) == ("the temperature is at a bound", "choose other bounds")
    assert problem.seen == "it is 0.07 since step 1, and no longer adapts"


def test_a_run_that_goes_on_writes_the_log_of_one_that_was_not_killed(tmp_path: Path) -> None:
    training = {**EVERY_STEP, "save_strategy": "steps", "save_steps": 3}
    run(tmp_path / "whole", data=Points(), evaluate=False, training=training)
    with pytest.raises(Killed):
        run(tmp_path / "killed", data=Points(), evaluate=False, training=training, callbacks=[Kill(5)])
    killed = read_logs(tmp_path / "killed")
    assert [each["step"] for each in killed.entries] == [1, 2, 3, 4, 5]
    assert not killed.ended
    run(tmp_path / "killed", data=Points(), evaluate=False, training=training, resume_from_checkpoint="auto")
    assert read_logs(tmp_path / "killed") == read_logs(tmp_path / "whole")
    assert read_logs(tmp_path / "whole").ended


def test_a_trainer_with_the_mixin_is_watched_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = TrainingArguments(
        str(tmp_path),
        max_steps=4,
        logging_steps=1,
        per_device_train_batch_size=16,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    loss = tempplug.ContrastiveLoss("learnable", layout="cross-view")
    MyTrainer(Encoder(), args, train_dataset=Data(), contrastive_loss=loss).train()
    lines = watched(tmp_path, capsys)
    assert lines[0].startswith(f"{tmp_path}: step 4 of 4, epoch 1, ended")
    assert [line.split()[0] for line in lines[1:8]] == list(SHOWN)
    found = read_logs(tmp_path)
    (tmp_path / "log.jsonl").unlink()
    of_checkpoint = read_logs(tmp_path)
    assert of_checkpoint.entries == found.entries
    assert (of_checkpoint.max_steps, of_checkpoint.ended) == (4, True)


def line(step: int) -> str:
    return json.dumps({"step": step, "epoch": step / 4, "loss": 1.0 / step, "temperature": 0.1}) + "\n"


def test_it_looks_again_until_the_training_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    coming = ['{"max_steps": 3}\n' + line(1) + line(2)[:9], line(2)[9:], "", line(3) + '{"step": 3, "ended": true}\n']
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        with log.open("a", encoding="utf-8") as file:
            file.write(coming.pop(0))

    monkeypatch.setattr("time.sleep", sleep)
    assert main(["watch", str(tmp_path), "--interval", "0.5"]) == 0
    heads = [
        each.removeprefix(f"{tmp_path}: ") for each in capsys.readouterr().out.splitlines() if each.startswith(str(tmp_path))
    ]
    assert heads == [
        "no log of a training step yet",
        "step 1 of 3, epoch 0.25",
        "step 2 of 3, epoch 0.5",
        "step 3 of 3, epoch 0.75, ended",
    ]
    assert waits == [0.5] * 4


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: None, "holds no log of a training step yet"),
        (
            lambda folder: (folder / "log.jsonl").write_text("{}\n[1]\n"),
            "log.jsonl, line 2 is not a valid log entry: it must be a JSON object.",
        ),
        (lambda folder: (folder / "log.jsonl").write_text("{}\n{\n"), "log.jsonl, line 2 is not a valid log entry: "),
        (lambda folder: (folder / "trainer_state.json").write_text("{"), "trainer_state.json cannot be read: "),
        (
            lambda folder: (folder / "trainer_state.json").write_text("[" * 100_000),
            "trainer_state.json cannot be read: maximum",
        ),
        (
            lambda folder: (folder / "log.jsonl").write_text("[" * 100_000 + "\n"),
            "log.jsonl, line 1 is not a valid log entry: maximum",
        ),
    ],
)
def test_what_is_no_log_is_said(
    write: Callable[[Path], Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    assert main(["watch", str(tmp_path), "--once"]) == 2
    assert message in capsys.readouterr().err


def test_wrong_words_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match=r"output_dir=.*nowhere does not exist or is no folder\."):
        read_logs(tmp_path / "nowhere")
    assert main(["watch", str(tmp_path), "--interval", "0"]) == 2
    assert "interval=0 must be a number of seconds greater than 0" in capsys.readouterr().err


def test_curves_are_means_where_there_is_no_room() -> None:
    assert curve([1.0] * 5) == "▁" * 5
    assert curve([float(each // 2) for each in range(16)], columns=8) == "▁▂▃▄▅▆▇█"
    assert curve([0.0, float("nan"), 1.0]) == "▁?█"
