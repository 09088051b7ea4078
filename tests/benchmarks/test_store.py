from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from run_checks import write_failure, write_result

from tempplug.errors import DataError
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.run.store import difference_from, read_result


def test_a_result_survives_the_disk(toy: ModuleType, tmp_path: Path) -> None:
    run = plan(toy.SUITE, "quick", [4], strategies=["macl+infonce"])[1]
    written = write_result(run, tmp_path, {"STSB": 71.25, "error": 0.5}, seconds=1.23456)
    path = tmp_path / "toy" / "quick" / "toy-task" / "macl-infonce" / "seed-4.json"
    assert read_result(path) == written
    assert written.metrics == {"STSB": 71.25, "error": 0.5}
    assert written.recipe.items() >= {"steps": 10, "num_train_epochs": 100.0, "fp16": True}.items()
    assert not {"seed", "save_steps"} & written.recipe.keys()
    assert written.seconds == 1.235
    assert {"python", "torch", "tempplug"} <= written.versions.keys()
    assert written.hardware.keys() >= {"cpu", "cores", "threads"}
    assert written.date.endswith("+00:00")


def test_the_course_of_a_training_survives_the_disk_and_is_checked(toy: ModuleType, tmp_path: Path) -> None:
    run = plan(toy.SUITE, "quick", [0])[0]
    course = {"step": [1, 2], "temperature": [0.5, 0.25]}
    assert write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, 1, course=course) == read_result(run.path(tmp_path))
    assert '"temperature": [0.5, 0.25]\n' in run.path(tmp_path).read_text(), "a list of numbers is one line"
    for broken in ({"step": [1, 2], "temperature": [0.5]}, {"step": [1]}, {"step": [1], "temperature": ["0.5"]}):
        write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, 1, course=broken)
        with pytest.raises(DataError, match=r"seed-0\.json.*course"):
            read_result(run.path(tmp_path))


def test_how_a_training_was_launched_survives_the_disk(toy: ModuleType, tmp_path: Path) -> None:
    run, launch = plan(toy.SUITE, "quick", [0])[0], {"processes": 2, "effective_batch_size": 64}
    written = write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, 1, launch=launch)
    assert read_result(run.path(tmp_path)) == written
    assert written.launch == launch


def test_figures_on_samples_survive_the_disk(toy: ModuleType, tmp_path: Path) -> None:
    run = plan(toy.SUITE, "quick", [0])[0]
    written = write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, 1, resampled={"STSB": [0.5, 1.5]})
    assert read_result(run.path(tmp_path)) == written
    assert written.resampled == {"STSB": [0.5, 1.5]}


@pytest.mark.parametrize("content", ["", '{"format": 2, "suite": "t', "[]", '{"format": 99}', '{"format": 2, "suite": "t"}'])
def test_a_file_that_is_no_result_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "seed-0.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"seed-0\.json"):
        read_result(path)


def test_a_result_of_a_later_format_is_refused(toy: ModuleType, tmp_path: Path) -> None:
    run = plan(toy.SUITE, "quick", [0])[0]
    write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, seconds=1)
    path = run.path(tmp_path)
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(DataError, match="is not a benchmark file of format 2"):
        read_result(path)


def test_a_success_removes_the_note_of_a_failure(toy: ModuleType, tmp_path: Path) -> None:
    run = plan(toy.SUITE, "quick", [0])[0]
    write_failure(run, tmp_path, "it broke", "trace")
    note = run.path(tmp_path).with_name("seed-0.failed.json")
    assert json.loads(note.read_text())["error"] == "it broke"
    write_result(run, tmp_path, {"STSB": 1.0, "error": 1.0}, seconds=1)
    assert not note.exists()


def test_the_difference_between_experiments_is_told_in_words(toy: ModuleType, tmp_path: Path) -> None:
    old = plan(toy.make_suite(steps=10), "quick", [0])[0]
    result = write_result(old, tmp_path, {"STSB": 1.0, "error": 1.0}, seconds=1)
    assert difference_from(old, result) == ""
    assert difference_from(plan(toy.make_suite(steps=20), "quick", [0])[0], result) == "steps was 10 and is now 20"
    other = plan(toy.make_suite(), "small", [0])[0]
    assert difference_from(other, result) == "dataset was 'none' and is now 'real'; fp16 was true and is now absent"
