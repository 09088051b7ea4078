"""Sequences from files: sizes of DCRec's data sets, tables of any kind, and errors that name the line."""

from __future__ import annotations

import datetime
import gzip
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.recommendation.interaction_files import load_sequences, read_log
from tempplug_adapters.recommendation.interactions import Interactions

COLUMNS = ("user", "item", "time")
HEADER = "session_id:token\titem_id_list:token_seq\titem_id:token\n"


def dcrec(tmp_path: Path, train: str, test: str) -> list[list[int]]:
    folder = tmp_path / "tiny"
    folder.mkdir(exist_ok=True)
    for split, rows in (("train", train), ("test", test)):
        (folder / f"tiny.{split}.inter").write_text(HEADER + rows)
    return [each.tolist() for each in load_sequences(str(folder), None, COLUMNS)[0]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "users", "items", "interactions", "examples"),
    [("reddit", 14486, 15416, 317992, 289020), ("beauty", 56848, 41532, 265482, 151786)],
)
def test_dcrecs_sets_are_whole(data_dir: Path, name: str, users: int, items: int, interactions: int, examples: int) -> None:
    data = Interactions(*load_sequences(name, data_dir, COLUMNS)[:2])
    assert (data.user_count, data.item_count, len(data.items)) == (users, items, interactions)
    assert (data.items.min(), data.items.max()) == (1, items)
    assert len(data) + len(data.validation) == examples, "a validation target was the last example of its user"
    assert len(data.test) == users
    assert len(data.validation) == pytest.approx(users / 10, rel=0.05)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time,user,extra,item\n3,ann,x,c\n1,bob,,b\n1,ann,,b\n\n3,ann,,a\n2.5,ann,,'d\n1,cid,,b\n", [[2, 4, 1, 3], [2], [2]]),
        ('\ufeffuser,item,time\r\n1,"a, b",-1e9\r\n1,"a\n""b""",7\r\n', [[1, 2]]),
    ],
)
@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_a_table_is_sorted_by_time_and_then_by_the_file(tmp_path: Path, name: str, text: str, expected: Any) -> None:
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    sequences, items, *_ = read_log(tmp_path / name, COLUMNS)
    assert ([each.tolist() for each in sequences], items) == (expected, max(map(max, expected)))


def test_a_parquet_file_is_read_likewise(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    for times in ([5, 3, 3], [day.replace(day=each) for each in (5, 3, 3)]):
        table = pyarrow.table({"who": ["x", "x", "y"], "what": [10, 20, 10], "when": times})
        parquet.write_table(table, tmp_path / "log.parquet")
        sequences, items, users, names = read_log(tmp_path / "log.parquet", ("who", "what", "when"))
        assert ([each.tolist() for each in sequences], items) == ([[2, 1], [1]], 2)
        assert (users, names) == (["x", "y"], ["10", "20"])
    parquet.write_table(pyarrow.table({"user": ["x", None], "item": [1, 2], "time": [1, 2]}), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"log\.parquet, row 2: column 'user' is empty"):
        read_log(tmp_path / "log.parquet", COLUMNS)
    (tmp_path / "log.parquet").write_bytes(b"no table")
    with pytest.raises(DataError, match=r"log\.parquet cannot be read"):
        read_log(tmp_path / "log.parquet", COLUMNS)


HEAD = "user,item,time\n"
OF_TABLES = [
    (f"{HEAD}a,b,1\na,b\n", r"line 3: 2 fields, but the header has 3\."),
    (f"{HEAD},b,1\n", r"line 2: column 'user' is empty\."),
    (f"{HEAD}a,,1\n", r"line 2: column 'item' is empty\."),
    (f"{HEAD}a,b,noon\n", r"line 2: column 'time' is 'noon'; it must be a number, such as seconds, or an ISO date"),
    (f"{HEAD}a,b,31/01/2026\n", r"line 2: column 'time' is '31/01/2026'; .* pandas\.to_datetime makes such dates\."),
    (f"{HEAD}a,b,1\na,b,2026-01-31\n", r"line 3: column 'time' is '2026-01-31', but has numbers and dates"),
    (f"{HEAD}a,b,nan\n", r"line 2: column 'time' is 'nan'"),
    (f'{HEAD}a,"b,1\n', r"line 2: .*is a quote left open\?"),
    (f"{HEAD}a,b,1\n\udcff,b,1\n", r"line 3: not UTF-8"),
    (HEAD, "log.csv holds no rows, only a header"),
    ("", "log.csv has no column 'user'"),
    ("user,item,times\na,b,1\n", r"Did you mean 'times'\? It has: user, item, times\. Name those of .* with --columns\."),
]
OF_PAIRS = [
    ("0\t1 2\t3\n", "0\t1 3\t4\n", r"test\.inter, line 2: the history of user '0' is not the row of .*train\.inter"),
    ("0\t1 x\t3\n", "0\t1 2 3\t4\n", r"train\.inter, line 2: 'x' must be the number of an item, at least 1\."),
    ("0\t1\t0\n", "", r"train\.inter, line 2: '0' must be the number of an item"),
    ("0\t1 2\n", "", r"train\.inter, line 2: 2 tab-separated fields, but the header has 3\."),
    ("", "", r"test\.inter holds no rows, only a header\."),
]


@pytest.mark.parametrize(("text", "message"), OF_TABLES)
def test_a_faulty_row_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "log.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError if "line" in message or "rows" in message else ConfigError, match=message):
        load_sequences(str(tmp_path / "log.csv"), None, COLUMNS)


def test_faulty_files_and_unknown_data_sets_are_named(tmp_path: Path) -> None:
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(HEAD.encode() + b"a,b,1\n" * 100)[:-9])
    (tmp_path / "recsys").mkdir()
    tarfile.open(tmp_path / "recsys" / "sports.tar.xz", "w:xz").close()
    for dataset, folder, message in [
        (tmp_path / "log.csv.gz", None, r"log\.csv\.gz, after line \d+: cannot be read"),
        (tmp_path / "none.csv", None, "does not exist"),
        ("beuty", tmp_path, r"no data set 'beuty'\. Did you mean 'beauty'\?"),
        ("beauty", None, "--data-dir or TEMPPLUG_DATA"),
        ("beauty", tmp_path, r"beauty\.tar\.xz does not exist"),
        ("sports", tmp_path, r"sports\.tar\.xz must hold sports\.train\.inter"),
    ]:
        with pytest.raises(DataError, match=message):
            load_sequences(str(dataset), folder, COLUMNS)
    found = dcrec(tmp_path, "0\t1 2\t3\n1\t5\t1\n", "0\t1 2 3\t4\n1\t5 1\t2\n2\t\t3\n")
    assert found == [[1, 2, 3, 4], [5, 1, 2], [3]]
    for train, test, message in OF_PAIRS:
        with pytest.raises(DataError, match=message):
            dcrec(tmp_path, train, test)


