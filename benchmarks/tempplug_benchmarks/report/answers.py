"""What the results of many tasks say together: an outcome for each task, and sentences about all of them.

A task is *judged* if an arm of it has at least five seeds beside the baseline and the task has a signal; no sentence draws a
conclusion from another one. Nothing here may depend on how a page is laid out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from tempplug_benchmarks.report.across import BASELINE, columns, fixed_rows, ranking, strategy_rows, temperature
from tempplug_benchmarks.report.comparison import ArmRow, Comparison
from tempplug_benchmarks.report.significance import FEW, LEVEL
from tempplug_benchmarks.report.tables import task_title

DECIDED = ("better", "worse", "too small", "no difference seen")
"""Verdicts on arms with enough seeds in a task with a signal."""
STEP = 2.5
"""Temperatures within this factor of the best one are its neighbours."""
LENGTHS = ("-short", "", "-long")
"""Endings of the names of tasks that differ in the length of the training alone, shortest first."""


@dataclass(frozen=True)
class Outcome:
    """What one task says about temperatures and strategies."""

    comparison: Comparison

    @cached_property
    def family(self) -> str:
        """The task family: the name of the suite."""
        return self.comparison.suite

    @cached_property
    def name(self) -> str:
        """Family and task, and the size if it is the paper's."""
        return f"{self.family} {task_title(self.comparison)}" + " (paper)" * (self.comparison.profile_name == "paper")

    @cached_property
    def judged(self) -> bool:
        """Whether a difference of the task has a verdict of `DECIDED`."""
        return any(row.significance and row.significance.verdict in DECIDED for row in self.comparison.rows)

    @cached_property
    def fixed(self) -> Mapping[float, ArmRow]:
        """The arms with a fixed temperature, by it, in ascending order; the baseline is one of them."""
        return {temperature(row): row for row in fixed_rows(self.comparison)}

    @cached_property
    def best(self) -> float | None:
        """The temperature of the baseline; None if the baseline has no results."""
        return next((at for at, row in self.fixed.items() if row.label == self.comparison.baseline), None)

    @cached_property
    def costs(self) -> Mapping[float, float]:
        """Points that a fixed temperature is below the baseline, over common seeds, by temperature; negative if above."""
        metric = self.comparison.primary
        sign = -1 if metric.higher_is_better else 1
        found = {at: row.differences.get(metric.name) for at, row in self.fixed.items() if at != self.best}
        return {at: sign * difference.mean for at, difference in found.items() if difference is not None}

    @cached_property
    def worst(self) -> float | None:
        """The fixed temperature that costs most; None if none costs anything."""
        dearest = max(self.costs, key=self.costs.__getitem__, default=None)
        return None if dearest is None or self.costs[dearest] <= 0 else dearest

    @cached_property
    def verdicts(self) -> Mapping[str, str]:
        """The verdict on each strategy as the recipe of the task has it, by strategy, without the baseline."""
        rows = strategy_rows(self.comparison)
        return {name: row.significance.verdict for name, row in rows.items() if name != BASELINE and row.significance}

    def strategies(self, *verdicts: str) -> list[str]:
        """Returns the strategies with one of these verdicts."""
        return [name for name, verdict in self.verdicts.items() if verdict in verdicts]

    @cached_property
    def result(self) -> str:
        """The outcome in a word or two: ``gain``, ``loss``, ``gain and loss``, ``no difference`` or ``not judged``."""
        if not self.judged:
            return "not judged"
        words = {"gain": self.strategies("better"), "loss": self.strategies("worse")}
        return " and ".join(word for word, names in words.items() if names) or "no difference"


def outcomes(comparisons: Sequence[Comparison]) -> list[Outcome]:
    """Returns the outcome of each task."""
    return [Outcome(comparison) for comparison in comparisons]


@dataclass(frozen=True)
class Answer:
    """A sentence after the words that name its subject."""

    subject: str
    sentence: str


