"""The rule of ``tempplug advise``: what another temperature likely gains, whether it is worth a change, and what is said."""

from __future__ import annotations

from itertools import chain
from statistics import fmean, median, variance

import numpy as np
import pytest

from tempplug.errors import ConfigError
from tempplug_adapters.verdict import weigh

Z_90 = 1.2815515655446004
"""90 % quantile of the normal distribution, from a table: the interval has 80 %."""


def measured(
    generator: np.random.Generator, *means: float, repetitions: int = 3, run_noise: float = 0.0
) -> dict[str, list[list[float]]]:
    """Measurements of four held-out pairs in each repetition; those of a repetition share its noise."""
    noise = run_noise * generator.standard_normal((len(means), repetitions, 1)) + generator.standard_normal(
        (len(means), repetitions, 4)
    )
    values = np.array(means)[:, None, None] + 0.2 * noise
    return {f"{place}": rows.tolist() for place, rows in enumerate(values)}


def likely_gains(values: dict[str, list[list[float]]], current: str) -> dict[str, tuple[float, float]]:
    """The likely gains and half widths, by the formula, in plain Python."""
    differences = {
        name: [[a - b for a, b in zip(*pair, strict=True)] for pair in zip(rows, values[current], strict=True)]
        for name, rows in values.items()
        if name != current
    }
    means = {name: fmean(chain(*rows)) for name, rows in differences.items()}
    pairs = {name: list(chain(*rows)) for name, rows in differences.items()}
    noise = {name: variance(each) / len(each) for name, each in pairs.items()}
    between = {name: variance([fmean(row) for row in rows]) / len(rows) for name, rows in differences.items()}
    more = max(0.0, fmean(between[name] - noise[name] for name in noise))
    noise = {name: each + more for name, each in noise.items()}
    spread = max(0.0, median(mean**2 for mean in means.values()) / 0.455 - fmean(noise.values()))
    gains = {}
    for name, mean in means.items():
        share, error = spread / (spread + noise[name]), noise[name] ** 0.5
        gains[name] = (share * mean, Z_90 * share**0.5 * error)
        if abs(mean) - 2 * error > share * abs(mean):
            gains[name] = (mean - 2 * error if mean > 0 else mean + 2 * error, Z_90 * error)
    return gains


@pytest.mark.parametrize("run_noise", [0.0, 3.0])
def test_differences_are_shrunk_as_the_formula_says(run_noise: float) -> None:
    values = measured(np.random.default_rng(4), 70.0, 70.9, 68.0, 71.5, run_noise=run_noise)
    weighed = weigh(values, "0")
    expected = likely_gains(values, "0")
    assert list(weighed.likely) == ["1", "2", "3"]
    for name, figures in expected.items():
        assert weighed.likely[name] == pytest.approx(figures)
        assert figures[1] > 0
    assert weighed.best == "3"
    assert 0 < weighed.likely["3"][0] < weighed.difference


@pytest.mark.parametrize("gain", [8.0, -8.0])
def test_one_that_stands_out_alone_is_not_taken_for_luck(gain: float) -> None:
    values = measured(np.random.default_rng(6), 70.0, 70.0, 70.05, 69.95, 70.0, 70.0 + gain)
    weighed, expected = weigh(values, "0"), likely_gains(values, "0")
    assert weighed.likely["5"] == pytest.approx(expected["5"])
    assert abs(weighed.likely["5"][0]) > 7
    assert weighed.answer == ("change" if gain > 0 else "keep")


def test_noise_between_trainings_widens_the_interval() -> None:
    calm, noisy = (measured(np.random.default_rng(4), 70, 75, 64, run_noise=noise) for noise in (0.0, 5.0))
    assert weigh(noisy, "0").likely["1"][1] > 2 * weigh(calm, "0").likely["1"][1]


SAME = [[70.0, 71.0], [69.0, 70.0]]


def plus(*gains: float) -> list[list[float]]:
    return [[SAME[0][0] + gains[0], SAME[0][1] + gains[1]], [SAME[1][0] + gains[2], SAME[1][1] + gains[3]]]


@pytest.mark.parametrize(
    ("others", "answer", "said"),
    [
        ([plus(4, 4, 5, 3), plus(-4, -4, -5, -3)], "change", "+4.0 points, likely +4.0 ± 0.5: change it."),
        ([plus(0.5, 0.6, 0.5, 0.4), plus(-4, -4, -5, -3)], "keep", "+0.5 points, likely +0.5 ± 0.1: keep what you have."),
        ([plus(-1, -1, -1, -1), plus(-4, -4, -5, -3)], "keep", "-1.0 points, likely -1.0 ± 0.0: keep what you have."),
        ([SAME, SAME], "keep", "+0.0 points, no more than chance: keep what you have."),
        ([plus(9, -7, 9, -7), plus(-9, 7, -8, 8)], "open", "no more than chance: cannot tell yet, the noise is ± 4.6 points."),
        ([plus(5, -3, 5, -3), plus(-5, 3, -4, 4)], "keep", "+1.0 points, no more than chance: keep what you have."),
        ([plus(9, 0, -1, 4), plus(-9, -9, -5, -9)], "open", ": cannot tell yet, 1 may gain "),
        ([plus(4, 0, -1, 0), plus(-9, -9, -5, -9)], "open", ": cannot tell yet, 1 may gain "),
    ],
)  # fmt: skip
def test_a_gain_that_is_likely_and_sure_is_worth_a_change(others: list[list[list[float]]], answer: str, said: str) -> None:
    weighed = weigh({"0": SAME} | {f"{place}": each for place, each in enumerate(others, 1)}, "0")
    assert weighed.answer == answer, weighed
    assert weighed.sentence.startswith("You train at 0. 1 changes held-out accuracy by ")
    assert said in weighed.sentence


def test_what_cannot_be_compared_is_refused() -> None:
    for values in ({"0.05": SAME, "0.1": SAME}, {"0.07": SAME}):
        with pytest.raises(ConfigError, match=r"current=0\.07 must be among the measured, with another one beside it: 0\.0"):
            weigh(values, "0.07")
