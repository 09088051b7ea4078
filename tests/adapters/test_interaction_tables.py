"""Interactions as pandas, polars, RecBole, MovieLens, Amazon and session data have them: read by content, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas
import pytest
from table_files import Write, of_arrow, of_csv, of_datasets, of_lines, of_pandas, of_polars

from tempplug.errors import TempplugError
from tempplug_adapters.recommendation.interaction_files import load_sequences

DEFAULT = ("user", "item", "time")
BIG = 2**53 + 1
LOG = {"user": ["u", "v", "u", "u"], "item": ["a", "a", "b", "c"], "time": [3, 9, 1, 2]}
HISTORIES = {"u": ["b", "c", "a"], "v": ["a"]}
RENAMED = {"userId": LOG["user"], "movieId": LOG["item"], "rating": [1.5, 2, 3, 4], "timestamp": LOG["time"]}
DAYS = pandas.to_datetime(["2026-03-29", "2026-01-01", "2026-03-28 23:59:59.5", "2026-03-28 23:59:59.75"], format="mixed")
DATED = {**LOG, "time": DAYS}
NANOSECONDS = [1_700_000_000_000_000_002, 5, 1_700_000_000_000_000_000, 1_700_000_000_000_000_001]
IDS = {"user": [BIG, BIG + 2, BIG, BIG], "item": ["01", "1", "1.0", "1e5"], "time": LOG["time"]}
IDS_READ = {str(BIG): ["1.0", "1e5", "01"], str(BIG + 2): ["1"]}
TABLE = [list(LOG), *zip(*LOG.values(), strict=True)]
DOTS = [list(LOG), *zip(LOG["user"], LOG["item"], ["3.1.2026", "1.1.2026", "1.1.2026", "2.1.2026"], strict=True)]
AMAZON = [
    {"overall": 5.0, "reviewerID": "A1", "asin": "0000031887", "reviewTime": "02 1, 2014", "unixReviewTime": 1391212800},
    {"overall": 1.0, "reviewerID": "A1", "asin": "B00", "reviewTime": "01 1, 2014", "unixReviewTime": 1388534400, "vote": "7"},
]
AMAZON_2023 = [
    {"rating": 5.0, "title": "x", "asin": "B1", "parent_asin": "B0", "user_id": "AE", "timestamp": 1588687728923},
    {"rating": 4.0, "title": "y", "asin": "B2", "parent_asin": "B0", "user_id": "AE", "timestamp": 1588687728922},
]
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float"
CLICKS = ("1,2014-04-07T10:54:09.868Z,214536500,0", "1,2014-04-07T10:51:09.277Z,214536502,0", "2,2014-04-07T13:56:37.614Z,9,0")
DIGINETICA = ("sessionId;userId;itemId;timeframe;eventdate", "1;NA;81766;526309;2016-05-09", "1;NA;31331;1031018;2016-05-08")
RETAIL = ("timestamp,visitorid,event,itemid,transactionid", "1433221332117,257597,view,355908,", "1433221332116,257597,view,5,")

Case = tuple[str, Write, Sequence[str], dict[str, list[str]]]
READ: dict[str, Case] = {
    "pandas: csv with row numbers": ("t.csv", of_pandas(LOG, "to_csv"), DEFAULT, HISTORIES),
    "pandas: csv, other order": ("t.csv", of_pandas(dict(reversed(LOG.items())), "to_csv", index=False), DEFAULT, HISTORIES),
    "pandas: tabs, packed": ("t.tsv.gz", of_pandas(LOG, "to_csv", index=False, sep="\t"), DEFAULT, HISTORIES),
    "pandas: dates": ("t.csv", of_pandas(DATED, "to_csv", index=False), DEFAULT, HISTORIES),
    "pandas: dates of a zone": ("t.csv", of_pandas({**LOG, "time": DAYS.tz_localize("UTC")}, "to_csv"), DEFAULT, HISTORIES),
    "pandas: dates in parquet": ("t.parquet", of_pandas(DATED, "to_parquet"), DEFAULT, HISTORIES),
    "pandas: days in parquet": (
        "t.parquet",
        of_pandas({**LOG, "time": list(DAYS.date)}, "to_parquet"),
        DEFAULT,
        {"u": ["b", "c", "a"], "v": ["a"]},
    ),
    "pandas: dates in lines of JSON": (
        "t.jsonl",
        of_pandas(DATED, "to_json", orient="records", lines=True, date_format="iso"),
        DEFAULT,
        HISTORIES,
    ),
    "pandas: nanoseconds": ("t.csv", of_pandas({**LOG, "time": NANOSECONDS}, "to_csv"), DEFAULT, HISTORIES),
    "pandas: nanoseconds in parquet": ("t.parquet", of_pandas({**LOG, "time": NANOSECONDS}, "to_parquet"), DEFAULT, HISTORIES),
    "pandas: seconds with nine decimals": (
        "t.csv",
        of_pandas({**LOG, "time": [f"1700000000.00000000{each}" for each in LOG["time"]]}, "to_csv"),
        DEFAULT,
        HISTORIES,
    ),
    "pandas: dates of nanoseconds": (
        "t.csv",
        of_pandas({**LOG, "time": [f"2026-03-29 02:30:00.00000000{each}" for each in LOG["time"]]}, "to_csv"),
        DEFAULT,
        HISTORIES,
    ),
    "pandas: ids beyond 53 bits": ("t.csv", of_pandas(IDS, "to_csv"), DEFAULT, IDS_READ),
    "pandas: ids beyond 53 bits in parquet": ("t.parquet", of_pandas(IDS, "to_parquet"), DEFAULT, IDS_READ),
    "pandas: categories": (
        "t.parquet",
        lambda path: pandas.DataFrame(LOG).astype({"user": "category", "item": "category"}).to_parquet(path),
        DEFAULT,
        HISTORIES,
    ),
    "pandas: integers that became floating-point numbers": (
        "t.parquet",
        of_pandas({**LOG, "item": [7.0, 7.0, 8.0, 9.0]}, "to_parquet"),
        DEFAULT,
        {"u": ["8", "9", "7"], "v": ["7"]},
    ),
    "pandas: columns with numbers for names": (
        "t.csv",
        lambda path: pandas.DataFrame(list(zip(*LOG.values(), strict=True))).to_csv(path),
        ("user=0", "item=1", "time=2"),
        HISTORIES,
    ),
    "polars: ndjson": ("t.ndjson", of_polars(LOG, "write_ndjson"), DEFAULT, HISTORIES),
    "polars: csv of dates": ("t.csv", of_polars({**LOG, "time": list(DAYS)}, "write_csv"), DEFAULT, HISTORIES),
    "polars: ipc": ("t.arrow", of_polars(LOG, "write_ipc"), DEFAULT, HISTORIES),
    "pyarrow: feather": ("t.feather", of_arrow(LOG, "feather"), DEFAULT, HISTORIES),
    "datasets: a folder": ("t", of_datasets(LOG), DEFAULT, HISTORIES),
    "Excel: CSV UTF-8 of a German one": (
        "t.csv",
        of_csv(TABLE, "utf-8-sig", dialect="excel", delimiter=";"),
        DEFAULT,
        HISTORIES,
    ),
    "Excel: Unicode text": ("t.txt", of_csv(TABLE, "utf-16", dialect="excel-tab"), DEFAULT, HISTORIES),
    "csv: names that need quotes": (
        "t.csv",
        of_csv([["item", "user"], ["a, b", "ü\u2028"], ['a\n"b"', "ü\u2028"]]),
        DEFAULT,
        {"ü\u2028": ["a, b", 'a\n"b"']},
    ),
    "csv: no times": ("t.csv", of_lines("user,item", "u,b", "v,a", "u,a", "u,b"), DEFAULT, {"u": ["b", "a", "b"], "v": ["a"]}),
    "csv: times that are not wanted": ("t.csv", of_csv(TABLE), ("user", "item"), {"u": ["a", "b", "c"], "v": ["a"]}),
    "csv: equal times and repeated rows": (
        "t.csv",
        of_lines("user,item,time", "u,b,1", "u,a,1", "u,a,1", "u,c,0"),
        DEFAULT,
        {"u": ["c", "b", "a", "a"]},
    ),
    "MovieLens: ratings.csv": (
        "ratings.csv",
        of_csv([list(RENAMED), *zip(*RENAMED.values(), strict=True)]),
        DEFAULT,
        HISTORIES,
    ),
    "MovieLens: u.data": (
        "u.data",
        of_lines("196\t242\t3\t881250949", "186\t302\t3\t891717742", "196\t377\t1\t878887116"),
        ("user=1", "item=2", "time=4"),
        {"196": ["377", "242"], "186": ["302"]},
    ),
    "MovieLens: ratings.dat": (
        "ratings.dat",
        of_lines("1::1193::5::978300760", "1::661::3::978302109", "1::914::3::97830196"),
        ("user=1", "item=2", "time=4"),
        {"1": ["914", "1193", "661"]},
    ),
    "Amazon: reviews": (
        "reviews_Toys.json.gz",
        of_lines(*AMAZON, packed=True),
        DEFAULT,
        {"A1": ["B00", "0000031887"]},
    ),
    "Amazon: ratings without a header": (
        "ratings.csv",
        of_lines("A1,0205616461,5.0,1369699200", "A1,0558925278,3.0,1355443200"),
        ("1", "2", "4"),
        {"A1": ["0558925278", "0205616461"]},
    ),
    "Amazon 2023: the item is given": (
        "t.jsonl",
        of_lines(*AMAZON_2023),
        ("item=asin",),
        {"AE": ["B2", "B1"]},
    ),
    "a file without a header that begins with small numbers": (
        "t.tsv",
        of_lines("7\t9\t2", "1\t0\t1"),
        ("user=1", "item=2", "time=3"),
        {"7": ["9"], "1": ["0"]},
    ),
    "Yoochoose: clicks": (
        "yoochoose-clicks.dat",
        of_lines(*CLICKS),
        ("user=1", "item=3", "time=2"),
        {"1": ["214536502", "214536500"], "2": ["9"]},
    ),
    "Diginetica: the session is given": (
        "train-item-views.csv",
        of_lines(*DIGINETICA),
        ("user=sessionId",),
        {"1": ["31331", "81766"]},
    ),
    "Retailrocket: events": ("events.csv", of_lines(*RETAIL), DEFAULT, {"257597": ["5", "355908"]}),
    "RecBole: NAME.inter": (
        "toys.inter",
        of_lines(INTER, "u\ta\t3\t881250949", 'u\t"b\t1\t8e8', "v\ta\t2\t1", "u\tc\t5\t8.5e8"),
        DEFAULT,
        {"u": ['"b', "c", "a"], "v": ["a"]},
    ),
    "RecBole: NAME.inter, columns given": (
        "toys.inter",
        of_lines("a:token\tb:token\tc:float", "1\tx\t2.0", "1\ty\t1.0"),
        ("user=a", "item=b", "time=c"),
        {"1": ["y", "x"]},
    ),
    "RecBole: NAME.inter without types": ("toys.inter", of_lines("user_id\titem_id", "1\tx"), DEFAULT, {"1": ["x"]}),
}
"""By the tool and what it wrote: the file, the flag --columns, and the items of each user."""


@pytest.mark.parametrize("case", READ)
def test_it_is_read_by_content(tmp_path: Path, case: str) -> None:
    name, write, columns, expected = READ[case]
    write(tmp_path / name)
    found = load_sequences(str(tmp_path / name), None, columns)
    histories = [[found.names[item - 1] for item in history] for history in found.histories]
    assert dict(zip(found.users, histories, strict=True)) == expected
    assert len(found.users) == len(expected)


ROLES = r"--columns user=1 item=2 time=4"
REFUSED: dict[str, tuple[str, Write, Sequence[str], str]] = {
    "MovieLens: u.data": (
        "u.data",
        of_lines("196\t242\t3\t881250949", "1\t2\t3\t4"),
        DEFAULT,
        f"first line is '196', .*{ROLES}",
    ),
    "MovieLens: ratings.dat": (
        "r.dat",
        of_lines("1::1193::5::978300760", "1::2::3::4"),
        DEFAULT,
        f"first line is '1', '1193'.*{ROLES}",
    ),
    "Amazon: ratings": ("r.csv", of_lines("A1,0205616461,5.0,1369699200", "A1,02,3.0,1"), DEFAULT, f"first line is.*{ROLES}"),
    "Amazon 2023: two items": (
        "t.jsonl",
        of_lines(*AMAZON_2023),
        DEFAULT,
        r"no column is clearly the item\. Name it: --columns item=asin\. .*'parent_asin' \(text, such as 'B0'\)",
    ),
    "Diginetica: sessions or users": (
        "t.csv",
        of_lines(*DIGINETICA, "2;7;81766;5;2016-05-09"),
        DEFAULT,
        r"no column is clearly the user\. Name it: --columns user=.*'sessionId' \(integer, such as '1'\), 'userId'",
    ),
    "Excel: dates of a German one": ("t.csv", of_csv(DOTS, delimiter=";"), DEFAULT, r"line 2: .*'3\.1\.2026'; .*to_datetime"),
    "a shop: dates of an American one": (
        "t.csv",
        of_lines("CustomerID,StockCode,InvoiceDate", "1,85123A,12/1/2010 8:26"),
        DEFAULT,
        r"line 2: column 'InvoiceDate' is '12/1/2010 8:26'; times must be all a number, .*, or all an ISO time.*to_datetime",
    ),
    "pandas: a missing user": (
        "t.csv",
        of_pandas({**LOG, "user": ["u", None, "u", "u"]}, "to_csv"),
        DEFAULT,
        r"t\.csv, line 3: column 'user' is empty; each row must name its user .*dropna\(subset=\['user'\]\)",
    ),
    "pandas: a missing user among numbers": (
        "t.csv",
        of_pandas({**LOG, "user": [1.0, None, 1, 1]}, "to_csv", na_rep="NaN"),
        DEFAULT,
        "line 3: column 'user' is 'NaN'",
    ),
    "pandas: a missing user turned into a word": (
        "t.csv",
        lambda path: pandas.DataFrame({**LOG, "user": [1.5, None, "u", "u"]}).astype({"user": object}).map(str).to_csv(path),
        DEFAULT,
        "line 3: column 'user' is '(nan|None)'; each row must name",
    ),
    "pandas: a missing item in parquet": (
        "t.parquet",
        of_pandas({**LOG, "item": [1, None, 2, 3]}, "to_parquet"),
        DEFAULT,
        "row 2: column 'item' is (empty|'nan'); each row must name",
    ),
    "pandas: ids that a float cannot hold": (
        "t.parquet",
        of_pandas({**LOG, "item": [1.0, 2.0**60, 2, 3]}, "to_parquet"),
        DEFAULT,
        r"row 2: column 'item' is '1\.15.*e\+18'; .* by a text or an integer",
    ),
    "pandas: a missing time": (
        "t.csv",
        of_pandas({**LOG, "time": [3, None, 1, 2]}, "to_csv"),
        DEFAULT,
        r"line 3: column 'time' is empty; .*dropna\(subset=\['time'\]\)",
    ),
    "pandas: no time at all": ("t.csv", of_pandas({**LOG, "time": [None] * 4}, "to_csv"), DEFAULT, "clearly the time"),
    "csv: numbers and dates": (
        "t.csv",
        of_lines("user,item,time", "a,b,1", "a,c,2026-01-31"),
        DEFAULT,
        "line 3: .*'2026-01-31'",
    ),
    "csv: a day that does not exist": (
        "t.csv",
        of_lines("user,item,time", "a,b,2026-02-28", "a,c,2026-02-30"),
        DEFAULT,
        "line 3: column 'time' is '2026-02-30'",
    ),
    "csv: two times": (
        "t.csv",
        of_lines("user,item,timestamp,date", "a,b,1,2026-01-31"),
        DEFAULT,
        r"clearly the time\. Name it: --columns time=timestamp",
    ),
    "csv: a rating is no item": (
        "t.csv",
        of_lines("user,rating,timestamp", "a,5,1"),
        DEFAULT,
        r"clearly the item\. Name it: --columns item=COLUMN\. .*'rating' \(integer",
    ),
    "pandas: a row number is no user": (
        "t.csv",
        of_pandas({"item": [1, 2], "time": [1, 2]}, "to_csv"),
        DEFAULT,
        r"clearly the user\. Name it: --columns user=COLUMN\. .*'Unnamed: 0' \(integer",
    ),
    "csv: a column that does not exist": (
        "t.csv",
        of_csv(TABLE),
        ("user=usr",),
        r"has no column 'usr'\. Did you mean 'user'\? It has: 'user' \(text, such as 'u'\)",
    ),
    "csv: one column": ("t.csv", of_lines("item", "a"), DEFAULT, "clearly the user"),
    "csv: a row that is too short": ("t.csv", of_lines("user,item,time", "a,b"), DEFAULT, "line 2: 2 fields, but line 1 has 3"),
    "csv: only a header": ("t.csv", of_lines("user,item,time"), DEFAULT, r"t\.csv holds no rows"),
    "csv: Latin-1": ("t.csv", of_csv([["user", "item"], ["ü", "a"]], "latin-1"), DEFAULT, "line 2: not UTF-8 .*iconv"),
    "RecBole: an item that is a number": (
        "t.inter",
        of_lines("user_id:token\titem_id:float", "1\t2"),
        DEFAULT,
        r"t\.inter, line 1: the type of 'item_id', the item, is 'float', but must be token .*: write item_id:token",
    ),
    "RecBole: a type that does not exist": (
        "t.inter",
        of_lines("user_id:int\titem_id:token", "1\t2"),
        DEFAULT,
        r"line 1: the type of 'user_id', the user, is 'int', .*token, token_seq, float, float_seq",
    ),
    "RecBole: histories in one file": (
        "t.inter",
        of_lines("session_id:token\titem_id_list:token_seq\titem_id:token", "1\t2 3\t4"),
        DEFAULT,
        "has histories, not a row for each interaction: name the folder NAME",
    ),
}
"""By the tool and what it wrote: the file, the flag --columns, and the message."""


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_with_a_remedy(tmp_path: Path, case: str) -> None:
    name, write, columns, message = REFUSED[case]
    write(tmp_path / name)
    with pytest.raises(TempplugError, match=message) as raised:
        load_sequences(str(tmp_path / name), None, columns)
    assert str(tmp_path / name) in str(raised.value)
    assert "\n" not in str(raised.value)