def answers(found: Sequence[Outcome]) -> list[Answer]:
    """Returns the sentences for which there are results, in the order in which they are asked for."""
    judged = [each for each in found if each.judged]
    told = [_coverage(found, judged)]
    if judged:
        told += [_best(judged), _lengths(judged), *_costs(judged), _gains(judged), _nowhere(judged), _losses(judged)]
        told += [_order(found), _moving(found)]
    return [Answer(subject, sentence) for subject, sentence in told if sentence]


def _coverage(found: Sequence[Outcome], judged: Sequence[Outcome]) -> tuple[str, str]:
    runs = 0
    for each in found:
        summaries = [row.summaries.get(each.comparison.primary.name) for row in each.comparison.rows]
        runs += sum(summary.count for summary in summaries if summary)
    families = dict.fromkeys(each.family for each in found)
    without = [name for name in families if name not in {each.family for each in judged}]
    text = f"{runs:,} trainings of {_count(len(found), 'task')} in {_count(len(families), 'family', 'families')}."
    if len(judged) < len(found):
        text += (
            f" {len(judged)} of them can be judged: the others have fewer than {FEW} seeds, or their training is not clearly "
            "better than no training" + (f", which leaves nothing to say about {_listed(without)}." if without else ".")
        )
    return "Measured", text


def _best(judged: Sequence[Outcome]) -> tuple[str, str]:
    chosen = [each for each in judged if each.comparison.chosen and each.best is not None]
    told = [f"{family} {_range(each.best for each in of)}" for family, of in _by_family(chosen).items()]
    return "Best fixed temperature", f"Validation data choose these temperatures: {', '.join(told)}." if told else ""


def _lengths(judged: Sequence[Outcome]) -> tuple[str, str]:
    """Compares the best temperatures of a task between the shortest and the longest training that is judged."""
    by_name = {(each.family, each.comparison.profile_name, each.comparison.task.name): each for each in judged}
    moves: list[float] = []
    for family, profile, name in by_name:
        if not name.endswith(LENGTHS[0::2]):
            trained = [by_name.get((family, profile, name + ending)) for ending in LENGTHS]
            best = [each.best for each in trained if each and each.best is not None and each.comparison.chosen]
            moves += [best[-1] - best[0]] if len(best) > 1 else []
    rising, falling, same = (sum(move > 0 for move in moves), sum(move < 0 for move in moves), moves.count(0))
    text = (
        f"Of {_count(len(moves), 'task')} that were also trained shorter or longer, the best temperature is higher after the "
        f"longest training than after the shortest in {rising}, lower in {falling}, and the same in {same}."
    )
    return "Length of the training", text if moves else ""


def _costs(judged: Sequence[Outcome]) -> list[tuple[str, str]]:
    several = [each for each in judged if each.costs]
    if not several:
        return []
    worst = [max(0.0, *each.costs.values()) for each in several]
    dearest = several[worst.index(max(worst))]
    text = (
        f"The worst fixed temperature that was tried is {median(worst):.1f} points below the best one in the median of "
        f"{_count(len(several), 'task')}, and at most {max(worst):.1f} points "
        f"({dearest.name}, τ = {dearest.worst:g} instead of {dearest.best:g})."
    )
    near = [(at, each) for each in several for at in each.costs if each.best and 1 / STEP <= at / each.best <= STEP]
    verdicts = [row.significance.verdict for at, each in near if (row := each.fixed[at]).significance]
    told = [("A wrong temperature", text)]
    if near:
        step = median(each.costs[at] for at, each in near)
        text = (
            f"A temperature within a factor of {STEP:g} of the best one costs {step:.1f} points in the median of "
            f"{_count(len(near), 'comparison')}; it is shown to be worse in {verdicts.count('worse')} and better in "
            f"{verdicts.count('better')} of them."
        )
        told.append(("A temperature that is nearly right", text))
    return told


