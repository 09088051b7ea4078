"""How arms compare at three lengths of training: differences to a baseline in per cent, over data sets.

The tasks of a data set are ``SET-short``, ``SET`` (the recipe's length) and ``SET-long``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from tempplug_benchmarks.arm import UNTRAINED
from tempplug_benchmarks.profile import Metric
from tempplug_benchmarks.report.comparison import Comparison
from tempplug_benchmarks.report.tables import NOTHING, format_difference
from tempplug_benchmarks.results import paired_difference

SUFFIXES = {"short": "-short", "recipe": "", "long": "-long"}
PER_CENT = Metric(name="difference", summary="in per cent", decimals=1)

ByLength = Mapping[str, Mapping[str, Sequence[float]]]
"""By length and label of an arm the differences in per cent, one for each data set."""


def differences_by_length(tasks: Mapping[str, Comparison], sets: Sequence[str], baseline: str = "") -> ByLength:
    """Returns the differences of the primary metric.

    Args:
        tasks: comparisons by the name of the task, with those of all sets and lengths.
        sets: names of the data sets.
        baseline: label of an arm; by default each task has its own, the fixed temperature that is best on validation data.
    """
    columns: dict[str, dict[str, list[float]]] = {}
    for length, suffix in SUFFIXES.items():
        of = columns[length] = {}
        for comparison in (tasks[name + suffix] for name in sets):
            metric = comparison.primary.name
            means = {row.label: row.summaries[metric].mean for row in comparison.rows if metric in row.summaries}
            for label, mean in means.items():
                of.setdefault(label, []).append(100 * (mean / means[baseline or comparison.baseline] - 1))
    return columns


def length_rows(columns: ByLength) -> list[list[str]]:
    """Returns a table: an arm's mean with its 95 % t interval over the data sets and its worst, or the one figure, by length.

    The last row has Spearman's correlation of the means of trained arms with those of the length before.
    """
    from scipy.stats import spearmanr

    several = max(len(each) for of in columns.values() for each in of.values()) > 1
    found = [["strategy+objective", *(f"{length}{': mean [95 %], worst' * several}" for length in columns)]]
    labels = dict.fromkeys(label for of in columns.values() for label in of)
    found += [[f"`{label}`", *(_over_sets(of.get(label, ())) for of in columns.values())] for label in labels]
    orders = []
    for pair in pairwise(columns.values()):
        both = [label for label in pair[0] if label in pair[1] and label != UNTRAINED.label]
        before, after = ([fmean(of[label]) for label in both] for of in pair)
        orders.append(f"{spearmanr(before, after).statistic:+.2f}")
    return [*found, ["order: correlation with the column before", NOTHING, *orders]]


def _over_sets(differences: Sequence[float]) -> str:
    over = paired_difference(dict(enumerate(differences)), dict.fromkeys(range(len(differences)), 0.0))
    return format_difference(over, PER_CENT) + (f", {min(differences):+.1f}" if len(differences) > 1 else "")
