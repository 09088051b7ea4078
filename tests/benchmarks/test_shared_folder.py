"""Several commands on one folder of results, and runs that take too long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from run_checks import run_all

from tempplug.errors import ConfigError
from tempplug_adapters.storage.lock import locked
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.run.runner import claim
from tempplug_benchmarks.run.store import Result, read_failure

HERE = Path(__file__).parent
HOLDER = "import sys, time\nfrom tempplug_adapters.storage.lock import locked\nwith locked(sys.argv[1]):\n"
HOLDER += "    print('held', flush=True)\n    sys.stdin.read()\n"


def test_a_run_in_work_elsewhere_is_left_and_its_result_taken_over(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TOY_LOG", str(log))
    runs = plan(toy.SUITE, "quick", [0])
    work = runs[0].work_dir(tmp_path)
    work.mkdir(parents=True)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        assert claim(runs[0], tmp_path) is None
        waits: list[float] = []

        def patience(seconds: float) -> None:
            if seconds < 1:
                return  # the toy's own steps
            waits.append(seconds)
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait()

        monkeypatch.setattr("time.sleep", patience)
        failures, shown = run_all(runs, tmp_path)
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    assert failures == []
    assert len(waits) == 1
    assert [line.rpartition(" ")[0] for line in log.read_text().splitlines()] == [
        "macl+infonce 0",
        "fixed+dcl 0",
        "fixed+infonce 0",
    ]
    assert "[3/3] toy-task · fixed+infonce · seed 0: STSB" in shown
    assert isinstance(claim(runs[0], tmp_path), Result)
    assert len(log.read_text().splitlines()) == 3, "what is finished is not run again"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_two_commands_share_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    search_path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / "toy_main.py"), "run", "toy", "--seeds", "0", "1", "--output", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": search_path, "TOY_SLEEP": "0.8", "TOY_LOG": str(log)}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    tables = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    names = [line.rpartition(" ") for line in log.read_text().splitlines()]
    assert len({name for name, _, _ in names}) == len(names) == 6, "every run was executed once"
    assert len({pid for _, _, pid in names}) == 2, "both worked"
    assert tables[0] == tables[1]
    for path in (tmp_path / "out").rglob("seed-*.json"):
        json.loads(path.read_text())
    assert not list((tmp_path / "out").rglob("*.work"))


@pytest.mark.slow
def test_a_run_over_the_time_limit_is_noted_and_the_others_go_on(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = plan(toy.SUITE, "quick", [0], strategies=["macl+infonce"])
    monkeypatch.setenv("TOY_SLOW", "macl+infonce 0")
    began = time.monotonic()
    failures, shown = run_all(runs, tmp_path, time_limit=20)
    assert time.monotonic() - began < 100
    assert [(each.arm, each.error) for each in failures] == [("macl+infonce", "it took longer than the time limit of 20 s.")]
    assert "failed: it took longer than the time limit" in shown
    assert read_failure(runs[1].path(tmp_path).with_suffix(".failed.json")).arm == "macl+infonce"
    assert runs[0].path(tmp_path).exists()
    with pytest.raises(ConfigError, match=r"time_limit=0 must be above 0 seconds"):
        run_all(runs, tmp_path, time_limit=0)


def test_the_lock_is_gone_with_the_run(toy: ModuleType, tmp_path: Path) -> None:
    (run, *_) = plan(toy.SUITE, "quick", [0])
    run_all([run], tmp_path)
    work = run.work_dir(tmp_path)
    assert not work.exists()
    work.mkdir()
    with locked(work):
        pass
