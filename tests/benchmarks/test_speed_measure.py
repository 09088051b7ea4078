"""How speed is measured: alternation, memory, exactness, what happens to what cannot be measured. Nothing asserts on time."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from test_runner import alive, wait_for

from tempplug.errors import NonFiniteError
from tempplug_benchmarks.arm import Specs
from tempplug_benchmarks.run.executor import InProcesses, Job, Lost
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.speed import losses, measure as machine
from tempplug_benchmarks.speed.cases import SUITE
from tempplug_benchmarks.speed.clock import CLOCKS, MIN_ROUNDS, SAMPLE_SECONDS, alternate, neighbours
from tempplug_benchmarks.speed.measure import executed_operations, measure, network_step
from tempplug_benchmarks.speed.recipe import SpeedRecipe
from tempplug_benchmarks.task import Task


def children(pid: int) -> list[int]:
    """The processes with this parent; Linux cuts names after 15 bytes, within a letter if need be."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if path.read_text(errors="replace").rpartition(")")[2].split()[1] == str(pid):
                found.append(int(path.parent.name))
    return found


TIME, ACCURACY = "milliseconds", "gradient_error"
CASE = SpeedRecipe(rows=16, dimension=8, implementations=("tempplug", "eager", "lightly"), budget=0.01, cold=0)
TWO = replace(CASE, implementations=("tempplug", "eager"))


def test_calls_alternate_in_reversed_order_and_medians_are_taken() -> None:
    order: list[str] = []
    taken = {"slow": iter([9.0, 3.0, 5.0, 4.0]), "fast": iter([9.0, 1.0, 1.0, 2.0])}

    def clock(call: Callable[[], None], calls: int) -> float:
        call()
        return next(taken[order[-1]])

    times = alternate({name: partial(order.append, name) for name in taken}, clock, budget=1e-9)
    # The first call of each finds out how often a sample repeats it.
    assert order == ["slow", "fast", *("slow", "fast"), *("fast", "slow"), *("slow", "fast")]
    assert (times["slow"]["milliseconds"], times["slow"]["rounds"]) == (4000.0, MIN_ROUNDS)
    assert "milliseconds_cold" not in times["slow"]
    assert times["fast"]["milliseconds"] == 1000.0
    found = alternate({"any": lambda: None}, lambda call, calls: 1e-4 * calls, budget=1e-9)["any"]
    assert (found["calls"], found["milliseconds"]) == (20, pytest.approx(0.1)), "a fast call is repeated within a sample"


def test_a_cold_call_is_timed_alone_after_other_work_that_is_not_timed() -> None:
    events: list[str] = []

    def clock(call: Callable[[], object], calls: int) -> float:
        """A call takes a second, and nine more where other work came before it."""
        cold = events[-1:] == ["work"]
        events.extend([f"timed {calls}"] * (calls > 0))
        return 9.0 * cold + calls if started else SAMPLE_SECONDS / 3

    started: list[bool] = []

    def work() -> None:
        started.append(True)
        events.append("work")

    times = alternate({"a": lambda: None, "b": lambda: None}, clock, 1e-9, work)
    assert events[:2] == ["timed 1", "timed 1"], "of each, how often a sample repeats it"
    assert events[2:] == ["work", "timed 1", "timed 2", "timed 3"] * 2 * MIN_ROUNDS, "cold, warm again, hot"
    assert [(each["milliseconds_cold"], each["milliseconds"]) for each in times.values()] == [(10_000.0, 1000.0)] * 2


@pytest.mark.parametrize("name", ["cpu", "wall"])
def test_clocks_tell_work_from_rest(name: str) -> None:
    assert CLOCKS[name](lambda: None, 3) >= 0
    rest = CLOCKS[name](lambda: time.sleep(0.02), 2)
    assert (rest >= 0.04) == (name == "wall")


def test_time_is_measured_and_a_missing_package_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "find_spec", lambda package: None)
    found = measure(CASE, TIME)
    assert list(found) == list(CASE.implementations)
    assert found["lightly"] == {"note": "not installed"}
    ours = found["tempplug"]
    named = {"milliseconds", "rounds", "calls", "cpu_per_wall", "loss"}
    assert set(ours) == named | {"matmul_teraflops", "matmul_share", "note"}
    assert set(found["eager"]) == named
    assert float(ours["rounds"]) >= MIN_ROUNDS
    assert ours["loss"] == pytest.approx(found["eager"]["loss"], rel=1e-5)
    assert ours["note"] in ("dense", "tiled")
    seconds = float(ours["milliseconds"]) * 1e-3
    rate = 1.5 * 32 * 32 * 2 * 8 / seconds / float(ours["matmul_share"])
    assert rate == pytest.approx(float(ours["matmul_teraflops"]) * 1e12)
    assert 1e9 < rate < 1e13, "of one core"


