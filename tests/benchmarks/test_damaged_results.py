"""A damaged result file is named and left out of the report, whatever is wrong with it, and the others are reported."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from run_checks import write_failure, write_result
from suite_checks import bench

from tempplug.errors import DataError
from tempplug_benchmarks.arm import Specs
from tempplug_benchmarks.kinds import reports
from tempplug_benchmarks.report.pages import page
from tempplug_benchmarks.run.plan import Run, plan
from tempplug_benchmarks.run.store import read_result
from tempplug_benchmarks.speed.cases import SUITE

DEEP = "[" * 100_000 + "]" * 100_000
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def output(toy: ModuleType, tmp_path: Path) -> Path:
    """Two seeds of two arms, and a failure."""
    runs = plan(toy.SUITE, "quick", [0, 1, 2], strategies=["fixed+infonce", "macl+infonce"])
    for run in runs[:-1]:
        write_result(run, tmp_path, {"STSB": 70.0 + run.seed + len(run.arm.label), "error": 0.5}, seconds=1)
    write_failure(runs[-1], tmp_path, "it broke\nhere \x1b[31m| <b>", "trace")
    return tmp_path


def victim(output: Path) -> Path:
    return next(output.rglob("macl-infonce/seed-1.json"))


def every_form(output: Path) -> str:
    """The whole report in all its forms, which must all come about."""
    found = reports(output)
    stream = io.StringIO()
    for report in found:
        report.print(Console(file=stream, width=200))
    return stream.getvalue() + "".join(report.markdown() for report in found) + page([p for r in found for p in r.html_parts()])


def changed(path: Path, change: Change) -> None:
    content = json.loads(path.read_text())
    new = change(content)
    path.write_text(json.dumps(content if new is None else new))


def put(*keys: str, value: Any) -> Change:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


def drop(*keys: str) -> Change:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    return change


CHANGES: dict[str, Change] = {
    "no object": lambda content: [content],
    "a word": lambda content: "result",
    "another format": put("format", value=3),
    "no format": drop("format"),
    "a field too many": put("more", value=1),
    **{f"without {name}": drop(name) for name in ("metrics", "recipe", "seed", "hardware")},
    "metrics a list": put("metrics", value=[1, 2]),
    "metrics of words": put("metrics", "STSB", value="high"),
    "metrics of lists": put("metrics", "STSB", value=[1.0]),
    "metrics without the primary one": drop("metrics", "STSB"),
    "metrics with another": put("metrics", "speed", value=1.0),
    "metrics NaN": put("metrics", "STSB", value=float("nan")),
    "metrics infinite": put("metrics", "STSB", value=float("inf")),
    "metrics huge": put("metrics", "STSB", value=1e300),
    "metrics true": put("metrics", "STSB", value=True),
    "seed a word": put("seed", value="1"),
    "seed a list": put("seed", value=[1]),
    "seed another": put("seed", value=7),
    "arm a dictionary": put("arm", value={"a": 1}),
    "arm another": put("arm", value="fixed+dcl"),
    "suite unknown": put("suite", value="tyo"),
    "suite of another kind": put("suite", value="speed"),
    "suite a list": put("suite", value=["toy"]),
    "task unknown": put("task", value="toy-tusk"),
    "profile unknown": put("profile", value="quirk"),
    "recipe a list": put("recipe", value=["steps"]),
    "recipe nested": put("recipe", "steps", value={"a": {"b": 1}}),
    "recipe another": put("recipe", "steps", value=11),
    "strategy a number": put("strategy", value=1),
    "strategy another": put("strategy", value="fixed:temperature=1"),
    "hardware empty": put("hardware", value={}),
    "hardware a word": put("hardware", value="Abacus"),
    "versions a number": put("versions", value=3),
    "control characters": put("dataset", value="a\x1b[2J"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file_is_named_and_left_out(output: Path, name: str) -> None:
    changed(victim(output), CHANGES[name])
    told = every_form(output)
    assert "left out: " in told
    assert (
        str(victim(output)) in told.replace("\n", "").replace("\\", "") or "task 'toy-task', arm 'macl+infonce', seed 1" in told
    )
    assert "72.00 ± 1.00" not in told
    assert "fixed+infonce" in told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        DEEP,
        '{"format": 2, "a": ' + DEEP + "}",
        '{"format": ' + "9" * 5000 + "}",
        '{"format": 1e999}',
        "\x00" * 100,
        "null",
    ],
    ids=["empty", "cut", "deep", "deep inside", "5000 digits", "infinite", "zeros", "null"],
)
def test_a_broken_file_is_named_and_left_out(output: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    victim(output).write_text(text)
    every_form(output)
    for form in ("terminal", "markdown", "html"):
        assert bench(["report", str(output), "--format", form]) == 0
        assert "seed-1.json" in capsys.readouterr().out
    victim(output).write_bytes(b"\xff\xfe{")
    assert "is not JSON" in every_form(output)


def test_a_file_that_cannot_be_read_is_named(output: Path) -> None:
    path = victim(output)
    path.unlink()
    path.mkdir()
    assert "cannot be read: Is a directory" in every_form(output)


def test_flipped_bits_never_take_a_report_down(output: Path) -> None:
    chance = random.Random(0)
    files = sorted(output.rglob("*.json"))
    whole = {file: file.read_bytes() for file in files}
    named = 0
    for case in range(60):
        file = chance.choice(files)
        content = bytearray(whole[file])
        if case % 3:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        else:
            del content[chance.randrange(len(content)) :]
        file.write_bytes(content)
        named += "left out: " in every_form(output)
        file.write_bytes(whole[file])
    assert named > 30
    assert "left out: " not in every_form(output)


def test_what_is_printed_is_escaped(output: Path) -> None:
    evil = output / "toy" / "quick" / "toy-task" / "x\x1b[31m|<script>\n"
    evil.mkdir()
    (evil / "seed-0.json").write_text("{")
    (report,) = reports(output)
    text, html = report.markdown(), page(report.html_parts())
    stream = io.StringIO()
    report.print(Console(file=stream, width=300))
    for shown in (text, html, stream.getvalue()):
        assert "\x1b" not in shown
        assert all(line.isprintable() for line in shown.split("\n"))
    assert r"x\\x1b[31m\|\<script> /seed-0.json" in text
    assert r"it broke here \\x1b[31m\| \<b>" in text
    assert html.count("<script>") == 1, "the page's own"


NUMBERS = {"milliseconds": 1.5, "loss": 2.0}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A result of one speed case; another is undamaged."""
    task = SUITE.task("nt-xent")
    for arm in task.profile("quick").arms[:2]:
        run = Run("speed", "quick", task, arm, Specs(), 0)
        outcomes = {name: dict(NUMBERS) for name in arm.changes["implementations"]}
        write_result(run, tmp_path, {"milliseconds": 1.5}, 1, implementations=outcomes)
    return next(tmp_path.rglob("nt-xent-32x64/seed-0.json"))


