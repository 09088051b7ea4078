"""Training files of SimCSE: what is read, and how each fault is named with its file and line."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.simcse import data
from tempplug_adapters.simcse.data import TokenizedViews, ViewCollator


def read_samples(path: Path, columns: Sequence[str] = (), where: Sequence[str] = ()) -> list[tuple[str, ...]]:
    return list(data.read_samples(path, columns, where))


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["s.txt", "s.txt.gz"])
def test_sentences_are_read_line_by_line_without_blank_ones(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, "\ufeffA cat sleeps.\r\n\n  Two dogs run.  \nÄ third.")
    assert read_samples(path) == [("A cat sleeps.",), ("Two dogs run.",), ("Ä third.",)]


def test_a_table_of_two_or_three_columns_needs_no_names(tmp_path: Path) -> None:
    assert read_samples(write(tmp_path, "p.tsv", 'a\tb\nx "\ty\nu\tv\n')) == [('x "', "y"), ("u", "v")]
    assert read_samples(write(tmp_path, "p.csv", 'a,b,n\n"x, y",z,"say ""no"""\nu,v,w\n'))[0] == ("x, y", "z", 'say "no"')
    lines = '{"a": "x", "b": "y"}\n\n{"a": "u", "b": "v"}\n'
    assert read_samples(write(tmp_path, "p.jsonl.gz", lines)) == [("x", "y"), ("u", "v")]


def test_columns_and_conditions_choose(tmp_path: Path) -> None:
    path = write(tmp_path, "n.tsv", "label\tp\th\nyes\tx\ty\nno\tq\tr\nyes\tu\tv\n")
    assert read_samples(path, ["h", "p"], ["label=yes"]) == [("y", "x"), ("v", "u")]


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
        ("s.txt", "one\n\0\0\0\ntwo\n", "s.txt, line 2: holds a NUL character; the file is damaged, or no text."),
        ("p.tsv", "a\tb\nx\ty\0\n", "p.tsv, line 2: holds a NUL character"),
        ("p.jsonl", '{"a": "x", "b": "\\u0000"}\n', "p.jsonl, line 1: 'b' holds a NUL character."),
        ("p.jsonl", '{"a": "x", "b": "\\ud83d"}\n', "p.jsonl, line 1: 'b' holds half a surrogate pair"),
        ("p.jsonl", '{"a": "x", "b": ["y"]}\n', "p.jsonl, line 1: 'b' is a JSON list; it must be text."),
        ("p.jsonl", '{"a": {"x": 1}, "b": "y"}\n', "p.jsonl, line 1: 'a' is a JSON object; it must be text."),
        ("p.jsonl", '{"a": "x", "b": "y"}\n{"a": \n', "p.jsonl, line 2: not JSON"),
        ("p.jsonl", "[1, 2]\n", "p.jsonl, line 1: must be a JSON object"),
        ("p.parquet", "x", "p.parquet: the name must end in .txt, .tsv, .csv, .jsonl"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_samples(write(tmp_path, name, content))
    assert message in str(caught.value)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt does not exist or is not a file"):
        read_samples(tmp_path / "none.txt")
    whole = gzip.compress(b"one\ntwo\nthree\n" * 1000)
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(whole[:-20])
    with pytest.raises(DataError, match=r"cut\.txt\.gz, after line \d+: not a complete gzip file"):
        read_samples(path)


def test_wrong_columns_and_conditions_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "n.tsv", "label\tpremise\thypothesis\tsource\nyes\tx\ty\ts\nno\tq\tr\ts\n")
    with pytest.raises(ConfigError, match="has the columns label, premise, hypothesis, source: choose two or three"):
        read_samples(path)
    with pytest.raises(ConfigError, match=r"no column 'premis'\. Did you mean 'premise'\?"):
        read_samples(path, ["premis", "hypothesis"])
    with pytest.raises(ConfigError, match="where='label' must be written column=value"):
        read_samples(path, ["premise", "hypothesis"], ["label"])
    with pytest.raises(DataError, match="holds 0 samples that meet label=maybe"):
        read_samples(path, ["premise", "hypothesis"], ["label=maybe"])
    with pytest.raises(ConfigError, match="columns and where belong to tables"):
        read_samples(write(tmp_path, "s.txt", "x\ny\n"), ["a", "b"])


def test_the_real_entailment_pairs_are_all_there(data_dir: Path) -> None:
    samples = read_samples(data_dir / "text/nli/nli_pairs.tsv.gz", ["premise", "hypothesis"], ["label=entailment"])
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
    assert (alone.views, len(alone), alone[0]) == (2, 2, [[1, 10, 11, 2], [1, 10, 11, 2]])
    triplets = TokenizedViews([("a", "b", "cdefg"), ("h", "i", "j")], Words(), 5)
    assert (triplets.views, triplets[0][2]) == (3, [1, 12, 13, 14, 2])


def test_sentences_of_the_same_tokens_have_the_same_key() -> None:
    keys = TokenizedViews([("ab", "c"), ("c", "de"), ("f", "abg")], Words(), 4).keys
    assert keys.shape == (3, 2)
    assert keys[0, 0] == keys[2, 1], "what is cut to the same tokens is the same"
    assert keys[0, 1] == keys[1, 0]
    assert len(set(keys.flatten().tolist())) == 4


def test_many_samples_hold_four_bytes_a_token() -> None:
    sentences = (("abcdefghij",) for _ in range(5000))
    tracemalloc.start()
    views = TokenizedViews(sentences, Words(), 8)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 5000 * (8 * 4 + 8) * 1.1
    assert views[4999] == views[0] == [[1, 10, 11, 12, 13, 14, 15, 2]] * 2


def test_a_batch_holds_view_after_view() -> None:
    views = TokenizedViews([("a", "bc", "d"), ("e", "f", "g")], Words(), 8)
    batch = ViewCollator(Words())([views[0], views[1]])
    assert batch["input_ids"].tolist()[:3] == [[1, 10, 2, 0], [1, 14, 2, 0], [1, 11, 12, 2]]
    assert batch["attention_mask"].tolist()[1:3] == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert set(batch) == {"input_ids", "attention_mask"}


def test_masking_follows_bert() -> None:
    torch.manual_seed(0)
    views = TokenizedViews([("abcdefghij" * 20,)] * 50, Words(), 300)
    batch = ViewCollator(Words(), mlm_probability=0.15)([views[position] for position in range(50)])
    ids, masked, labels = batch["input_ids"], batch["mlm_input_ids"], batch["mlm_labels"]
    chosen = labels != -100
    assert torch.equal(labels[chosen], ids[chosen])
    assert torch.equal(masked[~chosen], ids[~chosen])
    assert not chosen[torch.isin(ids, torch.tensor([0, 1, 2, 3]))].any()
    assert chosen.sum() / (ids > 3).sum() == pytest.approx(0.15, abs=0.01)
    assert (masked[chosen] == 3).float().mean() == pytest.approx(0.8, abs=0.03)
    assert (masked[chosen] == ids[chosen]).float().mean() == pytest.approx(0.1 + 0.1 / 40, abs=0.03)
