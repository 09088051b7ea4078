"""``tempplug sweep`` over small commands: what it runs, what it reads, what it draws, and how it goes on."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tempplug.cli import main
from tempplug.errors import DataError, TempplugError
from tempplug_adapters.sweep.command import plan
from tempplug_adapters.sweep.metric import read_metric
from tempplug_adapters.sweep.picture import draw

SCRIPT = """
import json, pathlib, sys
folder, strategy, seed, ways = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
with open(ways, "a") as file:
    file.write(f"{strategy} {seed}\\n")
value = {"fixed:temperature=0.05": 0.5, "fixed:temperature=0.5": 0.7, "macl": 0.65}[strategy] + 0.01 * seed
if pathlib.Path(ways + ".broken").exists() and strategy == "macl":
    sys.exit("out of memory")
(folder / "metrics.json").write_text(json.dumps({"evaluation": {"accuracy": value}}))
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The words of a sweep whose command notes every run in the file ``ran``."""
    (tmp_path / "train.py").write_text(SCRIPT)
    parts = [sys.executable, "-S", str(tmp_path / "train.py"), "{output_dir}", "{strategy}", "{seed}", str(tmp_path / "ran")]
    command = " ".join(each if "{" in each else shlex.quote(each) for each in parts)
    grid = ["--temperatures", "0.5", "0.05", "--strategies", "macl", "--seeds", "0", "1"]
    return ["sweep", "--command", command, "--metric", "accuracy", "--output", str(tmp_path / "out"), *grid]


def ran(folder: Path) -> list[str]:
    file = folder / "ran"
    lines = file.read_text().splitlines()
    file.unlink()
    return lines


def test_a_sweep_runs_the_grid_draws_it_and_goes_on(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ran.broken").touch()
    assert main(words) == 1
    out = capsys.readouterr().out
    assert ran(tmp_path) == [
        f"{each} {seed}" for seed in (0, 1) for each in ("fixed:temperature=0.5", "fixed:temperature=0.05", "macl")
    ]
    assert "[1/6] fixed:temperature=0.5, seed 0: accuracy 0.7 (" in out
    assert "[3/6] macl, seed 0: failed: exit status 1, out of memory (" in out
    values = json.loads((tmp_path / "out" / "sweep.json").read_text())["values"]
    assert values == {"fixed:temperature=0.5": pytest.approx([0.7, 0.71]), "fixed:temperature=0.05": pytest.approx([0.5, 0.51])}
    (tmp_path / "ran.broken").unlink()
    assert main(words) == 0
    assert ran(tmp_path) == ["macl 0", "macl 1"], "what is finished is not run again"
    out = capsys.readouterr().out
    assert "(done before)" in out
    assert "macl                    0.655 ± 0.0071 over 2 seeds" in out
    assert "macl 0.655" in (tmp_path / "out" / "sweep.svg").read_text(encoding="utf-8")


def test_finished_runs_of_another_command_are_not_reused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    words[2] += " --more"
    assert main(words) == 2
    assert "sweep_result.json is of another command, " in capsys.readouterr().err
    assert len(ran(tmp_path)) == 6


PRINTS = """
import json, pathlib, sys
folder, strategy, ways = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with open(ways, "a") as file:
    file.write(strategy + "\\n")
