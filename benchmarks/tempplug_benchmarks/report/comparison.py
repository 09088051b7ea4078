"""Compares all arms of a task: means, differences to the baseline over common seeds, and figures of papers.

It refuses to average or compare results of different experiments.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from tempplug.errors import ConfigError, DataError
from tempplug_benchmarks.arm import Arm, format_settings
from tempplug_benchmarks.papers import Cell, Paper, PaperRow, PaperTables, load
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.report.significance import Comparable, Significance, has_signal, judge
from tempplug_benchmarks.results import Difference, Loaded, Summary, over_samples, paired_difference, summarise
from tempplug_benchmarks.run.fixed_plan import FixedPlan
from tempplug_benchmarks.run.store import Entry, Failure, Result, describe_environment
from tempplug_benchmarks.run.task_file import Look
from tempplug_benchmarks.run.tuning import best_baseline, best_configurations
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task


@dataclass(frozen=True)
class ReportedLine:
    """The figures that a paper reports for an arm: number of the table, heading of the row, cells by metric."""

    paper: Paper
    table: str
    method: str
    cells: Mapping[str, Cell]

    @property
    def source(self) -> str:
        """Paper, table and method as text."""
        return f"{self.paper.name} table {self.table}, {self.method}"


@dataclass(frozen=True)
class Trainings:
    """The training runs of one arm.

    Attributes:
        seconds: wall time of a run, evaluation included.
        course: means over the seeds at each recorded step, see `Result.course`; empty if not recorded.
        days: the first and the last completion date, ISO 8601, UTC.
    """

    seconds: Summary
    course: Mapping[str, Sequence[float]]
    days: tuple[str, str]


@dataclass(frozen=True)
class ArmRow:
    """One arm of a comparison.

    Attributes:
        resolved: the resolved specs; empty if no run has finished.
        summaries: by metric; empty if no run has finished.
        differences: to the baseline, by metric; empty for the baseline itself and without common seeds.
        temperatures: ``first``, ``last``, ``min`` and ``max`` over the seeds; empty if not recorded.
        significance: of the primary metric's difference; None if it belongs to no family of comparisons.
        trainings: statistics of the training runs; None if no run has finished.
        selected: label of the arm that produced the results; differs from ``label`` if the arm was tuned.
        configurations: number of configurations compared on validation data; 1 if the arm was not tuned.
        adapting: primary metric minus that of its control, ``fixed`` at the mean temperature of each run; None without a
            control.
        adapting_significance: significance of ``adapting``, corrected within the family.
        over_samples: 95 % interval of the primary metric's difference over resampled test data, for these runs; None if the
            method does not resample.
    """

    label: str
    resolved: str
    summaries: Mapping[str, Summary]
    differences: Mapping[str, Difference]
    reported: tuple[ReportedLine, ...]
    failures: tuple[Failure, ...]
    temperatures: Mapping[str, Summary] = field(default_factory=dict)
    significance: Significance | None = None
    trainings: Trainings | None = None
    selected: str = ""
    configurations: int = 1
    adapting: Difference | None = None
    adapting_significance: Significance | None = None
    over_samples: tuple[float, float] | None = None


@dataclass(frozen=True)
class Comparison:
    """All arms of one task in one profile.

    Attributes:
        profile: the current profile, without metrics that no result has.
        recipe: settings of the stored results; a newer profile may have others.
        dataset: data of the stored results.
        rows: arms with results or failures, those of the task first.
        environments: the distinct machines and versions of the results.
        baseline: label of the baseline arm.
        chosen: whether the baseline was chosen from fixed temperatures on validation data instead of declared.
        signal: whether the baseline is clearly better than the arm ``without`` of the task; None if not measured.
        looks: interim analyses if seeds were added between them; otherwise empty.
        plan: the plan that was fixed before the runs; None without one.
        about: summary of the suite.
    """

    suite: str
    profile_name: str
    task: Task
    profile: Profile
    recipe: Mapping[str, object]
    dataset: str
    rows: tuple[ArmRow, ...]
    environments: tuple[str, ...]
    baseline: str
    chosen: bool
    signal: bool | None
    looks: tuple[Look, ...] = ()
    plan: FixedPlan | None = None
    about: str = ""

    @property
    def primary(self) -> Metric:
        """The primary metric."""
        return self.profile.primary_metric()


def compare(loaded: Loaded, suites: Mapping[str, Suite]) -> tuple[Comparison, ...]:
    """Returns one comparison for every suite, profile and task that has results or failures.

    Args:
        loaded: see `load_results`; every entry passes `check_known`.
        suites: by name, all that occur in the results.

    Raises:
        DataError: results that would be averaged or compared are of different experiments.
    """
    entries: tuple[Entry, ...] = (*loaded.results, *loaded.failures)
    places = dict.fromkeys((entry.suite, entry.profile, entry.task) for entry in entries)
    comparisons = []
    for place in places:
        here = loaded.only(lambda entry, place=place: (entry.suite, entry.profile, entry.task) == place)  # type: ignore[misc]
        suite, profile, task = place
        compared = _compare_task(suites[suite].task(task), suite, profile, here.results, here.failures)
        looks, plan = loaded.looks.get(place, ()), loaded.plans.get(place)
        comparisons.append(replace(compared, looks=looks, plan=plan, about=suites[suite].summary))
    return _judged(comparisons)


def _judged(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Returns the comparisons with verdicts, corrected within families; differences to controls are a separate family."""
    families: dict[tuple[str, ...], dict[tuple[int, str, str], Comparable]] = {}
    for number, each in enumerate(comparisons):
        for row in each.rows:
            strategy = row.differences.get(each.primary.name) if Arm(row.label).contrasts else None
            for question, difference in (("strategy", strategy), ("adapting", row.adapting)):
                if difference is not None:
                    key = (question, each.suite, each.profile_name, each.task.family or each.task.name)
                    higher, smallest = each.primary.higher_is_better, each.primary.smallest_difference
                    seeds = len(each.plan.seeds) if each.plan else 0 if each.looks else _most_seeds(each)
                    comparable = Comparable(difference, higher, each.signal, smallest, max(1, len(each.looks)), seeds)
                    families.setdefault(key, {})[number, row.label, question] = comparable
    found = {name: significance for family in families.values() for name, significance in judge(family).items()}

    def told(number: int, row: ArmRow) -> ArmRow:
        strategy, adapting = (found.get((number, row.label, question)) for question in ("strategy", "adapting"))
        return replace(row, significance=strategy, adapting_significance=adapting)

    return tuple(replace(each, rows=tuple(told(number, row) for row in each.rows)) for number, each in enumerate(comparisons))


