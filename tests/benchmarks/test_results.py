"""Results on disk: what is written is read, what is damaged is named and left out of reports, statistics over seeds."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from run_checks import write_failure, write_result
from suite_checks import bench

from tempplug.errors import DataError
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS
from tempplug_benchmarks.arm import Specs
from tempplug_benchmarks.command import Report, reports
from tempplug_benchmarks.report.comparison import compare, consistent
from tempplug_benchmarks.report.pages import page
from tempplug_benchmarks.results import load_results, paired_difference, summarise
from tempplug_benchmarks.run.plan import Run, plan
from tempplug_benchmarks.run.store import difference_from, read_result
from tempplug_benchmarks.speed.cases import SUITE

# Two-sided 95 % points of Student's t, from printed tables.
T_2, T_1 = 4.302653, 12.706205
SCORES = {"STSB": 71.25, "error": 0.5}
DEEP = "[" * 100_000 + "]" * 100_000
Change = Callable[[dict[str, Any]], object]


def test_a_result_survives_the_disk(toy: ModuleType, tmp_path: Path) -> None:
    run = plan(toy.SUITE, "quick", [4], strategies=["macl+infonce"])[1]
    course = {"step": [1, 2], "temperature": [0.5, 0.25]}
    noted = {"course": course, "launch": {"processes": 2, "effective_batch_size": 64}, "resampled": {"STSB": [0.5, 1.5]}}
    written = write_result(run, tmp_path, SCORES, 1.23456, **noted)
    path = tmp_path / "toy" / "quick" / "toy-task" / "macl-infonce" / "seed-4.json"
    assert read_result(path) == written
    assert "negatives" not in path.read_text()
    assert '"temperature": [0.5, 0.25]\n' in path.read_text(), "a list of numbers is one line"
    assert {name: getattr(written, name) for name in noted} == noted
    assert (written.metrics, written.seconds) == (SCORES, 1.235)
    assert written.recipe.items() >= {"steps": 10, "num_train_epochs": 100.0, "fp16": True}.items()
    assert not {"seed", "save_steps"} & written.recipe.keys()
    assert {"python", "torch", "tempplug"} <= written.versions.keys()
    assert written.hardware.keys() >= {"cpu", "cores", "threads"}
    assert written.date.endswith("+00:00")
    write_failure(run, tmp_path, "it broke", "trace")
    record = path.with_name("seed-4.failed.json")
    assert json.loads(record.read_text())["error"] == "it broke"
    write_result(run, tmp_path, SCORES, seconds=1)
    assert not record.exists(), "a success removes the record of a failure"


def test_settings_of_older_results_are_read_by_their_present_names(toy: ModuleType, tmp_path: Path) -> None:
    run = plan(toy.make_suite(), "quick", [0])[0]
    write_result(run, tmp_path, SCORES, seconds=1)
    content = json.loads(run.path(tmp_path).read_text())
    for old, new in (
        ({"pooler": "avg", "sts_test": False, "transfer_test": ["MR"]}, {"pooling": "avg", "tasks": ["MR"]}),
        ({"sts_test": True, "transfer_test": []}, {"tasks": list(STS_TASKS)}),
    ):
        run.path(tmp_path).write_text(json.dumps({**content, "recipe": {**content["recipe"], **old}}))
        assert read_result(run.path(tmp_path)).recipe == {**content["recipe"], **new}


def test_the_difference_between_experiments_is_put_in_words(toy: ModuleType, tmp_path: Path) -> None:
    old, new = (plan(toy.make_suite(steps=steps), "quick", [0])[0] for steps in (10, 20))
    result = write_result(old, tmp_path, SCORES, seconds=1)
    assert difference_from(old, result) == ""
    assert difference_from(new, result) == "steps was 10 and is now 20"
    nothing_set, something = ({**result.recipe, "later": value} for value in (None, 3))  # a setting that came later
    assert difference_from(old, replace(result, recipe=nothing_set)) == ""
    assert difference_from(old, replace(result, recipe=something)) == "later was 3 and is now absent"
    terms = plan(toy.make_suite(), "quick", [0], strategies=["fixed+infonce+same-key"])[1]
    with_terms = write_result(terms, tmp_path, SCORES, seconds=1)
    assert (read_result(terms.path(tmp_path)), with_terms.negatives) == (with_terms, "same-key")
    assert difference_from(terms, with_terms) == ""
    assert "negatives was None and is now 'same-key'" in difference_from(terms, result)
    other = plan(toy.make_suite(), "small", [0])[0]
    assert difference_from(other, result) == "dataset was 'none' and is now 'real'; fp16 was true and is now absent"


def test_mean_deviation_and_paired_differences_over_common_seeds() -> None:
    # deviations -3, -1, 4: squares sum to 26, divided by 2
    summary = summarise({0: 70.0, 1: 72.0, 2: 77.0})
    assert (summary.mean, summary.std, summary.count) == (73, pytest.approx(13**0.5), 3)
    assert summarise({5: 70.0}).std is None
    # differences 1, 0, 4: mean 5/3, sample variance 13/3, so half the width is t · sqrt(13/3) / sqrt(3) = t · sqrt(13) / 3
    found = paired_difference({0: 70.0, 1: 72.0, 2: 77.0}, {0: 69.0, 1: 72.0, 2: 73.0})
    half = T_2 * 13**0.5 / 3
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((5 / 3, 5 / 3 - half, 5 / 3 + half), rel=1e-6)
    # seeds 1 and 2 alone: differences 2 and 4, mean 3, deviation sqrt(2)
    found = paired_difference({0: 99.0, 1: 3.0, 2: 5.0}, {1: 1.0, 2: 1.0, 7: 50.0})
    assert found is not None
    assert (found.mean, found.count, found.high) == (3, 2, pytest.approx(3 + T_1, rel=1e-6))
    single = paired_difference({0: 2.0}, {0: 1.5})
    assert single is not None
    assert (single.mean, single.low, single.high, single.count) == (0.5, None, None, 1)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_different_experiments_are_never_averaged(toy: ModuleType, tmp_path: Path) -> None:
    runs = [plan(toy.make_suite(steps=steps), "quick", [seed])[0] for seed, steps in ((0, 10), (1, 20), (2, 10))]
    for run in runs:
        write_result(run, tmp_path, SCORES, seconds=1)
    with pytest.raises(DataError, match=r"of different experiments \(they differ in recipe\)"):
        compare(load_results(tmp_path), {"toy": toy.SUITE})
    runs[1].path(tmp_path).unlink()
    changed(runs[2].path(tmp_path), lambda content: content["recipe"].update(added_later=None))
    assert len(consistent(load_results(tmp_path)).results) == 2
    compare(load_results(tmp_path), {"toy": toy.SUITE})
    changed(runs[2].path(tmp_path), put("strategy", value="fixed:temperature=1"))
    with pytest.raises(DataError, match="they differ in strategy"):
        compare(load_results(tmp_path), {"toy": toy.SUITE})
    assert consistent(load_results(tmp_path)).results == (), "neither of the two is in the majority"


def test_any_folder_of_an_output_can_be_reported_and_others_are_refused(toy: ModuleType, tmp_path: Path) -> None:
    for folder, message in ((tmp_path, "has no results"), (tmp_path / "absent", "is not a folder")):
        with pytest.raises(DataError, match=message):
            load_results(folder)
    run = plan(toy.SUITE, "quick", [0])[0]
    write_result(run, tmp_path, SCORES, seconds=1)
    (unfinished := run.work_dir(tmp_path)).mkdir()
    (unfinished / "metrics.json").write_text("{}")
    for parent in list(run.path(tmp_path).parents)[:5]:
        assert len(load_results(parent).results) == 1
    assert parent == tmp_path


@pytest.fixture
def output(toy: ModuleType, tmp_path: Path) -> Path:
    """Three seeds of two arms, one of which failed."""
    runs = plan(toy.SUITE, "quick", [0, 1, 2], strategies=["fixed+infonce", "macl+infonce"])
    for run in runs[:-1]:
        write_result(run, tmp_path, {"STSB": 70.0 + run.seed + len(run.arm.label), "error": 0.5}, seconds=1)
    write_failure(runs[-1], tmp_path, "it broke\nhere \x1b[31m| <b>", "trace")
    return tmp_path


def victim(output: Path) -> Path:
    return next(output.rglob("macl-infonce/seed-1.json"))


def printed(found: list[Report]) -> str:
    """The report on a wide terminal and as Markdown."""
    stream = io.StringIO()
    for report in found:
        report.print(Console(file=stream, width=2000))
    return stream.getvalue() + "".join(report.markdown() for report in found)


def as_page(found: list[Report]) -> str:
    return page([part for report in found for part in report.html_parts()])


def changed(path: Path, change: Change) -> None:
    content = json.loads(path.read_text())
    new = change(content)
    path.write_text(json.dumps(content if new is None else new))


def put(*keys: str, value: Any = None) -> Change:
    """Sets a value of nested dictionaries; without one it is removed."""

    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content.pop(keys[-1], None) if value is None else content.update({keys[-1]: value})

    return change


CHANGES: dict[str, Change] = {
    "no object": lambda content: [content],
    "no format": put("format"),
    "a field too many": put("more", value=1),
    **{f"without {name}": put(name) for name in ("metrics", "seed")},
    "metrics of words": put("metrics", "STSB", value="high"),
    "metrics without the primary one": put("metrics", "STSB"),
    "metrics NaN": put("metrics", "STSB", value=float("nan")),
    "metrics huge": put("metrics", "STSB", value=1e300),
    "metrics true": put("metrics", "STSB", value=True),
    "seed a word": put("seed", value="1"),
    "seed another": put("seed", value=7),
    "arm another": put("arm", value="fixed+dcl"),
    "suite unknown": put("suite", value="tyo"),
    "task unknown": put("task", value="toy-tusk"),
    "recipe nested": put("recipe", "steps", value={"a": {"b": 1}}),
    "recipe another": put("recipe", "steps", value=11),
    "strategy another": put("strategy", value="fixed:temperature=1"),
    "hardware empty": put("hardware", value={}),
    "control characters": put("dataset", value="a\x1b[2J"),
    "a course of lists of two lengths": put("course", value={"step": [1, 2], "temperature": [0.5]}),
    "a course of words": put("course", value={"step": [1], "temperature": ["0.5"]}),
}
TEXTS = ("", "{", DEEP, '{"format": 2, "a": ' + DEEP + "}", '{"format": ' + "9" * 5000 + "}", "\x00" * 100, "null")


def test_a_damaged_file_is_named_and_left_out_whatever_is_wrong(output: Path) -> None:
    path = victim(output)
    whole = path.read_bytes()
    damaged: dict[str, bytes] = {text[:20]: text.encode() for text in TEXTS} | {"bytes": b"\xff\xfe{"}
    for name, change in CHANGES.items():
        path.write_bytes(whole)
        changed(path, change)
        damaged[name] = path.read_bytes()
    for name, content in damaged.items():
        path.write_bytes(content)
        problems = load_checked(output)
        named = (str(path), "task 'toy-task', arm 'macl+infonce', seed 1")
        assert any(problem.startswith(named) for problem in problems), (name, problems)
    path.write_bytes(whole)
    changed(path, put("metrics", "STSB", value=[DEEP]))
    said = "'metrics' must be Mapping[str, float], finite and printable; it is a dict"
    assert any(said in problem for problem in load_checked(output)), "for its own reason"
    path.unlink()
    path.mkdir()
    assert "cannot be read: Is a directory" in load_checked(output)[0]


def load_checked(output: Path) -> list[str]:
    """The problems of a report, from which one of the two results of an arm is left out."""
    found = reports(output)
    text = printed(found)
    assert "72.00 ± 1.00" not in text
    assert "fixed+infonce" in text
    return [line.removeprefix("left out: ").strip() for line in text.splitlines() if line.startswith("left out: ")]


def test_flipped_bits_never_take_a_report_down(output: Path) -> None:
    chance = random.Random(0)
    files = sorted(output.rglob("*.json"))
    named = 0
    for case in range(60):
        file = chance.choice(files)
        content = bytearray(whole := file.read_bytes())
        if case % 3:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        else:
            del content[chance.randrange(len(content)) :]
        file.write_bytes(content)
        found = reports(output)
        if "left out: " in printed(found):
            named += 1
        elif case % 4 == 0:  # what is accepted is also drawn, of which a part suffices
            as_page(found)
        file.write_bytes(whole)
    assert named > 30
    assert "left out: " not in printed(reports(output))


def test_what_is_printed_is_escaped(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = output / "toy" / "quick" / "toy-task" / "x\x1b[31m|<script>\n"
    evil.mkdir()
    (evil / "seed-0.json").write_text("{")
    found = reports(output)
    text, html = printed(found), as_page(found)
    assert bench(["report", str(output), "--format", "html"]) == 0
    assert "/seed-0.json" in capsys.readouterr().out
    for shown in (text, html):
        assert "\x1b" not in shown
        assert all(line.isprintable() for line in shown.split("\n"))
    assert r"x\\x1b[31m\|\<script> /seed-0.json" in text
    assert r"it broke here \\x1b[31m\| \<b>" in text
    assert html.count("<script>") == 1, "the page's own"


SPEED_CHANGES = [
    put("changes"),
    put("changes", "rows", value="2"),
    put("changes", "implementations", value=["tempplug", "eager", "third"]),
    put("arm", value="other"),
    put("recipe", "threads", value=0),
    put("recipe", "more", value=1),
    put("implementations", value=[]),
    put("implementations", "eager", value=3),
    put("implementations", "eager", "milliseconds", value=[1]),
    put("implementations", "eager", "loss", value=float("nan")),
    put("metrics", "milliseconds"),
]


def test_a_speed_result_is_what_it_should_be_or_is_left_out(tmp_path: Path) -> None:
    task = SUITE.task("nt-xent")
    for arm in task.profile("quick").arms[:2]:
        outcomes = {name: {"milliseconds": 1.5, "loss": 2.0} for name in arm.changes["implementations"]}
        write_result(Run("speed", "quick", task, arm, Specs(), 0), tmp_path, {"milliseconds": 1.5}, 1, implementations=outcomes)
    path = next(tmp_path.rglob("nt-xent-32x64/seed-0.json"))
    whole = path.read_bytes()
    assert "left out" not in printed(reports(tmp_path))
    for number, change in enumerate(SPEED_CHANGES):
        path.write_bytes(whole)
        changed(path, change)
        text = printed(reports(tmp_path))
        assert f"left out: {path}" in text, number
        assert ("128×64" in text, "32×64" in text.replace(str(path), "")) == (True, False), number
