"""Simulates data sets with a known best temperature, and what each rule advises on them.

Run it as ``python -m studies.advice_rule.simulate PLAN --output DIR``; the plan says how data sets are made.
"""

from __future__ import annotations

import argparse
import json
import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from studies.cells import read_measured
from tempplug_adapters.advise.training import TEMPERATURES

STUDIES = Path(__file__).parents[1]
Array = NDArray[np.float64]
LOG_TEMPERATURES: Array = np.log(TEMPERATURES)
LOG_RATES: Array = np.log([1 / 3, 1, 3])
COST = 2.0
"""Points that a learning rate costs that is a factor of three off."""
MATTERS = 1.0
GAINS = {"below 1": 1.0, "1 to 2": 2.0, "above 2": math.inf}
"""Names of what is to be gained, in points, and their upper limits."""
RESAMPLES = 200
LEAST_TEMPERATURES = 5
EDGE = 0.5
"""Least accuracy, and distance to 100, of a simulated curve, in points."""


def curves(plans: list[str]) -> list[Array]:
    """Returns accuracy [T] over `TEMPERATURES` of each cell: a parabola in ln τ, constant beyond the measured ones."""
    parabolas = []
    for cell in read_measured(file for plan in plans for file in sorted(STUDIES.glob(f"*/results/{plan}/*.jsonl"))):
        measured = cell.fixed(cell.held_out)
        if len(measured) >= LEAST_TEMPERATURES:
            logs, figures = (np.array(column) for column in zip(*measured, strict=True))
            parabola = np.polyval(np.polyfit(logs, figures, 2), np.clip(LOG_TEMPERATURES, logs[0], logs[-1]))
            parabolas.append(np.clip(parabola.astype(float), EDGE, 100 - EDGE))
    return parabolas


def crossed(curve: Array, generator: np.random.Generator) -> Array:
    """Returns the true accuracy [T, R] at each rate; the best rate of a temperature is drawn."""
    best_rates = generator.uniform(LOG_RATES[0], LOG_RATES[-1], len(curve))
    offsets = (LOG_RATES - best_rates[:, None]) / math.log(3)
    return np.clip(curve[:, None] - COST * offsets**2, EDGE, 100 - EDGE)


def draw(truth: Array, anchors: int, repetitions: int, decay: float, run_noise: float, generator: np.random.Generator) -> Array:
    """Returns which anchors are right, 100 or 0, by temperature and rate: [T, R, repetitions, anchors]."""
    logs = np.array([(each, rate) for each in LOG_TEMPERATURES for rate in LOG_RATES])
    distances = np.abs(logs[:, None] - logs[None]).sum(axis=2)
    factor = np.linalg.cholesky(np.exp(-decay * distances) + 1e-9 * np.eye(len(logs)))
    right = []
    for _ in range(repetitions):
        accuracy = truth.ravel() + run_noise * generator.standard_normal(truth.size)
        latent = factor @ generator.standard_normal((truth.size, anchors))
        right.append(latent < norm.ppf(np.clip(accuracy, EDGE, 100 - EDGE) / 100)[:, None])
    return np.asarray(100.0 * np.stack(right, axis=1), dtype=np.float64).reshape(*truth.shape, repetitions, anchors)


def at_best_rates(right: Array) -> Array:
    """Returns of what `draw` returns the part of each temperature's most accurate rate: [T, repetitions, anchors]."""
    chosen: Array = right[np.arange(len(right)), right.mean(axis=(2, 3)).argmax(axis=1)]
    return chosen


def measure(
    truth: Array, anchors: int, repetitions: int, decay: float, run_noise: float, generator: np.random.Generator
) -> Array:
    """Returns which anchors are right, 100 or 0, by temperature at its most accurate rate: [T, repetitions · anchors]."""
    return at_best_rates(draw(truth, anchors, repetitions, decay, run_noise, generator)).reshape(len(truth), -1)