def _most_seeds(comparison: Comparison) -> int:
    name = comparison.primary.name
    return max((row.summaries[name].count for row in comparison.rows if name in row.summaries), default=0)


def consistent(loaded: Loaded) -> Loaded:
    """Keeps only the results of the majority experiment of each task and arm, and reports the others in messages.

    Without a majority, all results are left out.
    """
    kept, problems = list(loaded.results), list(loaded.problems)
    for of, named in ((("suite", "profile", "task"), ("dataset", "recipe")), (("suite", "profile", "task", "arm"), None)):
        groups: dict[tuple[str, ...], list[Result]] = {}
        for result in kept:
            groups.setdefault(tuple(getattr(result, name) for name in of), []).append(result)
        for group in groups.values():
            identities = [json.dumps({name: _experiment(each)[name] for name in named or _experiment(each)}) for each in group]
            common, count = Counter(identities).most_common(1)[0]
            for result, identity in zip(group, identities, strict=True):
                if identity != common or count <= len(group) / 2:
                    kept.remove(result)
                    problems.append(f"{_where(result)} is of another experiment than other results: run it again, or apart.")
    return replace(loaded, results=tuple(kept), problems=tuple(problems))


def _temperatures(results: Sequence[Result]) -> dict[str, Summary]:
    names = [name for name in results[0].temperature if all(name in each.temperature for each in results)] if results else ()
    return {name: summarise({each.seed: each.temperature[name] for each in results}) for name in names}


def check_known(entry: Entry, suite: Suite) -> None:
    """Checks that an entry of ``suite`` can be compared with others.

    Raises:
        UnknownNameError: the suite does not have the task or profile.
        ConfigError: the primary metric is missing or a metric is unknown; metrics added to the profile later may be missing.
    """
    profile = suite.task(entry.task).profile(entry.profile)
    names = {metric.name for metric in profile.metrics}
    if isinstance(entry, Result) and not {profile.primary} <= entry.metrics.keys() <= names:
        told = f"has the metrics {sorted(entry.metrics)}, now declared are {sorted(names)}"
        raise ConfigError(f"{_where(entry)} {told}: run it again.")


def _where(entry: Entry) -> str:
    return f"task '{entry.task}', arm '{entry.arm}', seed {entry.seed}"


