"""The speed suite's cases and targets hang together, its command runs, resumes and reports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from suite_checks import bench as main

from tempplug.errors import UnknownNameError
from tempplug_benchmarks.profile import PROFILES
from tempplug_benchmarks.run.child import Outcome
from tempplug_benchmarks.run.executor import Executor, Job
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import failure_of, read_result, result_of
from tempplug_benchmarks.speed import kind
from tempplug_benchmarks.speed.cases import METRICS, SUITE
from tempplug_benchmarks.speed.losses import LOSSES
from tempplug_benchmarks.speed.recipe import SpeedRecipe
from tempplug_benchmarks.speed.targets import Target

TIME = METRICS["time"].name
TASKS = ["nt-xent", "accuracy"]
COUNT = 4


def cases(profile: str, device: str = "cpu", tasks: Sequence[str] | None = None) -> dict[str, SpeedRecipe]:
    """Returns the cases of a profile by name, those for another device left out."""
    made = {
        arm.label: task.profile(profile).recipe.changed(**arm.changes)
        for task in SUITE.tasks
        if tasks is None or task.name in tasks
        for arm in task.profile(profile).arms
    }
    return {name: each for name, each in made.items() if isinstance(each, SpeedRecipe) and each.only_on in (None, device)}


CASES = {name: each for profile in PROFILES for device in ("cpu", "cuda") for name, each in cases(profile, device).items()}
TIMED = {arm.label for task in SUITE.tasks for of in task.profiles.values() if of.primary == TIME for arm in of.arms}


def test_every_task_has_every_profile_and_every_case_can_be_made() -> None:
    for task in SUITE.tasks:
        assert tuple(task.profiles) == PROFILES
        for profile in task.profiles.values():
            assert len(profile.arms) > 0
    for name, each in CASES.items():
        assert re.fullmatch(r"[a-z0-9.-]+", name)
        assert LOSSES[each.loss_name].implementation(each.implementations[0]).package == ""
        for implementation in each.implementations:
            LOSSES[each.loss_name].implementation(implementation)
    for profile in PROFILES:
        names = [arm.label for task in SUITE.tasks for arm in task.profile(profile).arms]
        assert len(set(names)) == len(names)


def test_sizes_and_widths_of_the_paper_profile() -> None:
    sizes = {(each.rows, each.dimension) for each in cases("paper", tasks=["nt-xent"]).values()}
    assert sizes == {(2**power, width) for power in range(5, 15) for width in (64, 128, 768)}


def test_every_target_is_of_a_case_that_measures_it() -> None:
    assert len(SUITE.targets) > 40
    compared = [(each.case, each.against, each.of, each.cold) for each in SUITE.targets if each.at_least is not None]
    assert len(set(compared)) == len(compared)
    for each in SUITE.targets:
        assert {each.against, each.of} <= {*CASES[each.case].implementations}
        assert CASES[each.case].only_on in (None, each.device)


@pytest.mark.parametrize(("fewest", "most", "wanted"), [(1, 64, 0.9), (65, 128, 0.95), (129, 2048, 1), (2049, 10**9, None)])
def test_plain_pytorch_is_compared_cold_at_every_size_up_to_a_limit(fewest: int, most: int, wanted: float | None) -> None:
    found = {each.case: each.at_least for each in SUITE.targets if each.cold and each.against == "eager"}
    timed = {**cases("small"), **cases("paper")}
    timed = {name: each for name, each in timed.items() if name in TIMED and fewest <= each.rows <= most}
    limits = {found.get(name) for name, each in timed.items() if "eager" in each.implementations}
    assert limits == {wanted}


def test_targets_of_the_compiled_the_plugins_and_the_triton_way() -> None:
    def of(name: str) -> set[tuple[str, str, float | None, bool]]:
        return {(each.against, each.of, each.at_least, each.cold) for each in SUITE.targets if each.case == name}

    assert ("compiled", "tempplug-compiled", 1, True) in of("one-way-64x128-batch")
    assert {("tempplug-dystress", "tempplug", 1 / 1.5, True), ("eager", "tempplug", 0.9, True)} == of("plugin-map-64x128")
    for each in SUITE.targets:
        assert (each.of == "tempplug-triton") == each.case.endswith("-gpu"), each


def test_small_batches_are_compiled_outside_the_quick_profile() -> None:
    for profile in PROFILES:
        for name, each in cases(profile).items():
            if name in TIMED and "eager" in each.implementations and each.rows <= 512 and not each.environment:
                assert ("compiled" in each.implementations) == (profile != "quick"), name
            ours = each.loss_name in ("nt-xent", "one-way", "two-way") and each.rows in (64, 256) and name in TIMED
            if "tempplug-compiled" in each.implementations:
                assert ours, name
    small = {name: each.implementations for name, each in cases("small").items()}
    for name in ("nt-xent-64x128", "nt-xent-256x128-batch", "one-way-64x128-batch", "two-way-64x512-batch"):
        assert small[name][-2:] == ("compiled", "tempplug-compiled")


def test_a_target_is_reached_or_missed_or_unknown() -> None:
    least, most = Target(case="a", against="eager", at_least=2), Target(case="a", against="tempplug", at_most=1e-6)
    assert [least.reached({"ratio": value}) for value in (1.9, 2.0)] == [False, True]
    assert [most.reached({"own": value}) for value in (2e-6, 1e-6)] == [False, True]
    assert (least.reached({"own": 1}), most.reached({"ratio": 1})) == (None, None)
    part = Target(case="a", against="tempplug", share=0.45)
    assert [part.reached(numbers) for numbers in ({"share": 0.44}, {"share": 0.45}, {"own": 1})] == [False, True, None]
    assert (least.words(), most.words(), part.words()) == ("≥ 2×", "≤ 1e-06", "≥ 45% of matmul rate")
    assert Target(case="a", against="b", at_least=1 / 1.5, of="c", cold=True).words() == "c cold ≥ 0.667×"


def test_every_target_has_one_limit() -> None:
    for each in SUITE.targets:
        assert [each.at_least, each.at_most, each.share].count(None) == 2, each


def test_settings_choose_clock_and_name() -> None:
    settings = [
        SpeedRecipe(),
        SpeedRecipe(threads=2),
        SpeedRecipe(threads=2, busy=True),
        SpeedRecipe(busy=True),
        SpeedRecipe(device="cuda", precision="bfloat16"),
    ]
    assert [each.clock for each in settings] == ["cpu", "wall", "wall", "wall", "cuda"]
    assert [each.slug for each in settings] == [
        "cpu-1-thread",
        "cpu-2-threads",
        "cpu-2-threads-busy",
        "cpu-1-thread-busy",
        "cuda-bfloat16",
    ]


def test_settings_of_trainings_are_none_of_a_case() -> None:
    with pytest.raises(UnknownNameError, match="no setting 'learning_rate'"):
        SUITE.task("nt-xent@learning_rate=1")
    assert SUITE.task("nt-xent@threads=2").profile("quick").settings() == {**SpeedRecipe(budget=0.2, threads=2).values()}
    assert "rows" not in SpeedRecipe().values(), "of the case"


def test_a_gpu_measures_more_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cases("paper").keys() < cases("paper", "cuda").keys()
    words = ["run", "speed", "--profile", "paper", "--output", str(tmp_path), "--tasks", "nt-xent-32768x128-gpu"]
    assert main(words) == 2
    assert "none of these cases for device 'cpu'" in capsys.readouterr().err


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the process; names of the measured cases, in order."""
    names: list[str] = []
    monkeypatch.setattr(kind, "InProcesses", partial(Told, names))
    return names


