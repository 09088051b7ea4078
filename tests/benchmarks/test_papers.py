"""The papers' figures stand as printed, their averages agree with their rows, and unknown rows are refused by name."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tempplug.errors import DataError, UnknownNameError
from tempplug_benchmarks.papers import Cell, PaperRow, load

FILES = ("anomaly", "bias", "graph", "long_tail", "molecule", "node", "recommendation", "sentence", "vision")
PRINTED = [
    ("anomaly", PaperRow("temperature-free", "4", "temperature free", "airplane"), "ROC-AUC", 97.145, 0.011),
    ("bias", PaperRow("temperature-free", "5", "Baseline", "gender"), "ICAT", 71.3, 1.3),
    ("bias", PaperRow("temperature-free", "5", "Ours", "gender"), "CrowS-Pairs", 52.3, 1.4),
    ("graph", PaperRow("macl", "4", "w/ MACL", "IMDB-B"), "accuracy", 71.42, 1.05),
    ("long_tail", PaperRow("temperature-schedules", "7", "SimCLR + TS", "CIFAR-10-LT"), "kNN@1 mid", 58.96, 5.21),
    ("long_tail", PaperRow("dystress", "4", "DySTreSS", "CIFAR-10-LT"), "kNN@10", 64.98, None),
    ("molecule", PaperRow("macl", "5", "w/ MACL", "BBBP"), "ROC-AUC", 67.98, 0.97),
    ("node", PaperRow("temperature-free", "3", "temperature 0.1", "CiteSeer"), "F1-micro", 58.94, 3.17),
    ("recommendation", PaperRow("temperature-free", "6", "Baseline", "MovieLens-20M"), "HR@1 sampled", 13.36, 0.12),
    ("recommendation", PaperRow("temperature-free", "6", "Ours", "MovieLens-20M"), "HR@5 sampled", 37.41, 0.15),
    ("sentence", PaperRow("macl", "B.5", "SimCSE-BERT (repro)", "STS"), "STS13", 81.60, None),
    ("sentence", PaperRow("dystress", "11", "w/ DySTreSS**", "transfer"), "MRPC", 75.30, None),
    ("vision", PaperRow("macl", "7", "w/o adaptive", "ImageNet-100"), "linear", 77.32, None),
    ("vision", PaperRow("temperature-free", "2", "temperature 1", "Imagenette"), "kNN", 82.27, 1.42),
    ("vision", PaperRow("amcl", "5", "+AMCL", "STL-10"), "linear", 83.7, None),
]
# Tables whose headings the transcription has in other words: their samples are above.
OTHER_WORDS = {("temperature-free", "5"), ("temperature-free", "6"), ("amcl", "5"), ("macl", "7")}


def test_samples_of_every_file_stand_as_printed() -> None:
    for file, row, metric, value, deviation in PRINTED:
        cell = load(file).row(row)[metric]
        assert (cell.value, cell.std) == (value, deviation), (row, metric)


def test_all_cells_are_those_of_the_transcription(data_dir: Path) -> None:
    records = json.loads((data_dir.parent / "papers" / "paper_tables.json").read_text())["records"]
    there = Counter((each["paper"].partition("_")[2].replace("_", "-"), *figures(each)) for each in records)
    cells = [cell for file in FILES for cell in load(file).cells if (cell.paper, cell.table) not in OTHER_WORDS]
    ours = Counter((cell.paper, *figures(vars(cell))) for cell in cells)
    assert not ours - there
    assert ours.total() > 450


def figures(cell: dict[str, object]) -> tuple[object, ...]:
    return tuple(cell[name] for name in ("table", "method", "value", "std"))


def rows(file: str) -> dict[tuple[object, ...], dict[str, Cell]]:
    """The cells of each row by metric; rows of one heading differ in their settings."""
    found: dict[tuple[object, ...], dict[str, Cell]] = {}
    for cell in load(file).cells:
        key = (cell.paper, cell.table, cell.dataset, cell.method, *sorted(map(str, cell.settings.items())))
        assert cell.metric not in found.setdefault(key, {}), "a cell is there twice"
        found[key][cell.metric] = cell
    return found


def test_every_average_is_the_mean_of_its_row_or_says_that_it_is_not() -> None:
    wrong = []
    for key, row in rows("sentence").items():
        values = [float(cell.value or 0) for metric, cell in row.items() if metric != "Avg"]
        assert len(values) == 7
        if average := row.get("Avg"):
            agrees = abs(sum(values) / 7 - float(average.value or 0)) < 0.02
            assert agrees != ("the mean of the row's 7 figures is" in average.note), key
            wrong += [key[3]] * ("Printed so" in average.note)
    assert sorted(map(str, wrong)) == ["w/ DySTreSS", "w/ DySTreSS", "w/ MACL (repro.)", "w/ MACL (repro.)"]


def test_overall_figures_are_the_means_of_their_groups_or_say_that_they_are_not() -> None:
    tables, disagree = load("long_tail"), []
    for dataset, table, shares in (("CIFAR-10-LT", "7", (0.4, 0.3, 0.3)), ("CIFAR-100-LT", "8", (0.34, 0.33, 0.33))):
        for method in ("SimCLR", "SimCLR + TS"):
            groups = tables.row(PaperRow("temperature-schedules", table, method, dataset))
            overall = tables.row(PaperRow("temperature-schedules", "1", method, dataset))
            for metric in ("kNN@1", "kNN@10"):
                parts = [float(groups[f"{metric} {group}"].value or 0) for group in ("head", "mid", "tail")]
                mean = sum(share * part for share, part in zip(shares, parts, strict=True))
                agrees = abs(mean - float(overall[metric].value or 0)) < 0.02
                assert agrees != (f"give {mean:.2f}" in overall[metric].note)
                disagree += [] if agrees else [(dataset, method, metric)]
    assert disagree == [("CIFAR-100-LT", "SimCLR + TS", "kNN@1")]


def test_anomaly_cells_have_the_printed_means_over_the_classes() -> None:
    printed = {"temperature 0.1": 96.902, "temperature 0.25": 97.215, "temperature 0.5": 97.184, "temperature 1": 97.012}
    for method, mean in {**printed, "temperature free": 97.279}.items():
        values = [float(cell.value or 0) for cell in load("anomaly").cells if cell.method == method]
        assert len(values) == 10
        assert sum(values) / 10 == pytest.approx(mean, abs=6e-4), method


def test_a_row_that_is_not_there_or_there_twice_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"has several rows 'w/ DySTreSS\*' for STS"):
        load("sentence").row(PaperRow("dystress", "11", "w/ DySTreSS*", "STS"))
    with pytest.raises(UnknownNameError, match="Did you mean 'w/ MACL'"):
        load("sentence").row(PaperRow("macl", "B.4", "with MACL", "STS"))
    with pytest.raises(DataError, match="no transcribed tables named 'sentences'"):
        load("sentences")
