"""The effects of temperature and rate from a Latin square of trainings, against made-up figures and statsmodels' formula."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from studies.cells import Cell, Measured
from studies.temperature_rate_length.effects import Figures, effect_rows, effects
from studies.temperature_rate_length.grids import Configuration

TEMPERATURES, RATES = (0.05, 0.02, 0.1), (3e-5, 1e-4, 1e-5)
OF_TEMPERATURE, OF_RATE = {0.05: 0.0, 0.02: -0.1, 0.1: 0.2}, {3e-5: 0.0, 1e-4: 0.3, 1e-5: -0.4}


def square(noise: float = 0.0) -> Figures:
    """Returns a Latin square of figures of four data sets; ln of each is the sum of its effects and of normal noise."""
    random = np.random.default_rng(0)
    return {
        (f"set {data}", Configuration(temperature, rate)): math.exp(
            3 + data + OF_TEMPERATURE[temperature] + OF_RATE[rate] + noise * random.normal()
        )
        for data in range(4)
        for (of_temperature, temperature), (of_rate, rate) in itertools.product(enumerate(TEMPERATURES), enumerate(RATES))
        if (data + of_temperature + of_rate) % 3 == 0
    }


def test_effects_are_those_that_made_the_figures() -> None:
    for found, made in zip(effects(square()), (OF_TEMPERATURE, OF_RATE), strict=True):
        assert {*found} == {each for each, logarithm in made.items() if logarithm}
        for each, (effect, half) in found.items():
            assert effect == pytest.approx(100 * math.expm1(made[each]))
            assert half == pytest.approx(0, abs=1e-6)


def test_intervals_are_those_of_a_regression_with_a_constant_and_contrasts() -> None:
    figures = square(0.05)
    names = [*figures]
    # by the normal equations with a constant and dummies of all but one data set, another parametrisation of the same model
    columns = [[1.0] * len(names)]
    columns += [[float(data == f"set {number}") for data, _ in names] for number in (1, 2, 3)]
    columns += [[float(one.temperature == each) for _, one in names] for each in (0.02, 0.1)]
    columns += [[float(one.rate == each) for _, one in names] for each in (1e-4, 1e-5)]
    design, logs = np.array(columns).T, np.log([*figures.values()])
    inverse = np.linalg.inv(design.T @ design)
    solution = inverse @ design.T @ logs
    error = math.sqrt(((logs - design @ solution) ** 2).sum() / (12 - 8) * inverse[4, 4])
    # 2.776445 is Student's t at 0.975 with four degrees of freedom, from tables
    expected = 100 * math.expm1(solution[4]), 100 * math.exp(solution[4]) * error * 2.776445
    assert effects(figures)[0][0.02] == pytest.approx(expected, rel=1e-5)


def cells(sets: tuple[str, ...]) -> list[Measured]:
    found = []
    for (data, (temperature, rate)), figure in square(0.05).items():
        if data in sets:
            figures = {f"fixed:temperature={temperature:g}": figure}
            found.append(Measured(data, Cell(passes=1, start="pretrained", rate=rate), 7, figures, figures))
    return found


def test_a_plan_of_fewer_sets_has_the_first_one_on_its_sets_beside_it() -> None:
    sets = tuple(f"set {number}" for number in range(4))
    rows = effect_rows({"rate_part": cells(sets), "rate_hard": cells(sets[:3])})
    names = ("part (12)", "hard (9)", "part, its sets (9)")
    assert [tuple(row[:2]) for row in rows[1:]] == list(itertools.product(names, ("held-out", "test")))
    assert rows[3][2:] == rows[5][2:]
    assert rows[1][2].startswith("0.02: -")
