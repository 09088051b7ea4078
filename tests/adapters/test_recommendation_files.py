"""Sequences by split: sizes of DCRec's data sets, and which items are targets."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from tempplug.errors import DataError
from tempplug_adapters.recommendation.interaction_files import load_sequences
from tempplug_adapters.recommendation.interactions import Interactions


def read(name: str, data_dir: Path) -> Interactions:
    histories, users, names, *more = load_sequences(name, data_dir)
    return Interactions(histories, len(names), 50, 0.1, users, names, *more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "users", "items", "interactions", "examples"),
    [("reddit", 14486, 15416, 317992, 289020), ("beauty", 56848, 41532, 265482, 151786)],
)
def test_dcrecs_sets_are_whole(data_dir: Path, name: str, users: int, items: int, interactions: int, examples: int) -> None:
    data = read(name, data_dir)
    assert (data.user_count, data.item_count, len(data.items)) == (users, items, interactions)
    assert (data.items.min(), data.items.max()) == (1, items)
    assert len(data) + len(data.validation) == examples, "a validation target was the last example of its user"
    assert len(data.test) == users
    assert len(data.validation) == pytest.approx(users / 10, rel=0.05)


def test_unknown_data_sets_are_named(tmp_path: Path) -> None:
    (tmp_path / "recsys").mkdir()
    tarfile.open(tmp_path / "recsys" / "sports.tar.xz", "w:xz").close()
    for dataset, folder, message in [
        (
            "beuty",
            tmp_path,
            r"no data set 'beuty'\. Did you mean 'beauty'\? wanted .*, or a folder NAME with",
        ),
        ("beauty", None, "--data-dir or TEMPPLUG_DATA"),
        ("beauty", tmp_path, r"beauty\.tar\.xz does not exist"),
        ("sports", tmp_path, r"sports\.tar\.xz must hold sports\.train\.inter"),
    ]:
        with pytest.raises(DataError, match=message):
            load_sequences(dataset, folder)


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
    assert graphs["validation"] == [0, *(n - (n - 1 in held) for n in range(1, 6))]
    assert graphs["train"] == [max(n - 1, 0) for n in graphs["validation"]]
    assert data.popularity("test").tolist() == [0, 5, 4, 3, 2, 1, 0, 0, 0, 0]
    assert data.last_targets().tolist() == [0, 0, 2, 2, 2, 2, 1, 0, 0, 0]


def test_only_the_newest_items_are_used_and_too_few_are_named() -> None:
    data = Interactions([np.arange(1, 9), np.arange(1, 9)], 8, max_length=3, validation_share=0.5)
    assert pairs(data, "test") == [([5, 6, 7], 8)] * 2
    assert [history for history, _ in pairs(data, "train")] == [[5], [5, 6], [5]][: len(data)]
    with pytest.raises(DataError, match="there is nothing to train on: 2 users with at most 2 items each"):
        Interactions([np.array([1, 2]), np.array([3])], 3)
