"""Choices and losses over temperature and rate on made-up grids, and the page's figures computed anew from the result files."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch

from studies.cells import Cell, Measured
from studies.distil import DEVIATION, reduce
from studies.tables import RATES
from studies.temperature_rate_length.grids import (
    Configuration,
    Grid,
    along_rates,
    along_temperatures,
    followed,
    grids_of,
    interpolated,
    interval,
    left_out,
    order_of,
    regrets,
)
from studies.temperature_rate_length.picture import mean_losses
from studies.temperature_rate_length.strategies import by_strategy, over_fixed, over_same_rates, strategy_rows
from studies.temperature_rate_length.tables import (
    EARLIER,
    advised_rows,
    centring_gains,
    choice_rows,
    earlier_rows,
    grid_rows,
    similarity_rows,
    threshold_choices,
)
from studies.text_settings import TextSettings
from studies.texts import part_of
from studies.train_cells import CellsPlan
from tempplug.errors import DataError
from tempplug_adapters.sentence_evaluation.retrieval_data import Collection

STUDY = Path(__file__).parents[2] / "benchmarks" / "studies" / "temperature_rate_length"
A, B, C, D = itertools.starmap(Configuration, ((0.02, 0.1), (0.02, 0.3), (0.2, 0.1), (0.2, 0.3)))


def grid(data: str, held_out: tuple[float, ...], test: tuple[float, ...], cell: Cell | None = None) -> Grid:
    """Returns a grid with figures of A, B, C and D."""
    names = (A, B, C, D)
    cell = cell or Cell(passes=1)
    return Grid(data, cell, dict(zip(names, held_out, strict=True)), dict(zip(names, test, strict=True)), 0.9)


GRIDS = [
    grid("one", (50.0, 39.0, 45.0, 30.0), (40.0, 20.0, 44.0, 10.0)),
    grid("two", (20.0, 40.0, 36.0, 10.0), (11.0, 22.0, 20.0, 30.0)),
    grid("three", (60.0, 20.0, 54.0, 80.0), (30.0, 5.0, 27.0, 25.0)),
]


def test_the_first_configuration_is_the_safest_and_the_next_ones_add_the_most() -> None:
    # Shares of C: 90, 90 and 67.5 per cent; of A: 100, 50 and 75; of B: 78, 100 and 25; of D: 60, 25 and 100.
    assert order_of(GRIDS, 1) == [C]
    # With C: A gives 100, 90, 75; B 90, 100, 67.5; D 90, 90, 100.
    assert order_of(GRIDS, 2) == [C, D]
    assert set(order_of(GRIDS, 9)) == {A, B, C, D}


def test_regret_is_on_the_test_for_choices_on_held_out_pairs() -> None:
    assert GRIDS[0].regret([C]) == pytest.approx(10.0), "44 against 40 of A, which held-out pairs prefer"
    assert GRIDS[1].regret([A, C]) == pytest.approx(100 * (20 / 22 - 1))
    assert GRIDS[2].regret() == 0
    # One: the others have shares of A 50, 75; B 100, 25; C 90, 67.5; D 25, 100: C. Two: A 100, 75; C 90, 67.5: A. Three: C.
    assert regrets(GRIDS, 1) == pytest.approx([10.0, -50.0, 8.0])
    assert regrets(GRIDS, 4) == [0, 0, 0]


def test_searches_along_one_axis_are_those_that_the_other_sets_prefer() -> None:
    # Best shares at 0.02, then 0.2: one 100, 90; two 100, 90; three 75, 100. At 0.1, then 0.3: 100, 78; 90, 100; 75, 100.
    assert left_out(GRIDS, along_rates) == pytest.approx([10.0, 100 * (20 / 22 - 1), 20.0], abs=1e-9)
    # The others of one prefer 0.3 (200 against 165), those of two 0.3 (178 against 175), those of three 0.1 (190 against 178).
    assert left_out(GRIDS, along_temperatures) == pytest.approx([-50.0, 0.0, 20.0], abs=1e-9)


def test_a_rate_that_follows_the_temperature_is_found_between_the_rates_of_the_grid() -> None:
    assert interpolated(GRIDS[0].test, 0.02, math.sqrt(0.03)) == pytest.approx(30.0)
    assert interpolated(GRIDS[0].test, 0.2, 9.0) == pytest.approx(10.0)
    rates = (0.01, 0.03, 0.1, 0.3)
    made = []
    for data in ("one", "two", "three"):
        figures = {
            Configuration(temperature, rate): 50
            - 5 * (math.log(rate) - math.log(0.03) - 0.5 * math.log(temperature / 0.1)) ** 2
            for temperature in (0.02, 0.05, 0.1, 0.2)
            for rate in rates
        }
        made.append(Grid(data, Cell(passes=1), figures, figures, 0.5))
    losses = {power: fmean(followed(made, power)) for power in (-1.0, 0.0, 0.5, 1.0)}
    assert max(losses, key=lambda each: losses[each]) == 0.5, "the power that made the figures"
    assert losses[-1.0] < losses[0.0] < losses[0.5]


def test_the_gain_of_centring_is_between_the_choices_of_both_sides() -> None:
    centred = Cell(passes=1, start="centred")
    twins = [grid("one", (1.0, 1.0, 1.0, 9.0), (1.0, 1.0, 48.0, 50.0), centred)]
    plain, gains = centring_gains([*GRIDS, *twins])
    assert ([each.data for each in plain], gains) == (["one"], [pytest.approx(25.0)])
    # At the rate 0.1 alone held-out pairs choose A on both sides.
    assert centring_gains([*GRIDS, *twins], [A, C])[1] == [pytest.approx(-97.5)]


def test_a_threshold_is_chosen_without_the_set_that_it_is_judged_on() -> None:
    points = [("x", "one", 0.9, 5.0), ("x", "two", 0.8, 4.0), ("x", "three", 0.1, -3.0), ("x", "four", 0.2, -2.0)]
    # Without "two" 0.2 separates, which is right for it; without "four" 0.1 does, which is wrong; the others are right.
    assert threshold_choices(points) == (2, 3)
    measured = [
        Measured(
            data,
            Cell(passes=1, start=start, rate=0.1),
            9,
            {"fixed:temperature=0.2": 1.0},
            {"fixed:temperature=0.2": figure},
            {},
            similarity,
        )
        for data, similarity, plain, figure_centred in (("one", 0.9, 40.0, 50.0), ("two", 0.2, 40.0, 38.0))
        for start, figure in (("vectors", plain), ("centred", figure_centred))
    ]
    rows = similarity_rows({"rate_x": measured})
    assert rows[:3] == [["pairs", "x: similarity", "gain of centring"], ["one", "0.90", "+25.0"], ["two", "0.20", "-5.0"]]
    assert rows[3][0].startswith("Spearman +1.00")


def test_intervals_resample_data_sets_not_cells() -> None:
    cells = [grid(data, (1.0,) * 4, (1.0,) * 4, Cell(passes=passes)) for data in ("one", "two") for passes in (1, 4, 16)]
    mean, low, high = interval(cells, [0.0, 3.0, 6.0, 9.0, 9.0, 9.0])
    assert (mean, low, high) == (6.0, 3.0, 9.0), "of two sets with means 3 and 9 a quarter of the samples is at each end"


def test_grids_join_the_cells_that_differ_in_the_rate() -> None:
    cells = [
        Measured(
            "one",
            Cell(passes=1, rate=rate),
            9,
            {"fixed:temperature=0.02": rate, "learnable": 99.0},
            {"fixed:temperature=0.02": 5.0, "learnable": 9.0},
        )
        for rate in (0.1, 0.3)
    ]
    (joined,) = grids_of(cells)
    assert joined.held_out == {A: 0.1, B: 0.3}
    assert grid_rows({"rate_x": cells}) == [
        ["encoder", "pairs", "passes", "rate", "τ 0.02: held-out, test"],
        ["x", "one", "1", "0.1", "0.1, 5.0"],
        ["x", "one", "1", "0.3", "0.3, 5.0"],
    ]
    assert choice_rows({"rate_x": cells})[1] == ["x", "1", "1", "1", "+0.0, +0.0"]


def test_the_advice_before_is_beside_what_each_temperature_loses_at_its_best_rate() -> None:
    figures = {(0.2, 5e-4): (9.0, 80.0), (0.2, 5e-3): (7.0, 99.0), (0.5, 5e-4): (5.0, 60.0), (0.5, 5e-3): (6.0, 72.0)}
    cells = []
    for rate in (5e-4, 5e-3):
        held_out, test = (
            {f"fixed:temperature={each:g}": figures[each, rate][place] for each in (0.2, 0.5)} for place in (0, 1)
        )
        cells.append(Measured("Cora", Cell(passes=4, rate=rate, start="random"), 9, held_out, test))
    assert advised_rows({"rate_nodes": cells})[1] == [
        *("nodes", "Cora", "4", "0.2 @ 0.0005", "0.2: +0.0", "0.5: -10.0", "0.5 @ 0.0005: -25.0", "20.0", "11.1")
    ]


def test_an_earlier_advice_is_beside_the_order_of_the_other_sets() -> None:
    better = Configuration(0.1, 1e-3)
    test = {"one": (40.0, 30.0, 60.0, 50.0), "two": (45.0, 30.0, 60.0, 50.0)}
    cells = [
        Measured(data, Cell(passes=1, rate=each.rate, start="pretrained"), 9, {arm: held_out}, {arm: figure})
        for data, figures in test.items()
        for each, held_out, figure in zip((*EARLIER, better), (8.0, 7.0, 1.0, 10.0), figures, strict=True)
        for arm in (f"fixed:temperature={each.temperature:g}",)
    ]
    joined = [  # 0.05 and 0.1 have the same rate
        replace(first, held_out=first.held_out | last.held_out, test=first.test | last.test)
        for first, last in ((cells[0], cells[3]), (cells[4], cells[7]))
    ]
    rows = earlier_rows({"rate_x": [*joined, *cells[1:3], *cells[5:7]]})
    assert [row[:2] for row in rows[1:]] == [["x", "1"], ["x", "all"]]
    # Held-out pairs prefer 0.05 of the three on both, and 0.1 of all, which the order has first.
    assert rows[1][2:] == ["-15.0 [-20.0, -10.0], -20.0; -15.0"] * 3


def test_a_part_of_a_collection_keeps_what_its_queries_ask_for() -> None:
    documents = {str(number): f"text {number}" for number in range(50)}
    relevance = {str(number): {str(49 - number): 1} for number in range(50)}
    whole = Collection(documents, dict.fromkeys(relevance, "query"), relevance)
    part = part_of(whole, TextSettings(queries=5, documents=20))
    assert [*part.queries] == ["0", "1", "2", "3", "4"]
    assert len(part.documents) == 20
    assert {"49", "48", "47", "46", "45"} <= set(part.documents)
    assert [*part.documents] == sorted(part.documents, key=int)
    assert len(part_of(whole, TextSettings(queries=5)).documents) == 50
    assert len(part_of(whole, TextSettings(queries=5, documents=3)).documents) == 5


def test_distilled_vectors_are_weighted_components_without_their_mean() -> None:
    vectors = torch.randn(200, 3, dtype=torch.float64) @ torch.tensor([[5.0, 0, 0, 0], [0, 3, 0, 0], [0, 0, 1, 0]]).double() + 7
    found = reduce(vectors, 2)
    assert found.square().mean().sqrt() == pytest.approx(DEVIATION)
    assert not found[0].any(), "ln 1"
    plain = found[1:] / torch.arange(2, 201, dtype=torch.float64).log()[:, None]
    expected = torch.pca_lowrank(vectors, q=4, niter=9)[0][1:, :2]
    for column in range(2):
        cosine = torch.nn.functional.cosine_similarity(plain[:, 1 - column], expected[:, column], dim=0)
        assert abs(cosine) == pytest.approx(1, abs=0.01)


def test_a_plan_crosses_its_cells_with_rates_and_sets_what_is_read_of_texts() -> None:
    plan = CellsPlan(
        date="2026-11-28", question="?", sets={"quora": "quora"}, cells=[{"passes": 1}], pairs=9, temperatures=[0.1, 0.2],
        candidates=[], strategies=["learnable"], seeds=[0], rates=[0.01, 0.1], texts={"held_out": 0.25},
    )  # fmt: skip
    assert [(cell.rate, arm) for cell, arm, _ in plan.runs("quora")] == [
        (rate, arm) for rate in (0.01, 0.1) for arm in ("fixed:temperature=0.1", "fixed:temperature=0.2", "learnable")
    ]
    square = replace(plan, sets=dict.fromkeys("ab", ""), strategies=[], fraction=2)
    assert [(cell.rate, arm[-3:]) for name in "ab" for cell, arm, _ in square.runs(name)] == [
        (0.01, "0.1"), (0.1, "0.2"), (0.01, "0.2"), (0.1, "0.1"),
    ]  # fmt: skip
    two_cells = replace(square, cells=[{"passes": 1}, {"passes": 2}])
    assert [(cell.passes, cell.rate, arm[-3:]) for cell, arm, _ in two_cells.runs("a")] == [
        (1, 0.01, "0.1"), (1, 0.1, "0.2"), (2, 0.01, "0.2"), (2, 0.1, "0.1"),
    ]  # fmt: skip
    wrong = replace(plan, texts={"held": 1})
    with pytest.raises(DataError, match=r"texts of the plan.*held"):
        wrong.load("quora", "quora", Path("none"))
    with pytest.raises(DataError, match="texts of a plan must be absent for model='nodes'"):
        replace(plan, model="nodes")


def lines_of(plan: str) -> dict[tuple[str, str, int], dict[tuple[float, float], tuple[float, float]]]:
    """Returns held-out and test figures by data set, start and length and by temperature and rate, means of the seeds."""
    read: dict[tuple[str, str, int], dict[tuple[float, float], list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for file in sorted((STUDY / "results" / plan).glob("*.jsonl")):
        for text in file.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if line["strategy"].startswith("fixed:temperature="):
                key = float(line["strategy"].partition("=")[2]), line["rate"]
                read[file.stem, line["start"], line["passes"]][key].append((line["held_out"], line["test"]))
    return {
        name: {key: (fmean(a for a, _ in of), fmean(b for _, b in of)) for key, of in figures.items()}
        for name, figures in read.items()
    }


def page_table(kind: str) -> list[list[str]]:
    """Returns the rows of a table of the page without its header."""
    text = (STUDY / "README.md").read_text(encoding="utf-8")
    lines = text.partition(f"<!-- measured {kind} -->\n\n")[2].partition("\n\n")[0].splitlines()
    assert len(lines) > 2, kind
    return [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines[2:]]


@pytest.mark.parametrize(
    ("kind", "place", "plan", "start"),
    [
        ("rate-tries", 0, "rate_glove", "centred"),
        ("rate-tries", 1, "rate_glove", "vectors"),
        ("rate-tries: rate_bert_whole", 0, "rate_bert_whole", "pretrained"),
    ],
)
def test_the_pages_regrets_are_those_of_the_result_files(kind: str, place: int, plan: str, start: str) -> None:
    grids = {name: of for name, of in lines_of(plan).items() if name[1] == start}
    names, configurations = sorted({data for data, *_ in grids}), sorted(next(iter(grids.values())))
    shares = {
        name: np.array([of[each][0] for each in configurations]) / max(figure for figure, _ in of.values())
        for name, of in grids.items()
    }

    def greedy(sets: list[str], count: int) -> list[int]:
        table = np.array([share for name, share in shares.items() if name[0] in sets])
        order: list[int] = []
        best = np.zeros(len(table))
        for _ in range(count):
            means = np.maximum(best[:, None], table).mean(0)
            means[order] = -1
            order.append(int(means.argmax()))
            best = np.maximum(best, table[:, order[-1]])
        return order

    shown = page_table(kind)
    assert [row[0] for row in shown] == ["1", "2", "3", "5", "8"]
    tried = ", ".join(row[1 + 2 * place] for row in shown)
    assert tried == ", ".join("{:g} @ {:g}".format(*configurations[each]) for each in greedy(names, 8))
    for row in shown:
        losses = defaultdict(list)
        for name, of in grids.items():
            order = greedy([each for each in names if each != name[0]], int(row[0]))
            held_out, test = ([of[each][one] for each in configurations] for one in (0, 1))
            chosen = max(order, key=lambda each: held_out[each])
            losses[name[0]].append(100 * (test[chosen] / test[int(np.argmax(held_out))] - 1))
        mean, worst = fmean(map(fmean, losses.values())), min(map(min, losses.values()))
        cell = row[2 + 2 * place]
        assert (cell.partition(" ")[0], cell.rpartition(", ")[2]) == (f"{mean:+.1f}", f"{worst:+.1f}")


@pytest.mark.parametrize("plan", RATES)
def test_the_pages_gains_of_centring_are_those_of_the_result_files(plan: str) -> None:
    grids = lines_of(plan)
    gains = defaultdict(list)
    for (data, start, passes), of in grids.items():
        if start == "vectors":
            best = [max(each.values())[1] for each in (grids[data, "centred", passes], of)]
            for length in (str(passes), "all"):
                gains[length].append(100 * (best[0] / best[1] - 1))
    shown = {row[1]: row[2] for row in page_table("rate-centring") if row[0] == plan.removeprefix("rate_")}
    assert shown.keys() == gains.keys()
    for length, of in gains.items():
        assert (shown[length].partition(" ")[0], shown[length].rpartition(", ")[2]) == (f"{fmean(of):+.1f}", f"{min(of):+.1f}")


def test_strategies_are_compared_with_as_many_fixed_configurations_and_with_the_same_rates() -> None:
    arm = "learnable"
    figures = {("one", 0.1): (9.0, 50.0), ("one", 0.3): (8.0, 99.0), ("two", 0.1): (1.0, 99.0), ("two", 0.3): (2.0, 11.0)}
    own = [
        Measured(data, Cell(passes=1, rate=rate, start="centred"), 9, {arm: held_out}, {arm: test})
        for (data, rate), (held_out, test) in figures.items()
    ]
    centred = [replace(each, cell=Cell(passes=1, start="centred")) for each in GRIDS[:2]]
    by_place = by_strategy(own)[arm]
    # Two's order is B and then, as nothing adds to it, A: one's held-out pairs choose A, 40. One's is A, B: two's choose B, 22.
    assert over_fixed(centred, by_place) == pytest.approx([25.0, -50.0])
    # At 0.2 held-out pairs choose the rate 0.1 on both: C.
    assert over_same_rates(centred, by_place) == pytest.approx([100 * (50 / 44 - 1), -45.0])
    fixed = [
        Measured(
            each.data,
            Cell(passes=1, rate=rate, start="centred"),
            9,
            {f"fixed:temperature={one.temperature}": figure for one, figure in each.held_out.items() if one.rate == rate},
            {f"fixed:temperature={one.temperature}": figure for one, figure in each.test.items() if one.rate == rate},
        )
        for each in GRIDS[:2]
        for rate in (0.1, 0.3)
    ]
    rows = {(row[0], row[1]): row[2:] for row in strategy_rows({"fixed": fixed, "others": own}) if row[0] == "centred"}
    # Best of one: A, 40; of two: B, 22.
    assert rows["centred", "`learnable`"][:3] == ["+187.5, +25.0", "–", "-12.5, -50.0"]


def test_the_picture_shows_losses_to_the_choice_on_held_out_pairs() -> None:
    cells = [
        Measured(data, Cell(passes=1, rate=rate), 9, {"fixed:temperature=0.02": held_out}, {"fixed:temperature=0.02": test})
        for data, rate, held_out, test in (
            ("one", 0.1, 2.0, 40.0),
            ("one", 0.3, 1.0, 30.0),
            ("two", 0.1, 1.0, 60.0),
            ("two", 0.3, 2.0, 50.0),
        )
    ]
    assert mean_losses({"rate_x": cells}) == {("x", 1): {A: pytest.approx(10.0), B: pytest.approx(-12.5)}}
