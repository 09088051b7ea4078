"""Targets in `studies.train_cells` and the table of which positives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from studies.cells import Cell, Measured
from studies.texts import TEACHER_TEMPERATURE, load_static
from studies.train_cells import train
from studies.views import no_targets
from studies.which_positives.tables import positive_rows
from tempplug.errors import DataError

ARM = "fixed:temperature=0.05@directions=ab"


def test_targets_come_from_the_guide_and_from_equal_queries(data_dir: Path) -> None:
    data = load_static("nfcorpus", "nfcorpus", data_dir, 300, "text/bert-wiki-mini")
    rows = torch.arange(64)
    assert data.guide is not None
    queries, documents = (each[rows].double() for each in data.guide)
    similarities = torch.nn.functional.cosine_similarity(queries[:, None], documents, dim=2)
    expected = torch.softmax(similarities / TEACHER_TEMPERATURE, 1)
    torch.testing.assert_close(data.targets("teacher", rows)["targets"].double(), expected, rtol=1e-4, atol=1e-6)
    half = data.targets("half-teacher", rows)["targets"].double()
    torch.testing.assert_close(half, (expected + torch.eye(64)) / 2, rtol=1e-4, atol=1e-6)
    texts = [tuple(data.queries.of(rows[number : number + 1]).words.tolist()) for number in range(64)]
    same = torch.tensor([[float(one == other) for other in texts] for one in texts])
    assert same.sum() > 64, "no query occurs twice"
    torch.testing.assert_close(data.targets("same-query", rows)["targets"], same / same.sum(1, keepdim=True))
    assert data.targets("", rows) == {}
    own = train(data, Cell(passes=1, batch=64), ARM, 0)
    for kind in ("teacher", "half-teacher", "same-query"):
        assert train(data, Cell(passes=1, batch=64, targets=kind), ARM, 0)["positive_probability"] > own["positive_probability"]


def test_wrong_targets_are_refused(data_dir: Path) -> None:
    with pytest.raises(DataError, match="targets='tutor' of a cell must be one of teacher, half-teacher, same-query, or empty"):
        Cell(passes=1, targets="tutor")
    with pytest.raises(DataError, match="targets='teacher' of a cell need the guide of a plan"):
        load_static("quora", "quora", data_dir, 300).targets("teacher", torch.arange(2))
    with pytest.raises(DataError, match="targets='teacher' of a cell must be empty: texts alone have targets"):
        no_targets("teacher")


def test_the_table_has_the_configuration_that_held_out_pairs_choose() -> None:
    arms = [f"fixed:temperature={each}@directions=ab" for each in ("0.05", "0.1")]
    held_out = {
        ("", 1e-3): (10.0, 12.0),
        ("", 3e-3): (11.0, 9.0),
        ("teacher", 1e-3): (13.0, 12.0),
        ("teacher", 3e-3): (9.0, 9.0),
    }
    cells = []
    for (kind, rate), figures in held_out.items():
        test = 40.0 if kind else 20.0, 10.0
        cell = Cell(passes=2, rate=rate, targets=kind)
        cells.append(Measured("a", cell, 9, *(dict(zip(arms, each, strict=True)) for each in (figures, test))))
    assert positive_rows(cells)[1:] == [
        ["a", "one positive", "0.1 @ 0.001", "12.00", "10.00", "–"],
        ["a", "teacher", "0.05 @ 0.001", "13.00", "40.00", "+300.0"],
    ]
