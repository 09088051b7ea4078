"""``tempplug watch``: trainings that are well, and some that were made ill on purpose, each of which it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_toys import make
from method_toys import Points, run

from tempplug.cli import main
from tempplug_adapters.watch.command import FULL, OF_TERMS, SHOWN, curve, read_logs
from tempplug_adapters.watch.problems import problems

HARDNESS = {"contrastive_negatives": "hardness:strength=2"}
EVERY_STEP = {"logging_strategy": "steps", "logging_steps": 1.0, "report_to": [], "save_strategy": "no"}


def watched(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["watch", str(folder), "--once"]) == 0
    return capsys.readouterr().out.splitlines()


def named(lines: list[str]) -> list[str]:
    return [line[2:].partition(":")[0] for line in lines if line.startswith("! ")]


@pytest.mark.parametrize(("more", "shown"), [({}, ()), ({"log_record": "full"}, FULL), (HARDNESS, OF_TERMS)])
def test_a_healthy_training_shows_its_course_and_nothing_harmful(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], shown: tuple[str, ...]
) -> None:
    run(tmp_path, data=Points(64), evaluate=True, training=EVERY_STEP, **more)
    first, *lines, evaluation, last = watched(tmp_path, capsys)
    assert first.startswith(f"{tmp_path}: step 24 of 24, epoch 3, ended, fixed:temperature=0.3")
    assert [line.split()[0] for line in lines] == [*SHOWN, *shown]
    assert "eval_spread" in evaluation
    assert last == "nothing harmful is seen"
    if shown == OF_TERMS:
        assert lines[-2].endswith("0 to 0, between 0 and 0")


ILL: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "the temperature is at its floor": (
        "macl:base_temperature=0.3,alpha=2,threshold=0.9,floor_ratio=0.5",
        {"noise": 3.0},
        "floor_ratio * base_temperature = 0.15",
        "choose a smaller alpha or threshold",
    ),
    "the temperature is at its ceiling": (
        "individual:temperature_min=0.05,temperature_max=0.11,temperature_init=0.1,rho=3,learning_rate=0.1",
        {},
        "temperature_max = 0.11",
        "widen temperature_min or temperature_max",
    ),
    "the gradient scale has collapsed": (
        "fixed:temperature=0.01",
        {"noise": 0.05, "dropout": 0.0, "learning_rate": 0.03, "num_train_epochs": 40, "data": Points(16)},
        "most pairs have no gradient any more",
        "raise the temperature",
    ),
    "positives are alike": ("fixed:temperature=0.5", {"noise": 0.0, "dropout": 0.0}, "since step 1:", "augment more strongly"),
    # a weight decay that leaves nothing of the matrices lets their biases decide alone
    "uniformity has collapsed": (
        "fixed:temperature=0.3",
        {"dropout": 0.0, "learning_rate": 0.01, "weight_decay": 60.0, "optimizer": "adamw"},
        "all embeddings lie on nearly one point",
        "which removes what all embeddings share, or lower the temperature",
    ),
}


@pytest.mark.filterwarnings("ignore:strategy '.*':RuntimeWarning")
@pytest.mark.parametrize("harm", ILL)
def test_an_ill_training_is_named_with_the_remedy(harm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strategy, settings, seen, remedy = ILL[harm]
    run(tmp_path, strategy, evaluate=False, training=EVERY_STEP, **{"data": Points(64), **settings})
    lines = watched(tmp_path, capsys)
    assert named(lines) == [harm]
    first = next(line for line in lines if line.startswith("! "))
    assert seen in first
    assert remedy in first.partition(" Remedy: ")[2]


COLLAPSING, NEGATIVE = "uniformity is collapsing", "negative_similarity"


@pytest.mark.parametrize(
    ("column", "name", "seen"),
    [
        ("uniformity -1.5 -3.0 -2.9 -1.4 -1.2 -1.1", COLLAPSING, "uniformity was -3 and is above -1.5 since step 4: -1.1"),
        ("uniformity -1.5 -3.0 -2.9 -1.4 -1.2 -1.6", "", "it recovers"),
        (f"{NEGATIVE} 0.6 0.2 0.25 0.7 0.65 0.62", COLLAPSING, f"{NEGATIVE} was 0.2 and is above 0.6 since step 4: 0.62"),
        (f"{NEGATIVE} 0.2 0.96 0.97 0.98", "uniformity has collapsed", f"{NEGATIVE} is 0.98 since step 2: all embeddings"),
        (f"{NEGATIVE} 0.2 0.3 0.4 0.5", "", "more than half of the spread is left"),
        ("uniformity -0.5 -0.9 -0.4 -0.4 -0.4", "", "embeddings that were never uniform cannot collapse"),
        ("gradient_scale 0.5 0.5 0.001 0.001", "", "two unusual batches are no problem"),
        ("gradient_scale 0.001 0.001 0.001 0.5", "", "it has recovered"),
        ("gradient_scale 0.5 0.001 0.001 0.001", "the gradient scale has collapsed", "it is 0.001 since step 2"),
        ("temperature_at_bound 1 1 1", "the temperature is at a bound", "it is 1 since step 1, and no longer adapts"),
    ],
)
def test_a_problem_is_named_once_the_last_logs_agree(column: str, name: str, seen: str) -> None:
    figure, *values = column.split()
    found = problems([{"step": at, "temperature": 1.0, figure: float(each)} for at, each in enumerate(values, 1)])
    assert [each.name for each in found] == ([name] if name else []), seen
    assert all(seen in each.seen for each in found)
    assert all(each.remedy == "choose other bounds" for each in found if "bound" in name)


def test_a_bound_that_was_left_is_no_problem_any_more() -> None:
    """Logs leave the share at a bound out while it is 0."""
    entries = [{"loss": 1.0, "temperature": 0.1, "temperature_at_bound": 1.0}] * 5
    assert [each.name for each in problems(entries)] == ["the temperature is at a bound"]
    assert problems([*entries, {"loss": 1.0, "temperature": 0.2}]) == []


def test_a_trainer_with_the_mixin_is_watched_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"max_steps": 4, "per_device_train_batch_size": 16, "save_strategy": "steps", "save_steps": 4}
    make(tmp_path, "learnable", **more).train()
    lines = watched(tmp_path, capsys)
    assert lines[0].startswith(f"{tmp_path}: step 4 of 4, epoch 1, ended")
    assert [line.split()[0] for line in lines[1:6]] == list(SHOWN)
    found = read_logs(tmp_path)
    (tmp_path / "log.jsonl").unlink()
    of_checkpoint = read_logs(tmp_path)
    assert of_checkpoint.entries == found.entries
    assert (of_checkpoint.max_steps, of_checkpoint.ended) == (4, True)


def line(step: int) -> str:
    return json.dumps({"step": step, "epoch": step / 4, "loss": 1.0 / step, "temperature": 0.1}) + "\n"


def test_it_looks_again_until_the_end(
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
    lines, start = capsys.readouterr().out.splitlines(), f"{tmp_path}: "
    assert [each.removeprefix(start) for each in lines if each.startswith(start)] == [
        "no log of a training step yet",
        "step 1 of 3, epoch 0.25",
        "step 2 of 3, epoch 0.5",
        "step 3 of 3, epoch 0.75, ended",
    ]
    assert waits == [0.5] * 4


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("other", "", "holds no log of a training step yet"),
        ("log.jsonl", "{}\n[1]\n", "log.jsonl, line 2 is not a valid log entry: it must be a JSON object."),
        ("log.jsonl", "{}\n{\n", "log.jsonl, line 2 is not a valid log entry: "),
        ("log.jsonl", "[" * 100_000 + "\n", "log.jsonl, line 1 is not a valid log entry: maximum"),
        ("trainer_state.json", "{", "trainer_state.json cannot be read: "),
        ("trainer_state.json", "[" * 100_000, "trainer_state.json cannot be read: maximum"),
    ],
)
def test_what_is_no_log_is_said(
    file: str, content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / file).write_text(content)
    for words, told in (
        ([str(tmp_path), "--once"], message),
        ([str(tmp_path / "nowhere"), "--once"], "nowhere does not exist or is no folder."),
        ([str(tmp_path), "--interval", "0"], "interval=0 must be a number of seconds greater than 0"),
    ):
        assert main(["watch", *words]) == 2
        assert told in capsys.readouterr().err


def test_curves_are_means_where_there_is_no_room() -> None:
    assert curve([1.0] * 5) == "▁" * 5
    assert curve([float(each // 2) for each in range(16)], columns=8) == "▁▂▃▄▅▆▇█"
    assert curve([0.0, float("nan"), 1.0]) == "▁?█"
