"""Rows of texts as people have them, with hard negatives and lists: read by the names of their columns, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_files import Write, of_arrow, of_csv, of_datasets, of_lines, of_pandas, of_polars

from tempplug.errors import TempplugError
from tempplug_adapters.data_files import text_rows
from tempplug_adapters.data_files.text_roles import PAIRS
from tempplug_adapters.data_files.text_rows import Sample, open_texts

PAIR = [Sample("a", ("b",)), Sample("c", ("d",))]
HARD = [Sample("a", ("b",), ("x",)), Sample("c", ("d",), ("y",))]
BGE = {"query": ["a", "c"], "pos": [["b", "B"], ["d"]], "neg": [["x", "y", " "], []]}
BGE_ROWS = [Sample("a", ("b", "B"), ("x", "y")), Sample("c", ("d",), ())]
NLI = {"premise": ["a", "c", "e"], "hypothesis": ["b", "d", "f"], "label": ["entailment", "entailment", "neutral"]}
STS = {"sentence1": ["a", "c", "e"], "sentence2": ["b", "d", "f"], "score": [4.5, 4, 0.8]}

READ: dict[str, tuple[str, Write, dict[str, Any], list[Sample]]] = {
    "id, query, positive": (
        "t.jsonl",
        of_lines({"id": "q1", "query": "a", "positive": "b"}, {"id": "q2", "query": "c", "positive": "d"}),
        {},
        PAIR,
    ),
    "positive, anchor": ("t.csv", of_pandas({"positive": ["b", "d"], "anchor": ["a", "c"]}, "to_csv", index=False), {}, PAIR),
    "pandas' row numbers": ("t.csv", of_pandas({"question": ["a", "c"], "answer": ["b", "d"]}, "to_csv"), {}, PAIR),
    "label, text": ("t.csv", of_pandas({"label": ["x", "y"], "text": ["a", "c"]}, "to_csv"), {}, [Sample("a"), Sample("c")]),
    "a first row without negatives": (
        "t.jsonl",
        of_lines({"query": "a", "positive": "b"}, {"query": "c", "positive": "d", "negative": "y"}),
        {},
        [PAIR[0], HARD[1]],
    ),
    "a missing negative": (
        "t.csv",
        of_pandas({"query": ["a", "c"], "positive": ["b", "d"], "negative": [None, "y"]}, "to_csv", index=False),
        {},
        [PAIR[0], HARD[1]],
    ),
    "SimCSE's csv of NLI": (
        "t.csv",
        of_pandas({"sent0": ["a", "c"], "sent1": ["b", "d"], "hard_neg": ["x", "y"]}, "to_csv", index=False),
        {},
        HARD,
    ),
    "BGE: lines of JSON": (
        "t.jsonl",
        of_lines({"query": "a", "pos": ["b", "B"], "neg": ["x", "y"]}, {"query": "c", "pos": ["d"]}),
        {},
        BGE_ROWS,
    ),
    "BGE: with an instruction": (
        "t.jsonl",
        of_lines(
            {"query": "a", "pos": ["b", "B"], "neg": ["x", "y"], "pos_scores": [1.5, 2], "neg_scores": [], "prompt": "Find:"},
            {"query": "c", "pos": ["d"], "neg": [], "pos_scores": [3], "neg_scores": None, "type": "normal"},
        ),
        {},
        BGE_ROWS,
    ),
    "BGE: parquet of polars": ("t.parquet", of_polars(BGE, "write_parquet"), {}, BGE_ROWS),
    "BGE: parquet of pandas": ("t.parquet", of_pandas(BGE, "to_parquet"), {}, BGE_ROWS),
    "BGE: datasets": ("t", of_datasets(BGE, "train"), {}, BGE_ROWS),
    "sentence-transformers: negative_1 ...": (
        "t.parquet",
        of_arrow({"anchor": ["a"] * 2, "positive": ["b"] * 2, **{f"negative_{n}": [f"n{n}"] * 2 for n in (1, 10, 2)}}),
        {},
        [Sample("a", ("b",), ("n1", "n2", "n10"))] * 2,
    ),
    "negatives: a list beside one": (
        "t.jsonl",
        of_lines(*[{"query": "a", "document": "b", "negatives": ["x", "y"], "negative": "z"}] * 2),
        {},
        [Sample("a", ("b",), ("x", "y", "z"))] * 2,
    ),
    "STS with a threshold": ("t.csv", of_pandas(STS, "to_csv"), {"min_score": 4}, PAIR),
    "labels 0 and 1 with a threshold": (
        "t.csv",
        of_pandas({"query": ["a", "z", "c"], "passage": ["b", "z", "d"], "label": [1, 0, 1]}, "to_csv"),
        {"min_score": 1},
        PAIR,
    ),
    "NLI with a condition": ("t.parquet", of_pandas(NLI, "to_parquet"), {"where": ["label=entailment"]}, PAIR),
    "NLI, all of it": (
        "t.tsv",
        of_pandas(NLI, "to_csv", sep="\t", index=False),
        {"columns": ["premise", "hypothesis"]},
        [*PAIR, Sample("e", ("f",))],
    ),
    "a score that is always the same": (
        "t.csv",
        of_csv([["sentence1", "sentence2", "score"], ["a", "b", 1], ["c", "d", 1]]),
        {},
        PAIR,
    ),
    "columns of one's own": (
        "t.csv",
        of_csv([["title", "body", "wrong", "n"], ["a", "b", "x", 1], ["c", "d", "y", 2]]),
        {"columns": ["anchor=title", "positive=body", "negative=wrong"]},
        HARD,
    ),
    "columns in the order of the roles": (
        "t.csv",
        of_csv([["wrong", "v", "u"], ["x", "b", "a"], ["y", "d", "c"]]),
        {"columns": ["u", "v", "wrong"]},
        HARD,
    ),
    "an only column of texts": ("t.csv", of_csv([["n", "review"], [1, "a"], [2, "c"]]), {}, [Sample("a"), Sample("c")]),
    "a title and an abstract": (
        "t.jsonl",
        of_lines({"title": "a", "abstract": "b"}, {"title": "c", "abstract": "d"}),
        {},
        PAIR,
    ),
    "missing texts": (
        "t.csv",
        of_pandas({"query": ["a", None, "c", "g"], "answer": ["b", "x", "d", None]}, "to_csv", index=False),
        {},
        PAIR,
    ),
    "words that look missing": (
        "t.csv",
        of_csv([["question", "answer"], ["nan", "None"], ["NA", "null"]]),
        {},
        [Sample("nan", ("None",)), Sample("NA", ("null",))],
    ),
    "a NUL character, which tokenizers take": (
        "t.jsonl",
        of_lines('{"text": "a\\u0000"}', {"text": "c"}),
        {},
        [Sample("a\0"), Sample("c")],
    ),
    "a file of lines": (
        "t.txt",
        of_lines("\ufeffA cat sleeps.", "", "  Two\u2028dogs, run.  ", "3", ends="\r\n"),
        {},
        [
            Sample("A cat sleeps."),
            Sample("Two\u2028dogs, run."),
            Sample("3"),
        ],
    ),
    "a packed file of lines": ("t.txt.gz", of_lines("a", "c", packed=True), {}, [Sample("a"), Sample("c")]),
    "lines of UTF-16": ("t.txt", of_lines("a", "ü", encoding="utf-16"), {}, [Sample("a"), Sample("ü")]),
}
"""By what is written: the file, what is said of it, and the samples."""


@pytest.mark.parametrize("case", READ)
def test_texts_are_read_by_the_names_of_their_columns(tmp_path: Path, case: str) -> None:
    name, write, said, expected = READ[case]
    write(tmp_path / name)
    rows = open_texts(tmp_path / name, **said)
    assert list(rows) == expected
    assert [rows[position] for position in range(len(rows))] == expected
    assert not any("id" in line.split(":")[0] for line in rows.assigned.lines())


REFUSED: dict[str, tuple[str, Write, dict[str, Any], str]] = {
    "two columns without usual names": (
        "t.csv",
        of_csv([["a", "b"], ["x", "y"], ["z", "w"]]),
        {},
        r"no column is clearly the anchor\. Name it: --columns anchor=a\. .* 'b' \(text, such as 'y'\)",
    ),
    "pairs without a header": (
        "t.tsv",
        of_lines("How?\tSo.", "Why?\tBecause.", "Who?\tI."),
        {},
        r"no column is clearly the anchor.* If its first line is no header, write one\.",
    ),
    "a table called .txt": (
        "t.txt",
        of_csv([["Question", "Answer"], ["a", "b"]], "utf-16", dialect="excel-tab"),
        {},
        r"begins with the header of a table \(Question, Answer\): call it \.tsv",
    ),
    "scores that differ": (
        "t.csv",
        of_pandas(STS, "to_csv"),
        {},
        r"differ in their score, column 'score' \(such as '4\.5'.* --min-score N, or .*: --columns sentence1 sentence2",
    ),
    "labels that differ": (
        "t.csv",
        of_pandas(NLI, "to_csv"),
        {},
        "differ in their label.* --where label=entailment, or take all: --columns premise hypothesis",
    ),
    "a threshold without scores": (
        "t.csv",
        of_csv([["query", "answer"], ["a", "b"], ["c", "d"]]),
        {"min_score": 1},
        "min_score=1: .* has no score",
    ),
    "single texts for pairs": (
        "t.csv",
        of_csv([["text"], ["a"], ["b"]]),
        {"roles": PAIRS},
        "no column is clearly the positive. Name it",
    ),
    "lines for pairs": ("t.txt", of_lines("a", "b"), {"roles": PAIRS}, "contains single texts; wanted are pairs, a table with"),
    "two anchors": (
        "t.csv",
        of_csv([["query", "title", "answer"], ["a", "b", "c"]]),
        {},
        "'query' and 'title' could each be the anchor",
    ),
    "answers that are numbers": (
        "t.csv",
        of_csv([["question", "answer"], ["a", 42], ["b", 7]]),
        {},
        "'answer' is an integer, such as '42', but positive",
    ),
    "passages that are objects": (
        "t.jsonl",
        of_lines(*[{"query": "a", "positive": [{"text": "b"}]}] * 2),
        {},
        r"'positive' is an object, such as '\[\{\"text\": \"b\"\}\]', but positive must be a text or a list of texts",
    ),
    "a condition that nothing meets": (
        "t.csv",
        of_pandas(NLI, "to_csv"),
        {"where": ["label=yes"]},
        "holds 0 samples that meet label=yes",
    ),
    "a condition on no column": (
        "t.csv",
        of_pandas(NLI, "to_csv"),
        {"where": ["labl=yes"]},
        "no column 'labl'. Did you mean 'label'",
    ),
    "a condition without a value": (
        "t.csv",
        of_pandas(NLI, "to_csv"),
        {"where": ["label"]},
        "where='label' must be written column=value",
    ),
    "columns of lines": ("t.txt", of_lines("a", "b"), {"columns": ["a"]}, "columns, where and min_score belong to tables"),
    "one text": ("t.txt", of_lines("a", ""), {}, "holds 1 samples; contrastive training needs at least 2"),
    "no text": ("t.txt", of_lines(""), {}, "t.txt is empty"),
    "no rows": ("t.csv", of_lines("query,answer"), {}, "holds no values below its names of columns"),
    "a blank line for vectors": (
        "t.csv",
        of_csv([["text"], ["a"], [" "], ["c"]]),
        {"whole": True},
        "1 of 3 rows have no anchor, line 3 first: remove",
    ),
}
"""By what is unclear: the file, what is said of it, and the message."""


@pytest.mark.parametrize("case", REFUSED)
def test_texts_are_refused_with_the_flag_to_give(tmp_path: Path, case: str) -> None:
    name, write, said, message = REFUSED[case]
    write(tmp_path / name)
    with pytest.raises(TempplugError, match=message) as raised:
        open_texts(tmp_path / name, **said)
    assert "\n" not in str(raised.value)


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    write = of_pandas(
        {"query": ["a", None, "c", "g", "e"], "answer": ["b", "x", "d", None, "f"], "score": [1, 1, 2, 2, 0]}, "to_csv"
    )
    write(tmp_path / "t.csv")
    rows = open_texts(tmp_path / "t.csv", min_score=1)
    assert rows.notes == (
        "4 of 5 pairs have a score of at least 1",
        "left out: 1 of 5 rows have no anchor, line 3 first",
        "left out: 1 of 5 rows have no positive, line 5 first",
    )
    assert rows.assigned.lines()[:3] == [
        "anchor: column 'query' (text), 4 values, 1 missing, first 'a'",
        "positive: column 'answer' (text), 4 values, 1 missing, first 'b'",
        "score: column 'score' (integer), 5 values, 0 missing, first '1'",
    ]


def test_each_positive_can_be_a_pair(tmp_path: Path) -> None:
    of_polars(BGE, "write_ndjson")(tmp_path / "t.jsonl")
    rows = open_texts(tmp_path / "t.jsonl")
    assert (rows.most_positives, rows.most_negatives, rows.uneven) == (2, 2, True)
    paired = rows.paired()
    assert list(paired) == [Sample("a", ("b",), ("x", "y")), Sample("a", ("B",), ("x", "y")), Sample("c", ("d",))]
    assert (paired.most_positives, list(paired[1:])) == (1, list(paired)[1:])
    assert list(paired.taken(np.array([2, 0]))) == [paired[2], paired[0]]
    assert list(paired.without(frozenset({"y", "d"}), ())) == [
        Sample("a", ("b",), ("x",)),
        Sample("a", ("B",), ("x",)),
        Sample("c"),
    ]


def test_the_real_pairs_and_sentences_are_all_there(data_dir: Path) -> None:
    assert len(open_texts(data_dir / "text/wiki/wiki1m_for_simcse_head.txt.gz")) == 11914
    samples = open_texts(data_dir / "text/nli/nli_pairs.tsv.gz", where=["label=entailment"])
    assert len(samples) == 20600
    assert samples[0].positives == ("Two woman are holding packages.",)


@pytest.mark.parametrize("together", [2, 64])
def test_samples_are_the_same_one_by_one_and_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    rows = [{"query": f"q{n}", "pos": [f" p{n}", f"p{n} {n}"][: 1 + n % 2], "neg": [f"n{n}"] * (n % 3)} for n in range(1000)]
    of_lines(*rows)(tmp_path / "t.jsonl")
    monkeypatch.setattr(text_rows, "_TOGETHER", together)
    every = open_texts(tmp_path / "t.jsonl", roles=PAIRS)
    positions = np.array([999, 0, 5, 6, 7, 500])
    expected = [Sample(f"q{n}", (f"p{n}", f"p{n} {n}")[: 1 + n % 2], (f"n{n}",) * (n % 3)) for n in positions.tolist()]
    assert list(every.taken(positions)) == [every[position] for position in positions.tolist()] == expected
    paired = [Sample(sample.anchor, (text,), sample.negatives) for sample in expected for text in sample.positives]
    assert list(every.taken(positions).paired()) == paired
