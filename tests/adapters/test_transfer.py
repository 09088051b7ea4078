"""Transfer on small files and on real ones: order, classes, features of pairs, faults, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score
from transfer_toys import letters, write_tables

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.sentence_evaluation.logistic_regression import Classifier, Split, folds_on_train, nested_folds
from tempplug_adapters.sentence_evaluation.transfer import FAST, evaluate_transfer
from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS, load_transfer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("tables"))


def test_rows_are_sorted_by_words_and_class_and_keep_their_order_else(tmp_path: Path) -> None:
    (tmp_path / "MR.tsv").write_text('label\ttext\n1\tb c\n1\td\n0\te\n0\tf "g\n1\t\n0\ta\n')
    found = load_transfer("MR", tmp_path)[""]
    assert found.texts == [(".",), ("e",), ("a",), ("d",), ('f "g',), ("b c",)]
    assert found.labels == [1, 0, 0, 1, 0, 1]
    for split in ("train", "test"):
        (tmp_path / f"MRPC.{split}.tsv").write_text("label\tsentence1\tsentence2\n1\ta b\tc\n0\ta\tb c\n1\ta\tb\n0\tz\ty\n")
    assert load_transfer("MRPC", tmp_path)["test"].texts == [("z", "y"), ("a", "b"), ("a", "b c"), ("a b", "c")]


def test_every_task_is_measured_by_its_protocol(folder: Path) -> None:
    seen: list[tuple[float, str]] = []
    result = evaluate_transfer(letters, folder, protocol=FAST, batch_size=7, progress=lambda *given: seen.append(given))
    fractions, doings = zip(*seen, strict=True)
    assert list(fractions) == sorted(fractions)
    assert fractions[-1] < 1
    assert (doings[0], doings[-7:]) == ("encoding", TRANSFER_TASKS)
    assert 0 < fractions[0] < fractions[doings.index("MR")] == 0.5
    assert tuple(result.accuracy) == TRANSFER_TASKS
    assert result.average == pytest.approx(sum(result.accuracy.values()) / 7)
    assert result.rows == {**dict.fromkeys(TRANSFER_TASKS, 60), "TREC": 72}
    data = load_transfer("CR", folder)[""]
    x, y = letters([text for (text,) in data.texts]), torch.tensor(data.labels)
    alone = nested_folds(Split(x, y), 2, FAST.folds, FAST.classifier)
    assert (result.accuracy["CR"], result.dev["CR"]) == (alone.test, alone.dev)
    assert json.loads(json.dumps(result.to_dict()))["average"] == result.average


def test_a_pair_is_the_difference_and_the_product_of_its_sides(folder: Path) -> None:
    sides = []
    for data in load_transfer("MRPC", folder).values():
        a, b = (letters([texts[side] for texts in data.texts]) for side in (0, 1))
        sides.append(Split(torch.cat([(a - b).abs(), a * b], dim=1), torch.tensor(data.labels)))
    alone = folds_on_train(*sides, 2, 10, Classifier())
    result = evaluate_transfer(letters, folder, ["MRPC"])
    assert (result.accuracy, result.dev) == ({"MRPC": alone.test}, {"MRPC": alone.dev})
    assert result.f1["MRPC"] == pytest.approx(100 * f1_score(sides[1].labels, alone.predicted), abs=0.005)
    assert (result.average, result.folds) == (None, 10)


@pytest.mark.parametrize(
    ("content", "options", "error", "message"),
    [
        ("", {"tasks": ["SST"]}, UnknownNameError, r"unknown transfer task 'SST'.*Did you mean 'SST2'"),
        ("", {"tasks": ["MR", "MR"]}, ConfigError, r"tasks=\['MR', 'MR'\] must be a list of one or more different names"),
        ("", {"batch_size": 0}, ConfigError, "batch_size=0 must be a whole number"),
        ("2\tgood", {}, DataError, r"MR\.tsv, line 2: label '2' is none of 0, 1\."),
        ("1\tgood\n0\tbad", {}, DataError, "MR has 1 rows of class 0, but 10 folds need at least 10"),
        ("1\tgood", {"tasks": ["TREC"]}, DataError, r"has no TREC\.train\.tsv or TREC\.train\.tsv\.gz, which TREC needs"),
        (None, {}, DataError, "holds none of the files"),
    ],
)
def test_faults_are_named(
    tmp_path: Path, content: str | None, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    if content is not None:
        (tmp_path / "MR.tsv").write_text(f"label\ttext\n{content}\n")
    with pytest.raises(error, match=message):
        evaluate_transfer(letters, tmp_path, **{"tasks": ["MR"], **options})


@pytest.mark.slow
def test_real_files_are_complete(data_dir: Path) -> None:
    sizes = {task: {name: len(split) for name, split in load_transfer(task, data_dir).items()} for task in TRANSFER_TASKS}
    assert sizes == {
        **{"MR": {"": 10662}, "CR": {"": 3775}, "SUBJ": {"": 10000}, "MPQA": {"": 10606}},
        **{"SST2": {"train": 67349, "dev": 872, "test": 1821}, "TREC": {"train": 5452, "test": 500}},
        "MRPC": {"train": 4076, "test": 1725},
    }
