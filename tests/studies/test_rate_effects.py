"""The effects of temperature and rate from a covering design of trainings, against made-up figures and formulas."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from studies.cells import Cell, Measured
from studies.temperature_rate_length.effects import Figures, effect_rows, effects
from studies.temperature_rate_length.grids import Configuration

TEMPERATURES, RATES = (0.05, 0.02, 0.1), (3e-5, 1e-4, 1e-5)
OF_TEMPERATURE, OF_RATE = {0.05: 0.0, 0.02: -0.1, 0.1: 0.2}, {3e-5: 0.0, 1e-4: 0.3, 1e-5: -0.4}
CELLS = [Cell(passes=passes, start="pretrained") for passes in (1, 2)]


def design(noise: float = 0.0, cells: Sequence[Cell] = CELLS) -> Figures:
    """Returns a third of the figures of four data sets; ln of each is the sum of its effects and of normal noise."""
    random = np.random.default_rng(0)
    return {
        (f"set {data}", cell, Configuration(temperature, rate)): math.exp(
            3 + data + of_cell + OF_TEMPERATURE[temperature] + OF_RATE[rate] + noise * random.normal()
        )
        for of_cell, cell in enumerate(cells)
        for data in range(4)
        for (of_temperature, temperature), (of_rate, rate) in itertools.product(enumerate(TEMPERATURES), enumerate(RATES))
        if (data + of_cell + of_temperature + of_rate) % 3 == 0
    }


def test_effects_are_those_that_made_the_figures() -> None:
    for found, made in zip(effects(design()), (OF_TEMPERATURE, OF_RATE), strict=True):
        assert {*found} == {each for each, logarithm in made.items() if logarithm}
        for each, (effect, half) in found.items():
            assert effect == pytest.approx(100 * math.expm1(made[each]))
            assert half == pytest.approx(0, abs=1e-6)


def effect_by_normal_equations(figures: Figures, temperature: float) -> float:
    """Returns ln of a temperature's effect with a constant and contrasts, another parametrisation of the same model."""
    groups = sorted({(data, cell.passes) for data, cell, _ in figures})
    columns = [[1.0] * len(figures)]
    columns += [[float((data, cell.passes) == group) for data, cell, _ in figures] for group in groups[1:]]
    columns += [[float(one.rate == each) for *_, one in figures] for each in (1e-4, 1e-5)]
    columns += [[float(one.temperature == each) for *_, one in figures] for each in (0.02, 0.1)]
    matrix, logs = np.array(columns).T, np.log([*figures.values()])
    solution = np.linalg.inv(matrix.T @ matrix) @ matrix.T @ logs
    return float(solution[-2:][(0.02, 0.1).index(temperature)])


def test_intervals_are_those_of_the_jackknife_over_data_sets() -> None:
    figures = design(0.05)
    own = effect_by_normal_equations(figures, 0.02)
    # pseudo-values, of which the standard error is that of a mean
    pseudo = [
        4 * own - 3 * effect_by_normal_equations({key: each for key, each in figures.items() if key[0] != f"set {data}"}, 0.02)
        for data in range(4)
    ]
    # 3.182446 is Student's t at 0.975 with three degrees of freedom, from tables
    half = 3.182446 * float(np.std(pseudo, ddof=1)) / math.sqrt(4)
    assert effects(figures)[0][0.02] == pytest.approx((100 * math.expm1(own), 100 * math.exp(own) * half), rel=1e-5)


def measured(cells: Sequence[Cell]) -> list[Measured]:
    found = []
    for (data, cell, (temperature, rate)), figure in design(0.05, cells).items():
        figures = {f"fixed:temperature={temperature:g}": figure}
        trained = Cell(passes=cell.passes, start=cell.start, hard=cell.hard, rate=rate)
        found.append(Measured(data, trained, 7, figures, figures))
    return found


def test_a_plan_of_several_cells_has_rows_for_all_and_for_its_parts() -> None:
    hard = Cell(passes=1, start="pretrained", hard=True)
    rows = effect_rows({"rate_part": measured(CELLS[:1]), "rate_whole": measured([hard, *CELLS])})
    names = (
        "part (12)",
        "whole (36)",
        "whole, no hard negatives (24)",
        "whole, hard negatives (12)",
        "whole, 1 pass (24)",
        "whole, 1 pass, no hard negatives (12)",
        "whole, 2 passes (12)",
    )
    assert [tuple(row[:2]) for row in rows[1:]] == list(itertools.product(names, ("held-out", "test")))
    assert rows[1][2].startswith("0.02: -")
