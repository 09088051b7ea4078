"""The verdict over seeds: its interval, how seldom noise alone wins, how many seeds it asks for, and its words."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import nct, t, ttest_rel

from tempplug_adapters.verdict import judge

judge_seeds = partial(judge, quantity="f1")


def random_values(generator: np.random.Generator, names: int, seeds: int, gain: float = 0.0) -> dict[str, list[float]]:
    """Metrics with noise of the seed, which all names share, and of the run; the gain is that of the last name."""
    noise = generator.standard_normal((names, seeds)) + 5 * generator.standard_normal(seeds)
    noise[-1] += gain
    return {str(number): row.tolist() for number, row in enumerate(noise)}


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    ours, best, worst = [0.70, 0.74, 0.71, 0.78], [0.75, 0.76, 0.74, 0.79], [0.5, 0.6, 0.7, 0.5]
    verdict = judge_seeds({"ours": ours, "best": best, "worst": worst}, "ours")
    interval = ttest_rel(best, ours).confidence_interval(1 - 0.05 / 2)  # the best of two: half of the level each
    assert verdict.difference - verdict.half_width == pytest.approx(interval.low)
    assert verdict.difference + verdict.half_width == pytest.approx(interval.high)
    assert (verdict.current, verdict.best) == ("ours", "best")


@pytest.mark.parametrize("current", ["0", None])
@pytest.mark.parametrize("names", [2, 7])
def test_noise_alone_seldom_wins(current: str | None, names: int) -> None:
    generator = np.random.default_rng(names)
    changes = [judge_seeds(random_values(generator, names, 3), current).change for _ in range(600)]
    assert np.mean(changes) < 0.05


@pytest.mark.parametrize("current", ["0", None])
def test_a_large_gain_is_clear_with_five_seeds(current: str | None) -> None:
    generator = np.random.default_rng(0)
    verdicts = [judge_seeds(random_values(generator, 7, 5, gain=12.0), current) for _ in range(100)]
    assert np.mean([verdict.change and verdict.best == "6" for verdict in verdicts]) > 0.9


@pytest.mark.parametrize("effect", [0.35, 0.6, 1.0])
def test_the_seeds_asked_for_show_the_difference_in_four_of_five_cases(effect: float) -> None:
    differences = np.array([-1.0, 1.0, 0.0])
    values = {"a": [0.0] * 3, "b": (effect + differences / differences.std(ddof=1)).tolist()}
    needed = judge_seeds(values, "a").needed
    assert needed is not None

    def power(seeds: int) -> float:
        return float(nct.sf(t.ppf(0.975, seeds - 1), seeds - 1, effect * math.sqrt(seeds)))

    assert power(needed - 2) < 0.8 < power(needed + 1)


SAME, UP = [0.5, 0.5, 0.5], [0.6, 0.61, 0.62]
KEEP, INTERVAL = "keep what you have", "(95 % interval, 3 seeds)"
NEEDS = "a difference of this size needs"


@pytest.mark.parametrize(
    ("current", "other", "lower", "words"),
    [
        (SAME, UP, False, f"+0.11 ± 0.0248 {INTERVAL}: change it."),
        (SAME, UP, True, f"+0.11 ± 0.0248 {INTERVAL}: {KEEP}."),
        (UP, SAME, True, f"-0.11 ± 0.0248 {INTERVAL}: change it."),
        (SAME, [0.4, 0.6, 0.52], False, f"+0.00667 ± 0.25 {INTERVAL}: {KEEP}; {NEEDS} more than 100 seeds to be seen."),
        (SAME, [0.45, 0.6, 0.6], False, f"+0.05 ± 0.215 {INTERVAL}: cannot tell yet; {NEEDS} about 26 seeds to be seen."),
        ([0.5], [0.6], False, f"+0.1 (measured once: no interval): {KEEP}."),
        ([0.5, 0.6], [0.6, 0.7], False, f"+0.1 (the same in 2 seeds: no interval): {KEEP}."),
    ],
)
def test_the_words_about_the_current_one(current: list[float], other: list[float], lower: bool, words: str) -> None:
    verdict = judge_seeds({"0.1": current, "0.05": other}, "0.1", lower_is_better=lower)
    assert verdict.sentence == f"You train at 0.1. 0.05 changes f1 by {words}"


def test_equal_measurements_are_called_so() -> None:
    sentence = judge_seeds({"0.1": SAME, "0.05": SAME}, "0.1").sentence
    assert sentence == f"You train at 0.1. 0.05 has the same f1 in every measurement: {KEEP}."


def test_the_words_where_no_current_one_is_known() -> None:
    start = "The f1 of the best, 0.05, differs from that of the second, 0.1, by "
    assert judge_seeds({"0.1": SAME, "0.05": UP, "1": [0, 0, 0.1]}, None).sentence == (
        f"{start}+0.11 ± 0.0358 (95 % interval for 2 comparisons, 3 seeds): they differ clearly."
    )
    assert judge_seeds({"0.1": SAME, "0.05": [0.45, 0.6, 0.6]}, None).sentence == (
        f"{start}+0.05 ± 0.215 {INTERVAL}: they do not differ clearly; "
        "a difference of this size needs about 26 seeds to be seen."
    )