accuracy = {"macl": "nan", "fixed:temperature=9": "nan", "temperature-free": "-"}.get(strategy, "0.75")
print("epoch 1\\n{'loss': 0.5}\\nrecall@10 = 0.25\\naccuracy   " + accuracy)
"""


def printing(folder: Path, metric: str, *strategies: str) -> list[str]:
    """Returns the words of a sweep; its command prints figures and notes every run in the file ``ran``."""
    (folder / "train.py").write_text(PRINTS)
    parts = [sys.executable, "-S", str(folder / "train.py"), "{output_dir}", "{strategy}", str(folder / "ran")]
    command = " ".join(each if "{" in each else shlex.quote(each) for each in parts)
    chosen = ["--temperatures", "0.5", "--strategies", *strategies]
    return ["sweep", "--command", command, "--metric", metric, "--output", str(folder / "out"), *chosen]


def test_a_misspelt_metric_ends_the_sweep_after_one_run_and_the_right_one_is_read_from_it(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words[words.index("accuracy")] = "acuracy"
    for runs in (1, 0):
        assert main(words) == 2
        assert len(ran(tmp_path)) == runs if runs else not (tmp_path / "ran").exists()
        told = capsys.readouterr().err
        assert "metric=acuracy was not found in the JSON files of " in told
        assert " Did you mean 'accuracy'? It has: accuracy. The run is kept: " in told
        assert told.count("\n") == 1
    words[words.index("acuracy")] = "accuracy"
    assert main(words) == 0
    assert len(ran(tmp_path)) == 5
    assert "[1/6] fixed:temperature=0.5, seed 0: accuracy 0.7 (done before)" in capsys.readouterr().out


def test_another_metric_is_read_from_what_finished_runs_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(printing(tmp_path, "recal", "dystress")) == 2
    told = capsys.readouterr().err
    assert "Did you mean 'recall@10'? It has: epoch, loss, recall@10, accuracy." in told
    assert main(printing(tmp_path, "recall@10", "dystress")) == 0
    assert ran(tmp_path) == ["fixed:temperature=0.5", "dystress"]
    for metric, value in (("accuracy", 0.75), ("loss", 0.5)):
        assert main(printing(tmp_path, metric, "dystress")) == 0
        assert not (tmp_path / "ran").exists(), "nothing is trained again"
        values = json.loads((tmp_path / "out" / "sweep.json").read_text())["values"]
        assert values == {"fixed:temperature=0.5": [value], "dystress": [value]}


def test_a_run_without_the_metric_that_others_have_is_one_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = printing(tmp_path, "accuracy", "macl", "temperature-free")
    for runs in (3, 0):
        assert main(words) == 1
        assert len(ran(tmp_path)) == runs if runs else not (tmp_path / "ran").exists()
        lines = capsys.readouterr().out.splitlines()
        assert lines[1].startswith("[2/3] macl: failed: metric=accuracy of ")
        assert lines[1].endswith(" is nan. Remove the folder to train it again.")
        assert lines[2].startswith("[3/3] temperature-free: failed: metric=accuracy was not found in the JSON files of ")
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["values"] == {"fixed:temperature=0.5": [0.75]}
    words[words.index("--temperatures") + 1] = "9"  # the first of all is now one that has the metric, but no number
    assert main(words) == 1
    assert [": failed: " in line for line in capsys.readouterr().out.splitlines()] == [True, True, True]


@pytest.mark.parametrize(
    ("command", "more", "message"),
    [
        ("python train.py", {}, "command='python train.py' must have {strategy} where"),
        ("x {strategy}", {"seeds": [1]}, "seeds=1 need {seed} in the command."),
        ("x {strategy}", {"temperatures": [0.1, 0.0]}, "temperatures=0 must be finite and greater than 0."),
        ("x {strategy}", {"strategies": ["macle"]}, "unknown strategy 'macle'. Did you mean 'macl'?"),
    ],
)
def test_what_cannot_be_run_is_refused(command: str, more: dict[str, list[float]], message: str, tmp_path: Path) -> None:
    arguments = {"temperatures": [0.1], "strategies": ["macl"], "seeds": None, **more}
    with pytest.raises(TempplugError) as caught:
        plan(command, output=tmp_path, **arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_command_that_does_not_exist_ends_the_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--command", "nosuchprogram {strategy}", "--metric", "x", "--output", str(tmp_path / "out")]) == 2
    assert "command 'nosuchprogram' cannot be run: No such file" in capsys.readouterr().err


def test_placeholders_and_the_order_of_the_grid() -> None:
    runs = plan("train '--o={output_dir}' {strategy}", [0.1], ["fixed:temperature=0.1", "macl:alpha=2"], None, Path("/out"))
    assert [run.strategy for run in runs] == ["fixed:temperature=0.1", "macl:alpha=2"], "one run where two ask for the same"
    assert runs[1].words == ("train", "--o=/out/runs/macl_alpha=2", "macl:alpha=2")
    assert [run.seed for run in plan("x {strategy} {seed}", [0.1], [], None, Path("/out"))] == [0]


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
    wanted = r"metric=recall was not found in the JSON files of .*, nor printed as 'recall: VALUE'\."
    with pytest.raises(DataError, match=wanted):
        read_metric(tmp_path, printed, "recall")
    with pytest.raises(DataError, match=r"metric=recall of .* is nan\."):
        read_metric(tmp_path, "recall: nan", "recall")


def test_the_picture_has_a_dot_a_temperature_and_a_band_a_strategy() -> None:
    picture = ElementTree.fromstring(draw({0.05: [1.0, 2.0], 0.5: [3.0]}, {"macl": [2.0, 2.5], "a<b": [2.3]}, "accuracy"))

    def drawn(name: str, picture: ElementTree.Element = picture) -> list[ElementTree.Element]:
        return [each for group in picture.iter() if group.get("id", "").startswith(name) for each in group.iter()]

    dots = [each for each in drawn("curve") if each.tag.endswith("use")]
    assert len(dots) == 2
    assert float(dots[0].attrib["y"]) > float(dots[1].attrib["y"]), "higher is up"
    assert float(dots[0].attrib["x"]) < float(dots[1].attrib["x"])
    assert len([each for each in drawn("band-") if each.tag.endswith("path")]) == 2
    texts = [each.text for each in picture.iter() if each.text]
    assert {"0.05", "0.5", "macl 2.25", "a<b 2.3"} <= set(texts)
    assert "band-0" not in draw({0.1: [1.0]}, {}, "x")
    alone = ElementTree.fromstring(draw({}, {"macl": [1.0]}, "x"))
    assert len([each for each in drawn("band-", alone) if each.tag.endswith("path")]) == 1
    assert not [each for each in drawn("curve", alone) if each.tag.endswith("use")]
