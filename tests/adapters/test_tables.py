"""Tables as pandas, polars, pyarrow, datasets and spreadsheets write them: read by content, or refused with the remedy."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
from datasets import Dataset
from table_files import Write, of_arrow, of_bytes, of_csv, of_datasets, of_lines, of_pandas, of_polars

from tempplug.errors import DataError
from tempplug_adapters.data_files import text_streams
from tempplug_adapters.data_files.tables import COMMIT, open_table

WORDS = {"query": ['say "x, y"', "two\nlines", "ä\u2028ö"], "answer": ["NA", None, "nan"]}
ROWS = [('say "x, y"', "NA"), ("two\nlines", None), ("ä\u2028ö", "nan")]
FLAT = {"query": ['"Hi," she said', 'x "', "a;b"], "answer": ["1,5", "y", "z"]}
FLAT_ROWS = [('"Hi," she said', "1,5"), ('x "', "y"), ("a;b", "z")]
LISTS = {"query": ["a", "b"], "pos": [["x", "y"], ["z"]], "neg": [[], ["u"]]}
LIST_ROWS = [("a", ["x", "y"], None), ("b", ["z"], ["u"])]
TABLE = [["query", "answer"], *FLAT_ROWS]
INDEXED = [(str(place), *row) for place, row in enumerate(ROWS)]
LATE: list[object] = [{"query": "a", "answer": "b"}] * 70_000 + [{"query": "c", "answer": "d", "negative": "e"}]
BIG = 9007199254740993

READ: dict[str, tuple[str, Write, list[tuple[Any, ...]]]] = {
    "pandas: csv": ("t.csv", of_pandas(WORDS, "to_csv"), INDEXED),
    "pandas: csv without row numbers": ("t.csv", of_pandas(WORDS, "to_csv", index=False), ROWS),
    "pandas: csv with a byte order mark": ("t.csv", of_pandas(WORDS, "to_csv", index=False, encoding="utf-8-sig"), ROWS),
    "pandas: csv of semicolons": ("t.csv", of_pandas(WORDS, "to_csv", index=False, sep=";"), ROWS),
    "pandas: csv in which all is quoted": ("t.csv", of_pandas(WORDS, "to_csv", index=False, quoting=1), ROWS),
    "pandas: packed csv": ("t.csv.gz", of_pandas(WORDS, "to_csv", index=False), ROWS),
    "pandas: tabs": ("t.tsv", of_pandas(WORDS, "to_csv", index=False, sep="\t"), ROWS),
    "pandas: tabs in a csv": ("t.csv", of_pandas(FLAT, "to_csv", index=False, sep="\t"), FLAT_ROWS),
    "pandas: UTF-16": ("t.csv", of_pandas(WORDS, "to_csv", index=False, encoding="utf-16"), ROWS),
    "pandas: lines of JSON": ("t.jsonl", of_pandas(WORDS, "to_json", orient="records", lines=True), ROWS),
    "pandas: an array of JSON": ("t.json", of_pandas(WORDS, "to_json", orient="records"), ROWS),
    "pandas: parquet": ("t.parquet", of_pandas(WORDS, "to_parquet"), ROWS),
    "pandas: parquet of named rows": (
        "t.parquet",
        lambda path: pandas.DataFrame(WORDS, index=[7, 8, 5]).to_parquet(path),
        [(*row, number) for row, number in zip(ROWS, (7, 8, 5), strict=True)],
    ),
    "pandas: parquet of categories": (
        "t.parquet",
        lambda path: pandas.DataFrame(WORDS).astype("category").to_parquet(path),
        ROWS,
    ),
    "pandas: feather": ("t.feather", of_pandas(WORDS, "to_feather"), ROWS),
    "pandas: a time": (
        "t.csv",
        of_pandas({"t": pandas.to_datetime(["2026-03-29 02:30:00.5", "2026-01-01"], format="mixed")}, "to_csv", index=False),
        [("2026-03-29 02:30:00.500",), ("2026-01-01 00:00:00.000",)],
    ),
    "pandas: integers with a missing one": (
        "t.csv",
        of_pandas({"id": pandas.array([BIG, None], "Int64")}, "to_csv", index=False, na_rep="nan"),
        [(str(BIG),), (None,)],
    ),
    "polars: csv": ("t.csv", of_polars(WORDS, "write_csv"), ROWS),
    "polars: tabs": ("t.tsv", of_polars(WORDS, "write_csv", separator="\t"), ROWS),
    "polars: ndjson": ("t.ndjson", of_polars(LISTS, "write_ndjson"), LIST_ROWS),
    "polars: json": ("t.json", of_polars(LISTS, "write_json"), LIST_ROWS),
    "polars: parquet": ("t.parquet", of_polars(LISTS, "write_parquet"), LIST_ROWS),
    "polars: ipc": ("t.arrow", of_polars(LISTS, "write_ipc"), LIST_ROWS),
    "pyarrow: packed parquet": ("t.parquet", of_arrow(LISTS, compression="zstd"), LIST_ROWS),
    "pyarrow: parquet of small groups": ("t.parquet", of_arrow(WORDS, row_group_size=1), ROWS),
    "pyarrow: feather": ("t.arrow", of_arrow(WORDS, "feather"), ROWS),
    "datasets: a folder": ("t", of_datasets(WORDS), ROWS),
    "datasets: a selection": ("t", of_datasets(WORDS, rows=[2, 0]), [ROWS[2], ROWS[0]]),
    "datasets: a split": ("t", of_datasets(LISTS, "train"), LIST_ROWS),
    "datasets: lines of JSON": (
        "t.jsonl",
        lambda path: Dataset.from_dict(LISTS).to_json(path),
        LIST_ROWS,
    ),
    "Excel: CSV UTF-8": ("t.csv", of_csv(TABLE, "utf-8-sig", dialect="excel"), FLAT_ROWS),
    "Excel: CSV of a German one": ("t.csv", of_csv(TABLE, "utf-8-sig", dialect="excel", delimiter=";"), FLAT_ROWS),
    "Excel: Unicode text": ("t.txt", of_csv(TABLE, "utf-16", dialect="excel-tab"), FLAT_ROWS),
    "Excel: sep=;": ("t.csv", of_lines("sep=;", "a;b", "1;2", ends="\r\n"), [("1", "2")]),
    "a corpus: bare quotes": (
        "t.tsv",
        of_lines("a\tb", '"Hi," she said\tx "', 'y\t"open'),
        [('"Hi," she said', 'x "'), ("y", '"open')],
    ),
    "a corpus: quotes that open and close": (
        "t.tsv",
        of_lines("a\tb", '"one\tx', "y\tz", 'end"\tw'),
        [('"one', "x"), ("y", "z"), ('end"', "w")],
    ),
    "MovieLens: dat": ("movies.dat", of_lines("id::title", "1::A: b, c", "2::"), [("1", "A: b, c"), ("2", None)]),
    "csv: ends of Windows": ("t.csv", of_lines("a,b", "1,", "", ",2", ends="\r\n"), [("1", None), (None, "2")]),
    "Excel: CSV of an old Macintosh": ("t.csv", of_lines("a,b", '"1\r2",x', "3,y", ends="\r"), [("1\r2", "x"), ("3", "y")]),
    "csv: one column": ("t.csv", of_lines("text", "one", '"two, three"'), [("one",), ("two, three",)]),
    "csv: NUL": ("t.csv", of_lines("a,b", "x\0,y"), [("x\0", "y")]),
    "csv: packed without the suffix": ("t.csv", of_lines("a,b", "1,2", packed=True), [("1", "2")]),
    "csv: the suffix without packing": ("t.csv.gz", of_lines("a,b", "1,2"), [("1", "2")]),
    "JSON: a key that comes late": ("t.jsonl", of_lines(*LATE), [*[("a", "b", None)] * 70_000, ("c", "d", "e")]),
    "JSON: keys that differ": ("t.jsonl", of_lines({"a": "x"}, "", {"b": ["y"]}), [("x", None), (None, ["y"])]),
    "JSON: texts and lists of texts": (
        "t.jsonl",
        of_lines({"a": "x"}, {"a": ["y", "z"]}, {"a": None}),
        [(["x"],), (["y", "z"],), (None,)],
    ),
    "JSON: NaN": ("t.jsonl", of_lines({"a": float("nan")}, {"a": 1.5}), [(None,), (1.5,)]),
    "JSON: two types": ("t.jsonl", of_lines({"a": 1}, {"a": "x"}, {"a": None}), [("1",), ("x",), (None,)]),
    "JSON: two types in blocks": (
        "t.jsonl",
        of_lines(*[{"a": 1, "b": "c" * 100}] * 100_000, {"a": "x", "b": "d"}),
        [*[("1", "c" * 100)] * 100_000, ("x", "d")],
    ),
    "JSON: long integers": ("t.jsonl", of_lines({"a": BIG}, {"a": 1.5}), [(str(BIG),), ("1.5",)]),
    "JSON: dates": (
        "t.jsonl",
        of_lines({"a": "2026-1-2", "b": ["2026-01-02"]}),
        [("2026-1-2", ["2026-01-02"])],
    ),
    "JSON: UTF-16": ("t.jsonl", of_lines({"a": "ä"}, encoding="utf-16"), [("ä",)]),
    "JSON: a byte order mark": ("t.jsonl", of_lines('\ufeff{"a": "ä"}', packed=True), [("ä",)]),
}
"""By the tool and what it wrote: the file, and its rows."""


@pytest.mark.parametrize("case", READ)
def test_it_is_read_by_content(tmp_path: Path, case: str) -> None:
    name, write, expected = READ[case]
    write(tmp_path / name)
    table = open_table(tmp_path / name)
    assert list(zip(*(table.values(column) for column in table.names), strict=True)) == expected
    assert len(table) == len(expected)


def damaged(path: Path) -> None:
    """Writes two texts, and makes the end of the second lie beyond the file."""
    of_arrow({"a": ["x" * 12_345, "y" * 655]}, "feather", compression="uncompressed")(path)
    ends = np.array([12_345, 13_000], np.int32).tobytes()
    assert path.read_bytes().count(ends) == 1
    path.write_bytes(path.read_bytes().replace(ends, np.array([12_345, 1 << 30], np.int32).tobytes()))


def not_utf8(path: Path) -> None:
    """Writes a text, and makes one of its letters a byte that is none."""
    of_arrow({"a": ["letters"]}, "feather", compression="uncompressed")(path)
    path.write_bytes(path.read_bytes().replace(b"letters", b"lett\xffrs"))


CUT = gzip.compress(b"a,b\n" + b"x,y\n" * 9999)[:-20]
REFUSED: dict[str, tuple[str, Write, str]] = {
    "Latin-1": (
        "t.csv",
        of_csv([["a", "b"], ["ä", "x"]], "latin-1"),
        r"t\.csv, line 2: not UTF-8 \(byte 0xe4\); .*iconv -f WINDOWS-",
    ),
    "Latin-1, JSON": ("t.jsonl", of_lines({"a": "é"}, encoding="latin-1"), r"line 1: not UTF-8 \(byte 0xe9\); .* iconv"),
    "UTF-16 without a mark": (
        "t.csv",
        of_csv(TABLE, "utf-16-le"),
        "seems to be UTF-16 without a byte order mark: .*iconv -f",
    ),
    "Excel: a workbook": ("t.xlsx", of_bytes(b"PK\x03\x04..."), "a workbook of Excel: .* save the sheet as 'CSV UTF-8'"),
    "pandas: a pickle": ("t.pkl", of_bytes(pickle.dumps({"a": 1})), "a pickle, which could run code: .*to_parquet"),
    "pandas: JSON by columns": ("t.json", of_pandas(WORDS, "to_json"), "has columns, not rows: .*orient='records', lines=True"),
    "pandas: two columns of a name": (
        "t.csv",
        lambda path: pandas.DataFrame([["x", "y"]], columns=["a", "a"]).to_csv(path, index=False),
        "two columns are called 'a'; rename one",
    ),
    "csv: an open quote": (
        "t.csv",
        of_lines("a,b", "x,y", '"u,v', "w,x", '"y,z'),
        "row that begins on line 3: .* a quote left open",
    ),
    "csv: too many fields": ("t.csv", of_lines("a,b", "x,y,z"), "line 2: 3 fields, but line 1 has 2; quote fields"),
    "csv: too few fields": ("t.tsv", of_lines("a\tb", "x\ty", "u"), "line 3: 1 fields, but line 1 has 2"),
    "csv: unquoted commas": ("t.csv", of_lines("text", "one", "two, three"), "line 3: 2 fields, but line 1 has 1; quote"),
    "csv: empty": ("t.csv", of_bytes(b"\n"), r"t\.csv is empty"),
    "csv: a byte order mark alone": ("t.csv", of_bytes(b"\xef\xbb\xbf"), r"t\.csv is empty"),
    "csv: a line of UTF-16 alone": ("t.csv", of_bytes(b"\xff\xfe\r\0\n\0"), r"t\.csv is empty"),
    "JSON: a byte order mark alone": ("t.jsonl", of_bytes(b"\xef\xbb\xbf\n"), r"t\.jsonl is empty"),
    "Excel: sep=; alone": ("t.csv", of_lines("sep=;"), "holds no rows"),
    "gzip: cut": ("t.csv.gz", of_bytes(CUT), "not a complete gzip file .* load or pack it again"),
    "zip": ("t.csv.zip", of_pandas(WORDS, "to_csv"), "a zip archive .*: unpack it"),
    "JSON: a cut line": ("t.jsonl", of_lines({"a": 1}, '{"a": '), "line 2: not JSON .* one object on one line"),
    "JSON: printed on several lines": ("t.jsonl", of_lines("{", '"a": 1', "}"), "line 1: not JSON .* one object on one line"),
    "JSON: numbers": ("t.jsonl", of_lines("1", "2"), "line 1: must be a JSON object with one key a column"),
    "JSON: a list a line": ("t.jsonl", of_lines('["a", "b"]', '["c", "d"]'), "has arrays without names of columns"),
    "JSON: no rows": ("t.json", of_lines("[]"), "holds no rows"),
    "JSON: half a character": ("t.jsonl", of_lines('{"a": "\\ud83d"}'), "line 1: 'a' holds half a surrogate pair"),
    "parquet: cut": ("t.parquet", of_bytes(b"PAR1" + b"x" * 99), "cannot be read: "),
    "parquet: other bytes": ("t.parquet", of_lines("a,b"), "is not a parquet file"),
    "arrow: damaged": ("t.arrow", damaged, "cannot be read: "),
    "arrow: no UTF-8": ("t.arrow", not_utf8, "cannot be read: .*UTF8"),
    "arrow: other bytes": ("t.arrow", of_lines("a,b"), "cannot be read: "),
    "datasets: another split": (
        "t",
        of_datasets(WORDS, "validation"),
        "no split 'train', only validation: name the folder",
    ),
    "a folder": ("t", lambda path: path.mkdir(), "is a folder, and not one that datasets saved"),
    "nothing": ("t.csv", lambda path: None, "does not exist"),
}
"""By what is wrong: the file, and the message."""


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_with_a_remedy(tmp_path: Path, case: str) -> None:
    name, write, message = REFUSED[case]
    write(tmp_path / name)
    with pytest.raises(DataError, match=message) as raised:
        open_table(tmp_path / name)
    assert str(tmp_path / name) in str(raised.value)
    assert "\n" not in str(raised.value)


NUMBERED = {
    "integer": (["7", " 8", None], [7.0, 8.0, np.nan]),
    "number": (["0.5", "NaN", "1e3"], [0.5, np.nan, 1000.0]),
    "time": (["2026-03-29", "2026-03-29T02:30:00.5Z", ""], None),
    "text": (["7", "eight", ""], None),
    "missing": (["", None, " "], [np.nan] * 3),
    "category": ([True, None, False], [1.0, np.nan, 0.0]),
    "vector": ([[1, 2], [3, 4], []], None),
    "list of texts": ([["a"], [], None], None),
    "object": ([{"a": 1}, None, {"a": 2}], None),
    "list written as text": (["['a', \"b\"]", "[]", ""], None),
    "image": ([{"bytes": b"x", "path": None}, None, None], None),
}


def test_a_number_beyond_64_bits_is_named(tmp_path: Path) -> None:
    of_lines("a", "7", "9" * 5000, "8")(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"t\.csv, line 3: column 'a' has a number beyond 64 bits\.$"):
        open_table(tmp_path / "t.csv").numbers("a")


def test_words_of_truth_are_categories(tmp_path: Path) -> None:
    of_csv([["a", "b"], ["True", "true"], ["", "no"], ["FALSE", "false"]])(tmp_path / "t.csv")
    table = open_table(tmp_path / "t.csv")
    assert [table.kind(name) for name in "ab"] == ["category", "text"]
    np.testing.assert_array_equal(table.numbers("a"), [1.0, np.nan, 0.0])
    assert list(table.values("a")) == ["True", None, "FALSE"]


def test_one_column_is_not_split_by_blanks(tmp_path: Path) -> None:
    of_lines("a", '""', "b c", ends="\r\n")(tmp_path / "t.txt")
    table = open_table(tmp_path / "t.txt", header=False, blanks=True)
    assert list(zip(*map(table.values, table.names), strict=True)) == [("a",), (None,), ("b c",)]


@pytest.mark.parametrize("kind", NUMBERED)
def test_the_kind_is_that_of_all_values(tmp_path: Path, kind: str) -> None:
    values, numbers = NUMBERED[kind]
    of_arrow({"row": [1, 2, 3], "x": values})(tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    assert table.kind("x") == kind
    assert table.missing("x") == sum(value is None for value in table.values("x"))
    if numbers is not None:
        np.testing.assert_array_equal(table.numbers("x"), numbers)


def test_integers_without_a_missing_one_keep_their_digits(tmp_path: Path) -> None:
    of_csv([["n"], [BIG], [-3]])(tmp_path / "t.csv")
    numbers = open_table(tmp_path / "t.csv").numbers("n")
    assert (numbers.dtype, numbers.tolist()) == (np.int64, [BIG, -3])


def test_what_is_no_number_is_named_with_its_line(tmp_path: Path) -> None:
    of_lines("n", "1", "nan", "29/03/2026")(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"t\.csv, line 4: column 'n' is '29/03/2026'; it must be a number"):
        open_table(tmp_path / "t.csv").numbers("n")


RANKED = {
    "integers": [2**60 + 1, -5, 2**60, 2**60 + 1],
    "decimals": ["1700000000.000000002", "-1", "1700000000.000000001", "1700000000.000000002"],
    "exponents": ["8.5e8", "1", "8e8", "850000000"],
    "long decimals": ["0.33", "0", "0.3299999999999", "3.3e-1"],
    "dates": [
        "2026-01-31T00:00:00.000000002Z",
        "1999-12-31",
        "2026-01-31 01:00:00.000000001+01:00",
        "2026-01-31T00:00:00.000000002",
    ],
    "zones": ["2026-01-31 12:00", "2026-01-31", "2026-01-31T13:59:59+02:00", "2026-01-31 12:00:00 UTC"],
}


@pytest.mark.parametrize("case", RANKED)
def test_times_are_ranked_without_rounding(tmp_path: Path, case: str) -> None:
    of_csv([["t"], *([value] for value in RANKED[case])])(tmp_path / "t.csv")
    assert open_table(tmp_path / "t.csv").times("t").tolist() == [3, 1, 2, 3]
    of_arrow({"t": RANKED[case]})(tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet").times("t").tolist() == [3, 1, 2, 3]


def test_times_of_arrow_are_ranked(tmp_path: Path) -> None:
    days = pandas.to_datetime(["2026-03-29 02:30:00.000000001", "1999-12-31", "2026-03-29 02:30"], format="ISO8601")
    for write in (of_pandas({"t": days}, "to_parquet"), of_pandas({"t": days.tz_localize("UTC")}, "to_parquet")):
        write(tmp_path / "t.parquet")
        assert open_table(tmp_path / "t.parquet").times("t").tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "2026-01-31"], "line 3: column 't' is '2026-01-31'; times must be all a number, .*, or all an ISO time"),
        (["2026-01-31", "1"], "line 3: column 't' is '1'"),
        (["noon", "1"], "line 2: column 't' is 'noon'"),
        (["1", "", "2"], "line 3: column 't' is empty"),
        (["2026-01-31", "NaT"], "line 3: column 't' is 'NaT'"),
        (["2026-01-31", "2026-02-30"], "line 3: column 't' is '2026-02-30'"),
        (["31.01.2026", "1.2.2026"], r"line 2: .*pandas\.to_datetime"),
    ],
)
def test_what_is_no_time_is_named_with_its_line(tmp_path: Path, values: list[str], message: str) -> None:
    of_csv([["t", "u"], *([value, "x"] for value in values)])(tmp_path / "t.csv")
    with pytest.raises(DataError, match=message):
        open_table(tmp_path / "t.csv").times("t")


def test_a_row_has_the_line_that_it_begins_on(tmp_path: Path) -> None:
    of_lines("a,b", '"x', 'y",1', "", "z,2")(tmp_path / "t.csv")
    table = open_table(tmp_path / "t.csv")
    assert [table.place(row) for row in (0, 1)] == [f"{tmp_path / 't.csv'}, line {line}" for line in (2, 5)]
    assert table.taken(np.array([1])).place(0).endswith("line 5")
    assert list(table.taken(np.array([False, True])).values("a")) == ["z"]
    renamed = table.renamed(["c", "a"])
    assert (renamed.names, list(renamed.values("a")), renamed.place(1)) == (("c", "a"), ["1", "2"], table.place(1))


def test_a_file_without_a_header_has_numbered_columns(tmp_path: Path) -> None:
    of_lines("0 1", "2  3")(tmp_path / "t.txt")
    seen: list[Any] = []
    table = open_table(tmp_path / "t.txt", header=lambda rows: bool(seen.append(rows)), blanks=True)
    assert seen == [[["0", "1"], ["2", "3"]]]
    assert [list(table.values(name)) for name in table.names] == [["0", "2"], ["1", "3"]]
    assert table.names == ("1", "2")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_blocks_of_json_end_with_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    words = [f"{number}\u2028\x85{'x' * number}" for number in range(9)]
    of_lines(*(f'{{"a": "{word}"}}' for word in words), encoding=encoding)(tmp_path / "t.jsonl")
    monkeypatch.setattr(text_streams, "_CHARACTERS", 12)  # up to the separators
    table = open_table(tmp_path / "t.jsonl")
    assert list(table.values("a")) == words
    assert [table.place(row)[-1] for row in range(9)] == list("123456789")


def test_chosen_columns_are_kept(tmp_path: Path) -> None:
    of_csv(TABLE)(tmp_path / "t.csv")
    assert open_table(tmp_path / "t.csv", columns=["answer", "other"]).names == ("answer",)


def test_a_data_set_of_the_hub_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(*words: Any, **options: Any) -> Any:
        asked.append((*words, options))
        return Dataset.from_dict(LISTS).to_iterable_dataset()

    monkeypatch.setattr("datasets.load_dataset", load)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda _, name: SimpleNamespace(sha=f"commit of {name}"))
    table = open_table("owner/name:pairs", hub=True, rows=1)
    assert asked == [("owner/name", "pairs", {"split": "train", "streaming": True, "revision": "commit of owner/name"})]
    assert table.metadata[COMMIT] == b"commit of owner/name"
    assert [list(table.values(name)) for name in table.names] == [["a"], [["x", "y"]], [None]]
    for path, hub in (("owner/name.csv", True), ("owner/name", False)):
        with pytest.raises(DataError, match=f"{path} does not exist"):
            open_table(path, hub=hub)


def test_a_file_may_not_unpack_to_far_more_than_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_streams, "MOST_BYTES", 1 << 20)
    of_bytes(gzip.compress(b"a,b\n" + b"x,y\n" * (1 << 20)))(tmp_path / "t.csv.gz")
    of_arrow({"a": ["x" * 1000] * 20_000})(tmp_path / "t.parquet")
    for name in ("t.csv.gz", "t.parquet"):
        with pytest.raises(DataError, match="unpacks to more than 200 times its size"):
            open_table(tmp_path / name)


def test_a_large_table_is_mapped_and_not_held(tmp_path: Path) -> None:
    of_arrow({"a": [f"text {number}" for number in range(200_000)]})(tmp_path / "t.parquet")
    before = pyarrow.total_allocated_bytes()
    table = open_table(tmp_path / "t.parquet")
    assert pyarrow.total_allocated_bytes() - before < 200_000
    assert table.first("a") == "text 0"
