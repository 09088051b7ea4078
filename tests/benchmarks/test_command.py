from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from suite_checks import bench as main

from tempplug.cli import main as tempplug
from tempplug.errors import MissingDependencyError
from tempplug_adapters.training.termination import Terminated

RUN = ["run", "toy", "--seeds", "0", "1"]


def test_run_shows_the_table_and_report_repeats_it(toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--output", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "toy / toy-task / quick" in captured.out
    assert "[6/6] toy-task · fixed+dcl · seed 1: STSB" in captured.err
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == captured.out


def test_run_shows_what_was_asked_alone(toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*RUN, "--output", str(tmp_path)])
    capsys.readouterr()
    assert main(["run", "toy", "--seeds", "0", "--strategies", "macl+infonce", "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "macl" in shown
    assert "fixed+dcl" not in shown
    assert "±" not in shown.partition("data: none")[0], "one seed has no deviation"


def test_reports_are_written_whole(toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*RUN, "--output", str(tmp_path / "out")])
    capsys.readouterr()
    assert main(["report", str(tmp_path / "out"), "--format", "markdown"]) == 0
    shown = capsys.readouterr().out
    assert main(["report", str(tmp_path / "out"), "--format", "markdown", "--out", str(tmp_path / "a" / "report.md")]) == 0
    assert (tmp_path / "a" / "report.md").read_text(encoding="utf-8") == shown
    assert shown.startswith("# Benchmark report\n")
    assert main(["report", str(tmp_path / "out"), "--format", "html", "--out", str(tmp_path / "report.html")]) == 0
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_failed_run_is_in_the_table_and_the_exit_code_is_1(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_FAIL", "macl+infonce 1")
    assert main([*RUN, "--output", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "1 of 2" in shown
    assert "failed: macl+infonce, seed 1: RuntimeError: the toy broke" in shown
    monkeypatch.delenv("TOY_FAIL")
    assert main([*RUN, "--output", str(tmp_path)]) == 0
    assert "failed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "toi", "--output", "out"], "unknown suite 'toi'. Did you mean 'toy'?"),
        (["list", "toy", "--task", "toi"], "suite 'toy' has no task 'toi'."),
        (["list", "--task", "toy-task"], "--task toy-task needs the name of its suite"),
        (["run", "toy", "--output", "out", "--strategies", "nope"], "unknown strategy 'nope'."),
        (["run", "toy", "--output", "out", "--profile", "small"], "task 'toy-task' needs real data (text/toy.tsv)"),
        (["run", "toy", "--output", "out", "--data-dir", "absent"], "--data-dir absent is not a folder."),
        (
            ["run", "toy", "--output", "out", "--seeds", "-1"],
            "seeds=-1 must be different integers, each at least 0 and at most 4294967295.",
        ),
        (["run", "toy", "--output", "out", "--workers", "0"], "workers=0 must be at least 1."),
        (["run", "all", "--output", "out", "--tasks", "toy-task"], "--tasks toy-task goes with one suite, not with all"),
        (
            ["run", "all", "--output", "out", "--budget", "3"],
            "--budget of suite 'all': only suites that measure speed take that.",
        ),
        (["report", "absent"], "absent is not a folder"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(
    toy: ModuleType,
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TEMPPLUG_DATA", raising=False)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message}")
    assert captured.err.count("\n") == 1
    assert list(tmp_path.rglob("seed-*")) == []


def test_the_data_folder_comes_from_the_command_or_the_environment(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    (data / "text").mkdir(parents=True)
    words = ["run", "toy", "--profile", "small", "--seeds", "0", "--output", str(tmp_path / "out")]
    monkeypatch.setenv("TEMPPLUG_DATA", str(data))
    assert main(words) == 2
    assert "needs text/toy.tsv under the data folder" in capsys.readouterr().err
    (data / "text" / "toy.tsv").touch()
    assert main(words) == 0
    monkeypatch.setenv("TEMPPLUG_DATA", str(tmp_path / "absent"))
    assert main([*words, "--data-dir", str(data)]) == 0
    assert main(words) == 2
    assert "TEMPPLUG_DATA" in capsys.readouterr().err


def test_all_runs_every_suite_that_trains_and_leaves_out_what_has_no_data(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tempplug_benchmarks import training

    class Known:
        absent: int | None = None
        suites = (toy.SUITE, replace(toy.make_suite(needs=("no.tsv",)), name="toi"), object())

        def all(self, kind: type) -> range:
            return range(3)

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
    assert "toi / toy-task / quick" in captured.out
    assert "[8/8]" in captured.err, "two arms, not the third"
    # both tasks compare strategies, so that there is a table of all, below the others; the last line is the page
    assert captured.out.index("\nAll tasks\n") > captured.out.index("toi / toy-task / quick")
    page = tmp_path / "out" / "index.html"
    assert captured.out.splitlines()[-1] == f"All tables, plots and commands: {page.as_uri()}"
    assert "<h2>All tasks</h2>" in page.read_text(encoding="utf-8")
    assert main(["run", "all", "--output", str(tmp_path / "out"), "--strategies", "fixed+dcl"]) == 0
    captured = capsys.readouterr()
    assert "finished already" not in captured.err, "seeds of its own"
    assert "[20/20]" in captured.err, "five seeds of the baseline and of what was asked for"
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
    monkeypatch.setattr(Known, "suites", (object(), Known.suites[1], object()))
    assert main([*words, "--profile", "small"]) == 2
    assert "no task of any suite has its data for profile 'small'" in capsys.readouterr().err


def test_an_interruption_keeps_what_is_finished(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seconds: float) -> None:
        if len(list(tmp_path.rglob("seed-0.json"))) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    assert main([*RUN, "--output", str(tmp_path)]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert len(list(tmp_path.rglob("seed-*.json"))) == 2


def test_sigterm_in_a_training_keeps_what_is_finished(
    toy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(seconds: float) -> None:
        if len(list(tmp_path.rglob("seed-0.json"))) == 2:
            raise Terminated

    monkeypatch.setattr("time.sleep", ended)
    assert main([*RUN, "--output", str(tmp_path)]) == 143
    assert "ended by SIGTERM: finished runs are kept, the same command goes on." in capsys.readouterr().err
    assert len(list(tmp_path.rglob("seed-*.json"))) == 2


def test_list_fits_a_screen_and_tells_more_on_request(toy: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "arm fixed+infonce (baseline)\n" in shown
    assert "arm untrained (num_train_epochs=0)\n" in shown
    assert "steps=10" in shown
    assert "    sets aside on a cluster: 1 CPU, no GPU, 2 GiB\n" in shown
    assert "training: save_steps=3, fp16=true\n" in shown
    assert "metric STSB: Spearman × 100 of nothing (primary)\n" in shown


def test_help_explains_arms_and_the_tempplug_command_reaches_it(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["bench", "run", "--help"], ["bench", "--help"], ["bench", "report", "--help"]):
        assert tempplug(words) == 0
    shown = capsys.readouterr().out
    assert "STRATEGY[+OBJECTIVE]" in shown
    assert "--rerun-changed" in shown


def test_an_added_arm_is_kept_beside_the_others(toy: ModuleType, tmp_path: Path) -> None:
    assert main([*RUN, "--output", str(tmp_path), "--strategies", "macl+dcl"]) == 0
    content = json.loads((tmp_path / "toy" / "quick" / "toy-task" / "macl-dcl" / "seed-0.json").read_text())
    assert content["strategy"] == "macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false"
    assert content["objective"] == "dcl"
