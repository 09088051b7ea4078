"""From files to statistics: loads the results of a folder; means, deviations and paired differences over seeds.

It must not know tasks or papers, nor how anything is printed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tempplug.errors import DataError, TempplugError
from tempplug_benchmarks.run.fields import check_fields, plain, read_object
from tempplug_benchmarks.run.store import FAILED, LOOKS, Entry, Failure, Result, read_failure, read_result, result_files

CONFIDENCE = 0.95
PATTERN = "*/*/*/*/seed-*.json"


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
        """How many seeds."""
        return len(self.values)


@dataclass(frozen=True)
class Difference:
    """A metric minus the baseline's, seed by seed.

    Attributes:
        mean: the mean difference.
        low: lower end of the 95 % t interval; None for a single common seed.
        high: upper end.
        count: how many seeds both have.
        deviation: sample standard deviation of the differences; None for a single common seed.
    """

    mean: float
    low: float | None
    high: float | None
    count: int
    deviation: float | None = None


@dataclass(frozen=True)
class Look:
    """One of several times at which the results of a task were read, in the file `LOOKS`: ``{"format": 1, "looks": [...]}``.

    Attributes:
        date: when its last run had finished, ISO 8601.
        seeds: those that were added since the look before, in words.
    """

    date: str
    seeds: str


@dataclass(frozen=True)
class Loaded:
    """The files of a folder.

    Attributes:
        results: finished runs.
        failures: failed ones.
        problems: messages about files that cannot be read.
        looks: by suite, profile and task; empty for a task whose results were read once.
    """

    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    problems: tuple[str, ...]
    looks: Mapping[tuple[str, str, str], tuple[Look, ...]] = field(default_factory=dict)


def load_results(folder: Path, check: Callable[[Entry], object] = lambda entry: None) -> Loaded:
    """Returns all results below a folder; a file that is no result, or not one that can be reported, becomes a message.

    Results of a task whose `LOOKS` cannot be read are left out with a message: their p could not be corrected.

    Args:
        folder: the ``--output`` of ``tempplug bench run``, or a part of it.
        check: raises a `TempplugError` where an entry is of something that there is not, or no longer.

    Raises:
        DataError: the folder is missing or has no results.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: give the --output of tempplug bench run.")
    results: list[Result] = []
    failures: list[Failure] = []
    problems: list[str] = []
    looks: dict[tuple[str, str, str], tuple[Look, ...]] = {}
    for path in result_files(folder, PATTERN):
        try:
            looked = _read_looks(path.absolute().parents[1] / LOOKS)
            entry = read_failure(path) if path.name.endswith(FAILED) else read_result(path)
            check(entry)
            looks[entry.suite, entry.profile, entry.task] = looked
            if isinstance(entry, Failure):
                failures.append(entry)
            else:
                results.append(entry)
        except DataError as error:
            problems.append(plain(str(error)))
        except TempplugError as error:
            problems.append(plain(f"{path}: {error}"))
    if not results and not failures and not problems:
        raise DataError(f"{folder} has no results: run tempplug bench run SUITE --output {folder} first.")
    return Loaded(tuple(results), tuple(failures), tuple(dict.fromkeys(problems)), looks)


def _read_looks(path: Path) -> tuple[Look, ...]:
    if not path.exists():
        return ()
    listed = read_object(path, 1, "file of looks").get("looks")
    if not isinstance(listed, list) or not listed:
        raise DataError(f"{path}: 'looks' must be a list of objects with date and seeds.")
    return tuple(Look(**check_fields(Look, each, f"{path}: a look")) for each in listed)


def summarise(values: Mapping[int, float]) -> Summary:
    """Returns mean and sample standard deviation over seeds.

    Args:
        values: by seed, at least one.

    >>> summarise({0: 1.0, 1: 2.0, 2: 6.0})
    Summary(mean=3.0, std=2.6457513110645907, values={0: 1.0, 1: 2.0, 2: 6.0})
    """
    numbers = list(values.values())
    return Summary(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None, values)


def over_samples(values: Mapping[int, Sequence[float]], baseline: Mapping[int, Sequence[float]]) -> tuple[float, float] | None:
    """Returns the 95 % percentile interval of the mean difference of the runs at hand over samples of what they were tested on.

    It tells what other test data would have changed, and the interval over seeds what other trainings would have. None where
    no seed has samples of both.

    Args:
        values: of the arm on each sample, by seed.
        baseline: of the baseline on the same samples.
    """
    seeds = [seed for seed in values.keys() & baseline.keys() if len(values[seed]) == len(baseline[seed]) > 1]
    if not seeds or len({len(values[seed]) for seed in seeds}) > 1:
        return None
    samples = range(len(values[seeds[0]]))
    differences = [statistics.fmean(values[seed][each] - baseline[seed][each] for seed in seeds) for each in samples]
    cuts = statistics.quantiles(differences, n=40, method="inclusive")
    return cuts[0], cuts[-1]


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """Returns the mean difference over the common seeds with its 95 % t interval; None where no seed is common.

    Args:
        values: of the arm, by seed.
        baseline: of the baseline, by seed.

    >>> paired_difference({0: 2.0, 1: 4.0}, {0: 1.0, 1: 1.0, 2: 5.0}).mean
    2.0
    """
    from scipy.stats import t

    pairs = [values[seed] - baseline[seed] for seed in sorted(values.keys() & baseline.keys())]
    if not pairs:
        return None
    mean = statistics.fmean(pairs)
    if len(pairs) == 1:
        return Difference(mean, None, None, 1)
    deviation = statistics.stdev(pairs)
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(pairs) - 1)) * deviation / math.sqrt(len(pairs))
    return Difference(mean, mean - half, mean + half, len(pairs), deviation)