def _compare_task(
    task: Task, suite: str, profile_name: str, results: Sequence[Result], failures: Sequence[Failure]
) -> Comparison:
    profile = task.profile(profile_name)
    _check_one_experiment(results)
    tables = load(task.papers) if task.papers else None
    entries: tuple[Entry, ...] = (*results, *failures)
    present = dict.fromkeys(each.arm for each in entries)
    labels = [arm.label for arm in profile.arms if arm.label in present]
    labels += [label for label in present if label not in labels]
    if results:  # omit columns of figures without results
        measured = {name for each in results for name in each.metrics}
        profile = replace(profile, metrics=tuple(metric for metric in profile.metrics if metric.name in measured))
    values = {label: _values([each for each in results if each.arm == label], profile) for label in labels}
    baseline, chosen = best_baseline(task, values, profile)
    groups = best_configurations(task, values, profile)
    selected = {label: groups[label][0] if label in groups else label for label in labels}
    dropped = {each for label, (_, every) in groups.items() for each in every if each != label}
    unseen = {each for chosen_label, every in groups.values() for each in every if each != chosen_label}
    labels = [label for label in labels if label not in dropped and Arm(label).controlled not in unseen]
    own_values, values = values, {**values, **{label: values[selected[label]] for label in labels}}
    of_baseline = values.get(baseline, {})
    differences = {
        label: {
            name: difference
            for name in (of_baseline if label != baseline else ())
            if name in values[label] and (difference := paired_difference(values[label][name], of_baseline[name])) is not None
        }
        for label in labels
    }
    metric = profile.primary_metric()
    without = values.get(task.without, {}).get(metric.name, {})
    over_without = paired_difference(of_baseline[metric.name], without) if of_baseline else None
    signal = has_signal(over_without, metric.higher_is_better)
    on_samples = _samples([each for each in results if each.arm == baseline], metric)
    rows = []
    for label in labels:
        mine = [each for each in results if each.arm == selected[label]]
        arm = profile.arm(label)
        control = own_values.get(f"control({selected[label]})", {})
        rows.append(
            ArmRow(
                label=label,
                resolved=_resolved(mine) if mine else "",
                summaries={name: summarise(by_seed) for name, by_seed in values[label].items()},
                differences=differences[label],
                reported=tuple(_reported(tables, row) for row in arm.reported) if arm and tables else (),
                failures=tuple(each for each in failures if each.arm == selected[label]),
                temperatures=_temperatures([each for each in mine if each.temperature and not Arm(label).controlled]),
                selected=selected[label],
                configurations=len(groups[label][1]) if label in groups else 1,
                over_samples=None if label == baseline else over_samples(_samples(mine, metric), on_samples),
                adapting=paired_difference(values[label].get(metric.name, {}), control.get(metric.name, {})),
                trainings=_trainings(mine),
            )
        )
    return Comparison(
        suite=suite,
        profile_name=profile_name,
        task=task,
        profile=profile,
        recipe=results[0].recipe if results else profile.settings(),
        dataset=results[0].dataset if results else profile.dataset,
        rows=tuple(rows),
        environments=tuple(dict.fromkeys(describe_environment(each.hardware, each.versions) for each in results)),
        baseline=baseline,
        chosen=chosen,
        signal=signal,
    )


def _samples(results: Sequence[Result], metric: Metric) -> dict[int, Sequence[float]]:
    return {each.seed: each.resampled[metric.name] for each in results if metric.name in each.resampled}


def _resolved(results: Sequence[Result]) -> str:
    """Returns the resolved specs of an arm; the temperature of a control differs between seeds."""
    ordered = sorted(results, key=lambda each: each.temperature.get("mean", 0.0))
    strategy = " to ".join(dict.fromkeys(each.strategy or "" for each in (ordered[0], ordered[-1])))
    specs = "+".join(filter(None, (strategy, results[0].objective, results[0].negatives)))
    return " with ".join(filter(None, (specs, format_settings(results[0].changes))))


def _reported(tables: PaperTables, row: PaperRow) -> ReportedLine:
    return ReportedLine(tables.papers[row.paper], row.table, row.method, tables.row(row))


def _values(results: Sequence[Result], profile: Profile) -> dict[str, dict[int, float]]:
    """Returns metric values by metric and seed."""
    ordered = sorted(results, key=lambda each: each.seed)
    found = {
        metric.name: {each.seed: each.metrics[metric.name] for each in ordered if metric.name in each.metrics}
        for metric in profile.metrics
    }
    return {name: by_seed for name, by_seed in found.items() if by_seed}


def _experiment(result: Result) -> dict[str, Any]:
    """Returns the data that all results of an arm share; a control's temperature varies with the seed.

    A setting with the value none may have been added after the other results.
    """
    identity = result.identity()
    identity["recipe"] = {name: value for name, value in identity["recipe"].items() if value is not None}
    return {**identity, "strategy": "fixed"} if Arm(result.arm).controlled else identity


def _check_one_experiment(results: Sequence[Result]) -> None:
    first_of_arm: dict[str, Result] = {}
    for result in results:
        for other, keys in ((results[0], ("dataset", "recipe")), (first_of_arm.setdefault(result.arm, result), None)):
            mine, theirs = _experiment(result), _experiment(other)
            differing = [key for key in keys or mine if mine[key] != theirs[key]]
            if differing:
                raise DataError(
                    f"{_where(result)} and arm '{other.arm}', seed {other.seed} are of different experiments "
                    f"(they differ in {', '.join(differing)}): run them again with --rerun-changed or report them apart."
                )


def _trainings(results: Sequence[Result]) -> Trainings | None:
    """Returns statistics of the training runs of an arm, or None if no run has finished."""
    if not results:
        return None
    noted = [each.course for each in results if each.course]
    # Runs on data of different sizes record other steps; average only runs with the steps of the first.
    alike = [course for course in noted if (course["step"], course.keys()) == (noted[0]["step"], noted[0].keys())]
    names = alike[0] if alike else ()
    course = {name: [fmean(values) for values in zip(*(each[name] for each in alike), strict=True)] for name in names}
    days = sorted(each.date[:10] for each in results)
    return Trainings(summarise({each.seed: each.seconds for each in results}), course, (days[0], days[-1]))