def test_small_cases_are_timed_cold_too_after_a_networks_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "matmul_rate", lambda case: 1e9)
    for rows, expected in ((16, True), (15, False)):
        for outcome in measure(replace(TWO, cold=rows), TIME).values():
            assert (float(outcome.get("milliseconds_cold", 0)) > 0) == expected
    seen: list[torch.Tensor] = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, _, out: seen.append(next(module.parameters())))
    try:
        step = network_step("cpu")
        step()
        before = seen[0].detach().clone()
        step()
    finally:
        handle.remove()
    weights = {id(each): tuple(each.shape) for each in seen}
    assert sorted(weights.values()) == [(1024, 1024)] * 6
    assert not torch.equal(seen[0], before)


def test_what_would_compile_again_when_timed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(100))

    def compiled(self: losses.Loss, temperature: float) -> Callable[..., torch.Tensor]:
        function = torch.compile(lambda a, b, count: (a * b).sum() * count, backend="eager", dynamic=False)
        return lambda a, b: function(a, b, next(calls))

    monkeypatch.setattr(losses.Loss, "compiled", compiled)
    found = measure(replace(CASE, implementations=("tempplug", "compiled")), TIME)["compiled"]
    assert set(found) == {"note"}
    assert str(found["note"]).startswith("failed: ")
    assert "recompil" in str(found["note"])