def pairs(data: Interactions, split: str) -> list[tuple[list[int], int]]:
    examples = getattr(data, split)
    histories, lengths, targets = data.batch(examples)
    return [(row[:n], t) for row, n, t in zip(histories.tolist(), lengths.tolist(), targets.tolist(), strict=True)]


def test_the_last_item_is_for_the_test_and_the_one_before_it_validates_for_some() -> None:
    sequences = [np.arange(1, 2 + n) for n in range(6)]
    data = Interactions(sequences, 9, validation_share=0.5)
    held = {len(history) for history, _ in pairs(data, "validation")}
    assert held
    assert held != {1, 2, 3, 4}
    test = [(list(range(1, 1 + n)), 1 + n) for n in range(1, 6)]
    assert pairs(data, "test") == test, "a sequence of one item has no example"
    assert pairs(data, "validation") == [(history[:-1], history[-1]) for history, _ in test if len(history) - 1 in held]
    ends = [(history, len(history) - (len(history) - 1 in held)) for history, _ in test]
    trained = [(history[:end], history[end]) for history, last in ends for end in range(1, last)]
    assert pairs(data, "train") == trained
    assert len(data) == len(trained)
    histories = {split: data.histories(split) for split in ("train", "validation", "test")}
    graphs = {split: (each.ends - each.starts).tolist() for split, each in histories.items()}
    assert graphs["test"] == [0, 1, 2, 3, 4, 5]
    assert graphs["validation"] == [1, *(n - (n - 1 in held) for n in range(1, 6))]
    assert graphs["train"] == [n - 1 for n in graphs["validation"]]
    assert data.popularity("test").tolist() == [0, 5, 4, 3, 2, 1, 0, 0, 0, 0]
    assert data.last_targets().tolist() == [0, 0, 2, 2, 2, 2, 1, 0, 0, 0]


def test_only_the_newest_items_are_used_and_too_few_are_named() -> None:
    data = Interactions([np.arange(1, 9), np.arange(1, 9)], 8, max_length=3, validation_share=0.5)
    assert pairs(data, "test") == [([5, 6, 7], 8)] * 2
    assert [history for history, _ in pairs(data, "train")] == [[5], [5, 6], [5]][: len(data)]
    with pytest.raises(DataError, match="there is nothing to train on: 2 users with at most 2 items each"):
        Interactions([np.array([1, 2]), np.array([3])], 3)
