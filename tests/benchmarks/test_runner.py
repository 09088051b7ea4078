"""Runs of a plan: what is finished is kept, failures are recorded, commands share a folder, kills lose runs in progress."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from run_checks import run_all

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.manifest import locked
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.run.runner import claim
from tempplug_benchmarks.run.store import Result, read_failure

HERE = Path(__file__).parent
HOLDER = "import sys, time\nfrom tempplug_adapters.storage.manifest import locked\nwith locked(sys.argv[1]):\n"
HOLDER += "    print('held', flush=True)\n    sys.stdin.read()\n"
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and locks are of POSIX")


def figures(output: Path) -> dict[str, object]:
    """Returns the metrics by file, without what differs from run to run, such as seconds and date."""
    return {
        str(path.relative_to(output)): json.loads(path.read_text())["metrics"]
        for path in sorted(output.glob("*/*/*/*/seed-?.json"))
    }


def lines_of(log: Path) -> list[tuple[str, int]]:
    """Returns the runs that began, with their processes."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [(name, int(process)) for name, _, process in (line.rpartition(" ") for line in lines)]


def executed(log: Path) -> list[str]:
    return [name for name, _ in lines_of(log)]


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def start(output: Path, *words: str, sleep: float = 0) -> subprocess.Popen[str]:
    """Starts ``tempplug bench run toy`` as a process."""
    search_path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    python = os.environ.get("PYTHON_EXEC", sys.executable)
    return subprocess.Popen(
        [python, str(HERE / "toy_main.py"), "run", "toy", "--output", str(output), *words],
        env={**os.environ, "PYTHONPATH": search_path, "TOY_SLEEP": str(sleep)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOY_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def test_finished_runs_are_kept_and_damaged_ones_run_again(toy: ModuleType, tmp_path: Path, log: Path) -> None:
    runs = plan(toy.SUITE, "quick", [0, 1])
    leftover = runs[0].path(tmp_path).with_name(".seed-0.json.999999999.tmp")  # of a killed writer
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    run_all(runs[:4], tmp_path)
    assert not leftover.exists()
    before = figures(tmp_path)
    failures, shown = run_all(runs, tmp_path)
    assert failures == []
    assert "4 of 6 runs are finished already." in shown
    assert executed(log) == [f"{run.arm.label} {run.seed}" for run in runs]
    whole = figures(tmp_path)
    assert whole.items() > before.items()
    path = runs[1].path(tmp_path)
    path.write_text(path.read_text()[:100])
    failures, shown = run_all(runs, tmp_path)
    assert failures == []
    assert f"{path} is not JSON" in shown
    assert executed(log)[6:] == ["macl+infonce 0"]
    assert figures(tmp_path) == whole
    assert not list(tmp_path.rglob("*.work"))
    (work := runs[0].work_dir(tmp_path)).mkdir()
    with locked(work):
        pass  # the lock is released with the run


def test_a_run_that_raises_is_recorded_and_the_others_go_on(
    toy: ModuleType, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = plan(toy.SUITE, "quick", [0])
    monkeypatch.setenv("TOY_FAIL", "macl+infonce 0")
    failures, shown = run_all(runs, tmp_path)
    assert [(failure.arm, failure.seed) for failure in failures] == [("macl+infonce", 0)]
    assert "[2/3] toy-task · macl+infonce · seed 0: failed: RuntimeError: the toy broke" in shown
    assert len(figures(tmp_path)) == 2
    record = read_failure(runs[1].path(tmp_path).with_suffix(".failed.json"))
    assert record.error == "RuntimeError: the toy broke\non purpose"
    assert "toy_suite.py" in record.trace
    monkeypatch.delenv("TOY_FAIL")
    assert run_all(runs, tmp_path)[0] == []
    assert executed(log) == ["fixed+infonce 0", "macl+infonce 0", "fixed+dcl 0", "macl+infonce 0"]


def test_a_result_of_another_recipe_is_replaced_on_request_alone(
    toy: ModuleType, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (plan(toy.make_suite(steps=steps), "quick", [0]) for steps in (10, 20))
    run_all(old, tmp_path)
    with pytest.raises(ConfigError) as caught:
        run_all(new, tmp_path)
    assert str(caught.value) == (
        f"{new[0].path(tmp_path)} is of another experiment: steps was 10 and is now 20. So are 2 more. "
        "Pass --rerun-changed to replace it, or choose another --output."
    )
    monkeypatch.setenv("TOY_FAIL", "macl+infonce 0")
    run_all(new[:1], tmp_path, rerun_changed=True)
    run_all(new, tmp_path, rerun_changed=True)
    assert executed(log) == [f"{run.arm.label} 0" for run in (*old, *new)]
    assert json.loads(new[2].path(tmp_path).read_text())["recipe"]["steps"] == 20
    assert not new[1].path(tmp_path).exists(), "the old result is gone, though the new run failed"


def test_what_cannot_be_run_is_refused_before_the_first_run(toy: ModuleType, tmp_path: Path, log: Path) -> None:
    with pytest.raises(DataError, match=r"text/toy\.tsv"):
        run_all(plan(toy.SUITE, "small", [0]), tmp_path)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"workers": 0}, "workers=0 must be at least 1"),
        ({"time_limit": 0}, "time_limit=0 must be above 0 seconds"),
        ({"ray_address": "here:1"}, "ray_address=here:1 goes with --executor ray"),
    ]
    for options, message in cases:
        with pytest.raises(ConfigError, match=message):
            run_all(plan(toy.SUITE, "quick", [0]), tmp_path, **options)
    assert executed(log) == []


def test_a_run_in_work_elsewhere_is_left_and_its_result_taken_over(
    toy: ModuleType, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, waits = plan(toy.SUITE, "quick", [0]), []
    work = runs[0].work_dir(tmp_path)
    work.mkdir(parents=True)
    command, pipe = [sys.executable, "-c", HOLDER, str(work)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert claim(runs[0], tmp_path) is None

        def patience(seconds: float) -> None:
            if seconds >= 1:  # shorter ones are the toy's own steps
                waits.append(seconds)
                holder.communicate()

        monkeypatch.setattr("time.sleep", patience)
        failures, shown = run_all(runs, tmp_path)
    assert (failures, len(waits)) == ([], 1)
    assert executed(log) == ["macl+infonce 0", "fixed+dcl 0", "fixed+infonce 0"]
    assert "[3/3] toy-task · fixed+infonce · seed 0: STSB" in shown
    assert isinstance(claim(runs[0], tmp_path), Result)
    assert len(executed(log)) == 3, "what is finished is not run again"


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_workers_measure_what_one_process_measures_and_record_what_dies_or_takes_too_long(
    toy: ModuleType, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = plan(toy.SUITE, "quick", [0, 1, 2], strategies=["macl+infonce"])
    run_all(runs, tmp_path / "one")
    log.unlink()
    monkeypatch.setenv("TOY_CRASH", "fixed+infonce 1")
    monkeypatch.setenv("TOY_SLOW", "macl+infonce 2")
    failures, shown = run_all(runs[:-1], tmp_path / "two", workers=2)
    assert "[5/5]" in shown
    late, shown = run_all(runs[-1:], tmp_path / "two", time_limit=1)
    assert {(each.arm, each.seed): each.error for each in (*failures, *late)} == {
        ("fixed+infonce", 1): "its process ended without a result (exit code 7).",
        ("macl+infonce", 2): "it took longer than the time limit of 1 s.",
    }
    assert "failed: it took longer than the time limit" in shown
    assert read_failure(runs[-1].path(tmp_path / "two").with_suffix(".failed.json")).arm == "macl+infonce"
    assert len(figures(tmp_path / "two")) == 4, "other processes take the runs that are left"
    assert figures(tmp_path / "two").items() < figures(tmp_path / "one").items()
    assert os.getpid() not in {process for _, process in lines_of(log)}
    monkeypatch.delenv("TOY_CRASH")
    monkeypatch.delenv("TOY_SLOW")
    assert run_all(runs, tmp_path / "two", workers=2)[0] == []
    assert figures(tmp_path / "two") == figures(tmp_path / "one")
    assert len({process for _, process in lines_of(log)[6:]}) <= 2


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@posix
def test_kill_loses_the_run_in_flight_alone_and_two_commands_share_the_rest(toy: ModuleType, tmp_path: Path, log: Path) -> None:
    output, words = tmp_path / "killed", ("--seeds", "0", "1")
    with start(output, *words, sleep=0.5) as process:
        wait_for(lambda: len(figures(output)) >= 1 and len(executed(log)) > len(figures(output)))
        process.kill()
    kept, started = figures(output), executed(log)
    assert 1 <= len(kept) < 6
    assert len(started) - len(kept) <= 1
    both = [start(output, *words, sleep=1) for _ in range(2)]
    told = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert any(f"{len(kept)} of 6 runs are finished already." in each[1] for each in told), "in the one that was first"
    again = executed(log)[len(started) :]
    assert len(again) == len(set(again)) == 6 - len(kept), "every run that was left was executed once"
    assert len({process for _, process in lines_of(log)}) == 3, "both worked"
    assert told[0][0] == told[1][0]
    run_all(plan(toy.SUITE, "quick", [0, 1]), tmp_path / "undisturbed")
    assert figures(output) == figures(tmp_path / "undisturbed")
    assert not list(output.rglob("*.work"))


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@posix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, log: Path, number: signal.Signals) -> None:
    """An orphan would go on with a run that the same command starts again; here it would for ten minutes."""
    output = tmp_path / "out"
    process = start(output, "--seeds", "0", "--workers", "2", sleep=600)
    try:
        wait_for(lambda: len(executed(log)) >= 2, seconds=120)
        process.send_signal(number)
        _, shown = process.communicate(timeout=30)
        wait_for(lambda: not any(alive(each) for _, each in lines_of(log)), seconds=30)
    finally:
        for pid in filter(alive, (process.pid, *(each for _, each in lines_of(log)))):
            os.kill(pid, signal.SIGKILL)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130}[number]
    assert ("finished runs are kept, the same command goes on." in shown) == (number == signal.SIGINT)
    assert figures(output) == {}
    assert number == signal.SIGKILL or not list(output.rglob(".lock"))
