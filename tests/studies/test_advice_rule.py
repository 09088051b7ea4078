"""The simulation of `studies.advice_rule`: data with known answers, and the rules on measurements with a clear result."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from studies.advice_rule import telling
from studies.advice_rule.simulate import RULES, at_best_rates, crossed, curves, draw, measure, simulate
from studies.advice_rule.tables import (
    LIMITED,
    SHRUNKEN,
    TELLING,
    answer_rows,
    gain_rows,
    of,
    qualified,
    read,
    read_telling,
    rule_rows,
    told,
)
from tempplug_adapters.advise.training import TEMPERATURES
from tempplug_adapters.verdict import MISSED, weigh

PLAN = Path(__file__).parents[2] / "benchmarks" / "studies" / "advice_rule" / "plans" / "simulated.toml"
FLAT = np.full(len(TEMPERATURES), 70.0)
CURRENT = TEMPERATURES.index(0.05)


def test_simulated_anchors_are_as_often_right_and_as_alike_as_they_should_be() -> None:
    generator = np.random.default_rng(0)
    truth = np.array([[60.0, 70.0, 60.0]] * len(TEMPERATURES))
    credits = measure(truth, 4000, 5, 0.12, 0.0, generator)
    assert credits.shape == (len(TEMPERATURES), 20_000)
    assert credits.mean(axis=1) == pytest.approx(70, abs=1.5), "of three rates each temperature has the best"
    apart = [float((credits[CURRENT] != credits[place]).mean()) for place in (CURRENT + 1, CURRENT + 2, CURRENT + 3)]
    assert apart == sorted(apart)
    noisier, calmer = (measure(truth, 4000, 5, decay, 0.0, generator) for decay in (0.12, 0.012))
    assert (calmer[0] != calmer[-1]).mean() < (noisier[0] != noisier[-1]).mean() / 2


def test_a_rate_that_is_off_costs_points() -> None:
    truth = crossed(FLAT, np.random.default_rng(0))
    assert truth.max() <= 70
    assert (truth.max(axis=1) >= 69.5).all(), "the nearest rate is off by at most half a step"
    assert (truth.min(axis=1) <= 68).all()


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_takes_a_gain_that_is_clear(rule: str) -> None:
    curve = np.array([60.0, 60, 60, 60, 60, 80, 60])
    credits = measure(crossed(curve, np.random.default_rng(0)), 400, 5, 0.012, 0.4, np.random.default_rng(1))
    assert RULES[rule](credits, CURRENT, np.random.default_rng(2)) == 5


@pytest.mark.parametrize("decay", [0.12, 0.012])
def test_the_rule_of_the_study_is_the_rule_of_the_command(decay: float) -> None:
    generator = np.random.default_rng(3)
    decided = set()
    for curve in curves(["fair_test"])[:20]:
        credits = at_best_rates(draw(crossed(curve, generator), 200, 2, decay, 0.4, generator))
        weighed = weigh({f"{each:g}": rows for each, rows in zip(TEMPERATURES, credits, strict=True)}, "0.05")
        answer = telling.RULES["limited-80"](credits, CURRENT)
        if answer.chosen != CURRENT:
            assert (weighed.answer, weighed.best) == ("change", f"{TEMPERATURES[answer.chosen]:g}")
        else:
            assert weighed.answer == ("keep" if answer.missed <= MISSED else "open")
        decided.add(weighed.answer)
    assert decided == {"change", "keep", "open"}


def test_the_rule_of_the_command_is_what_the_plans_choose() -> None:
    first, second, third = (read_telling(file) for file in (TELLING, SHRUNKEN, LIMITED))
    assert ("bonferroni", float("inf")) not in qualified(of(first, curves="choose"))
    assert qualified(of(second, curves="choose"))[0] == ("shrunken-80", MISSED)
    for half in ("choose", "confirm"):
        lines = of(third, curves=half)
        assert ("limited-80", MISSED) in qualified(lines)
        shares = {rule: told(of(lines, rule=rule)) for rule in ("shrunken-80", "limited-80")}
        assert shares["limited-80"] > shares["shrunken-80"] - 2
    two, five = (told(of(second, curves="choose", rule="shrunken-80", limit=MISSED), [schedule]) for schedule in (2, 5))
    assert five - two < 10, "else five repetitions would be the fewest"
    assert len(answer_rows()) == 9


def test_a_small_plan_of_verdicts_counts_every_data_set() -> None:
    plan = {"seed": 0, "current": 0.05, "curves": ["batch"], "draws": 1, "held_out": [60], "decay": [0.12], "run_noise": 0.4}
    lines = list(
        telling.simulate(plan | {"repetitions": [2], "limits": [2, float("inf")], "rules": ["limited-80", "dunnett: x"]})
    )
    for rule in ("limited-80", "dunnett"):
        for schedule in (2, "adaptive"):
            some = [line for line in lines if (line["rule"], line["schedule"]) == (rule, schedule)]
            assert sum(line["data_sets"] for line in some) == 2 * len(curves(["batch"]))
            assert all(line["limits"]["inf"][1] == line["data_sets"] >= line["limits"]["2"][1] for line in some)


def test_what_the_page_says_is_what_was_counted() -> None:
    lines = read()
    assert (
        {line["rule"] for line in lines}
        == set(RULES)
        == {each.partition(":")[0] for each in tomllib.loads(PLAN.read_text(encoding="utf-8"))["rules"]}
    )
    for line in lines:
        assert 0 <= line["within"] <= line["data_sets"]
    header, *rows = rule_rows(lines)
    assert len(header) == 5
    five = [cell.split(", ") for row in rows if row[0] == "`bonferroni`" for cell in row[3:]]
    assert all(float(within) >= 90 and float(kept) >= 90 for within, kept in five), "the requirement, with five repetitions"
    assert len(gain_rows(lines)) == len(RULES) + 1


def test_a_small_plan_counts_every_data_set() -> None:
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8")) | {"curves": ["batch"], "repetitions": [2], "held_out": 100}
    lines = list(simulate(plan))
    for rule in RULES:
        counted = sum(line["data_sets"] for line in lines if line["rule"] == rule)
        assert counted == 2 * 2 * len(curves(["batch"])), "a curve and a flat one, at two levels of noise"
