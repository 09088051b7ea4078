"""``tempplug sweep`` over small commands: what it runs, what it reads, what it draws, and how it goes on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from filelock import Timeout

from tempplug.cli import main
from tempplug.errors import DataError
from tempplug_adapters.sweep.command import STRATEGIES, TEMPERATURES
from tempplug_adapters.sweep.metrics import read_metric
from tempplug_adapters.sweep.report import draw
from tempplug_adapters.sweep.runs import Candidate, Trainings

# the first writes its figures, the second prints them; both note every run in the file ``ran``
WRITES = """
import json, pathlib, sys
folder, ways, strategy, seed = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
with open(ways, "a") as file:
    file.write(f"{strategy} {seed}\\n")
value = {"fixed:temperature=0.05": 0.5, "fixed:temperature=0.5": 0.7, "macl": 0.65}[strategy] + 0.01 * seed
if pathlib.Path(ways + ".broken").exists() and strategy == "macl":
    sys.exit("out of memory")
(folder / "metrics.json").write_text(json.dumps({"evaluation": {"accuracy": value}}))
"""
PRINTS = """
import sys
strategy, ways = sys.argv[3], sys.argv[2]
with open(ways, "a") as file:
    file.write(strategy + "\\n")
accuracy = {"macl": "nan", "fixed:temperature=9": "nan", "temperature-free": "-"}.get(strategy, "0.75")
print("epoch 1\\n{'loss': 0.5}\\nrecall@10 = 0.25\\naccuracy   " + accuracy)
"""


def words(folder: Path, script: str, metric: str, *grid: str, seed: str = "") -> list[str]:
    """Returns the words of a sweep over a script."""
    (folder / "train.py").write_text(script)
    parts = [sys.executable, "-S", str(folder / "train.py"), "{output_dir}", str(folder / "ran"), "{strategy}", seed]
    command = " ".join(each if "{" in each else shlex.quote(each) for each in parts if each)
    return ["sweep", "--command", command, "--metric", metric, "--output", str(folder / "out"), *grid]


def writing(folder: Path, metric: str = "accuracy") -> list[str]:
    grid = "--temperatures 0.5 0.05 --strategies macl --seeds 0 1"
    return words(folder, WRITES, metric, *grid.split(), seed="{seed}")


def printing(folder: Path, metric: str, *strategies: str, temperature: str = "0.5") -> list[str]:
    return words(folder, PRINTS, metric, "--temperatures", temperature, "--strategies", *strategies)


def ran(folder: Path) -> list[str]:
    """Returns the runs since the last call."""
    file = folder / "ran"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return lines


def values(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "sweep.json").read_text())["values"]
    return found


def test_the_grid_is_run_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ran.broken").touch()
    assert main(writing(tmp_path)) == 1
    out, specs = capsys.readouterr().out, ("fixed:temperature=0.5", "fixed:temperature=0.05", "macl")
    assert ran(tmp_path) == [f"{each} {seed}" for seed in (0, 1) for each in specs]
    assert "[1/6] fixed:temperature=0.5, seed 0: accuracy 0.7 (" in out
    assert "[3/6] macl, seed 0: failed: exit status 1, out of memory (" in out
    assert values(tmp_path) == {specs[0]: pytest.approx([0.7, 0.71]), specs[1]: pytest.approx([0.5, 0.51])}
    (tmp_path / "ran.broken").unlink()
    assert main(writing(tmp_path)) == 0
    assert ran(tmp_path) == ["macl 0", "macl 1"], "what is finished is not run again"
    out = capsys.readouterr().out
    assert "(done before)" in out
    assert "macl                    0.655 ± 0.0071 over 2 seeds" in out
    assert (
        "\nThe accuracy of the best, 0.5, differs from that of the second, macl, by +0.05 (the same in 2 seeds: no interval): "
        in out
    )
    assert ">macl<" in (tmp_path / "out" / "sweep.svg").read_text(encoding="utf-8")
    other = writing(tmp_path)
    other[2] += " --more"
    assert main(other) == 2
    assert "sweep_result.json is of another command, " in capsys.readouterr().err
    monkeypatch.setattr("filelock.FileLock.acquire", lambda lock: (_ for _ in ()).throw(Timeout(lock.lock_file)))
    (tmp_path / "out" / ".lock").write_text("7")
    assert main(writing(tmp_path)) == 2
    assert f"output='{tmp_path / 'out'}' is being written to by process 7: wait" in capsys.readouterr().err
    assert ran(tmp_path) == []


def test_who_names_temperatures_alone_asks_for_no_strategy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(tmp_path, PRINTS, "accuracy", "--temperatures", "0.5", "0.2")) == 0
    assert ran(tmp_path) == ["fixed:temperature=0.5", "fixed:temperature=0.2"]
    assert capsys.readouterr().out.startswith("2 trainings: 0.5, 0.2\n")
    assert main([*words(tmp_path, PRINTS, "accuracy"), "--output", str(tmp_path / "usual")]) in (0, 1)
    assert len(ran(tmp_path)) == len(TEMPERATURES) + len(STRATEGIES)


def test_a_sweep_ends_with_a_verdict_in_words_and_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def verdict(*flags: str) -> tuple[str, dict[str, Any]]:
        assert main([*writing(tmp_path), *flags]) == 0
        sentence, note = capsys.readouterr().out.splitlines()[-3:-1]
        assert note == "It holds for this length of training alone."
        content = json.loads((tmp_path / "out" / "sweep.json").read_text(), parse_constant=pytest.fail)
        assert content["verdict"]["sentence"] == sentence
        assert content["seeds"]["macl"] == [0, 1]
        return sentence, content["verdict"]

    sentence, numbers = verdict("--current", "macl")
    assert sentence.startswith("You train at macl. 0.5 changes accuracy by +0.05 (the same in 2 seeds: no interval): keep")
    assert (numbers["current"], numbers["best"], numbers["half_width"]) == ("macl", "0.5", None)
    assert numbers["difference"] == pytest.approx(0.05)
    sentence, numbers = verdict("--current", "macl", "--lower-is-better")
    assert sentence.startswith("You train at macl. 0.05 changes accuracy by -0.15 (")
    assert numbers["best"] == "0.05"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_sweep_that_is_ended_ends_its_training_too(tmp_path: Path, number: signal.Signals, status: int) -> None:
    sleeps = "import os, pathlib, sys, time; pathlib.Path(sys.argv[2]).write_text(str(os.getpid())); time.sleep(60)"
    command = [sys.executable, "-c", "import sys; from tempplug.cli import main; sys.exit(main(sys.argv[1:]))"]
    sweep = subprocess.Popen([*command, *words(tmp_path, sleeps, "accuracy")], stderr=subprocess.PIPE, text=True)
    training = int(awaited(lambda: (tmp_path / "ran").exists() and (tmp_path / "ran").read_text()))
    sweep.send_signal(number)
    assert "finished runs are kept, the same command goes on." in sweep.communicate(timeout=30)[1]
    assert sweep.returncode == status
    with pytest.raises(ProcessLookupError):
        os.kill(training, 0)


def awaited(value: Callable[[], Any]) -> Any:
    """Returns a value as soon as it is true."""
    for _ in range(600):
        if read := value():
            return read
        time.sleep(0.05)
    raise TimeoutError


def test_a_loss_gets_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(printing(tmp_path, "loss", "dystress")) == 0
    assert "\nNo verdict: loss depends on the temperature, so it cannot tell which is better.\n" in capsys.readouterr().out
    assert main([*printing(tmp_path, "loss", "dystress"), "--lower-is-better"]) == 0
    assert (
        "The loss of the best, 0.5, differs from that of the second, dystress, by +0 (measured once" in capsys.readouterr().out
    )


def test_a_misspelt_metric_ends_the_sweep_after_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for runs in (1, 0):
        assert main(writing(tmp_path, "acuracy")) == 2
        assert len(ran(tmp_path)) == runs
        told = capsys.readouterr().err
        assert "metric=acuracy was not found in the JSON files of " in told
        assert " Did you mean 'accuracy'? It has: accuracy. The run is kept: " in told
        assert told.count("\n") == 1
    assert main(writing(tmp_path)) == 0
    assert len(ran(tmp_path)) == 5
    assert "[1/6] fixed:temperature=0.5, seed 0: accuracy 0.7 (done before)" in capsys.readouterr().out


def test_another_metric_is_read_from_what_finished_runs_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(printing(tmp_path, "recal", "dystress")) == 2
    told = capsys.readouterr().err
    assert "Did you mean 'recall@10'? It has: epoch, loss, recall@10, accuracy." in told
    for metric, value, runs in (
        ("recall@10", 0.25, ["fixed:temperature=0.5", "dystress"]),
        ("accuracy", 0.75, []),
        ("loss", 0.5, []),
    ):
        assert main(printing(tmp_path, metric, "dystress")) == 0
        assert ran(tmp_path) == runs
        assert values(tmp_path) == {"fixed:temperature=0.5": [value], "dystress": [value]}


def test_a_run_without_the_metric_that_others_have_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for runs in (3, 0):
        assert main(printing(tmp_path, "accuracy", "macl", "temperature-free")) == 1
        assert len(ran(tmp_path)) == runs
        _, *lines = capsys.readouterr().out.splitlines()
        assert lines[1].startswith("[2/3] macl: failed: metric=accuracy of ")
        assert lines[1].endswith(" is nan. Remove the folder to train it again.")
        assert lines[2].startswith("[3/3] temperature-free: failed: metric=accuracy was not found in the JSON files of ")
    assert values(tmp_path) == {"fixed:temperature=0.5": [0.75]}
    # the first of all is now one that has the metric, but no number
    assert main(printing(tmp_path, "accuracy", "macl", "temperature-free", temperature="9")) == 1
    assert [": failed: " in line for line in capsys.readouterr().out.splitlines()] == [False, True, True, True]


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("python train.py", "", "command='python train.py' must have {strategy} where"),
        ("x '{strategy}", "", """command="x '{strategy}" cannot be read: No closing quotation."""),
        ("x {strategy}", "--seeds 1", "seeds=1 need {seed} in the command."),
        ("x {strategy}", "--temperatures 0.1 0", "temperatures=0 must be finite and greater than 0."),
        ("x {strategy}", "--current nan", "current=nan must be finite and greater than 0."),
        ("x {strategy}", "--current macle", "unknown strategy 'macle'. Did you mean 'macl'?"),
        ("x {strategy}", "--strategies macle", "unknown strategy 'macle'. Did you mean 'macl'?"),
        ("x {strategy} {learning_rate}", "--learning-rates -1", "learning_rates=-1 must be finite and greater than 0."),
        ("x {strategy}", "--learning-rates 1", "--learning-rates and {learning_rate} in the command must go together: "),
        ("x {strategy} {learning_rate}", "", "--learning-rates and {learning_rate} in the command must go together: "),
    ],
)
def test_what_cannot_be_run_is_refused(
    command: str, flags: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "--command", command, "--metric", "x", "--output", str(tmp_path / "out"), *flags.split()]) == 2
    line = capsys.readouterr().err
    assert message in line
    assert line.count("\n") == 1
    assert not (tmp_path / "out" / "runs").exists()


def test_placeholders_are_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "train '--o={output_dir}' {strategy} {learning_rate} {seed} {other}"
    run = Trainings(command, "x", Path("/out"), 1).run(Candidate("macl:alpha=2", 0.001), 3)
    assert run.words == ("train", "--o=/out/runs/macl_alpha=2-rate0.001-seed3", "macl:alpha=2", "0.001", "3", "{other}")
    assert main(["sweep", "--command", "nosuchprogram {strategy}", "--metric", "x", "--output", str(tmp_path / "out")]) == 2
    assert "command 'nosuchprogram' cannot be run: No such file" in capsys.readouterr().err


def test_one_run_where_several_flags_ask_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = "--temperatures 0.5 --strategies macl fixed:temperature=0.5 --current 0.5"
    assert main(words(tmp_path, WRITES, "accuracy", *grid.split(), seed="{seed}")) == 0
    assert ran(tmp_path) == ["fixed:temperature=0.5 0", "macl 0"]
    assert capsys.readouterr().out.count("/2] ") == 2


def test_the_metric_is_found_where_it_is_promised(tmp_path: Path) -> None:
    printed = "accuracy: 0.1\nbest_accuracy = 0.9\n{'accuracy': '0.25', 'epoch': '1'}\naccuracy_of_tail: 0.3"
    assert read_metric(tmp_path, printed, "accuracy") == 0.25
    assert read_metric(tmp_path, "accuracy   -1.5e-3\n", "accuracy") == -1.5e-3
    state = tmp_path / "checkpoint-4" / "trainer_state.json"
    state.parent.mkdir()
    state.write_text(json.dumps({"log_history": [{"accuracy": 0.4}, {"accuracy": 0.5}, {"loss": 1.0}]}))
    assert read_metric(tmp_path, printed, "accuracy") == 0.5
    (tmp_path / "notes.json").write_text("[")
    (tmp_path / "endless.json").write_text("[" * 100_000)
    (tmp_path / "all_results.json").write_text(json.dumps({"accuracy": 0.75}))
    assert read_metric(tmp_path, printed, "accuracy") == 0.75
    missing = r"metric=recall was not found in the JSON files of .*, nor printed as 'recall: VALUE'\."
    for output, message in ((printed, missing), ("recall: nan", r"metric=recall of .* is nan\.")):
        with pytest.raises(DataError, match=message):
            read_metric(tmp_path, output, "recall")


def drawn(picture: ElementTree.Element, name: str, tag: str) -> list[ElementTree.Element]:
    groups = [each for each in picture.iter() if each.get("id", "").startswith(name)]
    return [each for group in groups for each in group.iter() if each.tag.endswith(tag)]


def test_the_picture_has_a_place_for_each_temperature_and_strategy() -> None:
    values = {0.5: [3.0], 0.05: [1.0, 2.0], "macl": [2.0, 2.5], "a<b": [2.25]}
    picture = ElementTree.fromstring(draw({"": values}, "accuracy"))
    low, high = drawn(picture, "curve", "use")
    assert float(low.attrib["y"]) > float(high.attrib["y"]), "higher is up"
    assert float(low.attrib["x"]) < float(high.attrib["x"])
    first, second = drawn(picture, "strategies", "use")
    assert float(first.attrib["y"]) == pytest.approx(float(second.attrib["y"]))
    assert float(high.attrib["x"]) < float(first.attrib["x"]) < float(second.attrib["x"]), "equal ones are told apart"
    assert {"0.05", "0.5", "macl", "a<b"} <= {each.text for each in picture.iter() if each.text}
    for curve, strategies in (({0.1: [1.0]}, {}), ({}, {"macl": [1.0]})):
        alone = ElementTree.fromstring(draw({"": {**curve, **strategies}}, "x"))
        assert (len(drawn(alone, "curve", "use")), len(drawn(alone, "strategies", "use"))) == (len(curve), len(strategies))


def test_equal_curves_of_two_learning_rates_are_told_apart() -> None:
    curve = {0.05: [1.0], 0.5: [2.0], "macl": [1.5]}
    picture = ElementTree.fromstring(draw({"learning rate 0.1": curve, "learning rate 0.2": curve}, "accuracy"))
    for name in ("curve", "strategies"):
        places = [(each.attrib["x"], each.attrib["y"]) for each in drawn(picture, name, "use")]
        assert len(set(places)) == len(places)
    assert {"learning rate 0.1", "learning rate 0.2"} <= {each.text for each in picture.iter() if each.text}
