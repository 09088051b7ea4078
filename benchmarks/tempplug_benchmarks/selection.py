"""Which configurations stand for a strategy: the best fixed temperature, and the best of what an arm was tuned over.

Both are chosen by the mean of a validation metric over the seeds that all candidates have. This module must not know tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from tempplug_benchmarks.arm import Arm, parse_arm
from tempplug_benchmarks.profile import Profile
from tempplug_benchmarks.run.tuning import configurations, fixed_temperatures
from tempplug_benchmarks.task import Task

Values = Mapping[str, Mapping[str, Mapping[int, float]]]
"""By label, metric and seed."""


def best(candidates: Sequence[str], values: Values, profile: Profile) -> str | None:
    """Returns the label that is best on validation data; None where one was not measured there.

    Over the seeds that all candidates have; where none is common, over those of each.

    Args:
        candidates: at least one.
        values: of results.
        profile: with the metric.
    """
    by_label = {label: values.get(label, {}).get(profile.validation) for label in candidates}
    found = {label: by_seed for label, by_seed in by_label.items() if by_seed}
    if not profile.validation or len(found) < len(candidates):
        return None
    metric = next(each for each in profile.metrics if each.name == profile.validation)
    seeds = set.intersection(*map(set, found.values()))
    sign = 1 if metric.higher_is_better else -1
    return max(candidates, key=lambda label: sign * fmean(found[label][seed] for seed in seeds or found[label]))


def baseline(task: Task, values: Values, profile: Profile) -> tuple[str, bool]:
    """Returns the label of the arm that others are compared with, and whether validation data chose it.

    Args:
        task: whose declared baseline it is where they cannot.
        values: of results.
        profile: with the metric.
    """
    fixed = [label for label in fixed_temperatures(task, list(values)) if values[label]]
    chosen = best(fixed, values, profile) if len(fixed) > 1 else None
    return (task.baseline, False) if chosen is None else (chosen, True)


def tuned(task: Task, values: Values, profile: Profile) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Returns, by label, the arms all of whose configurations have results: which is best, and all of them.

    Fixed temperatures stay apart, of which the best is the baseline.

    Args:
        task: of the results.
        values: of results.
        profile: as declared, with the metric.
    """
    if not profile.validation or all(profile.arm(label) for label in values):
        return {}  # nothing that only tuning plans
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    taken = set(fixed_temperatures(task, values))
    # what tuning made of an arm has more options, and stands behind it
    for label in sorted(values, key=lambda label: (profile.arm(label) is None, len(label))):
        if label in taken or not Arm(label).contrasts:
            continue
        arm = profile.arm(label) or parse_arm(label, profile.recipe)
        labels = tuple(each.label for each in configurations(task, profile, arm))
        if len(labels) > 1 and (chosen := best(labels, values, profile)) is not None:
            found[label] = chosen, labels
            taken |= set(labels)
    return found
