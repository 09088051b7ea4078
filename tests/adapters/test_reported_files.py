"""Files of public bug reports: well-known libraries read them wrongly without saying so, or failed without a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pandas
import pytest
from table_files import Write, of_arrow, of_csv, of_datasets, of_lines, of_pandas, of_polars

from tempplug.errors import TempplugError
from tempplug_adapters.data_files.tables import open_table
from tempplug_adapters.data_files.text_roles import PAIRS, TEXTS
from tempplug_adapters.data_files.text_rows import Sample, open_texts
from tempplug_adapters.sentence_evaluation.retrieval_data import load_collection
from tempplug_adapters.simcse.method import SimCSEMethod
from tempplug_adapters.simcse.recipe import METHOD, SimCSERecipe
from tempplug_adapters.training.method import Source

BGE = {"query": "a", "pos": ["b", "B"], "neg": ["x"], "pos_scores": [1, 2], "neg_scores": [0], "prompt": "Find: ", "type": "n"}
LATE = [{"query": f"q{n} {'.' * 90}", "positive": "p", "negative": None} for n in range(90_000)]
LISTS = {"query": ["a", "c"], "pos": [["b", "B"], ["d"]], "neg": [["x"], ["y", "z"]]}
QUOTED = {"text": ["ab\ncd", 'e "f", g'] * 30_000, "i": ["1", "2"] * 30_000}
SINGLE = [Sample("one"), Sample("two")]

READ: dict[str, tuple[str, Write, dict[str, Any], list[Sample]]] = {
    "huggingface/datasets#4467: the word null": (
        "t.csv",
        of_csv([["path", "sentence"], ["0.wav", "null"], ["1.wav", "eent"], ["2.wav", "nan"]]),
        {},
        [Sample("null"), Sample("eent"), Sample("nan")],
    ),
    "huggingface/datasets#3729: a paragraph separator in a line": (
        "t.txt",
        of_lines("one\u2029still one", "two\u2028still two", "three\x85"),
        {},
        [Sample("one\u2029still one"), Sample("two\u2028still two"), Sample("three")],
    ),
    "huggingface/datasets#622: a carriage return in a line": (
        "t.txt",
        of_lines("one\rstill one", "two"),
        {},
        [Sample("one\rstill one"), Sample("two")],
    ),
    "tensorflow/datasets#2633: carriage returns before ends of Windows": (
        "t.txt",
        of_lines("one;\r still one", "two\r", ends="\r\n"),
        {},
        [Sample("one;\r still one"), Sample("two")],
    ),
    "huggingface/datasets#7222: a column that is null until the end": (
        "t.jsonl",
        of_lines(*LATE, {"query": "a", "positive": "b", "negative": "x"}),
        {},
        [*(Sample(row["query"], ("p",)) for row in LATE), Sample("a", ("b",), ("x",))],
    ),
    "huggingface/datasets#2799: texts that are dates": (
        "t.jsonl",
        of_lines({"query": "a", "pos": ["2021-08-13"]}, {"query": "c", "pos": ["2021-08-13T10:00:00Z", "2021-08-14"]}),
        {},
        [Sample("a", ("2021-08-13",)), Sample("c", ("2021-08-13T10:00:00Z", "2021-08-14"))],
    ),
    "huggingface/sentence-transformers#2791: positive before anchor": (
        "t",
        of_datasets({"positive": ["b", "d"], "anchor": ["a", "c"]}),
        {},
        [Sample("a", ("b",)), Sample("c", ("d",))],
    ),
    "huggingface/sentence-transformers#2928: answer before query": (
        "t.parquet",
        of_pandas({"answer": ["b", "d"], "query": ["a", "c"]}, "to_parquet"),
        {},
        [Sample("a", ("b",)), Sample("c", ("d",))],
    ),
    "huggingface/sentence-transformers#1178: some pairs without a hard negative": (
        "t.jsonl",
        of_lines({"query": "a", "positive": "b"}, {"query": "c", "positive": "d", "negative": "y"}),
        {},
        [Sample("a", ("b",)), Sample("c", ("d",), ("y",))],
    ),
    "huggingface/sentence-transformers#3072: negative1, negative2 of some": (
        "t.parquet",
        of_arrow({"anchor": ["a", "c"], "positive": ["b", "d"], "negative1": ["x", "y"], "negative2": [None, "z"]}),
        {},
        [Sample("a", ("b",), ("x",)), Sample("c", ("d",), ("y", "z"))],
    ),
    "huggingface/sentence-transformers#3072: lists of different lengths": (
        "t.jsonl",
        of_lines(
            {"anchor": "a", "positive": "b", "negatives": ["x", "z"]}, {"anchor": "c", "positive": "d", "negatives": ["y"]}
        ),
        {},
        [Sample("a", ("b",), ("x", "z")), Sample("c", ("d",), ("y",))],
    ),
    "FlagOpen/FlagEmbedding#945: no negatives": (
        "t.jsonl",
        of_lines({"query": "a", "pos": ["b"], "neg": []}, {"query": "c", "pos": ["d"], "neg": []}),
        {},
        [Sample("a", ("b",)), Sample("c", ("d",))],
    ),
    "FlagOpen/FlagEmbedding#1382: scores and a prompt": (
        "t.jsonl",
        of_lines(BGE, {**BGE, "query": "c"}),
        {},
        [Sample("a", ("b", "B"), ("x",)), Sample("c", ("b", "B"), ("x",))],
    ),
    "pandas-dev/pandas#22661: a quote that stays open": (
        "t.tsv",
        of_lines("id\ttext\tscore", "3\tabc\t5.6", '4\t"abc"\t4.3', '5\t"error\t3.3'),
        {},
        [Sample("abc"), Sample('"abc"'), Sample('"error')],
    ),
    "pandas-dev/pandas#59009: ends of lines in quoted texts": (
        "t.csv",
        of_pandas(QUOTED, "to_csv", index=False),
        {},
        [Sample(text) for text in QUOTED["text"]],
    ),
    "apache/arrow#51368: an end of Windows in a quoted text": (
        "t.csv",
        of_csv([["id", "text"], [0, "A\r\nB"], *([n, "plain"] for n in range(1, 3))]),
        {},
        [Sample("A\r\nB"), Sample("plain"), Sample("plain")],
    ),
    "Eventual-Inc/Daft#902: a quote after a blank": (
        "t.csv",
        of_lines("foo,text", "1,baz", '2, "Dear John,', "How are you?", '"'),
        {},
        [Sample("baz"), Sample("Dear John,\nHow are you?")],
    ),
    "apple/turicreate#1692: blanks behind all commas": (
        "t.csv",
        of_lines("query, answer", '"a", "b, b"', '"c", "d"'),
        {},
        [Sample("a", ("b, b",)), Sample("c", ("d",))],
    ),
    "langgenius/dify#42354: semicolons": (
        "t.csv",
        of_pandas({"query": ["a, b", "c"], "answer": ["1,5 m", "d"], "n": [1, 2]}, "to_csv", sep=";", index=False),
        {},
        [Sample("a, b", ("1,5 m",)), Sample("c", ("d",))],
    ),
    "unslothai/unsloth#10813: blank cells": (
        "t.csv",
        of_pandas({"question": ["a", "c"], "answer": ["b", None], "context_id": [1, None]}, "to_csv", index=False),
        {"least": 1},
        [Sample("a", ("b",))],
    ),
    "pandas-dev/pandas#10646: row numbers": ("t.csv", of_pandas({"text": ["one", "two"]}, "to_csv"), {}, SINGLE),
    "huggingface/setfit#75: idx, sentence, label": (
        "t.parquet",
        of_polars({"idx": [0, 1], "sentence": ["one", "two"], "label": [0, 1]}, "write_parquet"),
        {},
        SINGLE,
    ),
    "princeton-nlp/SimCSE#220: no column of hard negatives": (
        "t.csv",
        of_csv([["sent0", "sent1"], ["a", "b"], ["c", "d"]]),
        {},
        [Sample("a", ("b",)), Sample("c", ("d",))],
    ),
}
"""By the report and what is in the file: the file, what is said of it, and its samples."""


@pytest.mark.parametrize("report", READ)
def test_a_reported_file_is_read(tmp_path: Path, report: str) -> None:
    name, write, said, expected = READ[report]
    write(tmp_path / name)
    assert list(open_texts(tmp_path / name, **said)) == expected


TYPO: list[object] = [{"anchor": "a", "postive": "b", "negative": ["x"]}, {"anchor": "c", "postive": "d", "negative": ["y"]}]
DPR = {"question": "a", "answers": ["b"], "positive_ctxs": [{"title": "t", "text": "b"}], "hard_negative_ctxs": []}
REFUSED: dict[str, tuple[str, Write, dict[str, Any], str]] = {
    "huggingface/sentence-transformers#3254: a name with a typing error": (
        "t.jsonl",
        of_lines(*TYPO),
        {"roles": TEXTS},
        r"'negative' is a hard negative, but no column is the positive\. Name it: --columns positive=COLUMN; or take the texts "
        r"alone: --columns anchor\. It has: .* 'postive' \(text, such as 'b'\)",
    ),
    "huggingface/sentence-transformers#3254: retrieval": (
        "t.jsonl",
        of_lines(*TYPO),
        {},
        "no column is clearly the positive. Name it: --columns positive=postive",
    ),
    "huggingface/sentence-transformers#1307: similarity-score": (
        "t.csv",
        of_csv([["sentence1", "sentence2", "similarity-score"], ["a", "b", 0.9], ["c", "d", 0.1]]),
        {},
        "differ in their score, column 'similarity-score' .* Choose them, --min-score N, or take all: --columns sentence1 sent",
    ),
    "bradleypallen/keras-quora-question-pairs#3: text1, text2, duplicate": (
        "t.tsv",
        of_lines("id\ttext1\ttext2\tduplicate", "1\ta\tb\t0", "2\tc\td\t1"),
        {},
        r"differ in their label, column 'duplicate' \(such as '0' and '1'\)",
    ),
    "scores with decimal commas": (
        "t.csv",
        of_lines("sentence1;sentence2;score", "a;b;4,5", "c;d;0,2"),
        {},
        r"differ in their score, column 'score' \(such as '4,5' and '0,2'\).* Choose them, --min-score N after you write score "
        "with decimal points",
    ),
    "decimal commas with a threshold": (
        "t.csv",
        of_lines("sentence1;sentence2;score", "a;b;4,5", "c;d;0,2"),
        {"min_score": 3},
        r"t\.csv, line 2: column 'score' is '4,5'; it must be a number, without commas",
    ),
    "two columns of scores": (
        "t.csv",
        of_csv([["sentence1", "sentence2", "similarity", "relevance"], ["a", "b", 1, 3], ["c", "d", 1, 0]]),
        {},
        "differ in their score, column 'relevance'",
    ),
    "two columns of scores with a threshold": (
        "t.csv",
        of_csv([["sentence1", "sentence2", "similarity", "relevance"], ["a", "b", 1, 3], ["c", "d", 1, 0]]),
        {"min_score": 1},
        "min_score=1: of 'similarity' or 'relevance' in .*, name one: --columns score=similarity",
    ),
    "huggingface/datasets#4673: lists in a csv": (
        "t.csv",
        lambda path: datasets.Dataset.from_dict(LISTS).to_csv(path),
        {},
        r"'pos' is a list written as text, such as '\['b' 'B'\]', but positive must be a text or a list of texts\. "
        "Write the lists as JSON lines or parquet, which keep them",
    ),
    "Pandas DataFrame stored list as string (Stack Overflow 23111990)": (
        "t.csv",
        of_pandas({"query": ["a", "c"], "pos": ["b", "d"], "neg": [[], ["x", "y"]]}, "to_csv"),
        {},
        r"'neg' is a list written as text, such as '\[\]', but negative must be",
    ),
    "Pandas DataFrame stored list as string: vectors": (
        "t.csv",
        of_pandas({"id": [1, 2], "embedding": [[1.23, -2e-5], [3.0, 4.0]]}, "to_csv"),
        {"roles": TEXTS},
        r"no column is clearly the anchor\. .*'embedding' \(list written as text, such as '\[1\.23, -2e-05\]'\)",
    ),
    "FlagOpen/FlagEmbedding#179: q for query": (
        "t.jsonl",
        of_lines({"q": "a", "pos": ["b"], "neg": []}, {"q": "c", "pos": ["d"], "neg": []}),
        {},
        r"no column is clearly the anchor\. Name it: --columns anchor=q\..*'neg' \(list of texts, without values\)",
    ),
    "facebookresearch/DPR#91: contexts that are objects": (
        "t.json",
        of_lines(json.dumps([DPR, DPR])),
        {"roles": TEXTS},
        r"'positive_ctxs' is an object, such as .*, but positive must be a text or a list of texts\. Write its texts alone, as",
    ),
    "huggingface/datasets#5827: numbers and a word": (
        "t.json",
        of_lines('[{"id": 1, "name": 1}, {"id": 2, "name": "Nan"}, {"id": 3, "name": 3}]'),
        {},
        r"no column is clearly the anchor\. .*'name' \(integer, such as '1'\)",
    ),
    "pandas-dev/pandas#22661: no header": (
        "t.tsv",
        of_lines("3\tabc\t5.6", '4\t"abc"\t4.3', '5\t"error\t3.3'),
        {"roles": TEXTS},
        r"no column is clearly the anchor\. Name it: --columns anchor=abc\..* If its first line is no header, write one",
    ),
    "rdkit/rdkit#1633: a first line that is no header": (
        "t.csv",
        of_lines("A man is playing a guitar.", "A dog runs.", "Two cats sleep."),
        {"roles": TEXTS},
        r"Name it: --columns 'anchor=A man is playing a guitar\.'\..* If its first line is no header, write one",
    ),
    "princeton-nlp/SimCSE#139: pairs without a header": (
        "t.tsv",
        of_lines("早上好祝你开心\t早上好开心每一天", "新年快乐\t新年快乐真好听", "多谢支持\t感谢支持"),
        {},
        "no column is clearly the anchor.* If its first line is no header, write one",
    ),
    "apple/turicreate#1692: a quote left open": (
        "t.csv",
        of_lines("a, b", '"a", "b"', '"c", "d'),
        {},
        r"in the row that begins on line 3: unexpected end of data; is a quote left open\?",
    ),
    "huggingface/datasets#622: a carriage return in a csv": (
        "t.csv",
        of_lines("title,text", "a,one\rstill one", "b,two"),
        {},
        "in the row that begins on line 2: a carriage return in a field without quotes: quote the field, or remove it",
    ),
    "pola-rs/polars#14530: a name that occurs twice": (
        "t.csv",
        of_lines("", '"Time","a","b","b","d",', "0,   0.0,300.0, 50.5,Process,"),
        {},
        "two columns are called 'b'; rename one",
    ),
    "pandas: a delimiter at the end of each row": (
        "t.csv",
        of_lines("query,answer", "a,b,", "c,d,"),
        {},
        "line 2: 3 fields, but line 1 has 2",
    ),
}
"""By the report, or a fault like it, and what is in the file: the file, what is said of it, and the message."""


@pytest.mark.parametrize("report", REFUSED)
def test_a_reported_file_is_refused_with_the_remedy(tmp_path: Path, report: str) -> None:
    name, write, said, message = REFUSED[report]
    write(tmp_path / name)
    with pytest.raises(TempplugError, match=message) as raised:
        open_texts(tmp_path / name, **{"roles": PAIRS, **said})
    assert str(tmp_path / name) in str(raised.value)
    assert "\n" not in str(raised.value)


NUMBERS = {"uuid": ["1344800117571260417", "1344900117571260918"], "text": ["one", "two"]}
IDS: dict[str, tuple[str, Write, list[str | None]]] = {
    "datasets/country-codes#38: Namibia": (
        "t.csv",
        of_pandas({"id": ["NA", "NE", None], "text": ["Namibia", "Niger", "none"]}, "to_csv", index=False),
        ["NA", "NE", None],
    ),
    "wireservice/csvkit#977: zeros in front": ("t.csv", of_csv([["id", "text"], ["007", "a"], ["08", "b"]]), ["007", "08"]),
    "pandas-dev/pandas#40992: long numbers as texts": (
        "t.jsonl",
        of_lines(*({"uuid": key, "text": text} for key, text in zip(*NUMBERS.values(), strict=True))),
        NUMBERS["uuid"],
    ),
    "pandas-dev/pandas#52505: long numbers": (
        "t.jsonl",
        of_lines(*({"uuid": int(key), "text": "a"} for key in NUMBERS["uuid"]), {"uuid": None, "text": "b"}),
        [*NUMBERS["uuid"], None],
    ),
    "pandas-dev/pandas#57224: 1.0 beside a missing number, JSON": (
        "t.jsonl",
        of_lines('{"id": 1.0, "text": "a"}', '{"id": null, "text": "b"}'),
        ["1", None],
    ),
    "pandas-dev/pandas#57224: 1.0 beside a missing number, parquet": (
        "t.parquet",
        of_pandas({"id": [10, None, 12], "text": ["a", "b", "c"]}, "to_parquet"),
        ["10", None, "12"],
    ),
}
"""By the report and what is in the file: the file, and the ids beside its vectors."""


@pytest.mark.parametrize("report", IDS)
def test_ids_of_a_reported_file_stay_as_written(tmp_path: Path, report: str) -> None:
    name, write, expected = IDS[report]
    write(tmp_path / name)
    read = SimCSEMethod(METHOD).read(SimCSERecipe(), Source(str(tmp_path / name), None, tmp_path), "train")
    assert read.columns["id"] == expected


def test_a_collection_joins_ids_that_pandas_made_floating_point(tmp_path: Path) -> None:
    """castorini/pyserini#1151 and pandas-dev/pandas#12866: ids of topics are texts, and integers become 1.0."""
    folder = tmp_path / "retrieval/tay"
    (folder / "qrels").mkdir(parents=True)
    of_pandas({"_id": [1.0, 2.0], "title": ["", "t"], "text": ["a", "b"]}, "to_json", orient="records", lines=True)(
        folder / "corpus.jsonl"
    )
    of_lines({"_id": "PLAIN-1", "text": "q"}, {"_id": "0002", "text": "r"})(folder / "queries.jsonl")
    table = {"query-id": ["PLAIN-1", "0002"], "corpus-id": [2, 1], "score": [1, 2]}
    pandas.DataFrame(table).to_csv(folder / "qrels/test.tsv", sep="\t", index=False)
    collection = load_collection("tay", tmp_path)
    assert collection.documents == {"1": "a", "2": "t b"}
    assert collection.relevance == {"PLAIN-1": {"2": 1}, "0002": {"1": 2}}
    assert collection.columns == "documents '_id', 'title', 'text'; queries '_id', 'text'"


def test_documents_without_a_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "tay/qrels").mkdir(parents=True)
    of_lines({"_id": "1", "text": "a"}, {"_id": "2", "text": " "}, {"_id": "3", "text": None})(tmp_path / "tay/corpus.jsonl")
    of_lines({"_id": "q", "text": "q"})(tmp_path / "tay/queries.jsonl")
    of_lines("query-id\tcorpus-id\tscore", "q\t1\t1")(tmp_path / "tay/qrels/test.tsv")
    collection = load_collection("tay", tmp_path)
    assert collection.documents == {"1": "a", "2": "", "3": ""}
    assert collection.columns == "documents '_id', 'text' (2 of 3 without text); queries '_id', 'text'"


def test_a_quote_of_a_text_is_not_lost_behind_a_blank(tmp_path: Path) -> None:
    of_csv([["a", "b"], [' "hi" he said', " x"]])(tmp_path / "t.csv")
    table = open_table(tmp_path / "t.csv")
    assert [list(table.values(name)) for name in "ab"] == [[' "hi" he said'], ["x"]]
