"""The pictures of measured figures are what the results give now, and their dots and lines are the figures of the tables."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from snippets import ROOT

from studies.cells import Cell, Measured

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
MEAN = re.compile(r"[ ,]")
# of the 300 units of a picture's height: rounding on another processor may move points by less than the eye can see
MOVED = 1.5
NAMES = (
    "centring",
    "last-batch-norm",
    "length",
    "fine-tuning",
    "best-temperature",
    "budgets",
    "negatives",
    "temperature-rate",
    "temperature-rate-others",
)


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    """What the script holds, without its writing of files."""
    return runpy.run_path(str(ROOT / "benchmarks" / "studies" / "pictures.py"))


def dots(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    """Returns x and y of the points of each labelled series."""
    lines = [line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")]
    return {str(line.get_label()): list(zip(*map(list, line.get_data()), strict=True)) for line in lines}


def rows(figure: Figure) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Returns dot, left and right end of the line of each row, by row and series."""
    axes, found = figure.axes[0], {}
    names = [each.get_text() for each in axes.get_yticklabels()]
    for (series, points), whiskers in zip(dots(figure).items(), axes.collections, strict=True):
        for (x, y), path in zip(points, whiskers.get_paths(), strict=True):
            ends = np.asarray(path.vertices)
            assert set(ends[:, 1]) == {y}
            found[names[round(y)], series] = (x, ends[0, 0], ends[1, 0])
    return found


def table(page: str, kind: str) -> dict[str, list[str]]:
    """Returns the cells of a study's table by the name of the row."""
    text = (
        (ROOT / "benchmarks" / "studies" / page / "README.md")
        .read_text(encoding="utf-8")
        .partition(f"<!-- measured {kind} -->\n\n")[2]
        .partition("\n\n")[0]
    )
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()[2:]]
    assert lines
    return {name.strip("`"): cells for name, *cells in lines}


def test_every_picture_is_in_one_study(tool: dict[str, Any]) -> None:
    assert {file.stem for file in Path(tool["FOLDER"]).iterdir()} == set(tool["PICTURES"]) == set(NAMES)
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "benchmarks" / "studies").glob("*/README.md"))
    assert [pages.count(f"/docs/images/measured/{name}.svg)") for name in NAMES] == [1] * len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_what_the_results_give_now(name: str, tool: dict[str, Any]) -> None:
    there, now = (tool["FOLDER"] / f"{name}.svg").read_text(encoding="utf-8"), tool["svg"](tool["PICTURES"][name]())
    assert NUMBER.sub("0", there) == NUMBER.sub("0", now), "run python -m studies.pictures"
    numbers = [[float(each) for each in NUMBER.findall(text)] for text in (there, now)]
    assert numbers[0] == pytest.approx(numbers[1], abs=MOVED)


def test_lines_over_the_length_are_those_of_the_table(tool: dict[str, Any]) -> None:
    found, shown = dots(tool["PICTURES"]["length"]()), table("length", f"lengths: {tool['LENGTHS']}")
    means = {name: [MEAN.split(cell)[0] for cell in cells] for name, cells in shown.items() if name.endswith("+infonce")}
    drawn = {name.replace("fixed ", "fixed:temperature=") + "+infonce": points for name, points in found.items()}
    assert {name: [f"{y:+.1f}" for _, y in points] for name, points in drawn.items()} == means
    assert {tuple(x for x, _ in points) for points in drawn.values()} == {(1, 4, 16)}


def test_dots_of_fine_tuning_are_those_of_the_table(tool: dict[str, Any]) -> None:
    shown, found = table("fine_tuning", f"lengths: {tool['FINE_TUNED']}"), rows(tool["PICTURES"]["fine-tuning"]())
    del shown["order: correlation with the column before"]
    for place, passes in enumerate(("half a pass", "2 passes", "8 passes")):
        drawn = {name.replace("fixed ", "fixed:temperature="): of for (name, series), of in found.items() if series == passes}
        assert {name: (f"{mean:+.1f}", f"{low:+.1f}") for name, (mean, low, _) in drawn.items()} == {
            name.removesuffix("+infonce"): (MEAN.split(cells[place])[0], cells[place].rpartition(", ")[2])
            for name, cells in shown.items()
        }


def test_a_best_temperature_is_drawn_at_its_steps_by_its_start(tool: dict[str, Any]) -> None:
    cells = []
    for start, steps, best in (("vectors", 20, 0.02), ("random", 300, 0.12), ("vectors", 80, 0.03)):
        figures = {f"fixed:temperature={each:g}": -(math.log(each / best) ** 2) for each in (0.01, 0.02, 0.05, 0.1, 0.2)}
        cells.append(Measured("set", Cell(passes=1, start=start), steps, figures, figures))
    figure = tool["draw_points"]("", "", tool["best_temperatures"](cells), joined=False)
    expected = {"pretrained": [(20, 0.02), (80, 0.03)], "random": [(300, 0.12)]}
    for start, points in expected.items():
        assert np.allclose(dots(figure)[f"start from {start} vectors"], points)
    counts = [len(points) for points in dots(tool["PICTURES"]["best-temperature"]()).values()]
    assert counts == [69, 12], "14 cells of three data sets and 13 of three others, two of each from random vectors"


def test_losses_of_strategies_are_those_of_the_table(tool: dict[str, Any]) -> None:
    shown = table("equal_budgets", "regret")
    del shown["fixed` as the guide advises"]
    found = rows(tool["PICTURES"]["budgets"]())
    for place, budget in ((0, "default"), (2, "five configurations")):
        drawn = {name: of for (name, series), of in found.items() if series == budget}
        assert {name: f"{mean:+.1f}, {low:+.1f}" for name, (mean, low, _) in drawn.items()} == {
            name: cells[place] for name, cells in shown.items()
        }
        assert all(mean == high for mean, _, high in drawn.values())


def test_gains_of_terms_are_those_of_the_table(tool: dict[str, Any]) -> None:
    shown, found = table("negatives", "negatives"), rows(tool["PICTURES"]["negatives"]())
    for place, batches in ((0, "batches: as they are"), (2, "batches: a fifth false negatives")):
        drawn = {name: of for (name, series), of in found.items() if series == batches}
        assert {name: f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" for name, (mean, low, high) in drawn.items()} == {
            name: cells[place].rpartition(", ")[0] for name, cells in shown.items()
        }


def test_lines_over_the_temperature_of_nodes_are_those_of_the_table(tool: dict[str, Any]) -> None:
    shown = table("last_batch_norm", "tasks: node/small/cora-short node/small/cora node/small/cora-long | F1-micro 10/10/80")
    for series, points in dots(tool["PICTURES"]["last-batch-norm"]()).items():
        place = ["50 epochs", "200 epochs", "1,000 epochs"].index(series.removesuffix(", normalised"))
        more = "@last_batch_norm=true" if series.endswith("normalised") else ""
        means = {
            name.partition("=")[2].removesuffix("+infonce" + more): float(cells[place].strip("*").split(" ")[0])
            for name, cells in shown.items()
            if re.fullmatch(rf"fixed:temperature=[\d.]+\+infonce{more}", name) and cells[place] != "–"
        }
        best = max(
            float(cells[place].strip("*").split(" ")[0])
            for name, cells in shown.items()
            if re.fullmatch(r"fixed:\S+\+infonce", name) and cells[place] != "–"
        )
        assert {f"{x:g}": pytest.approx(y, abs=0.011) for x, y in points} == {name: mean - best for name, mean in means.items()}