class Told(Executor):
    """Tells figures that were not measured."""

    def __init__(self, names: list[str], data_dir: Path | None) -> None:
        super().__init__(data_dir)
        self.names = names

    def submit(self, job: Job) -> Future[Outcome]:
        self.names.append(job.run.arm.label)
        done: Future[Outcome] = Future()
        done.set_result(self.outcome(job.run))
        return done

    def outcome(self, run: Run) -> Outcome:
        numbers = {TIME: 1.0, "milliseconds_cold": 2.0, "rounds": 3, "gradient_error": 1e-7, "loss_error": 0.0}
        metrics = {each.name: numbers[each.name] for each in run.sizes.metrics}
        return result_of(run, metrics, 1.0, implementations={name: numbers for name in run.arm.changes["implementations"]})


def run(output: Path, *more: str) -> int:
    return main(["run", "speed", "--tasks", *TASKS, "--output", str(output), *more])


def stored(output: Path) -> list[Path]:
    return sorted(output.glob("speed/quick/*/*/seed-*.json"))


def test_an_interruption_keeps_finished_cases_and_the_same_command_goes_on(
    tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Told.outcome

    def interrupted(self: Told, run: Run) -> Outcome:
        if len(measured) == 3:
            measured.pop()
            raise KeyboardInterrupt
        return whole(self, run)

    monkeypatch.setattr(Told, "outcome", interrupted)
    assert run(tmp_path) == 130
    assert len(stored(tmp_path)) == 2
    monkeypatch.setattr(Told, "outcome", whole)
    assert run(tmp_path) == 0
    assert f"2 of {COUNT} runs are finished already." in capsys.readouterr().err
    assert len(measured) == len(set(measured)) == COUNT
    assert [path.parent.name for path in stored(tmp_path)] == sorted(measured, key=lambda name: ("error" not in name, name))
    assert {path.name for path in (tmp_path / "speed" / "quick").iterdir()} == {
        *TASKS,
        "cpu-1-thread.svg",
        "cpu-1-thread.png",
    }


def test_a_damaged_file_is_measured_again(tmp_path: Path, measured: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path)
    damaged = stored(tmp_path)[0]
    damaged.write_text(damaged.read_text()[:40])
    assert run(tmp_path) == 0
    assert "is not JSON" in capsys.readouterr().err
    assert measured[COUNT:] == [damaged.parent.name]
    assert read_result(damaged).implementations


@pytest.mark.slow
def test_results_of_other_settings_are_not_reused(
    tmp_path: Path, measured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path)
    assert run(tmp_path, "--budget", "7") == 2
    assert f"budget was 0.2 and is now 7. So are {COUNT - 1} more. Pass --rerun-changed" in capsys.readouterr().err
    assert run(tmp_path, "--budget", "7", "--rerun-changed") == 0
    assert len(measured) == 2 * COUNT
    assert run(tmp_path, "--threads", "2") == 0
    assert len(stored(tmp_path)) == 2 * COUNT, "another setting has a folder of its own"
    assert {path.parents[1].name for path in stored(tmp_path)} == {*TASKS, *(f"{task}@threads=2" for task in TASKS)}


def test_a_package_that_was_installed_since_makes_another_comparison(
    tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempplug_benchmarks.speed.losses.find_spec", lambda package: None)
    run(tmp_path)
    monkeypatch.setattr("tempplug_benchmarks.speed.losses.find_spec", lambda package: package)
    assert run(tmp_path) == 2
    assert "packages was none and is now lightly/pytorch_metric_learning" in capsys.readouterr().err


def test_a_failed_case_is_reported_and_tried_again(
    tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Told.outcome

    def fails(self: Told, run: Run) -> Outcome:
        return failure_of(run, "it broke.") if run.task.name == "accuracy" else whole(self, run)

    monkeypatch.setattr(Told, "outcome", fails)
    assert run(tmp_path) == 1
    assert "failed: nt-xent-64x32-error-0.05: it broke." in capsys.readouterr().out.replace("\n", " ")
    assert main(["report", str(tmp_path)]) == 0
    assert "failed, see below" in capsys.readouterr().out
    monkeypatch.setattr(Told, "outcome", whole)
    assert run(tmp_path) == 0
    assert [path.name for path in stored(tmp_path) if "failed" in path.name] == []


def test_one_folder_may_hold_both_kinds_of_suites(
    toy: ModuleType, tmp_path: Path, measured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path)
    assert main(["run", "toy", "--seeds", "0", "--output", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path), "--format", "markdown"]) == 0
    shown = capsys.readouterr().out
    assert "## toy / toy-task / quick" in shown
    assert "## speed / nt-xent / quick / cpu-1-thread" in shown
    assert main(["report", str(tmp_path), "--format", "html"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("<!doctype html>") == 1
    assert "<h1>Benchmark report</h1>" in shown
    assert "<h1>Speed report</h1>" in shown


def test_a_result_of_a_case_that_is_gone_is_named(
    tmp_path: Path, measured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path)
    path = next(each for each in stored(tmp_path) if each.parent.name == "nt-xent-128x64")
    (old := path.parents[1] / "old").mkdir()
    (old / path.name).write_text(path.read_text().replace('"arm": "nt-xent-128x64"', '"arm": "old"'))
    assert main(["report", str(tmp_path)]) == 0
    assert "suite 'speed' has no case 'old' in profile 'quick'" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["speed", "--seeds", "1"], "--seeds of suite 'speed': only suites that train take that."),
        (["sentence", "--busy"], "--busy of suite 'sentence': only suites that measure speed take that."),
        (
            ["speed", "--tasks", "nt-xnt"],
            "suite 'speed' has no task or case 'nt-xnt' in profile 'quick'. Did you mean 'nt-xent'?",
        ),
        (["speed", "--threads", "0"], "threads=0 must be an integer, at least 1."),
        (["speed", "--budget", "0"], "budget=0.0 must be greater than 0."),
        (["speed", "--device", "cuda", "--busy"], "--busy and --threads go with --device cpu."),
        (["speed", "--device", "tpu"], "device='tpu' must be auto, cpu, cuda or cuda:N."),
        (["speed", "--device", "cuda:999"], "device='cuda:999' is not available ("),
    ],
)
def test_errors_are_one_line(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *words, "--output", str(tmp_path)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {message}")
    assert shown.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_list_and_help_show_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "speed"]) == 0
    shown = capsys.readouterr().out
    assert "  grace: a whole graph at once" in shown
    assert "  paper: two correlated gaussian views; 2 arms" in shown
    assert "nt-xent-3327x32-grace" not in shown
    assert main(["list", "speed", "--task", "nt-xent"]) == 0
    assert "arm nt-xent-32768x128-gpu (loss_name=nt-xent, rows=32768, dimension=128" in capsys.readouterr().out
    assert main(["run", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "suites that measure speed:" in shown
    assert "default: quick 0.2, small 3, paper 30" in shown


@pytest.mark.slow
def test_the_quick_profile_runs_and_reports_what_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    words = ["nt-xent-32x64", "nt-xent-128x64-mm", "nt-xent-128x64-kept", "nt-xent-512x64-memory", "accuracy"]
    assert main(["run", "speed", "--tasks", *words, "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    results = [read_result(path) for path in stored(tmp_path)]
    assert len(results) == len(words)
    for result in results:
        assert result.hardware["threads"] == 1
        for name, outcome in result.implementations.items():
            installed = LOSSES[result.changes["loss_name"]].implementation(name).installed
            assert ("loss" in outcome) == installed == (outcome.get("note") != "not installed"), (result.arm, name)
    for line in ("32×64 · lightly", "512×64 · eager", "environment: TEMPPLUG_GEMM=mm", "64×32 · tempplug"):
        assert line in shown
    assert "not the same loss" not in shown
