"""How speed is measured: alternation, memory, exactness, what happens to what cannot be measured. Nothing asserts on time."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tempplug_benchmarks.speed import losses, matmul
from tempplug_benchmarks.speed.case import Case, Setting
from tempplug_benchmarks.speed.child import ChildError, in_child
from tempplug_benchmarks.speed.clock import CLOCKS, MIN_ROUNDS, SAMPLE_SECONDS, alternate
from tempplug_benchmarks.speed.matmul import executed_operations
from tempplug_benchmarks.speed.measure import measure
from tempplug_benchmarks.speed.neighbours import neighbours
from tempplug_benchmarks.speed.step import network_step


def status(pid: int) -> list[str]:
    """Returns the state of a process and its parent, as Linux tells them; nothing where it is gone.

    Linux cuts names of processes after 15 bytes, within a letter if need be.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return []


def children(pid: int) -> list[int]:
    every = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [each for each in every if status(each)[1:] == [str(pid)]]


def ends(pid: int) -> bool:
    """Returns whether a process ends within twenty seconds, a dead one that nobody has asked about included."""
    deadline = time.monotonic() + 20
    while (alive := status(pid)[:1] not in ([], ["Z"])) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive


QUICK = Setting(budget=0.01)
CASE = Case(
    name="nt-xent-16x8",
    quantity="time",
    loss="nt-xent",
    rows=16,
    dimension=8,
    implementations=("tempplug", "eager", "lightly"),
)


def test_calls_alternate_in_reversed_order_and_medians_are_taken() -> None:
    order: list[str] = []
    taken = {"slow": iter([9.0, 3.0, 5.0, 4.0]), "fast": iter([9.0, 1.0, 1.0, 2.0])}

    def clock(call: Callable[[], None], calls: int) -> float:
        call()
        return next(taken[order[-1]])

    times = alternate({name: lambda name=name: order.append(name) for name in taken}, clock, budget=1e-9)  # type: ignore[misc]
    # The first call of each finds out how often a sample repeats it.
    assert order == ["slow", "fast", *("slow", "fast"), *("fast", "slow"), *("slow", "fast")]
    assert (times["slow"].median, times["slow"].rounds, times["slow"].cold) == (4.0, MIN_ROUNDS, None)
    assert times["fast"].median == 1.0


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
    assert [(each.cold, each.median) for each in times.values()] == [(10.0, 1.0)] * 2


def test_a_fast_call_is_repeated_within_a_sample() -> None:
    def clock(call: Callable[[], None], calls: int) -> float:
        return 1e-4 * calls

    found = alternate({"any": lambda: None}, clock, budget=1e-9)["any"]
    assert (found.calls, found.median) == (20, pytest.approx(1e-4))


@pytest.mark.parametrize("name", ["cpu", "wall"])
def test_clocks_tell_work_from_rest(name: str) -> None:
    assert CLOCKS[name](lambda: None, 3) >= 0
    rest = CLOCKS[name](lambda: time.sleep(0.02), 2)
    assert (rest >= 0.04) == (name == "wall")


def test_time_is_measured_and_a_missing_package_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "find_spec", lambda package: None)
    found = measure(CASE, QUICK)
    assert list(found) == list(CASE.implementations)
    assert [outcome.status for outcome in found.values()] == ["measured", "measured", "not installed"]
    assert (found["lightly"].note, found["lightly"].numbers) == ("not installed", {})
    ours = found["tempplug"]
    named = {"milliseconds", "rounds", "calls", "cpu_per_wall", "loss"}
    assert set(ours.numbers) == named | {"matmul_teraflops", "matmul_share"}
    assert set(found["eager"].numbers) == named
    assert ours.numbers["rounds"] >= MIN_ROUNDS
    assert ours.numbers["loss"] == pytest.approx(found["eager"].numbers["loss"], rel=1e-5)
    assert ours.note in ("dense", "tiled")
    seconds = ours.numbers["milliseconds"] * 1e-3
    rate = 1.5 * 32 * 32 * 2 * 8 / seconds / ours.numbers["matmul_share"]
    assert rate == pytest.approx(ours.numbers["matmul_teraflops"] * 1e12)
    assert 1e9 < rate < 1e13, "of one core"


