"""The rule of ``tempplug advise`` and ``sweep``: whether a temperature is worth a change."""

from __future__ import annotations

import math

import pytest

from tempplug.errors import ConfigError
from tempplug_adapters.verdict import judge

T_975_DF3, T_9875_DF3 = 3.182446, 4.176535
"""Quantiles of Student's distribution with three degrees of freedom, from tables."""


def test_a_clear_gain_is_worth_a_change() -> None:
    verdict = judge({"0.05": [70, 71, 69, 70], "0.03": [74, 75, 74, 73]}, "0.05")
    assert (verdict.best, verdict.difference, verdict.change) == ("0.03", 4.0, True)
    assert verdict.half_width == pytest.approx(T_975_DF3 * math.sqrt(2 / 3) / 2, abs=1e-5), "differences 4, 4, 5, 3"
    assert verdict.sentence == "You train at 0.05. 0.03 changes held-out accuracy by +4.0 ± 1.3 points: change it."


def test_the_interval_holds_for_all_comparisons_together() -> None:
    measured = {"0.05": [70, 71, 69, 70], "0.03": [74, 75, 74, 73], "0.5": [1, 2, 3, 4]}
    assert judge(measured, "0.05").half_width == pytest.approx(T_9875_DF3 * math.sqrt(2 / 3) / 2, abs=1e-5)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ([69, 70, 69, 69], "-0.8 ± 0.8 points: keep what you have."),  # lower
        ([70, 71, 69, 70], "0.03 has the same held-out accuracy in every measurement: keep what you have."),  # equal
        ([80, 60, 89, 60], "+2.2 ± 24.3 points: keep what you have."),  # higher, but not surely
        ([70.5, 71.6, 69.5, 70.5], "+0.5 ± 0.1 points: keep what you have."),  # surely higher, but by less than matters
    ],
)
def test_what_gains_nothing_is_kept(other: list[float], said: str) -> None:
    verdict = judge({"0.05": [70, 71, 69, 70], "0.03": other}, "0.05")
    assert not verdict.change
    assert verdict.sentence.endswith(said)


def test_one_measurement_has_no_interval_and_changes_nothing() -> None:
    verdict = judge({"0.05": [0.7], "macl": [0.9]}, "0.05", matters=0.01, quantity="nDCG@10", unit="of 1", decimals=2)
    assert (verdict.change, verdict.half_width) == (False, math.inf)
    said = "You train at 0.05. macl changes nDCG@10 by +0.20 of 1 (measured once: no interval): keep what you have."
    assert verdict.sentence == said


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"current=0\.07 must be among the measured, with another one beside it: 0\.05, 0\.1"):
        judge({"0.05": [1.0], "0.1": [1.0]}, "0.07")
    with pytest.raises(ConfigError, match=r"current=0\.05 must be among the measured, with another"):
        judge({"0.05": [1.0]}, "0.05")
    with pytest.raises(ConfigError, match="same number of measurements"):
        judge({"0.05": [1.0], "0.1": [1.0, 2.0]}, "0.05")
