"""Training files of SimCSE: what is read, and how each fault is named with its file and line."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from tempplug.errors import ConfigError, DataError, TempplugError
from tempplug_adapters.simcse import data
from tempplug_adapters.simcse.data import TokenizedViews, ViewCollator


def read(path: Path, columns: Sequence[str] = (), where: Sequence[str] = ()) -> list[tuple[str, ...]]:
    return list(data.read_samples(path, columns, where))


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


SENTENCES = "\ufeffA cat sleeps.\r\n\n  Two dogs run.  \nÄ third."


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("s.txt", SENTENCES, [("A cat sleeps.",), ("Two dogs run.",), ("Ä third.",)]),
        ("s.txt.gz", SENTENCES, [("A cat sleeps.",), ("Two dogs run.",), ("Ä third.",)]),
        ("p.tsv", 'a\tb\nx "\ty\nu\tv\n', [('x "', "y"), ("u", "v")]),
        ("p.csv", 'a,b,n\n"x, y",z,"say ""no"""\nu,v,w\n', [("x, y", "z", 'say "no"'), ("u", "v", "w")]),
        ("p.jsonl.gz", '{"a": "x", "b": "y"}\n\n{"a": "u", "b": "v"}\n', [("x", "y"), ("u", "v")]),
    ],
)
def test_sentences_pairs_and_triplets_are_read(tmp_path: Path, name: str, content: str, expected: list[tuple[str]]) -> None:
    assert read(write(tmp_path, name, content)) == expected


