"""The sentences at the top of the committed page, each computed anew from the files of the tasks and printed in the page."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from committed_results import RESULTS, records
from scipy import stats

from tempplug_benchmarks.arm import parse_arm
from tempplug_benchmarks.suite import load_suite

FAMILIES = ("anomaly", "bias", "graph", "long-tail", "molecule", "node", "recommendation", "retrieval", "sentence", "vision")
SURE = ("better", "worse", "too small", "no difference seen")


@dataclass
class Task:
    """One task: means over seeds, and the verdict on every arm but the baseline."""

    family: str
    profile: str
    name: str
    arms: dict[str, dict[int, float]]
    best: str
    temperatures: dict[str, float]
    chosen: bool
    signal: bool | None
    sign: int
    smallest: float
    rounds: int
    seeds: int
    group: str
    data: str
    strategies: dict[str, str]
    verdicts: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.family} {self.name}" + " (paper)" * (self.profile == "paper")

    @property
    def judged(self) -> bool:
        return any(verdict in SURE for verdict in self.verdicts.values())

    def gain(self, arm: str) -> list[float]:
        """By seed, points above the baseline."""
        theirs = self.arms[self.best]
        return [self.sign * (value - theirs[seed]) for seed, value in sorted(self.arms[arm].items()) if seed in theirs]

    def costs(self) -> dict[str, float]:
        return {arm: -statistics.fmean(self.gain(arm)) for arm in self.temperatures if arm != self.best and self.gain(arm)}

    def have(self, *verdicts: str) -> list[str]:
        return [name for name, arm in self.strategies.items() if self.verdicts.get(arm) in verdicts]


def read(file: Path) -> Task:
    family, profile, name = file.parts[-3], file.parts[-2], file.stem
    task = load_suite(family).task(name)
    declared = task.profile(profile)
    runs = records(file)
    head: dict[str, Any] = json.loads(file.read_text(encoding="utf-8").partition("\n")[0])
    by_arm: dict[str, list[dict[str, Any]]] = {}
    listed = [arm.label for arm in declared.arms]
    for run in sorted(runs, key=lambda run: listed.index(run["arm"]) if run["arm"] in listed else len(listed)):
        by_arm.setdefault(run["arm"], []).append(run)
    arms = {arm: {run["seed"]: run["metrics"][declared.primary] for run in of} for arm, of in by_arm.items()}
    objective = task.baseline.partition("+")[2]
    fixed = {
        arm: float(of[0]["strategy"].partition("temperature=")[2])
        for arm, of in by_arm.items()
        if re.fullmatch(rf"fixed(:temperature=[\d.]+)?\+{objective}", arm)
    }
    best, sign = task.baseline, 1 if declared.primary_metric().higher_is_better else -1
    validated = {arm: {run["seed"]: run["metrics"].get(declared.validation) for run in by_arm[arm]} for arm in fixed}
    chosen = len(fixed) > 1 and None not in [score for of in validated.values() for score in of.values()]
    if chosen:
        direction = {each.name: 1 if each.higher_is_better else -1 for each in declared.metrics}[declared.validation]
        common = set.intersection(*map(set, validated.values()))
        means = {arm: statistics.fmean(of[seed] for seed in common or of) for arm, of in validated.items()}
        best = max(means, key=lambda arm: direction * means[arm])
    without = arms.get(task.without, {})
    pairs = [(arms[best][seed], value) for seed, value in without.items() if seed in arms[best]]
    signal = None
    if len(pairs) > 1:
        test = stats.ttest_rel(*zip(*pairs, strict=True))
        signal = bool(test.pvalue < 0.05 and sign * test.statistic > 0)
    rounds = head.get("looks", [])
    planned = re.search(r"(?m)^seeds = \[(.*?)\]", head.get("plan", ""), re.DOTALL)
    seeds = len(re.findall(r"\d+", planned[1])) if planned else 0 if rounds else max(map(len, arms.values()))
    strategies: dict[str, str] = {}
    for arm in arms:
        label = arm.partition(":")[0].partition("+")[0]
        if "@" in arm or "(" in arm or arm == "untrained" or label == "fixed" or "+" not in arm:
            continue
        if label not in strategies or arm == parse_arm(label, declared.recipe).label:
            strategies[label] = arm
    return Task(
        family=family,
        profile=profile,
        name=name,
        arms=arms,
        best=best,
        temperatures=fixed,
        chosen=chosen,
        signal=signal,
        sign=sign,
        smallest=declared.primary_metric().smallest_difference,
        rounds=max(1, len(rounds)),
        seeds=seeds,
        group=task.family or name,
        data=runs[0]["dataset"],
        strategies=strategies,
    )


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    found = [read(file) for family in FAMILIES for file in sorted(RESULTS.glob(f"{family}/*/*.jsonl"), key=place)]
    groups: dict[tuple[str, str, str], list[tuple[Task, str]]] = {}
    for task in found:
        for arm in task.arms:
            if arm not in (task.best, "untrained") and "(" not in arm and "+" in arm and task.gain(arm):
                groups.setdefault((task.family, task.profile, task.group), []).append((task, arm))
    for group in groups.values():
        judge(group)
    return found


def place(file: Path) -> tuple[str, str]:
    return file.parent.name, file.stem


def judge(group: list[tuple[Task, str]]) -> None:
    """Writes the verdict on each arm: Holm's correction over a family of comparisons, then the rules of the report."""
    p_values = {}
    for task, arm in group:
        gains = task.gain(arm)
        if len(gains) > 1:
            equal = statistics.stdev(gains) <= 1e-9 * abs(statistics.fmean(gains))
            p = stats.ttest_1samp(gains, 0).pvalue if not equal else 2.0 ** (1 - len(gains)) if gains[0] else 1.0
            p_values[task.profile, task.name, arm] = min(1.0, task.rounds * p)
    adjusted, largest = {}, 0.0
    for rank, (key, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        adjusted[key] = largest = max(largest, min(1.0, (len(p_values) - rank) * p))
    for task, arm in group:
        gains, p_adjusted = task.gain(arm), adjusted.get((task.profile, task.name, arm))
        mean = statistics.fmean(gains)
        if task.signal is False or p_adjusted is None or len(gains) < 5 or len(gains) < task.seeds:
            task.verdicts[arm] = "unsure"
        elif p_adjusted >= 0.05:
            task.verdicts[arm] = "no difference seen"
        else:
            task.verdicts[arm] = "too small" if abs(mean) < task.smallest else "better" if mean > 0 else "worse"


@cache
def page() -> str:
    return (RESULTS / "index.html").read_text(encoding="utf-8")


def said() -> dict[str, str]:
    """The sentences of the page by their subjects."""
    part = page().partition('<section id="answers">')[2].partition("</section>")[0]
    return {unescape(a): unescape(b) for a, b in re.findall(r"<li><strong>(.*?)\.</strong> (.*?)</li>", part)}


def joined(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def by_family(tasks: list[Task]) -> Iterator[tuple[str, list[Task]]]:
    for family in FAMILIES:
        if of := [task for task in tasks if task.family == family]:
            yield family, of


def test_ten_sentences_answer_first() -> None:
    assert len(said()) == 10
    assert page().index('id="answers"') < page().index('id="legend"') < page().index("<table")
    text = re.sub(r"<(script|style)>.*?</\1>|<[^>]*>", "", page(), flags=re.DOTALL)
    assert not re.search(r"\blooks?\b", text), "say what it is: results were read"


def test_what_was_measured_and_what_is_judged(tasks: list[Task]) -> None:
    runs = sum(len(of) for task in tasks for of in task.arms.values())
    judged = [task for task in tasks if task.judged]
    without = [family for family in FAMILIES if family not in {task.family for task in judged}]
    assert said()["Measured"] == (
        f"{runs:,} trainings of {len(tasks)} tasks in 10 families. {len(judged)} of them can be judged: the others have fewer "
        "than 5 seeds, or their training is not clearly better than no training, which leaves nothing to say about "
        f"{joined(without)}."
    )


def test_best_temperatures_and_the_length_of_the_training(tasks: list[Task]) -> None:
    chosen = [task for task in tasks if task.judged and task.chosen]
    told = []
    for family, of in by_family(chosen):
        best = sorted(task.temperatures[task.best] for task in of)
        told.append(f"{family} {best[0]:g}" + (f" to {best[-1]:g}" if best[-1] > best[0] else ""))
    assert said()["Best fixed temperature"] == f"Validation data choose these temperatures: {', '.join(told)}."
    at = {(task.family, task.profile, task.name): task.temperatures[task.best] for task in chosen}
    changes = []
    for family, profile, name in {(task.family, task.profile, task.name) for task in tasks if task.judged}:
        if not re.search("-(short|long)$", name):
            trained = [at[key] for end in ("-short", "", "-long") if (key := (family, profile, name + end)) in at]
            changes += [trained[-1] - trained[0]] if len(trained) > 1 else []
    counts = [sum(test(change) for change in changes) for test in (lambda x: x > 0, lambda x: x < 0, lambda x: x == 0)]
    numbers = [int(each) for each in re.findall(r"\d+", said()["Length of the training"])]
    assert numbers == [len(changes), *counts]


def test_what_a_wrong_temperature_costs(tasks: list[Task]) -> None:
    several = [task for task in tasks if task.judged and task.costs()]
    worst = {task.title: max(0.0, *task.costs().values()) for task in several}
    dearest = max(several, key=lambda task: worst[task.title])
    costs = dearest.costs()
    taus = dearest.temperatures[max(costs, key=costs.__getitem__)], dearest.temperatures[dearest.best]
    assert said()["A wrong temperature"] == (
        f"The worst fixed temperature that was tried is {statistics.median(worst.values()):.1f} points below the best one in "
        f"the median of {len(several)} tasks, and at most {worst[dearest.title]:.1f} points ({dearest.title}, "
        f"τ = {taus[0]:g} instead of {taus[1]:g})."
    )
    near = [
        (cost, task.verdicts[arm])
        for task in several
        for arm, cost in task.costs().items()
        if 0.4 <= task.temperatures[arm] / task.temperatures[task.best] <= 2.5
    ]
    verdicts = [verdict for _, verdict in near]
    numbers = re.findall(r"\d+(?:\.\d+)?", said()["A temperature that is nearly right"])
    middle = f"{statistics.median(cost for cost, _ in near):.1f}"
    assert numbers == ["2.5", middle, str(len(near)), str(verdicts.count("worse")), str(verdicts.count("better"))]


def test_which_strategies_gain_and_lose(tasks: list[Task]) -> None:
    judged = [task for task in tasks if task.judged]
    compared = [(name, task) for task in judged for name in task.have(*SURE)]
    names = sorted({name for name, _ in compared})
    won = {name: [task.title for task in judged if name in task.have("better")] for name in names}
    told = "; ".join(f"{name} on {joined(on)}" for name, on in won.items() if on)
    total = sum(map(len, won.values()))
    assert said()["Gains"] == (
        f"In {total} of {len(compared)} comparisons a strategy is better than the best fixed temperature: {told}."
    )
    without = [
        family
        for family, of in by_family([task for task in judged if task.have(*SURE)])
        if not any(task.have("better") for task in of)
    ]
    assert said()["No gain"].endswith(f"on any task of {joined(without)}.")
    lost = {
        name: (sum(name in task.have("worse") for task in judged), [one for one, _ in compared].count(name)) for name in names
    }
    found = re.findall(r"([\w-]+) on (\d+) of (\d+) task", said()["Losses"])
    assert {name: (int(worse), int(of)) for name, worse, of in found} == {name: of for name, of in lost.items() if of[0]}
    table = page().partition('<section id="families">')[2].partition("</section>")[0]
    header = re.findall(r'<th scope="col">(.*?)</th>', table)[1:]
    assert header == names
    for family, cells in re.findall(r"<tr><td>(.*?)</td>(.*?)</tr>", table, re.DOTALL):
        for name, cell in zip(names, re.findall(r"<td[^>]*>(.*?)</td>", cells), strict=True):
            here = [task for task in judged if task.family == family]
            of = [task for task in here if name in task.have(*SURE)]
            counts = [sum(name in task.have(verdict) for task in of) for verdict in ("better", "worse")]
            marks = " ".join(f"{count} {mark}" for count, mark in zip(counts, "▲▼", strict=True) if count)
            assert cell == (f"{marks or '0'} of {len(of)}" if of else ""), (family, name)


def test_ranks_and_arms_whose_temperature_was_held(tasks: list[Task]) -> None:
    told = said()["Order of the strategies"]
    ranks = {name: float(rank) for name, rank in re.findall(r"([\w-]+) (\d+\.\d\d)", told)}
    rows, seen = [], set()  # one row for each data set, of the largest size
    for task in sorted(tasks, key=lambda task: task.profile != "paper"):
        if task.signal is False or not all(name == "fixed" or name in task.strategies for name in ranks):
            continue
        names = {(task.family, task.name), (task.family, task.data)}
        if not names & seen:
            means = [statistics.fmean(task.arms[task.strategies.get(name, task.best)].values()) for name in ranks]
            rows.append(stats.rankdata([-task.sign * mean for mean in means]))
        seen |= names
    assert [float(f"{statistics.fmean(column):.2f}") for column in zip(*rows, strict=True)] == list(ranks.values())
    assert list(ranks.values()) == sorted(ranks.values())
    p = stats.friedmanchisquare(*zip(*rows, strict=True)).pvalue
    assert f"over the {len(rows)} data sets" in told
    assert told.endswith(f"do not show that they differ (Friedman's test, p = {p:.2g}).") == (p >= 0.05)
    held = [(task, arm) for task in tasks for arm in task.arms if f"control({arm})" in task.arms]
    for task, arm in held:
        own, other = task.arms[arm], task.arms[f"control({arm})"]
        points = statistics.fmean(own[seed] - value for seed, value in other.items() if seed in own)
        assert f"{arm} on {task.title} by {points:.1f} points" in said()["Moving the temperature"]
    assert said()["Moving the temperature"].startswith(f"{len(held)} arms ")


def test_speed_is_compared_in_a_sentence() -> None:
    ratios = []
    for record in [record for file in RESULTS.glob("speed/*/*.jsonl") for record in records(file)]:
        times = {name: of.get("milliseconds") for name, of in record["implementations"].items()}
        if own := times.pop("tempplug", None):
            ratios += [time / own for time in times.values() if time]
    slower = sum(ratio > 1 for ratio in ratios)
    assert (
        f"Of {len(ratios)} times of other implementations, {slower} are longer than tempplug&#39;s of the same case. Divided "
        f"by tempplug&#39;s time they are {statistics.median(ratios):.1f} in the median, {min(ratios):.1f} at least and "
        f"{max(ratios):.1f} at most; above 1 tempplug is faster."
    ) in page()
