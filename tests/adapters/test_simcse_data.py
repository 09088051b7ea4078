"""Sentences, pairs and pairs with hard negatives as batches: tokens, views, keys and masked tokens."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from table_files import of_lines

from tempplug_adapters.data_files.text_roles import PAIRS
from tempplug_adapters.data_files.text_rows import open_texts
from tempplug_adapters.simcse import data
from tempplug_adapters.simcse.data import TokenizedViews, ViewCollator


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


def test_many_rows_are_told_apart_by_their_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"query": "ab", "pos": ["c", "d "], "neg": ["x"]},
        {"query": "C", "pos": ["e"], "neg": ["f", "", "D", "ab"]},
        {"query": "g", "pos": ["h"], "neg": []},
    ]
    of_lines(*rows)(tmp_path / "t.jsonl")
    every = open_texts(tmp_path / "t.jsonl", roles=PAIRS)
    monkeypatch.setattr(data, "KEPT", 2)
    for samples in (every, every.paired(), every.without(frozenset({"x", "f"}), ()), every.taken(np.array([2, 0, 1]))):
        texts = [[text.lower() for text in sample.texts] for sample in samples]
        longest = max(map(len, texts))
        keys = TokenizedViews(samples, Words(), 8).keys
        expected = np.array([[*each, *each[:1] * (longest - len(each))] for each in texts])
        assert keys.shape == (len(samples), longest)
        assert np.array_equal(keys.ravel() == keys.ravel()[:, None], expected.ravel() == expected.ravel()[:, None])
