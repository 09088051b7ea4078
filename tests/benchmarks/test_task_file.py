"""The file of a task: packed runs are reported, resumed and replaced as those in files of their own, and none is lost."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from committed_results import RESULTS, records
from run_checks import run_all, write_failure, write_result
from suite_checks import bench

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.manifest import locked
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import Run, plan
from tempplug_benchmarks.run.task_file import pack

GOLDEN = Path(__file__).parent / "golden" / "runs.txt"
LAST = "2026-11-28T02:22:41+00:00"
"""When the last run of `GOLDEN` ended."""
RENAMED = {"pooler", "pooling", "sts_test", "transfer_test", "tasks"}
"""Settings whose names differed between the files that `GOLDEN` was made from."""


def figures(run: Run) -> dict[str, float]:
    return {"STSB": 70.0 + run.seed + len(run.arm.label) / 10, "error": 0.5}


@pytest.fixture
def runs(toy: ModuleType, tmp_path: Path) -> tuple[Run, ...]:
    """Stored runs of three arms and three seeds, of which the last has failed."""
    planned = plan(toy.SUITE, "quick", [0, 2, 10])
    for run in planned[:-1]:
        write_result(run, tmp_path, figures(run), seconds=1)
    write_failure(planned[-1], tmp_path, "it broke", "trace")
    return planned


def report(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert bench(["report", str(folder), "--format", "markdown"]) == 0
    return capsys.readouterr().out


def files(output: Path) -> list[str]:
    return sorted(path.relative_to(output / "toy" / "quick").as_posix() for path in output.rglob("*") if path.is_file())


def file_of(output: Path) -> Path:
    return output / "toy" / "quick" / "toy-task.jsonl"


def test_the_committed_runs_are_those_that_were_measured() -> None:
    """Digests were made from one file a run, before runs were packed: of every field that is not empty, in full precision."""
    made: list[str] = []
    for file in sorted(RESULTS.glob("*/*/*.jsonl")):
        texts = []
        for record in records(file):
            kept: dict[str, Any] = {k: v for k, v in record.items() if v not in ({}, None) or k == "strategy"}
            kept["recipe"] = {name: value for name, value in kept["recipe"].items() if name not in RENAMED}
            texts += [json.dumps(kept, sort_keys=True)] if record["date"] <= LAST else []
        if texts:
            digest = hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()
            made.append(f"{digest} {len(texts)} {file.relative_to(RESULTS).with_suffix('')}")
    golden = GOLDEN.read_text(encoding="utf-8").splitlines()
    assert sum(int(line.split()[1]) for line in golden) == 2740
    assert sorted(made) == sorted(golden)


def test_results_are_few_files() -> None:
    assert sum(path.is_file() for path in RESULTS.rglob("*")) <= 150


def test_packing_changes_no_report_and_loses_nothing(
    runs: tuple[Run, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs[0].folder(tmp_path).parent
    looks = {"format": 1, "looks": [{"date": "2026-11-20", "seeds": "0"}, {"date": "2026-11-22", "seeds": "2 and 10"}]}
    (folder / "looks.json").write_text(json.dumps(looks))
    before, loaded = report(tmp_path, capsys), load_results(tmp_path)
    assert bench(["pack", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{file_of(tmp_path)}: 8 runs\n"
    assert files(tmp_path) == ["toy-task.jsonl", "toy-task/fixed-dcl/seed-10.failed.json"]
    assert load_results(tmp_path) == loaded
    for place in (tmp_path, tmp_path / "toy", tmp_path / "toy" / "quick", folder):
        assert report(place, capsys) == before, place
    content = file_of(tmp_path).read_text().splitlines()
    assert len(content) == 9
    assert content[0].count('"steps"') == 1
    assert '"recipe"' not in "".join(content[1:]), "what all runs share is there once"
    assert list(pack(tmp_path)) == [], "there is nothing more to move"


def test_a_packed_folder_is_resumed(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "toy", "--output", str(tmp_path), "--seeds"]
    assert bench([*command, "0", "1"]) == 0
    assert bench(["pack", str(tmp_path)]) == 0
    assert bench([*command, "0", "1", "2"]) == 0
    assert "6 of 9 runs are finished already." in capsys.readouterr().err
    assert [name for name in files(tmp_path) if "seed-2" not in name] == ["toy-task.jsonl"]
    before = report(tmp_path, capsys)
    assert bench(["verify", str(tmp_path), "--runs", "9"]) == 0
    assert bench(["pack", str(tmp_path)]) == 0
    assert files(tmp_path) == ["toy-task.jsonl"]
    assert report(file_of(tmp_path), capsys) == report(tmp_path, capsys) == before


def test_the_file_of_a_run_replaces_its_line(toy: ModuleType, tmp_path: Path) -> None:
    old, new = (plan(toy.make_suite(steps=steps), "quick", [0]) for steps in (10, 20))
    run_all(old, tmp_path)
    list(pack(tmp_path))
    with pytest.raises(ConfigError, match=r"steps was 10 and is now 20\. So are 2 more"):
        run_all(new, tmp_path)
    run_all(new, tmp_path, rerun_changed=True)
    assert {result.recipe["steps"] for result in load_results(tmp_path).results} == {20}
    list(pack(tmp_path))
    assert files(tmp_path) == ["toy-task.jsonl"]
    assert [result.recipe["steps"] for result in load_results(tmp_path).results] == [20, 20, 20]


def test_a_plan_is_packed_with_its_runs(toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, output = tmp_path / "own.toml", tmp_path / "out"
    text = (
        'date = 2026-11-26\nquestion = "Is one better?"\nsuite = "toy"\nprofile = "quick"\ntasks = ["toy-task"]\n'
        'arms = ["fixed+infonce", "macl+infonce"]\nseeds = [3, 4]\n'
    )
    file.write_text(text)
    assert bench(["run", "--plan", str(file), "--output", str(output)]) == 0
    list(pack(output))
    assert files(output) == ["toy-task.jsonl"]
    assert bench(["run", "--plan", str(file), "--output", str(output)]) == 0
    assert files(output) == ["toy-task.jsonl"], "the plan is not copied again"
    assert next(iter(load_results(output).plans.values())).question == "Is one better?"
    file.write_text(text.replace("[3, 4]", "[3, 4, 5]"))
    capsys.readouterr()
    assert bench(["run", "--plan", str(file), "--output", str(output)]) == 2
    assert "is another plan than" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "damaged", "message"),
    [
        (2, "{", "line 3 is not JSON"),
        (2, "[]", "line 3 is not a JSON object"),
        (2, '{"arm": "macl+infonce", "seed": 1}', "line 3: its fields must be those of Result"),
        (2, None, "line 3: arm 'fixed+dcl' with seed 0 is there twice"),
        (0, "{", "line 1 is not JSON"),
        (0, '{"format": 9}', "line 1 is not a file of a task of format 1"),
        (0, '{"format": 1, "common": []}', "line 1 must have an object 'common'"),
        (0, '{"format": 1, "common": {}, "looks": [{}]}', "line 1: a look: its fields must be those of Look"),
        (0, '{"format": 1, "common": {}, "plan": "date = "}', "plan "),
    ],
)
def test_a_damaged_line_is_named_and_the_file_is_left_as_it_is(
    line: int, damaged: str | None, message: str, runs: tuple[Run, ...], tmp_path: Path
) -> None:
    list(pack(tmp_path))
    content = file_of(tmp_path).read_text().splitlines()
    content[line] = content[line - 1] if damaged is None else damaged
    file_of(tmp_path).write_text("\n".join(content) + "\n")
    (problem,) = load_results(tmp_path).problems[:1]
    assert message in problem
    assert str(file_of(tmp_path)) in problem
    assert len(load_results(tmp_path).results) == (7 if line else 0)
    write_result(runs[-1], tmp_path, figures(runs[-1]), seconds=1)
    before = file_of(tmp_path).read_text()
    if "plan" not in message:
        with pytest.raises(DataError, match="line"):
            list(pack(tmp_path))
        assert file_of(tmp_path).read_text() == before
        assert runs[-1].path(tmp_path).exists()


def test_a_folder_that_is_being_packed_is_refused(
    runs: tuple[Run, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(runs[0].folder(tmp_path).parent):
        monkeypatch.setattr("filelock.FileLock.acquire", refuse)
        with pytest.raises(ConfigError, match="is being written to by process"):
            list(pack(tmp_path))
    assert len(list(tmp_path.rglob("seed-*.json"))) == 9
    with pytest.raises(DataError, match="has no results"):
        list(pack(tmp_path / "absent"))


def refuse(self: Any, *_: Any, **__: Any) -> None:
    from filelock import Timeout

    raise Timeout("lock")