def test_small_cases_are_timed_cold_too(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(CASE, implementations=("tempplug", "eager"))
    for rows, expected in ((16, True), (15, False)):
        for outcome in measure(case, replace(QUICK, cold=rows)).values():
            assert (outcome.numbers.get("milliseconds_cold", 0) > 0) == expected


def test_the_work_between_two_calls_trains_a_network() -> None:
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
    found = measure(replace(CASE, implementations=("tempplug", "compiled")), QUICK)["compiled"]
    assert found.status == "failed"
    assert "recompil" in found.note


def broken(temperature: float) -> Callable[..., torch.Tensor]:
    raise RuntimeError(f"no {temperature}\nhere")


def test_what_another_implementation_raises_is_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(CASE, implementations=("tempplug", "eager"))
    loss = losses.LOSSES["nt-xent"]
    monkeypatch.setattr(losses.Loss, "eager", lambda self, temperature: broken(temperature))
    found = measure(case, QUICK)["eager"]
    assert (found.status, found.note) == ("failed", "RuntimeError: no 0.1 here")
    monkeypatch.setattr(losses.Loss, "ours", lambda self, temperature: broken(temperature))
    with pytest.raises(RuntimeError, match=r"no 0\.1"):
        measure(case, QUICK)
    assert loss.formula is not None


def test_the_error_of_the_gradient_is_that_of_single_precision() -> None:
    case = replace(CASE, quantity="accuracy", implementations=("tempplug", "eager"), temperature=0.05)
    found = measure(case, QUICK)
    for outcome in found.values():
        assert 1e-9 < outcome.numbers["gradient_error"] < 1e-5
        assert outcome.numbers["loss_error"] < 1e-5


@pytest.mark.slow
def test_memory_is_measured_for_the_one_that_is_asked() -> None:
    # In a process of its own, as cases are: pages that earlier tests left behind would hide a need.
    case = replace(CASE, quantity="memory", rows=512, implementations=("tempplug", "eager"))
    program = (
        "import pickle, sys\nfrom tempplug_benchmarks.speed.measure import measure\n"
        "found = measure(*pickle.load(sys.stdin.buffer), 'eager')\n"
        "print(*found, found['eager'].numbers['mebibytes'])"
    )
    asked = subprocess.run([sys.executable, "-c", program], input=pickle.dumps((case, QUICK)), capture_output=True, check=True)
    name, mebibytes = asked.stdout.split()
    assert name == b"eager"
    # four matrices of 1024 × 1024 float32 at the least: similarities, logits, softmax and a gradient, less what was free
    assert 8 < float(mebibytes) < 64


@pytest.mark.slow
def test_the_peak_counts_what_is_freed_again() -> None:
    # a process of its own: pages that earlier tests left behind would hide the need
    program = (
        "import torch\nfrom tempplug_benchmarks.speed.memory import peak_growth\n"
        "torch.ones(2).sum()\n"
        "print(peak_growth(lambda: torch.ones(16 * 2**20).sum(), 'cpu'), peak_growth(lambda: None, 'cpu'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    grown, idle = (float(word) for word in done.stdout.split())
    assert 60 < grown < 80
    assert idle < 4


def test_neighbours_spin_beside_the_block_and_end_with_it() -> None:
    with neighbours(2) as spinners:
        time.sleep(0.3)
        assert [spinner.poll() for spinner in spinners] == [None, None]
    assert [spinner.poll() for spinner in spinners] == [-signal.SIGTERM, -signal.SIGTERM]


def test_neighbours_end_with_their_parent() -> None:
    program = (
        "import os\nfrom tempplug_benchmarks.speed.neighbours import neighbours\n"
        "with neighbours(1) as spinners:\n    print(spinners[0].pid, flush=True)\n    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL
    assert ends(int(killed.stdout))


@pytest.mark.slow
def test_a_case_in_a_process_of_its_own_meets_its_environment() -> None:
    answer = in_child(replace(CASE, implementations=("tempplug", "eager")), QUICK)
    assert {outcome["status"] for outcome in answer["outcomes"].values()} == {"measured"}
    assert answer["hardware"]["threads"] == 1
    assert "torch" in answer["versions"]
    with pytest.raises(ChildError, match=r"without a result \(exit code 1\)(?s:.*)nowhere"):
        in_child(replace(CASE, environment={"PYTHONSTARTUP": "", "PYTHONHOME": "nowhere"}), QUICK)


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    case = replace(CASE, rows=2048, implementations=("tempplug", "eager"))  # the whole budget, left alone
    program = (
        "import json, sys\nfrom tempplug_benchmarks.speed.case import Case, Setting\n"
        "from tempplug_benchmarks.speed.child import in_child\n"
        "in_child(Case.read(json.loads(sys.argv[1])), Setting(budget=60))\n"
    )
    command = [sys.executable, "-c", program, json.dumps(case.to_dict())]
    parent = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)})

    deadline = time.monotonic() + 60
    while not (found := children(parent.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert ends(found[0])


def test_executed_operations_count_the_products_of_both_sides() -> None:
    case = replace(CASE, rows=10, dimension=3)
    assert executed_operations(case, "triton") == 3 * 2 * 20 * 20 * 3
    assert executed_operations(replace(case, loss="one-way"), "triton") == 5 * 2 * 10 * 10 * 3
    assert executed_operations(replace(case, loss="one-way", dimension=768), "triton") == 4 * 2 * 10 * 10 * 768
    assert executed_operations(case, "tiled") == 1.5 * 2 * 20 * 20 * 3
    assert executed_operations(replace(case, loss="labels"), "dense") == 1.5 * 2 * 20 * 20 * 3
    assert executed_operations(replace(case, loss="amcl"), "tiled") == 3 * 2 * 20 * 20 * 3
    for loss in ("one-way", "two-way", "masks"):
        assert executed_operations(replace(case, loss=loss), "tiled") == 3 * 2 * 10 * 10 * 3
    assert executed_operations(replace(case, loss="hard-negatives"), "tiled") == 3 * 2 * 10 * 20 * 3
    assert executed_operations(replace(case, loss="queue"), "tiled") == 2 * 2 * 10 * 4096 * 3
    assert executed_operations(case, "") is None


def test_the_rate_is_that_of_the_fastest_product(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([4.0, 2.0, 4.0, 4.0, 4.0, *[1.0] * 10])
    monkeypatch.setitem(matmul.CLOCKS, "cpu", lambda call, calls: next(taken))
    monkeypatch.setitem(matmul.SHAPES, "cpu", ((8, 4, 2), (2, 2, 2)))
    monkeypatch.setattr(matmul, "product_route", lambda: "mm")
    assert matmul.matmul_rate(QUICK) == 2 * 8 * 4 * 2 / 2.0


def test_onednn_is_tried_where_the_processor_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[int, ...]] = []
    monkeypatch.setitem(matmul.SHAPES, "cpu", ((8, 4, 2),))
    monkeypatch.setattr(matmul, "product_route", lambda: "onednn")
    monkeypatch.setattr(matmul, "onednn_product", lambda a, b: tried.append((*a.shape, *b.shape)))
    assert matmul.matmul_rate(QUICK) > 0
    assert tried == [(8, 4, 2, 4)] * matmul.REPEATS
