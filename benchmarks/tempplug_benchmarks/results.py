"""Loads the results of a folder and computes means, standard deviations and paired differences over seeds.

It must not depend on tasks or papers, nor on how anything is printed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tempplug.errors import DataError, TempplugError
from tempplug_benchmarks.run.fields import plain
from tempplug_benchmarks.run.fixed_plan import FixedPlan, task_plan
from tempplug_benchmarks.run.store import Entry, Failure, Result
from tempplug_benchmarks.run.task_file import Look, read_looks, stored_tasks

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A metric over seeds.

    Attributes:
        mean: the mean.
        std: the sample standard deviation (divisor n - 1); None for a single seed.
        values: by seed.
    """

    mean: float
    std: float | None
    values: Mapping[int, float]

    @property
    def count(self) -> int:
        """The number of seeds."""
        return len(self.values)


@dataclass(frozen=True)
class Difference:
    """The difference between a metric and that of the baseline, paired by seed.

    Attributes:
        mean: the mean difference.
        low: lower end of the 95 % t interval; None for a single common seed.
        high: upper end; None for a single common seed.
        count: number of common seeds.
        deviation: sample standard deviation of the differences; None for a single common seed.
    """

    mean: float
    low: float | None
    high: float | None
    count: int
    deviation: float | None = None


@dataclass(frozen=True)
class Loaded:
    """The contents of a results folder.

    Attributes:
        results: finished runs.
        failures: failed runs.
        problems: messages about files that cannot be read.
        looks: interim analyses by suite, profile and task; empty for a task whose results were analysed only once.
        plans: plans fixed beforehand, by suite, profile and task; without those that have none.
    """

    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    problems: tuple[str, ...]
    looks: Mapping[tuple[str, str, str], tuple[Look, ...]] = field(default_factory=dict)
    plans: Mapping[tuple[str, str, str], FixedPlan] = field(default_factory=dict)

    def only(self, which: Callable[[Entry], bool]) -> Loaded:
        """Returns a copy with the results and failures for which the function returns true."""
        return replace(self, results=tuple(filter(which, self.results)), failures=tuple(filter(which, self.failures)))


def load_results(folder: Path, check: Callable[[Entry], object] = lambda entry: None) -> Loaded:
    """Returns all results below a folder; a file that is not a valid result is reported as a problem.

    The results of a task with an unreadable `LOOKS` or `PLAN` file are left out, because their p-values cannot be corrected;
    so are those that a task's plan lacks.

    Args:
        folder: see `stored_tasks`.
        check: raises a `TempplugError` if an entry refers to something that does not exist.

    Raises:
        DataError: the folder is missing or has no results.
    """
    tasks = stored_tasks(folder)
    if not tasks and not folder.is_dir():
        raise DataError(f"{folder} is not a folder: give the --output of tempplug bench run.")
    results: list[Result] = []
    failures: list[Failure] = []
    problems: list[str] = []
    looks: dict[tuple[str, str, str], tuple[Look, ...]] = {}
    plans: dict[tuple[str, str, str], FixedPlan] = {}
    for task in tasks:
        try:
            looked, planned = read_looks(task.folder), task_plan(task.folder)
            entries = list(task.entries())
        except DataError as error:
            problems.append(plain(str(error)))
            continue
        for where, entry in entries:
            try:
                if isinstance(entry, DataError):
                    raise entry
                check(entry)
                if planned is not None:
                    if not planned.covers(entry):
                        raise DataError(f"{where} is not in the plan of {planned.date} beside it, so it is left out.")
                    plans[entry.suite, entry.profile, entry.task] = planned
                looks[entry.suite, entry.profile, entry.task] = looked
                if isinstance(entry, Failure):
                    failures.append(entry)
                else:
                    results.append(entry)
            except DataError as error:
                problems.append(plain(str(error)))
            except TempplugError as error:
                problems.append(plain(f"{where}: {error}"))
    if not results and not failures and not problems:
        raise DataError(f"{folder} has no results: run tempplug bench run SUITE --output {folder} first.")
    return Loaded(tuple(results), tuple(failures), tuple(dict.fromkeys(problems)), looks, plans)


def summarise(values: Mapping[int, float]) -> Summary:
    """Returns the mean and the sample standard deviation of ``values``, at least one, by seed.

    >>> summarise({0: 1.0, 1: 2.0, 2: 6.0})
    Summary(mean=3.0, std=2.6457513110645907, values={0: 1.0, 1: 2.0, 2: 6.0})
    """
    numbers = list(values.values())
    return Summary(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None, values)


def over_samples(values: Mapping[int, Sequence[float]], baseline: Mapping[int, Sequence[float]]) -> tuple[float, float] | None:
    """Returns the 95 % percentile interval of the mean difference over resamples of the test data.

    The interval shows the variation due to the test data; the interval over seeds shows that due to training. Returns None if
    no seed has resampled metrics for both arm and baseline.

    Args:
        values: metrics of the arm on each resample, by seed.
        baseline: metrics of the baseline on the same resamples, by seed.
    """
    seeds = [seed for seed in values.keys() & baseline.keys() if len(values[seed]) == len(baseline[seed]) > 1]
    if not seeds or len({len(values[seed]) for seed in seeds}) > 1:
        return None
    samples = range(len(values[seeds[0]]))
    differences = [statistics.fmean(values[seed][each] - baseline[seed][each] for seed in seeds) for each in samples]
    cuts = statistics.quantiles(differences, n=40, method="inclusive")
    return cuts[0], cuts[-1]


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """Returns the mean difference of a metric by seed over the common seeds, with its 95 % t interval; None without these.

    >>> paired_difference({0: 2.0, 1: 4.0}, {0: 1.0, 1: 1.0, 2: 5.0}).mean
    2.0
    """
    from scipy.stats import t

    pairs = [values[seed] - baseline[seed] for seed in sorted(values.keys() & baseline.keys())]
    if len(pairs) < 2:
        return Difference(pairs[0], None, None, 1) if pairs else None
    mean = statistics.fmean(pairs)
    deviation = statistics.stdev(pairs)
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(pairs) - 1)) * deviation / math.sqrt(len(pairs))
    return Difference(mean, mean - half, mean + half, len(pairs), deviation)
