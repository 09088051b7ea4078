from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from run_checks import run_all

from tempplug.errors import ConfigError, DataError
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.run.store import read_failure

HERE = Path(__file__).parent


def figures(output: Path) -> dict[str, object]:
    """Returns what is measured, by file; what differs from run to run, such as seconds and date, is left out."""
    return {
        str(path.relative_to(output)): json.loads(path.read_text())["metrics"]
        for path in sorted(output.glob("*/*/*/*/seed-?.json"))
    }


def executed(log: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "log"
    monkeypatch.setenv("TOY_LOG", str(path))
    return path


def test_finished_runs_are_not_run_again(toy: ModuleType, tmp_path: Path, log: Path) -> None:
    runs = plan(toy.SUITE, "quick", [0, 1])
    run_all(runs[:4], tmp_path)
    before = figures(tmp_path)
    failures, shown = run_all(runs, tmp_path)
    assert failures == []
    assert "4 of 6 runs are finished already." in shown
    assert executed(log) == [f"{run.arm.label} {run.seed}" for run in runs]
    assert figures(tmp_path).items() > before.items()
    assert not list(tmp_path.rglob("*.work"))


def test_a_run_that_raises_is_noted_and_the_others_go_on(
    toy: ModuleType, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = plan(toy.SUITE, "quick", [0])
    monkeypatch.setenv("TOY_FAIL", "macl+infonce 0")
    failures, shown = run_all(runs, tmp_path)
    assert [(failure.arm, failure.seed) for failure in failures] == [("macl+infonce", 0)]
    assert "[2/3] toy-task · macl+infonce · seed 0: failed: RuntimeError: the toy broke" in shown
    assert len(figures(tmp_path)) == 2
    note = read_failure(runs[1].path(tmp_path).with_suffix(".failed.json"))
    assert note.error == "RuntimeError: the toy broke\non purpose"
    assert "toy_suite.py" in note.trace
    monkeypatch.delenv("TOY_FAIL")
    assert run_all(runs, tmp_path)[0] == []
    assert executed(log) == ["fixed+infonce 0", "macl+infonce 0", "fixed+dcl 0", "macl+infonce 0"]


def test_a_result_of_another_recipe_is_refused_unless_asked(toy: ModuleType, tmp_path: Path, log: Path) -> None:
    old, new = (plan(toy.make_suite(steps=steps), "quick", [0]) for steps in (10, 20))
    run_all(old, tmp_path)
    with pytest.raises(ConfigError) as caught:
        run_all(new, tmp_path)
    assert str(caught.value) == (
        f"{new[0].path(tmp_path)} is of another experiment: steps was 10 and is now 20. So are 2 more. "
        "Pass --rerun-changed to replace it, or choose another --output."
    )
    run_all(new[:1], tmp_path, rerun_changed=True)
    run_all(new, tmp_path, rerun_changed=True)
    assert executed(log) == [
        "fixed+infonce 0",
        "macl+infonce 0",
        "fixed+dcl 0",
        "fixed+infonce 0",
        "macl+infonce 0",
        "fixed+dcl 0",
    ]
    assert json.loads(new[2].path(tmp_path).read_text())["recipe"]["steps"] == 20


def test_a_replaced_result_is_gone_when_its_rerun_fails(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_all(plan(toy.make_suite(steps=10), "quick", [0]), tmp_path)
    monkeypatch.setenv("TOY_FAIL", "macl+infonce 0")
    runs = plan(toy.make_suite(steps=20), "quick", [0])
    run_all(runs, tmp_path, rerun_changed=True)
    assert not runs[1].path(tmp_path).exists()


def test_a_truncated_result_is_reported_and_run_again(toy: ModuleType, tmp_path: Path, log: Path) -> None:
    runs = plan(toy.SUITE, "quick", [0])
    run_all(runs, tmp_path)
    before = figures(tmp_path)
    path = runs[1].path(tmp_path)
    path.write_text(path.read_text()[:100])
    failures, shown = run_all(runs, tmp_path)
    assert failures == []
    assert f"{path} is not JSON" in shown
    assert executed(log)[3:] == ["macl+infonce 0"]
    assert figures(tmp_path) == before


def test_what_a_killed_writer_left_is_removed(toy: ModuleType, tmp_path: Path) -> None:
    runs = plan(toy.SUITE, "quick", [0])
    left = runs[0].path(tmp_path).with_name(".seed-0.json.999999999.tmp")
    left.parent.mkdir(parents=True)
    left.touch()
    run_all(runs, tmp_path)
    assert [each.name for each in left.parent.iterdir()] == ["seed-0.json"]


def test_missing_data_stop_everything_before_the_first_run(toy: ModuleType, tmp_path: Path, log: Path) -> None:
    with pytest.raises(DataError, match=r"text/toy\.tsv"):
        run_all(plan(toy.SUITE, "small", [0]), tmp_path)
    assert executed(log) == []


@pytest.mark.slow
def test_workers_measure_what_one_process_measures(toy: ModuleType, tmp_path: Path, log: Path) -> None:
    runs = plan(toy.SUITE, "quick", [0, 1, 2], strategies=["macl+infonce"])
    run_all(runs, tmp_path / "one")
    log.unlink()
    failures, shown = run_all(runs, tmp_path / "two", workers=2)
    assert failures == []
    assert figures(tmp_path / "two") == figures(tmp_path / "one")
    assert "[6/6]" in shown
    workers = {line.rpartition(" ")[2] for line in log.read_text().splitlines()}
    assert len(workers) <= 2, "a process executes one run after the other"
    assert str(os.getpid()) not in workers
    with pytest.raises(ConfigError, match="workers=0 must be at least 1"):
        run_all(runs, tmp_path, workers=0)


@pytest.mark.slow
def test_a_worker_that_dies_costs_its_run_alone(toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_CRASH", "macl+infonce 0")
    failures, _ = run_all(plan(toy.SUITE, "quick", [0, 1], strategies=["macl+infonce"]), tmp_path, workers=2)
    assert [(failure.arm, failure.error) for failure in failures] == [
        ("macl+infonce", "its process ended without a result (exit code 7).")
    ]
    assert len(figures(tmp_path)) == 3, "another process takes the runs that are left"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is of POSIX")
@pytest.mark.parametrize("workers", [1, 2])
def test_kill_loses_the_runs_in_flight_alone(toy: ModuleType, tmp_path: Path, log: Path, workers: int) -> None:
    undisturbed = tmp_path / "undisturbed"
    run_all(plan(toy.SUITE, "quick", [0]), undisturbed)
    log.unlink()
    output = tmp_path / "killed"
    words = ["run", "toy", "--output", str(output), "--seeds", "0", "--workers", str(workers)]
    command = [sys.executable, str(HERE / "toy_main.py"), *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        command, env={**environment, "TOY_SLEEP": "0.5"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: len(figures(output)) >= 1 and len(executed(log)) > len(figures(output)))
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not any(alive(int(line.rpartition(" ")[2])) for line in log.read_text().splitlines()))
    kept = figures(output)
    started = executed(log)
    assert 1 <= len(kept) < 3
    assert len(started) - len(kept) <= workers
    resumed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert f"{len(kept)} of 3 runs are finished already." in resumed.stderr
    assert len(executed(log)) == len(started) + 3 - len(kept)
    assert figures(output) == figures(undisturbed)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is of POSIX")
def test_workers_end_with_a_killed_parent(tmp_path: Path, log: Path) -> None:
    """An orphan would go on with a run that the same command starts again; here it would for ten minutes."""
    search_path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / "toy_main.py"), "run", "toy", "--output", str(tmp_path / "out"), "--seeds", "0"]
    process = subprocess.Popen(
        [*command, "--workers", "2"],
        env={**os.environ, "PYTHONPATH": search_path, "TOY_SLEEP": "600"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    workers: list[int] = []
    try:
        wait_for(lambda: len(executed(log)) >= 1, seconds=120)
        workers = [int(line.rpartition(" ")[2]) for line in log.read_text().splitlines()]
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(alive, workers)), seconds=30)
    finally:
        process.kill()
        for pid in filter(alive, workers):
            os.kill(pid, signal.SIGKILL)
    assert figures(tmp_path / "out") == {}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX")
def test_an_interruption_ends_the_workers_at_once(tmp_path: Path, log: Path) -> None:
    search_path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / "toy_main.py"), "run", "toy", "--output", str(tmp_path / "out"), "--seeds", "0"]
    process = subprocess.Popen(
        [*command, "--workers", "2"],
        env={**os.environ, "PYTHONPATH": search_path, "TOY_SLEEP": "600"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: len(executed(log)) >= 2, seconds=120)
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "finished runs are kept, the same command goes on." in shown
    workers = [int(line.rpartition(" ")[2]) for line in log.read_text().splitlines()]
    wait_for(lambda: not any(map(alive, workers)), seconds=10)
    assert not list((tmp_path / "out").rglob(".lock"))


def wait_for(condition: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