def _gains(judged: Sequence[Outcome]) -> tuple[str, str]:
    gains = _tasks_by_strategy(judged, "better")
    compared = sum(len(each.strategies(*DECIDED)) for each in judged)
    total = sum(map(len, gains.values()))
    told = [f"{name} on {_listed(tasks)}" for name, tasks in gains.items()]
    text = f"In {total} of {_count(compared, 'comparison')} a strategy is better than the best fixed temperature"
    return "Gains", (f"{text}: {'; '.join(told)}." if told else f"{text}.") if compared else ""


def _nowhere(judged: Sequence[Outcome]) -> tuple[str, str]:
    compared = _by_family([each for each in judged if each.strategies(*DECIDED)])
    without = [family for family, of in compared.items() if not any(each.strategies("better") for each in of)]
    return "No gain", f"No strategy is better than the best fixed temperature on any task of {_listed(without)}." * bool(
        without
    )


def _losses(judged: Sequence[Outcome]) -> tuple[str, str]:
    losses = _tasks_by_strategy(judged, "worse")
    compared = _tasks_by_strategy(judged, *DECIDED)
    most = sorted(losses, key=lambda name: (-len(losses[name]), name))
    told = [f"{name} on {len(losses[name])} of {_count(len(compared[name]), 'task')}" for name in most]
    return "Losses", f"Worse than the best fixed temperature: {', '.join(told)}." if told else ""


def _order(found: Sequence[Outcome]) -> tuple[str, str]:
    ranked = ranking(columns([each.comparison for each in found]))
    if ranked is None:
        return "Order of the strategies", ""
    told = ", ".join(f"{name} {rank:.2f}" for name, rank in ranked.strategies.items())
    shown = "these data do not show that they differ" if ranked.p >= LEVEL else "they are not all equal"
    return "Order of the strategies", (
        f"Mean ranks over the {ranked.data_sets} data sets that have all of these strategies, 1 being best: {told}; "
        f"{shown} (Friedman's test, p = {ranked.p:.2g})."
    )


def _moving(found: Sequence[Outcome]) -> tuple[str, str]:
    repeated = [(row, each) for each in found for row in each.comparison.rows if row.adapting and row.adapting_significance]
    told = [
        f"{row.label} on {each.name} by {abs(row.adapting.mean):.1f} points"
        for row, each in repeated
        if row.adapting and row.adapting_significance and row.adapting_significance.verdict == "better"
    ]
    text = (
        f"{_count(len(repeated), 'arm')} whose temperature moves also ran with the mean of that temperature held fixed; "
        f"moving it is better in {len(told)}"
    )
    return "Moving the temperature", (f"{text}: {'; '.join(told)}." if told else f"{text}.") if repeated else ""


def strategy_table(found: Sequence[Outcome]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Returns the names of the strategies, and for each family what they did on its judged tasks: ``2 ▲ 1 ▼ of 9``."""
    judged = _by_family([each for each in found if each.judged])
    names = sorted({name for of in judged.values() for each in of for name in each.strategies(*DECIDED)})
    rows = []
    for family, of in judged.items():
        cells = []
        for name in names:
            verdicts = [each.verdicts[name] for each in of if each.verdicts.get(name) in DECIDED]
            marks = [
                f"{verdicts.count(verdict)} {mark}"
                for verdict, mark in (("better", "▲"), ("worse", "▼"))
                if verdict in verdicts
            ]
            cells.append(f"{' '.join(marks) or '0'} of {len(verdicts)}" if verdicts else "")
        rows.append((family, cells))
    return names, rows


def _by_family(found: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    families: dict[str, list[Outcome]] = {}
    for each in found:
        families.setdefault(each.family, []).append(each)
    return families


def _tasks_by_strategy(found: Iterable[Outcome], *verdicts: str) -> dict[str, list[str]]:
    tasks: dict[str, list[str]] = {}
    for each in found:
        for name in each.strategies(*verdicts):
            tasks.setdefault(name, []).append(each.name)
    return dict(sorted(tasks.items()))


def _range(values: Iterable[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    return " to ".join(dict.fromkeys(f"{end:g}" for end in (min(numbers), max(numbers))))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