def test_a_failure_of_another_implementation_is_recorded_and_tempplugs_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(self: losses.Loss, temperature: float) -> Any:
        raise RuntimeError(f"no {temperature}\nhere")

    def endless(self: losses.Loss, temperature: float) -> Any:
        return lambda a, b: (a * b).sum() * torch.nan

    for made, note, error, message in (
        (absent, "RuntimeError: no 0.1 here", RuntimeError, r"no 0\.1"),
        (endless, "loss is nan", NonFiniteError, "tempplug: loss is nan"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(losses.Loss, "eager", made)
            patch.setattr(machine, "matmul_rate", lambda case: 1e9)
            found = measure(TWO, TIME)
            assert found["eager"] == {"note": f"failed: {note}"}
            assert float(found["tempplug"]["milliseconds"]) > 0
            patch.setattr(losses.Loss, "ours", made)
            with pytest.raises(error, match=message):
                measure(TWO, TIME)


def test_the_error_of_the_gradient_is_that_of_single_precision() -> None:
    for outcome in measure(replace(TWO, temperature=0.05), ACCURACY).values():
        assert 1e-9 < float(outcome["gradient_error"]) < 1e-5
        assert float(outcome["loss_error"]) < 1e-5


@pytest.mark.slow
def test_memory_is_the_peak_of_a_fresh_process_for_each() -> None:
    # In a process of its own, whose memory is limited from then on, and where glibc keeps the pages that are freed.
    case = replace(CASE, rows=512, implementations=("eager", "tempplug", "eager"))
    (kept,) = SUITE.task("kept-memory").profile("quick").arms[0].changes["environment"]
    program = (
        "import pickle, sys, torch\nfrom tempplug_benchmarks.speed.measure import measure_alone, peak_growth\n"
        "if __name__ == '__main__':\n"
        "    torch.ones(2).sum()\n"
        "    print(peak_growth(lambda: torch.ones(16 * 2**20).sum(), 'cpu'), peak_growth(lambda: None, 'cpu'))\n"
        "    found = measure_alone(pickle.load(sys.stdin.buffer), 'mebibytes')\n"
        "    print(*found, found['eager']['mebibytes'])"
    )
    environment = {**os.environ, **dict([kept.split("=", 1)])}
    words = [sys.executable, "-c", program]
    asked = subprocess.run(words, input=pickle.dumps(case), capture_output=True, check=True, env=environment)
    grown, idle, *names, mebibytes = asked.stdout.decode().split()
    assert 60 < float(grown) < 80, "what is freed again counts"
    assert float(idle) < 4
    assert names == ["eager", "tempplug"]
    # four matrices of 1024 × 1024 float32 at the least: similarities, logits, softmax and a gradient, less what was free; next
    # to nothing where the second measurement of eager meets the pages of the first
    assert 8 < float(mebibytes) < 64


def test_neighbours_spin_beside_the_block_and_end_with_it_or_with_their_parent() -> None:
    with neighbours(2) as spinners:
        time.sleep(0.3)
        assert [spinner.poll() for spinner in spinners] == [None, None]
    assert [spinner.poll() for spinner in spinners] == [-signal.SIGTERM, -signal.SIGTERM]
    program = (
        "import os\nfrom tempplug_benchmarks.speed.clock import neighbours\n"
        "with neighbours(1) as spinners:\n    print(spinners[0].pid, flush=True)\n    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL
    wait_for(lambda: not alive(int(killed.stdout)), seconds=20)


@pytest.mark.slow
def test_a_case_has_a_process_and_an_environment_of_its_own(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIND", "1")
    task = replace(SUITE.task("nt-xent"), train=toy.wind)
    (arm, *_) = task.profile("quick").arms

    def executed(task: Task, *environment: str) -> Any:
        changed = replace(arm, changes={**arm.changes, "environment": environment})
        run = Run("speed", "quick", task, changed, Specs(), 0)
        return processes.submit(Job(run, tmp_path / "work", lambda fraction, text: None)).result()

    sharing = replace(task, variables=None)
    with InProcesses(None) as processes:
        outcomes = [executed(sharing), executed(task, "WIND=7"), executed(task, "WIND=8"), executed(sharing)]
        lost = executed(task, "WIND=9", "PYTHONHOME=nowhere")
    found = [each.implementations["tempplug"] for each in outcomes]
    assert [each["milliseconds"] for each in found] == [1, 7, 8, 1]
    first, second, third, last = (each["calls"] for each in found)
    assert first == last
    assert len({os.getpid(), first, second, third}) == 4
    assert {each["rounds"] for each in found[1:3]} == {1}, "threads of OpenMP"
    assert lost == Lost("its process ended without a result (exit code 1)")
    assert os.environ["WIND"] == "1"


@pytest.mark.slow
def test_processes_that_measure_memory_end_when_their_parent_is_killed() -> None:
    program = (
        "from tempplug_benchmarks.speed.measure import measure_alone\n"
        "from tempplug_benchmarks.speed.recipe import SpeedRecipe\n"
        "if __name__ == '__main__':\n    measure_alone(SpeedRecipe(rows=65536, dimension=128), 'mebibytes')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    wait_for(lambda: len(children(parent.pid)) == 2)  # one of them tracks resources
    found = children(parent.pid)
    time.sleep(3)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not any(map(alive, found)), seconds=20)


def test_executed_operations_count_the_products_of_both_sides() -> None:
    case = replace(CASE, rows=10, dimension=3)
    assert executed_operations(case, "") is None
    triton = {("nt-xent", 3): 3 * 20 * 20, ("one-way", 3): 5 * 10 * 10, ("one-way", 768): 4 * 10 * 10}
    square = {("nt-xent", 3): 1.5 * 20 * 20, ("labels", 3): 1.5 * 20 * 20, ("amcl", 3): 3 * 20 * 20}
    across = dict.fromkeys([("one-way", 3), ("two-way", 3), ("masks", 3)], 3 * 10 * 10)
    others = {("hard-negatives", 3): 3 * 10 * 20, ("queue", 3): 2 * 10 * 4096}
    for engine, products in (("triton", triton), ("tiled", {**square, **across, **others}), ("dense", square)):
        for (loss, dimension), count in products.items():
            assert executed_operations(replace(case, loss_name=loss, dimension=dimension), engine) == count * 2 * dimension


def test_the_rate_is_that_of_the_fastest_product_with_onednn_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[int, ...]] = []
    monkeypatch.setattr(machine, "onednn_product", lambda a, b: tried.append((*a.shape, *b.shape)))
    monkeypatch.setattr(machine, "product_route", lambda: "onednn")
    monkeypatch.setitem(machine.SHAPES, "cpu", ((8, 4, 2),))
    assert machine.matmul_rate(CASE) > 0
    assert tried == [(8, 4, 2, 4)] * machine.REPEATS
    taken = iter([4.0, 2.0, 4.0, 4.0, 4.0, *[1.0] * 10])
    monkeypatch.setitem(machine.CLOCKS, "cpu", lambda call, calls: next(taken))
    monkeypatch.setitem(machine.SHAPES, "cpu", ((8, 4, 2), (2, 2, 2)))
    monkeypatch.setattr(machine, "product_route", lambda: "mm")
    assert machine.matmul_rate(CASE) == 2 * 8 * 4 * 2 / 2.0