def test_columns_and_conditions_choose(tmp_path: Path) -> None:
    path = write(tmp_path, "n.tsv", "label\tp\th\nyes\tx\ty\nno\tq\tr\nyes\tu\tv\n")
    assert read(path, ["h", "p"], ["label=yes"]) == [("y", "x"), ("v", "u")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.txt", "", "s.txt holds 0 samples; contrastive training needs at least 2."),
        ("s.txt", "one\n\n", "s.txt holds 1 samples"),
        ("s.txt", b"fine\ncaf\xe9\n", "s.txt, line 2: not UTF-8"),
        ("p.tsv", "a\tb\nx\ty\nu\n", "p.tsv, line 3: 1 fields where the header names 2."),
        ("p.tsv", "a\tb\nx\t \nu\tv\n", "p.tsv, line 2: column 'b' is empty."),
        ("p.tsv", "a\tb\n", "p.tsv holds 0 samples"),
        ("p.csv", 'a,b\n"x,y\n', "p.csv, in the row that begins on line 2: unexpected end of data; is a quote left open?"),
        ("p.csv", 'a,b\nx,y\n"u,v\nw,x\ny,z\n', "in the row that begins on line 3: unexpected end of data on line 5;"),
        ("p.csv", 'a,b\nx,y\n"u,v\nw,x\n"y,z\n', "in the row that begins on line 3: ',' expected after '\"' on line 5;"),
        ("p.csv", 'a,b\n"x\nx",y\n"u\nu",v,w\n', "p.csv, line 4: 3 fields where the header names 2."),
        ("s.txt", "one\n\0\0\0\ntwo\n", "s.txt, line 2: holds a NUL character; the file is damaged or not text."),
        ("p.jsonl", '{"a": "x", "b": "\\u0000"}\n', "p.jsonl, line 1: 'b' holds a NUL character."),
        ("p.jsonl", '{"a": "x", "b": "\\ud83d"}\n', "p.jsonl, line 1: 'b' holds half a surrogate pair"),
        ("p.jsonl", '{"a": "x", "b": ["y"]}\n', "p.jsonl, line 1: 'b' is a JSON list; it must be text."),
        ("p.jsonl", '{"a": {"x": 1}, "b": "y"}\n', "p.jsonl, line 1: 'a' is a JSON object; it must be text."),
        ("p.jsonl", '{"a": "x", "b": "y"}\n{"a": \n', "p.jsonl, line 2: not JSON"),
        ("p.jsonl", "[1, 2]\n", "p.jsonl, line 1: must be a JSON object"),
        ("p.parquet", "x", "p.parquet: the name must end in .txt, .tsv, .csv, .jsonl"),
        ("cut.txt.gz", None, "cut.txt.gz, after line"),
        ("none.txt", None, "none.txt does not exist or is not a file"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path: Path, name: str, content: str | bytes | None, message: str) -> None:
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n" * 1000)[:-20])
    with pytest.raises(DataError) as caught:
        read(tmp_path / name if content is None else write(tmp_path, name, content))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "columns", "where", "kind", "message"),
    [
        ("n.tsv", [], [], ConfigError, "has the columns label, p, h, source: choose two or three"),
        ("n.tsv", ["pp", "h"], [], ConfigError, r"line 2: no column 'pp'\. Did you mean 'p'\?"),
        ("n.tsv", ["p", "h"], ["label"], ConfigError, "where='label' must be written column=value"),
        ("n.tsv", ["p", "h"], ["label=maybe"], DataError, "holds 0 samples that meet label=maybe"),
        ("s.txt", ["a", "b"], [], ConfigError, "columns and where belong to tables"),
    ],
)
def test_wrong_columns_and_conditions_are_named(
    tmp_path: Path, name: str, columns: list[str], where: list[str], kind: type[TempplugError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        read(write(tmp_path, name, "label\tp\th\tsource\nyes\tx\ty\ts\nno\tq\tr\ts\n"), columns, where)


def test_the_real_pairs_and_sentences_are_all_there(data_dir: Path) -> None:
    assert len(read(data_dir / "text/wiki/wiki1m_for_simcse_head.txt.gz")) == 11914
    samples = read(data_dir / "text/nli/nli_pairs.tsv.gz", ["premise", "hypothesis"], ["label=entailment"])
    assert len(samples) == 20600
    assert samples[0][1] == "Two woman are holding packages."


class Words:
    """A tokenizer of single letters: ids by alphabet, 1 and 2 around them, 0 pads and 3 masks."""

    pad_token_id, mask_token_id, all_special_ids = 0, 3, [0, 1, 2, 3]

    def __call__(self, sentences: list[str], max_length: int, **_: object) -> dict[str, list[list[int]]]:
        letters = [[1, *(ord(letter) - 87 for letter in each[: max_length - 2]), 2] for each in sentences]
        return {"input_ids": letters}

    def __len__(self) -> int:
        return 40


def test_a_sentence_alone_becomes_two_views_and_a_triplet_three() -> None:
    alone = TokenizedViews([("ab",), ("c",)], Words(), 8)
    assert (alone.views, len(alone), alone.rows([0])[0]) == (2, 2, [[1, 10, 11, 2], [1, 10, 11, 2]])
    triplets = TokenizedViews([("a", "b", "cdefg"), ("h", "i", "j")], Words(), 5)
    assert (triplets.views, triplets.rows([0])[0][2]) == (3, [1, 12, 13, 14, 2])


def test_sentences_of_the_same_tokens_have_the_same_key() -> None:
    keys = TokenizedViews([("ab", "c"), ("c", "de"), ("f", "abg")], Words(), 4).keys
    assert keys.shape == (3, 2)
    assert keys[0, 0] == keys[2, 1], "what is cut to the same tokens is the same"
    assert keys[0, 1] == keys[1, 0]
    assert len(set(keys.flatten().tolist())) == 4


def test_many_samples_hold_their_text_once() -> None:
    sentences = (("abcdefghij",) for _ in range(5000))
    tracemalloc.start()
    views = TokenizedViews(sentences, Words(), 8)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 5000 * (10 + 8) * 1.2
    assert views.rows([4999, 0]) == [[[1, 10, 11, 12, 13, 14, 15, 2]] * 2] * 2


def test_sentences_are_tokenised_when_they_are_read() -> None:
    class Counting(Words):
        seen: ClassVar[list[list[str]]] = []

        def __call__(self, sentences: list[str], max_length: int, **more: object) -> dict[str, list[list[int]]]:
            self.seen.append(sentences)
            return super().__call__(sentences, max_length, **more)

    views = TokenizedViews([("ab", "ü"), ("c", "de"), ("f", "g")], Counting(), 8)
    assert Counting.seen == []
    assert views.rows([2, 0]) == [[[1, 15, 2], [1, 16, 2]], [[1, 10, 11, 2], [1, ord("ü") - 87, 2]]]
    assert Counting.seen == [["f", "g", "ab", "ü"]], "a batch is tokenised at once, and no more than it"


def test_a_batch_holds_view_after_view() -> None:
    views = TokenizedViews([("a", "bc", "d"), ("e", "f", "g")], Words(), 8)
    batch = ViewCollator(Words())(views.rows([0, 1]))
    assert batch["input_ids"].tolist()[:3] == [[1, 10, 2, 0], [1, 14, 2, 0], [1, 11, 12, 2]]
    assert batch["attention_mask"].tolist()[1:3] == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert set(batch) == {"input_ids", "attention_mask"}


def test_masking_follows_bert() -> None:
    torch.manual_seed(0)
    views = TokenizedViews([("abcdefghij" * 20,)] * 50, Words(), 300)
    batch = ViewCollator(Words(), mlm_probability=0.15)(views.rows(range(50)))
    ids, masked, labels = batch["input_ids"], batch["mlm_input_ids"], batch["mlm_labels"]
    chosen = labels != -100
    assert torch.equal(labels[chosen], ids[chosen])
    assert torch.equal(masked[~chosen], ids[~chosen])
    assert not chosen[torch.isin(ids, torch.tensor([0, 1, 2, 3]))].any()
    assert chosen.sum() / (ids > 3).sum() == pytest.approx(0.15, abs=0.01)
    assert (masked[chosen] == 3).float().mean() == pytest.approx(0.8, abs=0.03)
    assert (masked[chosen] == ids[chosen]).float().mean() == pytest.approx(0.1 + 0.1 / 40, abs=0.03)
