"""Installed packages as evaluators: senteval and mteb are given our vectors, and what is wrong with them is named.

No index has senteval, so that a module of that name stands for it: it reads files and calls back as SentEval does.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from transfer_toys import letters, write_tables

from tempplug.cli import main
from tempplug.errors import ConfigError
from tempplug_adapters.sentence_evaluation.senteval_files import write_transfer_files
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts
from tempplug_adapters.sentence_evaluation.transfer import FAST, evaluate_transfer
from tempplug_adapters.sentence_evaluation.transfer_data import load_rows


class Engine:
    """What SentEval's SE does with files, prepare and batcher; its score is of a rule that needs no training."""

    made: ClassVar[list[Engine]] = []

    def __init__(self, params: dict[str, Any], batcher: Any, prepare: Any) -> None:
        self.params, self.batcher, self.prepare = params, batcher, prepare
        self.made.append(self)

    def eval(self, task: str) -> dict[str, Any]:
        folder = Path(self.params["task_path"]) / "downstream"
        if task == "MRPC":
            lines = (folder / "MRPC" / "msr_paraphrase_test.txt").read_text(encoding="utf-8").splitlines()[1:]
            fields = [line.strip().split("\t") for line in lines]
            sides = [[field[place].split() for field in fields] for place in (3, 4)]
            score = self.score(*sides)
            return {"devacc": np.float64(50.0), "acc": score, "f1": score / 2, "ndev": 1, "ntest": len(fields)}
        texts = [(folder / "CR" / f"custrev.{side}").read_text(encoding="latin-1").splitlines() for side in ("pos", "neg")]
        samples = [text.split() for side in texts for text in side]
        return {"devacc": np.float64(60.0), "acc": self.score(samples, samples), "ndev": 1, "ntest": len(samples)}

    def score(self, a: list[list[str]], b: list[list[str]]) -> float:
        """The mean of how many more letters a has, and of its first letter's count."""
        self.prepare(self.params, a + b)
        size = self.params["batch_size"]
        vectors = [
            np.vstack([self.batcher(self.params, side[at : at + size]) for at in range(0, len(side), size)]) for side in (a, b)
        ]
        return float(round((vectors[0].sum(1) - vectors[1].sum(1) / 2 + vectors[0][:, 0]).mean(), 4))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package senteval."""
    package = ModuleType("senteval")
    package.SE = Engine  # type: ignore[attr-defined]
    package.__file__ = "/somewhere/senteval/__init__.py"
    monkeypatch.setitem(sys.modules, "senteval", package)
    monkeypatch.setattr(Engine, "made", [])
    return package


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tables(tmp_path)
    with (tmp_path / "CR.tsv").open("a") as file:
        file.write("1\t\n")
    return tmp_path


def test_senteval_is_given_its_files_our_vectors_and_the_protocol(installed: ModuleType, folder: Path) -> None:
    seen: list[str] = []
    found = evaluate_transfer(
        letters, folder, ["CR", "MRPC"], protocol=FAST, backend="senteval", progress=lambda _, doing: seen.append(doing)
    )
    assert seen[-2:] == ["CR", "MRPC"]
    texts = [text or "." for _, text in load_rows("CR", folder)[""]]
    vectors = letters(texts)
    expected = round(float((vectors.sum(1) / 2 + vectors[:, 0]).double().mean()), 4)
    assert found.accuracy["CR"] == pytest.approx(expected, abs=1e-3)
    assert (found.dev, found.rows) == ({"CR": 60.0, "MRPC": 50.0}, {"CR": 61, "MRPC": 60})
    assert found.f1 == {"MRPC": found.accuracy["MRPC"] / 2}
    assert (found.backend, found.folds) == ("senteval", 5)
    engine = Engine.made[0]
    assert (engine.params["kfold"], engine.params["usepytorch"]) == (5, True)
    classifier = {"nhid": 0, "optim": "rmsprop", "batch_size": 128, "tenacity": 3, "epoch_size": 2, "max_epoch": 200}
    assert engine.params["classifier"] == classifier
    assert not Path(engine.params["task_path"]).exists()
    made = folder / "SentEval data"
    for split, rows in load_rows("CR", folder).items():
        write_transfer_files(made / "downstream", "CR", split, rows)
    again = evaluate_transfer(letters, made, ["CR"], protocol=FAST, backend="senteval")
    assert Engine.made[-1].params["task_path"] == str(made), "its own data folder is passed on"
    assert again.accuracy["CR"] == found.accuracy["CR"]


def test_the_command_writes_the_same_fields_for_both(
    installed: ModuleType, folder: Path, tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = []
    for backend in ("tempplug", "senteval"):
        output = tmp_path / f"{backend}.json"
        words = [str(tiny_bert), "--data-dir", str(folder), "--tasks", "CR", "--fast", "--backend", backend]
        assert main(["eval", "transfer", *words, "--output", str(output)]) == 0
        written.append(json.loads(output.read_text()))
        assert f"5 folds, classifiers by {backend}" in capsys.readouterr().out
    assert [set(fields) for fields in written] == [set(written[0])] * 2
    assert [fields["backend"] for fields in written] == ["tempplug", "senteval"]


def test_faults_of_senteval_are_named(installed: ModuleType, folder: Path, monkeypatch: Any, tmp_path: Path) -> None:
    def measure() -> None:
        evaluate_transfer(letters, folder, ["CR"], backend="senteval")

    for owner, name, value, message in [
        (Engine, "eval", lambda self, task: {"acc": 1.0}, r"__init__\.py returned \{'acc': 1\.0\} for CR, wanted devacc, acc,"),
        (Engine, "eval", lambda self, task: self.absent, "failed on CR: AttributeError: 'Engine' object has no .* 'absent'"),
        (installed, "SE", None, r"at /somewhere/senteval/__init__\.py has no SE\(params, batcher, prepare\); "),
    ]:
        monkeypatch.setattr(owner, name, value)
        with pytest.raises(ConfigError, match=message):
            measure()
    monkeypatch.delitem(sys.modules, "senteval")
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    for content, message in {
        None: "needs the package senteval, which is not installed",
        "import not_there_at_all": "the installed senteval needs not_there_at_all, which is missing",
        "raise AssertionError('need to update')": "senteval cannot be imported: AssertionError: need to update",
    }.items():
        if content is not None:
            (site / "senteval.py").write_text(content)
        importlib.invalidate_caches()
        with pytest.raises(ConfigError, match=message):
            measure()
    with pytest.raises(ConfigError, match="backend='mteb' must be one of tempplug, senteval"):
        evaluate_transfer(letters, folder, ["CR"], backend="mteb")


def sts_folder(folder: Path) -> Path:
    (folder / "SICKR").mkdir()
    rows = [f"{number % 7 / 2}\tab {number} x\t{'ab' if number % 3 else 'yz'} {number * 5 % 11}" for number in range(40)]
    (folder / "SICKR" / "test.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mteb_scores_our_pairs_as_we_do(tmp_path: Path) -> None:
    pytest.importorskip("mteb", reason="mteb is not installed")
    folder = sts_folder(tmp_path)
    ours, its = (evaluate_sts(letters, folder, ["SICKR"], backend=backend) for backend in ("tempplug", "mteb"))
    assert its.spearman == pytest.approx(ours.spearman, abs=1e-6)
    assert (ours.to_dict()["backend"], its.to_dict()["backend"]) == ("tempplug", "mteb")


def test_mteb_is_asked_for_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sts_folder(tmp_path)
    old = ModuleType("mteb")
    old.__version__ = "1.14.0"  # type: ignore[attr-defined]
    for module, backend, message in [
        (None, "mteb", r"backend='mteb' needs the package mteb, which is not installed: pip install"),
        (old, "mteb", r"backend='mteb' needs mteb 2, but 1\.14\.0 is installed"),
        (old, "senteval", "backend='senteval' must be one of tempplug, mteb"),
    ]:
        monkeypatch.setitem(sys.modules, "mteb", module)
        with pytest.raises(ConfigError, match=message):
            evaluate_sts(letters, folder, ["SICKR"], backend=backend)
