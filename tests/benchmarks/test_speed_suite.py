"""The speed suite's cases and targets agree, its command runs, goes on and reports."""

from __future__ import annotations

import re
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from suite_checks import bench as main

from tempplug.errors import UnknownNameError
from tempplug_benchmarks.profile import PROFILES
from tempplug_benchmarks.run.executor import Executor, Job, Outcome
from tempplug_benchmarks.run.store import failure_of, read_result, result_of
from tempplug_benchmarks.speed import kind
from tempplug_benchmarks.speed.cases import METRICS, SUITE, Target
from tempplug_benchmarks.speed.losses import LOSSES
from tempplug_benchmarks.speed.recipe import SpeedRecipe

TIME = METRICS["time"].name
TASKS = ["nt-xent", "accuracy"]
COUNT = 4


def cases(profile: str, device: str = "cpu") -> dict[str, SpeedRecipe]:
    """Returns the cases of a profile by name, those for another device left out."""
    made = {arm.label: SpeedRecipe().changed(**arm.changes) for task in SUITE.tasks for arm in task.profile(profile).arms}
    return {name: each for name, each in made.items() if each.only_on in (None, device)}


CASES = {name: each for profile in PROFILES for device in ("cpu", "cuda") for name, each in cases(profile, device).items()}
TIMED = {arm.label for task in SUITE.tasks for of in task.profiles.values() if of.primary == TIME for arm in of.arms}


def test_every_task_has_every_profile_and_every_case_can_be_made() -> None:
    for profile in PROFILES:
        names = [arm.label for task in SUITE.tasks for arm in task.profile(profile).arms]
        assert len(set(names)) == len(names)
        assert all(task.profile(profile).arms for task in SUITE.tasks)
    for name, each in CASES.items():
        assert re.fullmatch(r"[a-z0-9.-]+", name)
        made = [LOSSES[each.loss_name].implementation(implementation) for implementation in each.implementations]
        assert made[0].package == ""
    arms = SUITE.task("nt-xent").profile("paper").arms
    sizes = {(arm.changes["rows"], arm.changes["dimension"]) for arm in arms if arm.label in cases("paper")}
    assert sizes == {(2**power, width) for power in range(5, 15) for width in (64, 128, 768)}
    assert cases("paper").keys() < cases("paper", "cuda").keys()


def test_every_target_has_one_limit_and_a_case_that_measures_it() -> None:
    assert len(SUITE.targets) > 40
    compared = [(each.case, each.against, each.of, each.cold) for each in SUITE.targets if each.at_least is not None]
    assert len(set(compared)) == len(compared)
    for each in SUITE.targets:
        assert [each.at_least, each.at_most, each.share].count(None) == 2, each
        assert {each.against, each.of} <= {*CASES[each.case].implementations}
        assert CASES[each.case].only_on in (None, each.device)
        assert (each.of == "tempplug-triton") == each.case.endswith("-gpu"), each
    of = {(each.case, each.against, each.of, each.at_least) for each in SUITE.targets if each.cold}
    assert ("one-way-64x128-batch", "compiled", "tempplug-compiled", 1) in of
    assert {each[1:] for each in of if each[0] == "plugin-map-64x128"} == {
        ("tempplug-dystress", "tempplug", 1 / 1.5),
        ("eager", "tempplug", 0.9),
    }


@pytest.mark.parametrize(("fewest", "most", "wanted"), [(1, 64, 0.9), (65, 128, 0.95), (129, 2048, 1), (2049, 10**9, None)])
def test_plain_pytorch_is_compared_cold_at_every_size_up_to_a_limit(fewest: int, most: int, wanted: float | None) -> None:
    found = {each.case: each.at_least for each in SUITE.targets if each.cold and each.against == "eager"}
    timed = {**cases("small"), **cases("paper")}
    timed = {name: each for name, each in timed.items() if name in TIMED and fewest <= each.rows <= most}
    limits = {found.get(name) for name, each in timed.items() if "eager" in each.implementations}
    assert limits == {wanted}


