"""Reading the STS data sets: layout, order, faults, and the hub where no folder is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS, TASKS, StsPairs, find_sts_folder, load_sts

HEADER = b"score\tsentence1\tsentence2\n"
OFFICIAL_PAIRS = {
    ("STS12", "test"): 3108,
    ("STS13", "test"): 1500,
    ("STS14", "test"): 3750,
    ("STS15", "test"): 3000,
    ("STS16", "test"): 1186,
    ("STSB", "test"): 1379,
    ("STSB", "dev"): 1500,
    ("SICKR", "test"): 4927,
    ("SICKR", "dev"): 500,
}


def write_stsb(folder: Path, content: bytes, split: str = "test") -> Path:
    (folder / "STSB").mkdir(exist_ok=True)
    (folder / "STSB" / f"{split}.tsv").write_bytes(content)
    return folder


def test_subsets_of_a_year_are_concatenated(tmp_path: Path) -> None:
    (tmp_path / "STS13").mkdir()
    for score, subset in enumerate(TASKS["STS13"].subsets, start=1):
        (tmp_path / "STS13" / f"{subset}.tsv").write_text(f"score\tsentence1\tsentence2\n{score}\t{subset} a\t{subset} b\n")
    assert load_sts("STS13", tmp_path) == StsPairs(
        ["FNWN a", "headlines a", "OnWN a"], ["FNWN b", "headlines b", "OnWN b"], [1.0, 2.0, 3.0]
    )


def test_text_is_taken_as_it_stands(tmp_path: Path) -> None:
    """Bare quotes, Unicode line separators and spaces belong to the sentence; columns go by their names."""
    separator = "x\u2028y\x85z"
    content = f'\ufeffsentence2\tgenre\tscore\tsentence1\r\n"b" said\tnews\t2.5\t a " b\r\n{separator}\tnews\t0\té'
    pairs = load_sts("STSB", write_stsb(tmp_path, content.encode()))
    assert pairs == StsPairs([' a " b', "é"], ['"b" said', separator], [2.5, 0.0])


def test_dev_is_another_file(tmp_path: Path) -> None:
    write_stsb(tmp_path, HEADER + b"1\ttest a\ttest b\n")
    write_stsb(tmp_path, HEADER + b"2\tdev a\tdev b\n", "dev")
    assert load_sts("STSB", tmp_path, "dev").sentences_a == ["dev a"]
    assert load_sts("STSB", tmp_path).sentences_a == ["test a"]


@pytest.mark.parametrize("below", ["", "sts", "text/sts"])
def test_the_folder_may_be_a_parent(tmp_path: Path, below: str) -> None:
    (tmp_path / below / "SICKR").mkdir(parents=True)
    assert find_sts_folder(tmp_path) == tmp_path / below


@pytest.mark.parametrize(
    ("name", "fault"), [("absent", "is not a folder"), ("file", "is not a folder"), ("empty", "holds none of the folders")]
)
def test_a_wrong_folder_is_named(tmp_path: Path, name: str, fault: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=f"data_dir='.*{name}' {fault}.*STS12"):
        load_sts("STS12", tmp_path / name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"test\.tsv is empty"),
        (b"\n", r"test\.tsv is empty"),
        (HEADER, r"test\.tsv holds no rows"),
        (b"score\tsentence1\n1\ta\n", r"test\.tsv, line 1: the header lacks sentence2"),
        (b"1\ta\tb\n", r"test\.tsv, line 1: the header lacks score, sentence1, sentence2"),
        (HEADER + b"1\ta\tb\n1\ta\n", r"test\.tsv, line 3: 2 tab-separated fields, but the header has 3"),
        (HEADER + b"1\ta\tb\tc\n", r"test\.tsv, line 2: 4 tab-separated fields"),
        (HEADER + b"1\ta\tb\n\n1\ta\tb\n", r"test\.tsv, line 3: 1 tab-separated fields"),
        (HEADER + b"1\ta\tb\nhigh\ta\tb\n", r"test\.tsv, line 3: score 'high' is not a finite number"),
        (HEADER + b"nan\ta\tb\n", r"line 2: score 'nan' is not a finite number"),
        (HEADER + b"inf\ta\tb\n", r"line 2: score 'inf' is not a finite number"),
        (HEADER + b"\ta\tb\n", r"line 2: score '' is not a finite number"),
        (HEADER + b"1\t \tb\n", r"line 2: sentence1 is empty"),
        (HEADER + b"1\ta\t\n", r"line 2: sentence2 is empty"),
        (HEADER + b"1\ta\tb\n1\ta\t\xff\n", r"test\.tsv, line 3: not UTF-8 \(invalid start byte at byte 4 of the line\)"),
    ],
)
def test_every_fault_names_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_sts("STSB", write_stsb(tmp_path, content))


def test_a_missing_subset_is_named(sts_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "STS16").mkdir()
    for file in TASKS["STS16"].files("test")[:-1]:
        (tmp_path / "STS16" / file).write_bytes((sts_folder / "STS16" / file).read_bytes())
    with pytest.raises(DataError, match=r"question-question\.tsv cannot be read: No such file"):
        load_sts("STS16", tmp_path)


def test_unknown_tasks_and_splits() -> None:
    with pytest.raises(UnknownNameError, match=r"'STS-B'.*Did you mean 'STSB'"):
        load_sts("STS-B")
    with pytest.raises(ConfigError, match="split='dev' of STS12 does not exist; it has test"):
        load_sts("STS12", split="dev")
    with pytest.raises(ConfigError, match="split='train' of SICKR does not exist; it has test and dev"):
        load_sts("SICKR", split="train")


def test_real_data_are_complete(data_dir: Path) -> None:
    found = {(name, split): len(load_sts(name, data_dir, split)) for name in STS_TASKS for split in TASKS[name].splits}
    assert found == OFFICIAL_PAIRS


class Hub:
    """Stands in for the hub: answers with one table and remembers what was asked."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, path: str, *, revision: str, split: str) -> datasets.Dataset:
        self.asked.append((path, revision, split))
        return datasets.Dataset.from_dict(self.columns)


