"""A Ray cluster of two machines, each with one processor, both of them this one: what is planned is carried out there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from run_checks import run_all
from test_runner import alive, executed, figures, lines_of, start, wait_for

from tempplug.errors import ConfigError, MissingDependencyError
from tempplug_adapters.storage.files import write_text
from tempplug_benchmarks.run import ray_executor
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.run.runner import create_executor
from tempplug_benchmarks.run.store import failure_path, read_failure, read_result
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Resources

HERE = Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is of POSIX")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """The cluster. Runs have the environment that it was started in, so the toy's orders stand for all tests."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray") as folder:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # a busy machine would let its runs starve
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("TOY_LOG", f"{folder}/log")
        patch.setenv("TOY_HOLD", f"{folder}/hold")
        write_text(f"{folder}/hold", "")
        patch.setenv("TOY_SLOW", "fixed+infonce 1")
        patch.setenv("TOY_FAIL", "macl+infonce 1")
        patch.setenv("TOY_CRASH", "fixed+dcl 1")
        from ray.cluster_utils import Cluster

        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            started.add_node(num_cpus=1)
            patch.setenv("RAY_ADDRESS", started.address)
            yield started
        finally:
            started.shutdown()


@pytest.fixture
def log(cluster: Any) -> Path:
    """Which runs began, and in which processes."""
    path = Path(os.environ["TOY_LOG"])
    path.unlink(missing_ok=True)
    return path


@pytest.fixture
def hold(cluster: Any) -> Iterator[Callable[..., None]]:
    """Makes runs of these names wait where they are, and lets all others go on."""

    def names(*held: str) -> None:
        write_text(os.environ["TOY_HOLD"], "\n".join(held))

    yield names
    names()