def middle(credits: Array, current: int, _: np.random.Generator) -> int:
    """The rule of version 0.1."""
    means = credits.mean(axis=1)
    behind = credits[means.argmax()] - credits
    errors = behind.std(axis=1) / math.sqrt(credits.shape[1])
    near = np.flatnonzero(behind.mean(axis=1) <= errors)
    candidates = near[(len(near) - 1) // 2 : len(near) // 2 + 1]
    chosen = int(candidates[means[candidates].argmax()])
    below = credits[chosen] - credits
    errors = below.std(axis=1) / math.sqrt(credits.shape[1])
    clear = (below.mean(axis=1) >= MATTERS) & (below.mean(axis=1) > 2 * errors)
    return chosen if clear.any() else current


def best(credits: Array, current: int, _: np.random.Generator) -> int:
    """The highest mean."""
    return int(credits.mean(axis=1).argmax())


def changed(quantile: Callable[[Array, np.random.Generator], float]) -> Callable[[Array, int, np.random.Generator], int]:
    """Returns the rule that changes for a difference of at least a point and more than so many standard errors."""

    def rule(credits: Array, current: int, generator: np.random.Generator) -> int:
        differences = credits - credits[current]
        means = differences.mean(axis=1)
        chosen = int(means.argmax())
        error = differences[chosen].std(ddof=1) / math.sqrt(credits.shape[1])
        if chosen == current or means[chosen] < MATTERS or means[chosen] <= quantile(differences, generator) * error:
            return current
        return chosen

    return rule


def student(level: float, together: bool) -> Callable[[Array, np.random.Generator], float]:
    """Returns Student's two-sided quantile at a level, for each comparison or, by Bonferroni, for all together."""
    comparisons = len(TEMPERATURES) - 1 if together else 1
    return lambda differences, _: float(t.ppf(1 - (1 - level) / 2 / comparisons, differences.shape[1] - 1))


def largest_t(differences: Array, generator: np.random.Generator) -> float:
    """Returns the 95 % quantile of the largest |t| over resampled anchors."""
    anchors = differences.shape[1]
    others = differences[differences.std(axis=1) > 0]
    if not len(others):
        return 0.0
    weights = generator.multinomial(anchors, np.full(anchors, 1 / anchors), RESAMPLES)
    deviations = weights @ others.T / anchors - others.mean(axis=1)
    return float(np.quantile((np.abs(deviations) / (others.std(axis=1) / math.sqrt(anchors))).max(axis=1), 0.95))


RULES: dict[str, Callable[[Array, int, np.random.Generator], int]] = {
    "middle": middle,
    "best": best,
    "point": changed(lambda differences, _: 0.0),
    "interval": changed(student(0.95, together=False)),
    "bonferroni": changed(student(0.95, together=True)),
    "bonferroni-80": changed(student(0.8, together=True)),
    "bootstrap": changed(largest_t),
}


def simulate(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields for each kind of curve, number of repetitions, decay, gain and rule how many data sets it is right on.

    ``gain`` is what the best temperature gains over the current one: below 1 point, 1 to 2, or more. ``within`` counts the data
    sets on which the rule's temperature is at most a point below the best, ``kept`` those on which it is the current one.
    """
    generator = np.random.default_rng(plan["seed"])
    current = TEMPERATURES.index(plan["current"])
    counts: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for curve in curves(plan["curves"]):
        for kind, heights in (("curve", curve), ("flat", np.full_like(curve, curve[current]))):
            rates = crossed(heights, generator)
            truth = rates.max(axis=1)
            gain = next(name for name, limit in GAINS.items() if truth.max() - truth[current] < limit)
            for repetitions, decay in product(plan["repetitions"], plan["decay"]):
                credits = measure(rates, plan["held_out"], repetitions, decay, plan["run_noise"], generator)
                for name, rule in RULES.items():
                    chosen = rule(credits, current, generator)
                    right = {"within": truth.max() - truth[chosen] <= MATTERS, "kept": chosen == current}
                    key = (name, kind, repetitions, decay, gain)
                    counts[key].update(data_sets=1, **{what: int(each) for what, each in right.items()})
    for key, count in sorted(counts.items()):
        yield {**dict(zip(("rule", "kind", "repetitions", "decay", "gain"), key, strict=True)), **count}


def write_results(simulated: Callable[[dict[str, Any]], Iterable[dict[str, Any]]], description: str | None) -> None:
    """Reads the plan and the folder of the command line, and writes what is simulated as JSON Lines, ``rules.jsonl``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(line) + "\n" for line in simulated(tomllib.loads(options.plan.read_text(encoding="utf-8")))]
    (options.output / "rules.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write_results(simulate, __doc__)
