"""Reading the STS data sets: layout, order, faults, and the hub where no folder is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS, TASKS, StsPairs, find_sts_folder, load_sts

HEADER = b"score\tsentence1\tsentence2\n"


def write(folder: Path, content: bytes, file: str = "STSB/test.tsv") -> Path:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_bytes(content)
    return folder


def test_subsets_of_a_year_are_concatenated_and_none_may_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"FNWN\.tsv cannot be read: No such file"):
        load_sts("STS13", write(tmp_path, b"", "STS13/other"))
    for score, name in enumerate(TASKS["STS13"].subsets, start=1):
        write(tmp_path, HEADER + f"{score}\t{name} a\t{name} b\n".encode(), f"STS13/{name}.tsv")
    names = ("FNWN", "headlines", "OnWN")
    assert load_sts("STS13", tmp_path) == StsPairs(
        [f"{name} a" for name in names], [f"{name} b" for name in names], [1.0, 2.0, 3.0]
    )


def test_text_is_taken_as_it_stands_and_dev_is_another_file(tmp_path: Path) -> None:
    """Bare quotes, Unicode line separators and spaces belong to the sentence; columns go by their names."""
    separator = "x\u2028y\x85z"
    content = f'\ufeffsentence2\tgenre\tscore\tsentence1\r\n"b" said\tnews\t2.5\t a " b\r\n{separator}\tnews\t0\té'
    write(write(tmp_path, content.encode()), HEADER + b"2\tdev a\tdev b\n", "STSB/dev.tsv")
    assert load_sts("STSB", tmp_path) == StsPairs([' a " b', "é"], ['"b" said', separator], [2.5, 0.0])
    assert load_sts("STSB", tmp_path, "dev").sentences_a == ["dev a"]


@pytest.mark.parametrize("below", ["", "sts", "text/sts"])
def test_the_folder_may_be_a_parent(tmp_path: Path, below: str) -> None:
    (tmp_path / below / "SICKR").mkdir(parents=True)
    assert find_sts_folder(tmp_path) == tmp_path / below


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"test\.tsv is empty"),
        (HEADER, r"test\.tsv holds no rows"),
        (b"score\tsentence1\n1\ta\n", r"test\.tsv, line 1: the header lacks sentence2"),
        (HEADER + b"1\ta\tb\n1\ta\n", r"test\.tsv, line 3: 2 tab-separated fields, but the header has 3"),
        (HEADER + b"1\ta\tb\tc\n", r"test\.tsv, line 2: 4 tab-separated fields"),
        (HEADER + b"1\ta\tb\nhigh\ta\tb\n", r"test\.tsv, line 3: score 'high' is not a finite number"),
        (HEADER + b"nan\ta\tb\n", r"line 2: score 'nan' is not a finite number"),
        (HEADER + b"\ta\tb\n", r"line 2: score '' is not a finite number"),
        (HEADER + b"1\t \tb\n", r"line 2: sentence1 is empty"),
        (HEADER + b"1\ta\t\n", r"line 2: sentence2 is empty"),
        (HEADER + b"1\ta\tb\n1\ta\t\xff\n", r"test\.tsv, line 3: not UTF-8 \(invalid start byte at byte 4 of the line\)"),
    ],
)
def test_every_fault_names_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_sts("STSB", write(tmp_path, content))


class Hub:
    """Stands in for the hub: answers with one table, or raises, and keeps the calls."""

    def __init__(self, columns: dict[str, list[Any]] | Exception) -> None:
        self.columns = columns
        self.calls: list[tuple[str, str, str]] = []

    def __call__(self, path: str, *, revision: str, split: str) -> datasets.Dataset:
        self.calls.append((path, revision, split))
        if isinstance(self.columns, Exception):
            raise self.columns
        return datasets.Dataset.from_dict(self.columns)


def test_the_hub_is_read_where_there_is_no_folder_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = Hub({"sentence1": ["a", "c"], "sentence2": ["b", "d"], "score": [1.5, 4], "split": ["test", "test"]})
    monkeypatch.setattr(datasets, "load_dataset", hub)
    assert load_sts("STSB", split="dev") == StsPairs(["a", "c"], ["b", "d"], [1.5, 4.0])
    assert len(load_sts("STS12")) == 2
    for name, fault in (("absent", "is not a folder"), ("", "holds none of the folders")):
        with pytest.raises(DataError, match=f"data_dir='.*{name}' {fault}.*STS12"):
            load_sts("STS12", tmp_path / name)
    assert hub.calls == [
        ("mteb/stsbenchmark-sts", TASKS["STSB"].revision, "validation"),
        ("mteb/sts12-sts", TASKS["STS12"].revision, "test"),
    ]


@pytest.mark.parametrize(
    ("task", "split", "columns", "error", "message"),
    [
        ("STS13", "test", ConnectionError("Couldn't reach"), DataError, "sts13.*cannot be loaded.*Couldn't.*STS13 as data_dir"),
        ("SICKR", "dev", {}, DataError, r"mteb/sickr-sts .* has no dev split.*--data-dir"),
        ("STS14", "test", {"sentence1": ["a"], "score": [1.0]}, DataError, "sts14-sts, test, cannot be loaded.*sentence2"),
        ("STS14", "test", {"sentence1": [], "sentence2": [], "score": []}, DataError, "sts14-sts, test, holds no pairs"),
        ("STS14", "test", {"sentence1": ["a"], "sentence2": [None], "score": [1.0]}, DataError, "row 1: sentence2 is empty"),
        ("STS14", "test", {"sentence1": ["a"], "sentence2": ["b"], "score": [None]}, DataError, "row 1: score 'None' is not"),
        ("STS-B", "test", {}, UnknownNameError, r"'STS-B'.*Did you mean 'STSB'"),
        ("STS12", "dev", {}, ConfigError, "split='dev' of STS12 does not exist; it has test"),
        ("SICKR", "train", {}, ConfigError, "split='train' of SICKR does not exist; it has test and dev"),
    ],
)
def test_faults_of_the_hub_and_unknown_names(
    monkeypatch: pytest.MonkeyPatch, task: str, split: str, columns: Any, error: type[Exception], message: str
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", Hub(columns))
    with pytest.raises(error, match=message):
        load_sts(task, split=split)


def test_real_data_are_complete(data_dir: Path) -> None:
    found = {(name, split): len(load_sts(name, data_dir, split)) for name in STS_TASKS for split in TASKS[name].splits}
    official = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, "STSB": 1379, "SICKR": 4927}
    dev = {("STSB", "dev"): 1500, ("SICKR", "dev"): 500}
    assert found == {(name, "test"): number for name, number in official.items()} | dev