def test_small_batches_are_compiled_outside_the_quick_profile() -> None:
    for profile, name, each in ((of, *item) for of in PROFILES for item in cases(of).items()):
        if name in TIMED and "eager" in each.implementations and each.rows <= 512 and not each.environment:
            assert ("compiled" in each.implementations) == (profile != "quick"), name
        if "tempplug-compiled" in each.implementations:
            assert each.loss_name in ("nt-xent", "one-way", "two-way"), name
            assert (each.rows in (64, 256), name in TIMED) == (True, True), name
    small = cases("small")
    for name in ("nt-xent-64x128", "nt-xent-256x128-batch", "one-way-64x128-batch", "two-way-64x512-batch"):
        assert small[name].implementations[-2:] == ("compiled", "tempplug-compiled")


def test_a_target_is_reached_or_missed_or_unknown() -> None:
    least, most = Target(case="a", against="eager", at_least=2), Target(case="a", against="tempplug", at_most=1e-6)
    part = Target(case="a", against="tempplug", share=0.45)
    for target, name, values in ((least, "ratio", (1.9, 2.0)), (most, "own", (2e-6, 1e-6)), (part, "share", (0.44, 0.45))):
        assert [target.reached({name: value}) for value in values] == [False, True]
        assert target.reached({"other": 1}) is None
    assert (least.words(), most.words(), part.words()) == ("≥ 2×", "≤ 1e-06", "≥ 45% of matmul rate")
    assert Target(case="a", against="b", at_least=1 / 1.5, of="c", cold=True).words() == "c cold ≥ 0.667×"


def test_settings_choose_clock_and_name() -> None:
    settings = {
        "cpu-1-thread": ("cpu", SpeedRecipe()),
        "cpu-2-threads": ("wall", SpeedRecipe(threads=2)),
        "cpu-2-threads-busy": ("wall", SpeedRecipe(threads=2, busy=True)),
        "cpu-1-thread-busy": ("wall", SpeedRecipe(busy=True)),
        "cuda-bfloat16": ("cuda", SpeedRecipe(device="cuda", precision="bfloat16")),
    }
    assert {each.slug: (each.clock, each) for _, each in settings.values()} == settings
    with pytest.raises(UnknownNameError, match="no setting 'learning_rate'"):
        SUITE.task("nt-xent@learning_rate=1")
    found = SUITE.task("nt-xent@threads=2").profile("quick").settings()
    assert found == {**SpeedRecipe(budget=0.2, threads=2).values()}
    assert "rows" not in found, "it is a setting of the case"


