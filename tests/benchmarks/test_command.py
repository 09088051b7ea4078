"""``tempplug bench``: run, list, report and sweep, with the exit status and the message of everything that goes wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from suite_checks import bench as main

from tempplug.cli import main as tempplug
from tempplug.errors import MissingDependencyError
from tempplug_adapters.training.termination import Terminated
from tempplug_benchmarks import training
from tempplug_benchmarks.suite import Suite

RUN = ["run", "toy", "--seeds", "0", "1"]
SWEEP = ["sweep", "--suite", "toy", "--seeds", "0", "1"]


def test_run_shows_what_was_requested_and_report_the_whole_folder(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ["--output", str(tmp_path / "out")]
    monkeypatch.setenv("TOY_FAIL", "macl+infonce 1")
    assert main([*RUN, *out]) == 1
    shown = capsys.readouterr().out
    assert "1 of 2" in shown
    assert "failed: macl+infonce, seed 1: RuntimeError: the toy broke" in shown
    monkeypatch.delenv("TOY_FAIL")
    assert main([*RUN, *out]) == 0
    captured = capsys.readouterr()
    assert "failed" not in captured.out
    assert "toy / toy-task / quick" in captured.out
    assert "[6/6] toy-task · macl+infonce · seed 1: STSB" in captured.err, "what failed is run again"
    assert main(["report", out[1]]) == 0
    assert capsys.readouterr().out == captured.out
    assert main(["run", "toy", "--seeds", "0", "--strategies", "macl+infonce", *out]) == 0
    shown = capsys.readouterr().out
    assert "macl" in shown
    assert "fixed+dcl" not in shown
    assert "±" not in shown.partition("data: none")[0], "one seed has no deviation"
    assert main(["report", out[1], "--format", "markdown"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# Benchmark report\n")
    file = tmp_path / "a" / "report.md"
    assert main(["report", out[1], "--format", "markdown", "--output", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == shown
    assert main(["report", out[1], "--format", "html", "--output", str(file)]) == 0
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main([*RUN, *out, "--strategies", "macl+dcl"]) == 0
    content = json.loads((tmp_path / "out" / "toy" / "quick" / "toy-task" / "macl-dcl" / "seed-0.json").read_text())
    assert content["strategy"] == "macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false"
    assert content["objective"] == "dcl"


WRONG = """
bench run toi --output out -> unknown suite 'toi'. Did you mean 'toy'?
bench run toy --output out --strategies nope -> unknown strategy 'nope'.
bench run toy --output out --profile small -> task 'toy-task' needs real data (text/toy.tsv)
bench run toy --output out --data-dir absent -> --data-dir absent is not a folder.
bench run toy --output out --seeds -1 -> seeds=-1 must be different integers, each at least 0 and at most 4294967295.
bench run toy --output out --workers 0 -> workers=0 must be at least 1.
bench run all --output out --tasks toy-task -> --tasks toy-task goes with one suite, not with all
bench run all --output out --budget 3 -> --budget is an option of suites that measure speed, not of suite 'all'.
bench list toy --task toi -> suite 'toy' has no task 'toi'.
bench list --task toy-task -> --task toy-task needs the name of its suite
bench list toy --papers -> --papers must be given without a suite
bench report absent -> absent is not a folder
bench report . --output page -> --output page goes with --format markdown or html.
bench sweep --suite toy --output out --temperatures 0 -> temperatures=0 must be finite and greater than 0.
bench sweep --suite toy --output out --paper macl -> a sweep must not go together with --table, --paper or --plan
bench sweep --suite toy --output out --busy -> --busy is an option of suites that measure speed, not of suite 'toy'.
bench sweep --suite speed --output out -> suite 'speed' must be one that trains
bench run speed --output out --seeds 1 -> --seeds is an option of suites that train, not of suite 'speed'.
bench run sentence --output out --busy -> --busy is an option of suites that measure speed, not of suite 'sentence'.
bench run speed --output out --tasks nt-xnt -> no task or case 'nt-xnt' in profile 'quick'. Did you mean 'nt-xent'?
bench run speed --output out --profile paper --tasks nt-xent-32768x128-gpu -> has none of these cases for device 'cpu'
bench run speed --output out --threads 0 -> threads=0 must be an integer, at least 1.
bench run speed --output out --budget 0 -> budget=0.0 must be greater than 0.
bench run speed --output out --device cuda --busy -> --busy and --threads go with --device cpu.
bench run speed --output out --device tpu -> device='tpu' must be auto, cpu, cuda or cuda:N.
bench run speed --output out --device cuda:999 -> device='cuda:999' is not available (
bench run --output out --table temperature-fre/3 -> no paper 'temperature-fre'. Did you mean 'temperature-free'
bench run --output out --table macl -> --table macl must be PAPER/NUMBER, such as temperature-free/3.
bench run --output out --table macl/99 -> paper 'macl' has no table '99'.
bench run --output out --table macl/2 -> --table macl/2 has no runs: method not built: object detection
bench run --output out --table dystress/figure-2 -> --table dystress/figure-2 has no runs: see tempplug plot dystress
bench run --output out --paper simclr -> no paper 'simclr'.
bench run --output out --paper macl --table macl/1 -> --table and --paper must not go together
bench run --output out --table macl/4 --tasks mutag -> --tasks must not go together with tables of papers
bench run --output out --table macl/4 --tuned -> --tuned must not go together with tables of papers
bench run --output out --table macl/4 --budget 3 -> --budget is an option of suites that measure speed, not of tables of papers
bench run --output out graph --table macl/4 -> suite 'graph' must not go together with --table or --paper
bench run --output out --table macl/4 --seeds 1 1 -> seeds=1, 1 must be different integers
bench run --output out --table macl/4 --profile small -> no task of these tables has its data for profile 'small'
bench run --output out -> name a suite, all, --plan FILE, --table PAPER/NUMBER or --paper PAPER
plot fixed --output curves.txt -> output=curves.txt of a plot must end in .png, .svg, .pdf.
plot fixed --positive-similarity 1.5 -> positive_similarity=1.5 of a plot must be at least -1 and at most 1.
plot fixed --positive-similarity nan -> positive_similarity=nan of a plot must be at least -1 and at most 1.
plot fixed --epoch -1 -> epoch=-1 of a plot must be a finite number of at least 0.
plot fixedd -> unknown strategy 'fixedd'. Did you mean 'fixed'?
plot head-tail -> strategy 'head-tail' needs class_counts=.
"""
# suites never replace real data that are missing
NEEDS = """
anomaly --profile small -> vision/cifar10_lossless4k.npz, vision/mobilenet_v2_imagenet.pth
long-tail --profile small -> vision/cifar10_train_jpeg.npz, vision/cifar10_test_jpeg.npz
long-tail --profile paper --tasks imagenet-100-lt -> imagenet-100-lt
molecule --profile paper --tasks bbbp -> graph/moleculenet/bbbp.tar.xz, graph/smiles/zinc15_2m.smi.gz
recommendation --profile small -> recsys/reddit.tar.xz
vision --profile small -> vision/cifar10_train_jpeg.npz, vision/cifar10_test_jpeg.npz
"""
CASES = [line.split(" -> ") for line in WRONG.strip().splitlines()]
for line in NEEDS.strip().splitlines():
    words, needs = line.split(" -> ")
    CASES.append([f"bench run {words} --output out --data-dir .", f"needs {needs} under the data folder"])


@pytest.mark.parametrize(("words", "message"), CASES)
def test_errors_are_one_line_and_exit_code_2(
    toy: ModuleType,
    words: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "toy" / "quick" / "toy-task" / "a").mkdir(parents=True)
    (tmp_path / "toy" / "quick" / "toy-task" / "a" / "seed-0.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TEMPPLUG_DATA", raising=False)
    assert tempplug(words.split()) == 2
    *others, error = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert all(line.startswith("left out: ") for line in others)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["seed-0.json"], "nothing was run or written"


def test_the_data_folder_comes_from_the_command_or_the_environment(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (data := tmp_path / "data" / "text").mkdir(parents=True)
    words = ["run", "toy", "--profile", "small", "--seeds", "0", "--output", str(tmp_path / "out")]
    monkeypatch.setenv("TEMPPLUG_DATA", str(data.parent))
    assert main(words) == 2
    assert "needs text/toy.tsv under the data folder" in capsys.readouterr().err
    (data / "toy.tsv").touch()
    assert main(words) == 0
    monkeypatch.setenv("TEMPPLUG_DATA", str(tmp_path / "absent"))
    assert main([*words, "--data-dir", str(data.parent)]) == 0
    assert main(words) == 2
    assert "TEMPPLUG_DATA" in capsys.readouterr().err


def test_all_runs_every_suite_that_trains_and_leaves_out_what_has_no_data(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Known:
        absent: int | None = None
        without = replace(toy.SUITE.tasks[0], quickstart=())
        suites = (toy.SUITE, replace(toy.make_suite(needs=("no.tsv",)), name="toi"), Suite("slow", "", (without,)), object())

        def all(self, kind: type) -> range:
            return range(len(self.suites))

        def load(self, info: int) -> object:
            return self.suites[info]

        def check_installed(self, info: int) -> None:
            if info == self.absent:
                raise MissingDependencyError("suite 'toi' needs the package 'nowhere'")

    monkeypatch.setattr(training, "registry", Known)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "toy.tsv").touch()
    words = ["run", "all", "--seeds", "0", "1", "--output", str(tmp_path / "out"), "--data-dir", str(tmp_path)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "toy / toy-task / quick" in captured.out
    assert "[8/8]" in captured.err, "two arms, not the third"
    # both tasks compare strategies, so that there is a table of all, below the others; the last line is the page
    assert captured.out.index("\nAll tasks\n") > captured.out.index("toi / toy-task / quick")
    page = tmp_path / "out" / "index.html"
    assert captured.out.splitlines()[-1] == f"All tables, plots and commands: {page.as_uri()}"
    assert "<h2>What the results say</h2>" in page.read_text(encoding="utf-8")
    assert main(["run", "all", "--output", str(tmp_path / "out"), "--strategies", "fixed+dcl"]) == 0
    captured = capsys.readouterr()
    assert "finished already" not in captured.err, "seeds of its own"
    assert "[20/20]" in captured.err, "five seeds of the baseline and of what was requested"
    monkeypatch.setattr(Known, "absent", 1)
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("left out: suite 'toi' needs the package 'nowhere'\n4 of 4 runs are finished already.")
    assert "toi / toy-task" not in captured.out
    monkeypatch.setattr(Known, "absent", None)
    assert main([*words, "--profile", "small"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("left out: task 'toy-task' needs no.tsv under the data folder")
    assert "toi /" not in captured.out
    monkeypatch.setattr(Known, "suites", (object(), Known.suites[1]))
    assert main([*words, "--profile", "small"]) == 2
    assert "no task of any suite has its data for profile 'small'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt, 130, "the same command goes on"),
        (Terminated, 143, "ended by SIGTERM: finished runs are kept, the same command goes on."),
    ],
)
def test_an_interruption_keeps_what_is_finished(
    toy: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    status: int,
    message: str,
) -> None:
    def interrupted(seconds: float) -> None:
        if len(list(tmp_path.rglob("seed-0.json"))) == 2:
            raise error

    monkeypatch.setattr("time.sleep", interrupted)
    assert main([*RUN, "--output", str(tmp_path)]) == status
    assert message in capsys.readouterr().err
    assert len(list(tmp_path.rglob("seed-*.json"))) == 2


def test_list_fits_a_screen_and_shows_more_on_request(toy: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 128
    assert [line.split() for line in lines if line.startswith("toy ")] == [
        ["toy", "1", "quick,", "small", "nothing", "at", "all"]
    ]
    assert main(["list", "toy"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "toy: nothing at all",
        "  toy-task: figures out of thin air",
        "    quick: none; 3 arms",
        "    small: real; needs text/toy.tsv; 4 arms",
    ]
    assert main(["list", "toy", "--task", "toy-task"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "arm fixed+infonce (baseline)\n",
        "arm untrained (num_train_epochs=0)\n",
        "steps=10",
        "1 CPU, no GPU, 2 GiB\n",
        "training: save_steps=3, fp16=true\n",
        "metric STSB: Spearman × 100 of nothing (primary)\n",
    ):
        assert words in shown


def test_help_explains_arms_and_the_tempplug_command_reaches_it(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["bench", "run", "--help"], ["bench", "--help"], ["bench", "report", "--help"]):
        assert tempplug(words) == 0
    shown = capsys.readouterr().out
    assert "STRATEGY[+OBJECTIVE]" in shown
    assert "--rerun-changed" in shown


def texts(file: Path) -> set[str]:
    root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    return {each.text for each in root.iter() if each.text and each.tag.endswith("}text")}


def test_a_sweep_draws_a_curve_and_strategies_from_the_results(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SWEEP, "--temperatures", "0.2", "0.7", "--strategies", "macl", "--output", str(tmp_path)]
    assert main(words) == 0
    picture = tmp_path / "sweep-toy-toy-task.svg"
    assert capsys.readouterr().out.endswith(f"wrote {picture}\n")
    results = [json.loads(file.read_text()) for file in tmp_path.rglob("*.json")]
    assert sum(each["arm"].startswith("macl") for each in results) == 2
    # 0.05 is the recipe's temperature: the task's baseline always runs
    curve = {"0.05", "0.2", "0.7"}
    assert {"macl+reweighted", "toy-task: STSB by temperature, bars: ± one standard deviation over seeds", *curve} <= texts(
        picture
    )
    assert main(words) == 0
    assert len(list(tmp_path.rglob("*.json"))) == len(results), "the second time nothing is left to run"
    assert main([*SWEEP, "--temperatures", "0.5", "--output", str(tmp_path)]) == 0
    strategies = {each.partition("+")[0] for each in texts(picture) if "+" in each}
    assert strategies == {"macl", "dystress", "temperature-free"}, "the default strategies are tuning-free"
