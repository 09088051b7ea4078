from __future__ import annotations

import pytest

from tempplug.errors import DataError, UnknownNameError
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.arm import Arm, resolve
from tempplug_benchmarks.papers import PaperRow, load


@pytest.mark.parametrize(
    ("paper", "table", "method", "dataset", "metric", "printed"),
    [
        ("macl", "3", "SimCSE-RoBERTa", "STS", "STS12", 70.16),
        ("macl", "3", "w/ MACL", "STS", "SICKR", 70.70),
        ("macl", "3", "w/ MACL", "transfer", "MRPC", 75.54),
        ("macl", "B.4", "SimCSE-BERT", "STS", "Avg", 76.25),
        ("macl", "B.4", "w/ MACL", "STS", "STSB", 77.69),
        ("macl", "B.5", "SimCSE-BERT (repro)", "STS", "STS13", 81.60),
        ("macl", "B.5", "w/ MACL RoBERTa", "STS", "STS15", 82.92),
        ("dystress", "5", "w/ DySTreSS*", "STS", "Avg", 75.96),
        ("dystress", "5", "w/ MACL (repro.)", "transfer", "TREC", 90.40),
        ("dystress", "11", "w/ DySTreSS+", "STS", "STS12", 70.19),
        ("dystress", "11", "w/ DySTreSS**", "transfer", "MRPC", 75.30),
    ],
)
def test_cells_stand_as_printed(paper: str, table: str, method: str, dataset: str, metric: str, printed: float) -> None:
    cell = load("sentence").row(PaperRow(paper, table, method, dataset))[metric]
    assert cell.value == printed
    assert cell.std is None


def test_every_average_is_the_mean_of_its_row_or_says_that_it_is_not() -> None:
    rows: dict[tuple[object, ...], dict[str, float]] = {}
    notes: dict[tuple[object, ...], str] = {}
    for cell in load("sentence").cells:
        key = (cell.paper, cell.table, cell.dataset, cell.method, *sorted(map(str, cell.settings.items())))
        assert cell.value is not None
        assert cell.metric not in rows.setdefault(key, {}), "a cell is there twice"
        rows[key][cell.metric] = cell.value
        if cell.metric == "Avg":
            notes[key] = cell.note
    for key, row in rows.items():
        figures = [value for metric, value in row.items() if metric != "Avg"]
        assert len(figures) == 7
        if "Avg" in row:
            agrees = abs(sum(figures) / 7 - row["Avg"]) < 0.02
            assert agrees != ("the mean of the row's 7 figures is" in notes[key]), key
    wrong = [key[3] for key, note in notes.items() if "Printed so" in note]
    assert sorted(map(str, wrong)) == ["w/ DySTreSS", "w/ DySTreSS", "w/ MACL (repro.)", "w/ MACL (repro.)"]


def test_rows_that_differ_in_settings_alone_must_be_told_apart() -> None:
    with pytest.raises(UnknownNameError, match=r"has several rows 'w/ DySTreSS\*' for STS"):
        load("sentence").row(PaperRow("dystress", "11", "w/ DySTreSS*", "STS"))


def test_a_row_that_is_not_there_suggests_one_that_is() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'w/ MACL'"):
        load("sentence").row(PaperRow("macl", "B.4", "with MACL", "STS"))
    with pytest.raises(DataError, match="no transcribed tables named 'sentences'"):
        load("sentences")


def test_settings_of_a_paper_are_options_of_its_strategy() -> None:
    keys = (
        "base_temperature",
        "alpha",
        "threshold",
        "temperature",
        "temperature_min",
        "temperature_max",
        "profile",
        "shift",
        "width",
    )
    for cell in load("sentence").cells:
        settings = cell.settings
        written = ",".join(f"{key}={settings[key]}" for key in keys if key in settings)
        spec = f"{settings['strategy']}:{written}" if written else str(settings["strategy"])
        assert str(resolve(Arm(f"{spec}+infonce"), Recipe()).strategy).startswith(str(settings["strategy"]))