class MadeUp(Executor):
    """Returns figures that were not measured, but an interruption and failures on request."""

    def __init__(self, names: list[str], data_dir: Path | None) -> None:
        super().__init__(data_dir)
        self.names = names

    def submit(self, job: Job) -> Future[Outcome]:
        if len(self.names) == self.interrupted:
            raise KeyboardInterrupt
        self.names.append(job.run.arm.label)
        numbers = {TIME: 1.0, "milliseconds_cold": 2.0, "rounds": 3, "gradient_error": 1e-7, "loss_error": 0.0}
        metrics = {each.name: numbers[each.name] for each in job.run.sizes.metrics}
        outcomes = {name: numbers for name in job.run.arm.changes["implementations"]}
        done: Future[Outcome] = Future()
        failed = job.run.task.name == self.failing
        done.set_result(
            failure_of(job.run, "it broke.") if failed else result_of(job.run, metrics, 1.0, implementations=outcomes)
        )
        return done

    interrupted = -1
    failing = ""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the measured cases, in order; no process measures them."""
    names: list[str] = []
    monkeypatch.setattr(kind, "InProcesses", partial(MadeUp, names))
    monkeypatch.setattr("tempplug_benchmarks.speed.plot.draw", lambda found, file: file.write_bytes(b"") or True)
    return names


def run(output: Path, *more: str) -> int:
    return main(["run", "speed", "--tasks", *TASKS, "--output", str(output), *more])


def stored(output: Path) -> list[Path]:
    return sorted(output.glob("speed/quick/*/*/seed-*.json"))


def test_finished_cases_are_kept_and_failed_ones_reported_and_tried_again(
    tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(MadeUp, "interrupted", 2)
    assert run(tmp_path) == 130
    assert len(stored(tmp_path)) == 2
    monkeypatch.setattr(MadeUp, "interrupted", -1)
    monkeypatch.setattr(MadeUp, "failing", "accuracy")
    assert run(tmp_path) == 1
    captured = capsys.readouterr()
    assert f"2 of {COUNT} runs are finished already." in captured.err
    assert len(set(measured)) == COUNT
    assert "failed: nt-xent-64x32-error-0.05: it broke." in captured.out.replace("\n", " ")
    assert main(["report", str(tmp_path)]) == 0
    assert "failed, see below" in capsys.readouterr().out
    monkeypatch.setattr(MadeUp, "failing", "")
    assert run(tmp_path) == 0
    assert [path.name for path in stored(tmp_path)] == ["seed-0.json"] * COUNT
    files = {path.name for path in (tmp_path / "speed" / "quick").iterdir()}
    assert files == {*TASKS, "cpu-1-thread.svg", "cpu-1-thread.png"}


def test_results_of_other_settings_or_packages_are_not_reused(
    tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempplug_benchmarks.speed.losses.find_spec", lambda package: None)
    run(tmp_path)
    assert run(tmp_path, "--budget", "7") == 2
    assert f"budget was 0.2 and is now 7. So are {COUNT - 1} more. Pass --rerun-changed" in capsys.readouterr().err
    assert run(tmp_path, "--budget", "7", "--rerun-changed") == 0
    assert len(measured) == 2 * COUNT
    assert run(tmp_path, "--threads", "2") == 0
    assert len(stored(tmp_path)) == 2 * COUNT, "another setting has a folder of its own"
    assert {path.parents[1].name for path in stored(tmp_path)} == {*TASKS, *(f"{task}@threads=2" for task in TASKS)}
    monkeypatch.setattr("tempplug_benchmarks.speed.losses.find_spec", lambda package: package)
    assert run(tmp_path, "--budget", "7") == 2
    assert "packages was none and is now lightly/pytorch_metric_learning" in capsys.readouterr().err


def test_one_folder_may_hold_both_kinds_of_suites_and_a_case_that_is_gone_is_named(
    toy: ModuleType, tmp_path: Path, measured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path)
    assert main(["run", "toy", "--seeds", "0", "--output", str(tmp_path)]) == 0
    capsys.readouterr()
    for form, heading, count in (("markdown", "## toy / toy-task / quick", 1), ("html", "<!doctype html>", 1)):
        assert main(["report", str(tmp_path), "--format", form]) == 0
        shown = capsys.readouterr().out
        assert shown.count(heading) == count
        assert all(words in shown for words in ("Benchmark report", "Speed report", "speed / nt-xent / quick / cpu-1-thread"))
    path = next(each for each in stored(tmp_path) if each.parent.name == "nt-xent-128x64")
    (old := path.parents[1] / "old").mkdir()
    (old / path.name).write_text(path.read_text().replace('"arm": "nt-xent-128x64"', '"arm": "old"'))
    assert main(["report", str(tmp_path)]) == 0
    assert "suite 'speed' has no case 'old' in profile 'quick'" in " ".join(capsys.readouterr().out.split())


def test_list_and_help_show_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    case = "arm nt-xent-32768x128-gpu (loss_name=nt-xent, rows=32768, dimension=128"
    tasks = ("  grace: a whole graph at once", "  paper: two correlated gaussian views; 2 arms")
    for words, present, absent in (
        ("list speed", tasks, "nt-xent-3327x32-grace"),
        ("list speed --task nt-xent", (case,), "grace"),
        ("run --help", ("suites that measure speed:", "default: quick 0.2, small 3, paper 30"), "grace"),
    ):
        assert main(words.split()) == 0
        shown = capsys.readouterr().out
        assert all(each in shown or each in " ".join(shown.split()) for each in present)
        assert absent not in shown


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_the_quick_profile_runs_and_reports_what_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    words = ["nt-xent-32x64", "nt-xent-128x64-mm", "accuracy"]
    assert main(["run", "speed", "--tasks", *words, "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    results = [read_result(path) for path in stored(tmp_path)]
    assert len(results) == len(words)
    assert {result.hardware["threads"] for result in results} == {1}
    for result, name, outcome in ((each, *item) for each in results for item in each.implementations.items()):
        installed = LOSSES[result.changes["loss_name"]].implementation(name).installed
        assert ("loss" in outcome) == installed == (outcome.get("note") != "not installed"), (result.arm, name)
    for line in ("32×64 · lightly", "environment: TEMPPLUG_GEMM=mm", "64×32 · tempplug"):
        assert line in shown
    assert "not the same loss" not in shown