def test_killed_workers_cost_an_attempt_and_change_nothing(
    toy: ModuleType, tmp_path: Path, log: Path, hold: Callable[..., None]
) -> None:
    runs = plan(toy.SUITE, "quick", [0])
    hold("fixed+infonce 0", "macl+infonce 0")

    def kill() -> None:
        try:
            wait_for(lambda: len(lines_of(log)) == 2, seconds=120)  # at once, so on both machines
            own, other = (dict(lines_of(log))[f"{arm}+infonce 0"] for arm in ("fixed", "macl"))
            parent = Path(f"/proc/{other}/stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            os.kill(own, signal.SIGKILL)
            os.kill(int(parent), signal.SIGKILL)
        finally:
            hold()
        wait_for(lambda: not alive(other))

    with ThreadPoolExecutor() as threads:
        killed = threads.submit(kill)
        failures, shown = run_all(runs, tmp_path / "ray", "ray")
        killed.result()
    assert failures == []
    assert "toy-task · fixed+infonce · seed 0: its process ended without a result (signal 9); it is run again." in shown
    assert "toy-task · macl+infonce · seed 0: its worker was lost (The worker died unexpectedly" in shown
    assert shown.count("it is run again.") == 2
    assert sorted(executed(log)) == sorted(f"{run.arm.label} 0" for run in (*runs, *runs[:2]))
    run_all(runs, tmp_path / "here")
    assert figures(tmp_path / "ray") == figures(tmp_path / "here")
    assert not list((tmp_path / "ray").rglob("*.work"))


def test_what_fails_is_noted_by_its_cause(toy: ModuleType, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, *runs = plan(toy.SUITE, "quick", [1])
    failures, _ = run_all([*runs, *plan(toy.SUITE, "quick", [0])[:1]], tmp_path, "ray")
    notes = {failure.arm: failure for failure in failures}
    assert notes["macl+infonce"].error.endswith(": RuntimeError: the toy broke\non purpose")
    assert "toy_suite.py" in notes["macl+infonce"].trace
    assert notes["fixed+dcl"].error == "its process ended without a result (exit code 7), 3 times."
    assert all(read_failure(failure_path(run, tmp_path)) == notes[run.arm.label] for run in runs)
    assert executed(log).count("fixed+dcl 1") == 3
    assert len(figures(tmp_path)) == 1
    ((failure,), _) = run_all([slow], tmp_path, "ray", time_limit=1)
    assert failure.error.endswith(": it took longer than the time limit of 1 s.")
    assert read_failure(failure_path(slow, tmp_path)) == failure
    (tmp_path / "only_here.py").write_text("from toy_suite import train\ndef train_here(context): return train(context)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    suite = Suite("toy", "", (replace(toy.SUITE.tasks[0], train=only_here.train_here),))
    ((failure,), _) = run_all(plan(suite, "quick", [0])[:1], tmp_path / "lacking", "ray")
    assert "No module named 'only_here'" in failure.error


def test_the_same_command_goes_on_after_a_kill(toy: ModuleType, tmp_path: Path, log: Path, hold: Callable[..., None]) -> None:
    runs = plan(toy.SUITE, "quick", [2, 3, 4], strategies=["fixed"])
    hold("fixed+infonce 3")
    words = ("--seeds", "2", "3", "4", "--strategies", "fixed", "--executor", "ray")
    with start(tmp_path / "ray", *words) as driver:
        try:
            wait_for(lambda: "fixed+infonce 3" in executed(log) and len(figures(tmp_path / "ray")) >= 1, seconds=120)
            assert list(Path(tempfile.gettempdir()).glob("tempplug-run-*")), "where the run works"
        finally:
            driver.kill()
    held = dict(lines_of(log))["fixed+infonce 3"]
    wait_for(lambda: not alive(held))
    wait_for(lambda: not list(Path(tempfile.gettempdir()).glob("tempplug-*")))
    hold()
    kept, began = figures(tmp_path / "ray"), executed(log)
    assert run_all(runs, tmp_path / "ray", "ray")[0] == []
    assert len(executed(log)) - len(began) == 3 - len(kept), "every run that was left was executed once"
    run_all(runs, tmp_path / "here")
    assert figures(tmp_path / "ray") == figures(tmp_path / "here")


def test_needs_reach_ray_and_a_machine_that_is_lost_is_missed(
    toy: ModuleType,
    tmp_path: Path,
    cluster: Any,
    log: Path,
    hold: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray

    (task,) = toy.SUITE.tasks
    suite = Suite("toy", "", (replace(task, resources={"quick": Resources(cpus=2, gpus=1, memory=0.5)}),))
    runs = plan(suite, "quick", [5, 6], strategies=["fixed"])
    with pytest.raises(ConfigError, match=r"task 'toy-task' needs 2 CPUs, 1 GPU, 0\.5 GiB on one machine, but the"):
        run_all(runs, tmp_path, "ray")
    assert not list(tmp_path.iterdir()), "nothing was begun"
    monkeypatch.setattr(ray_executor, "PATIENCE", 1.0)
    large = cluster.add_node(num_cpus=2, num_gpus=1)
    hold("fixed+infonce 6")

    def lose() -> None:
        try:
            wait_for(lambda: len(executed(log)) == 2, seconds=120)
            wait_for(lambda: "GPU" not in ray.available_resources(), seconds=30)
        except AssertionError:
            hold()  # or the run would never end
            raise
        cluster.remove_node(large, allow_graceful=False)  # with the run, which a worker might else finish before it ends

    with ThreadPoolExecutor() as threads:
        lost = threads.submit(lose)
        failures, shown = run_all(runs, tmp_path, "ray")
        lost.result()
    (failure,) = failures
    assert read_result(runs[0].path(tmp_path)).hardware["threads"] == 2
    assert "toy-task · fixed+infonce · seed 6: its worker was lost (" in shown
    assert failure.seed == 6
    assert failure.error.startswith("profile 'quick' of task 'toy-task' needs 2 CPUs, 1 GPU, 0.5 GiB on one machine, but the")
    assert "1 CPU, no GPU, " in failure.error


def test_a_command_goes_on_where_ray_on_its_machine_is_killed(
    toy: ModuleType, tmp_path: Path, cluster: Any, log: Path, hold: Callable[..., None]
) -> None:
    words = ("--seeds", "7", "8", "--strategies", "fixed", "--executor", "ray")
    hold("fixed+infonce 7", "fixed+infonce 8")
    with start(tmp_path, *words) as driver:
        try:
            wait_for(lambda: len(executed(log)) == 2, seconds=120)
            (raylet,) = cluster.head_node.all_processes["raylet"]  # the last test of this cluster
            raylet.process.kill()
            wait_for(lambda: not all(alive(process) for _, process in lines_of(log)))
        finally:
            hold()
        _, shown = driver.communicate(timeout=300)
    assert driver.returncode == 0, shown
    assert "Ray on this machine, or the process attached to it, ended: the command goes on in a new one." in shown
    assert len(figures(tmp_path)) == 2


def breaks(words: list[str]) -> int:
    """A command that Ray ends, until it has been called often enough."""
    with Path(words[0]).open("a+", encoding="utf-8") as calls:
        calls.write("x")
        calls.seek(0)
        if len(calls.read()) < int(words[1]):
            calls.flush()
            os._exit(0)
    return 7


@pytest.mark.parametrize(("calls", "status"), [(3, 7), (4, 75)])
def test_a_child_that_ends_without_a_status_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], calls: int, status: int
) -> None:
    assert ray_executor.in_child(breaks, [str(tmp_path / "calls"), str(calls)]) == status
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        *["the command goes on in a new one."] * 2,
        *["finished runs are kept, the same command goes on."] * (status == 75),
    ]


HOLDS = """
import sys
from pathlib import Path
from tempplug_benchmarks.run.ray_executor import _private_folder
with _private_folder() as folder:
    (folder / "checkpoint-5").mkdir()
    (folder / "checkpoint-5" / "optimizer.pt").write_text("weights")
    print(folder, flush=True)
    if sys.stdin.readline() == "raise\\n":
        raise RuntimeError
"""


@pytest.mark.parametrize("end", ["raise", "killed with its group", "killed as it makes the folder"])
def test_what_a_run_writes_is_private_and_removed_at_once(tmp_path: Path, end: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    if end == "killed as it makes the folder":
        wait_for(lambda: list(tmp_path.iterdir()))
    else:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
        assert (folder / "checkpoint-5" / "optimizer.pt").exists()
    if end.startswith("killed"):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(f"{end}\n")
    wait_for(lambda: not list(tmp_path.iterdir()), seconds=10)


def test_errors_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("here", "ray://here:10001", ":6379"):
        with pytest.raises(ConfigError, match=f"ray_address={address} must be HOST:PORT"):
            create_executor("ray", None, ray_address=address).__enter__()
    with pytest.raises(ConfigError, match=r"ray_address=127\.0\.0\.1:1 does not answer"):
        create_executor("ray", None, ray_address="127.0.0.1:1").__enter__()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"needs Ray, which is not installed: pip install -c \S+ -e '\.\[ray\]'"):
        create_executor("ray", None).__enter__()