@pytest.mark.parametrize(
    "change",
    [
        put("changes", value=None),
        put("changes", value=[1]),
        put("changes", "rows", value="2"),
        put("changes", "loss_name", value=""),
        put("arm", value="other"),
        put("changes", "implementations", value=["tempplug", "eager", "third"]),
        put("recipe", "threads", value=0),
        put("recipe", "threads", value=[1]),
        put("recipe", "more", value=1),
        put("implementations", value=[]),
        put("implementations", value={}),
        put("implementations", "eager", value=3),
        put("implementations", "eager", value={}),
        put("implementations", "eager", "milliseconds", value=[1]),
        put("implementations", "eager", "loss", value=float("nan")),
        put("implementations", "eager", "note", value="a\x1b[2J"),
        put("changes", "packages", value=None),
        put("hardware", value={"cpu": "Abacus"}),
        drop("suite"),
        drop("metrics", "milliseconds"),
    ],
)
def test_a_speed_result_is_what_it_should_be_or_is_left_out(measured: Path, tmp_path: Path, change: Change) -> None:
    assert "left out" not in every_form(tmp_path)
    changed(measured, change)
    told = every_form(tmp_path)
    assert str(measured) in told.replace("\n", "").replace("\\", "")
    assert "128×64" in told
    assert "32×64" not in told


def test_a_result_is_refused_for_its_own_reason(output: Path) -> None:
    path = victim(output)
    assert read_result(path).seed == 1
    changed(path, put("metrics", "STSB", value=[DEEP]))
    with pytest.raises(DataError, match=r"'metrics' must be Mapping\[str, float\], finite and printable; it is a dict"):
        read_result(path)
