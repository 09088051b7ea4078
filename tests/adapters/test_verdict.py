"""The verdict over seeds: its interval, how seldom noise alone wins, how many seeds it asks for, and its words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import nct, t, ttest_rel

from tempplug_adapters.verdict import judge


def by_seed(*numbers: float) -> dict[int | None, float]:
    return dict(enumerate(numbers))


def random_values(
    generator: np.random.Generator, names: int, seeds: int, gain: float = 0.0
) -> dict[str, dict[int | None, float]]:
    """Metrics with noise of the seed, which all names share, and of the run; the gain is that of the last name."""
    noise = generator.standard_normal((names, seeds)) + 5 * generator.standard_normal(seeds)
    noise[-1] += gain
    return {str(number): by_seed(*map(float, row)) for number, row in enumerate(noise)}


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    ours, best, worst = [0.70, 0.74, 0.71, 0.78], [0.75, 0.76, 0.74, 0.79], [0.5, 0.6, 0.7, 0.5]
    verdict = judge({"ours": by_seed(*ours), "best": by_seed(*best), "worst": by_seed(*worst)}, "ours")
    interval = ttest_rel(best, ours).confidence_interval(1 - 0.05 / 2)  # the best of two: half of the level each
    assert verdict.difference - verdict.half_width == pytest.approx(interval.low)
    assert verdict.difference + verdict.half_width == pytest.approx(interval.high)
    assert (verdict.reference, verdict.best, verdict.seeds, verdict.comparisons) == ("ours", "best", 4, 2)


@pytest.mark.parametrize("current", ["0", None])
@pytest.mark.parametrize("names", [2, 7])
def test_noise_alone_seldom_wins(current: str | None, names: int) -> None:
    generator = np.random.default_rng(names)
    clear = [judge(random_values(generator, names, 3), current).clear for _ in range(600)]
    assert np.mean(clear) < 0.05


@pytest.mark.parametrize("current", ["0", None])
def test_a_large_gain_is_clear_with_five_seeds(current: str | None) -> None:
    generator = np.random.default_rng(0)
    verdicts = [judge(random_values(generator, 7, 5, gain=12.0), current) for _ in range(100)]
    assert np.mean([verdict.clear and verdict.best == "6" for verdict in verdicts]) > 0.9


@pytest.mark.parametrize("effect", [0.35, 0.6, 1.0])
def test_the_seeds_asked_for_show_the_difference_in_four_of_five_cases(effect: float) -> None:
    differences = np.array([-1.0, 1.0, 0.0])
    values = {"a": by_seed(0.0, 0.0, 0.0), "b": by_seed(*map(float, effect + differences / differences.std(ddof=1)))}
    needed = judge(values, "a").seeds_needed
    assert needed is not None

    def power(seeds: int) -> float:
        return float(nct.sf(t.ppf(0.975, seeds - 1), seeds - 1, effect * math.sqrt(seeds)))

    assert power(needed - 2) < 0.8 < power(needed + 1)


SAME, UP = by_seed(0.5, 0.5, 0.5), by_seed(0.6, 0.61, 0.62)
NOISE = "cannot tell the noise."


@pytest.mark.parametrize(
    ("current", "other", "lower", "size", "conclusion"),
    [
        (SAME, UP, False, "+0.11 ± 0.0248 (95 % interval, 3 seeds)", "change it."),
        (SAME, UP, True, "+0.11 ± 0.0248 (95 % interval, 3 seeds)", "keep what you have."),
        (UP, SAME, True, "-0.11 ± 0.0248 (95 % interval, 3 seeds)", "change it."),
        (
            SAME,
            by_seed(0.4, 0.6, 0.52),
            False,
            "+0.00667 ± 0.25 (95 % interval, 3 seeds)",
            "keep what you have; a difference of this size needs more than 100 seeds to be seen.",
        ),
        (
            SAME,
            by_seed(0.45, 0.6, 0.6),
            False,
            "+0.05 ± 0.215 (95 % interval, 3 seeds)",
            "keep what you have; a difference of this size needs about 26 seeds to be seen.",
        ),
        (by_seed(0.5), by_seed(0.6), False, "+0.1 with one seed", f"keep what you have, because one seed {NOISE}"),
        (
            by_seed(0.5, 0.6),
            by_seed(0.6, 0.7),
            False,
            "+0.1 with each of 2 seeds",
            f"keep what you have, because equal differences {NOISE}",
        ),
    ],
)
def test_the_words_about_the_current_one(
    current: dict[int | None, float], other: dict[int | None, float], lower: bool, size: str, conclusion: str
) -> None:
    sentence = judge({"0.1": current, "0.05": other}, "0.1", lower).sentence("f1")
    assert sentence == f"You train at 0.1. 0.05 changes f1 by {size}: {conclusion}"


def test_the_words_where_no_current_one_is_known() -> None:
    values = {"0.1": SAME, "0.05": UP, "1": by_seed(0, 0, 0.1)}
    assert judge(values, None).sentence("f1") == (
        "0.05 is best. Its f1 differs from that of the second, 0.1, by +0.11 ± 0.0358 (95 % interval for 2 comparisons, "
        "3 seeds): they differ clearly."
    )
    assert (
        judge({"0.1": SAME, "0.05": by_seed(0.4, 0.6, 0.54)}, None)
        .sentence("f1")
        .endswith(": they are not told apart; a difference of this size needs more than 100 seeds to be seen.")
    )
    assert (
        judge({"0.1": SAME, "0.05": SAME}, None).sentence("f1") == "None is best: 0.1 and 0.05 have the same f1 with 3 seeds."
    )