def test_without_a_folder_the_hub_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub({"sentence1": ["a", "c"], "sentence2": ["b", "d"], "score": [1.5, 4], "split": ["test", "test"]})
    monkeypatch.setattr(datasets, "load_dataset", hub)
    assert load_sts("STSB", split="dev") == StsPairs(["a", "c"], ["b", "d"], [1.5, 4.0])
    assert len(load_sts("STS12")) == 2
    assert hub.asked == [
        ("mteb/stsbenchmark-sts", TASKS["STSB"].revision, "validation"),
        ("mteb/sts12-sts", TASKS["STS12"].revision, "test"),
    ]


def test_a_folder_keeps_the_hub_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = Hub({})
    monkeypatch.setattr(datasets, "load_dataset", hub)
    with pytest.raises(DataError):
        load_sts("STSB", tmp_path)
    assert hub.asked == []


def test_an_unreachable_hub_says_how_to_pass_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError, match=r"mteb/sts13-sts, test, cannot be loaded.*Couldn't reach.*STS13 as data_dir"):
        load_sts("STS13")


def test_sick_has_no_dev_split_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", Hub({}))
    with pytest.raises(DataError, match=r"mteb/sickr-sts .* has no dev split.*--data-dir"):
        load_sts("SICKR", split="dev")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sentence1": ["a"], "score": [1.0]}, "mteb/sts14-sts, test, cannot be loaded.*sentence2"),
        ({"sentence1": [], "sentence2": [], "score": []}, "mteb/sts14-sts, test, holds no pairs"),
        ({"sentence1": ["a", "a"], "sentence2": ["b", None], "score": [1.0, 1.0]}, "test, row 2: sentence2 is empty"),
        ({"sentence1": ["a"], "sentence2": ["b"], "score": [None]}, "test, row 1: score 'None' is not a finite number"),
    ],
)
def test_faulty_rows_of_the_hub(monkeypatch: pytest.MonkeyPatch, columns: dict[str, list[Any]], message: str) -> None:
    monkeypatch.setattr(datasets, "load_dataset", Hub(columns))
    with pytest.raises(DataError, match=message):
        load_sts("STS14")
