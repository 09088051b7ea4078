"""Which column becomes which role: by flag, by usual name, by kind; never by position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from table_files import of_arrow, of_csv

from tempplug.errors import ConfigError
from tempplug_adapters.data_files.roles import ANY, INTEGER, NUMBER, TEXT, TEXTS, Role, assign
from tempplug_adapters.data_files.tables import Table, open_table

ROLES = (
    Role("anchor", (TEXT,), ("anchor", "query", "sentence1", "text", "title")),
    Role("positive", (TEXT, TEXTS), ("positive", "pos", "answer", "sentence2"), required=False),
    Role("negative", (TEXT, TEXTS), ("negative", "negatives", "neg"), many=True, required=False),
    Role("id", ANY, ("id", "query_id", "doc_id"), required=False),
    Role("score", (NUMBER, INTEGER), ("score", "similarity"), required=False),
    Role("label", ANY, ("label", "class"), required=False),
)
PAIR = (ROLES[0], Role("positive", (TEXT, TEXTS), ROLES[1].names), *ROLES[2:])


def table(folder: Path, columns: dict[str, Any]) -> Table:
    of_arrow({name: [value, value] for name, value in columns.items()})(folder / "t.parquet")
    return open_table(folder / "t.parquet")


CLEAR: list[tuple[dict[str, Any], str, str]] = [
    ({"id": "q1", "query": "a", "positive": "b"}, "", "anchor=query positive=positive id=id"),
    ({"positive": "b", "anchor": "a"}, "", "anchor=anchor positive=positive"),
    ({"Sentence-1": "a", "sentence_2": "b", "SCORE": 0.8}, "", "anchor=Sentence-1 positive=sentence_2 score=SCORE"),
    ({"label": "x", "text": "a"}, "", "anchor=text label=label"),
    ({"": "0", "text": "a"}, "", "anchor=text"),
    ({"neg_10": "k", "neg_2": "j", "query": "a", "neg": "i"}, "", "anchor=query negative=neg,neg_2,neg_10"),
    ({"review": "a", "stars": 5, "Unnamed: 0": "x"}, "", "anchor=review"),
    ({"review": "a", "class": "x"}, "", "anchor=review label=class"),
    ({"title": "a", "query": "b", "anchor": "c"}, "", "anchor=anchor"),
    ({"query": "a", "negatives": None}, "", "anchor=query"),
    ({"query": "a", "query_id": 3, "doc_id": 4}, "", "anchor=query"),
    ({"query": "a", "query_id": 3, "_id": 4}, "", "anchor=query id=_id"),
    ({"a": "x", "b": "y", "c": "z"}, "b a", "anchor=b positive=a"),
    ({"a": "x", "b": "y", "c": "z", "d": "w", "id": 7}, "b a c d", "anchor=b positive=a negative=c,d"),
    ({"a": "x", "b": "y", "neg": "z"}, "anchor=b positive=a", "anchor=b positive=a negative=neg"),
    ({"a": "x", "b": "y", "c": "z"}, "anchor=a negative=b,c", "anchor=a negative=b,c"),
    ({"a=b": "x", "neg": "y"}, "a=b", "anchor=a=b"),
    ({"q,1": "x", "b": "y"}, "anchor=q,1 positive=b", "anchor=q,1 positive=b"),
]


@pytest.mark.parametrize(("columns", "given", "expected"), CLEAR)
def test_a_column_gets_its_role(tmp_path: Path, columns: dict[str, Any], given: str, expected: str) -> None:
    assigned = assign(table(tmp_path, columns), ROLES, given.split())
    wanted = {
        role: [names] if names in columns else names.split(",")
        for role, _, names in (word.partition("=") for word in expected.split())
    }
    assert assigned.to_dict() == wanted
    assert set(assigned.unused) == columns.keys() - {name for names in wanted.values() for name in names}


UNCLEAR: list[tuple[dict[str, Any], str, str]] = [
    ({"a": "x", "b": "y"}, "", r"no column is clearly the anchor\. Name it: --columns anchor=a\. It has: 'a' \(text, such as"),
    ({"id": "x", "": "y"}, "", "no column is clearly the anchor. Name it: --columns anchor=COLUMN"),
    ({"query": "x", "title": "y"}, "", r"'query' and 'title' could each be the anchor\. Choose one: --columns anchor=query\."),
    ({"query": "x", "answer": 42}, "", "'answer' is an integer, such as '42', but positive must be a text or a list of texts"),
    (
        {"text": 0.8},
        "",
        "'text' is a number, such as '0.8', but anchor must be a text. Name another column, --columns anchor=COLUMN, or r",
    ),
    ({"query": "x"}, "anchor=qery", r"has no column 'qery'\. Did you mean 'query'\? It has: 'query' \(text"),
    ({"query": "x", "n": "7"}, "query n", "'n' is an integer, such as '7', but positive must be a text"),
    ({"query": "x", "n": None}, "query n", "'n' has no values, but positive must be"),
    ({"query": "x", "n": "y"}, "anchor=query n", "anchor=query n: 'n' must be ROLE=COLUMN, ROLE one of anchor, positive"),
    ({"query": "x", "n": "y"}, "anchor=query,n", r"anchor is one column, not 2; roles: anchor, positive"),
]


@pytest.mark.parametrize(("columns", "given", "message"), UNCLEAR)
def test_what_is_not_clear_is_refused(tmp_path: Path, columns: dict[str, Any], given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assign(table(tmp_path, columns), ROLES, given.split())


@pytest.mark.parametrize("columns", [{"query": "a", "body": "b"}, {"query": "a"}, {"query": "a", "id": "x"}])
def test_beside_an_anchor_another_text_need_not_be_its_positive(tmp_path: Path, columns: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"t\.parquet: no column is clearly the positive\. Name it: --columns positive="):
        assign(table(tmp_path, columns), PAIR)


def test_a_first_line_that_is_no_header_is_named(tmp_path: Path) -> None:
    of_csv([["How?", "So."], ["Why?", "Because."]])(tmp_path / "t.csv")
    with pytest.raises(ConfigError, match=r"'How\?' \(text, such as 'Why\?'\).* If its first line is no header, write one"):
        assign(open_table(tmp_path / "t.csv"), ROLES)


def test_a_table_that_is_a_header_alone_is_said_to_hold_nothing(tmp_path: Path) -> None:
    of_csv([["query", "positive"]])(tmp_path / "t.csv")
    with pytest.raises(ConfigError, match=r"t\.csv holds no values below its names of columns, 'query', 'positive'\."):
        assign(open_table(tmp_path / "t.csv"), ROLES)


def test_each_column_has_a_line(tmp_path: Path) -> None:
    of_csv([["id", "query", "pos", "score", "extra"], [1, "a\tb" + "c" * 99, "", 0.5, ""], [2, "c", "d", "", ""]])(
        tmp_path / "t.csv"
    )
    lines = assign(open_table(tmp_path / "t.csv"), ROLES).lines()
    assert lines == [
        rf"anchor: column 'query' (text), 2 values, 0 missing, first 'a\tb{'c' * 54}...'",
        "positive: column 'pos' (text), 1 values, 1 missing, first 'd'",
        "id: column 'id' (integer), 2 values, 0 missing, first '1'",
        "score: column 'score' (number), 1 values, 1 missing, first '0.5'",
        "not read: 'extra'",
    ]


def test_many_columns_of_a_role_share_a_line(tmp_path: Path) -> None:
    made = table(tmp_path, {f"neg_{place}": "a" if place < 11 else None for place in range(12)} | {"query": "b"})
    lines = assign(made, ROLES, ["negative=" + ",".join(f"neg_{place}" for place in range(10))]).lines()
    assert lines[1] == "negative: 10 columns 'neg_0' to 'neg_9' (text), 20 values, 0 missing, first 'a'"


def test_other_columns_can_have_a_role(tmp_path: Path) -> None:
    assigned = assign(table(tmp_path, {"query": "a", "pos": "b", "c": "d"}), ROLES).having(positive=(), negative=["c"])
    assert assigned.to_dict() == {"anchor": ["query"], "negative": ["c"]}
    assert assigned.unused == ("pos",)
