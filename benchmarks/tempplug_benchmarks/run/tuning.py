"""Further runs of an arm: configurations for tuning, the best of which validation data choose over all seeds, and controls.

An arm has as many configurations as its task has fixed temperatures: its own temperatures times the ratios of the fixed ones to
the baseline's, or values declared here if it has no temperature.

A control is ``fixed`` at the mean temperature that an adaptive arm had with the same seed. It is planned once that result
exists, and omits what else the strategy adds, such as the extra projection heads and the regulariser of AMCL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError
from tempplug.options import Temperature, format_spec, options_of
from tempplug.plugins import StrategyInfo, registry
from tempplug_adapters.contexts import filled
from tempplug_benchmarks.arm import Arm, parse_arm, resolve
from tempplug_benchmarks.profile import Profile
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import Result
from tempplug_benchmarks.task import Task

OWN: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "temperature-free": tuple({"eps": value} for value in (1e-4, 1e-3, 1e-5, 1e-2, 1e-6, 3e-4, 3e-5, 1e-1))
}
"""Options by strategy, the paper's first, in the order in which a grid takes them."""
_RECIPROCALS = ("max_scale",)
"""Bounds of 1/temperature, which stay where they are."""

Values = Mapping[str, Mapping[str, Mapping[int, float]]]
"""By label, metric and seed."""


def fixed_temperatures(task: Task, labels: Iterable[str]) -> list[str]:
    """Returns the labels that differ from the baseline of the task only in a fixed temperature, the baseline included."""
    strategy, objective = Arm(task.baseline).parts or ("", "")
    found = []
    for label in labels:
        parts, negatives = Arm(label).parts, Arm(label).negatives
        if parts and (parts[1], negatives) == (objective, Arm(task.baseline).negatives) and "@" not in label:
            (name, options), (of_declared, _) = parse_spec(parts[0]), parse_spec(strategy)
            if name == of_declared == "fixed" and set(options) <= {"temperature"}:
                found.append(label)
    return found


def configurations(task: Task, profile: Profile, arm: Arm) -> tuple[Arm, ...]:
    """Returns the configurations of an arm, its own first; only its own if it has no contrastive loss.

    A configuration that resolves to an arm of the profile is that arm.

    Args:
        task: the task of the arm.
        profile: the profile with the fixed temperatures.
        arm: an arm, of the profile or not.

    Raises:
        ConfigError: the strategy has neither temperatures nor enough declared values.
    """
    if not arm.parts:
        return (arm,)
    labels = fixed_temperatures(task, [each.label for each in profile.arms])
    fixed = [each for each in profile.arms if each.label in labels]
    if fixed_temperatures(task, [arm.label]):
        return (arm, *(each for each in fixed if each.label != arm.label))
    strategy, objective = arm.parts
    name, options = filled(strategy, profile.recipe.loss.temperatures)
    specs = {each.label: resolve(each, profile.recipe).strategy or "" for each in fixed}
    temperatures = {label: float(parse_spec(spec)[1]["temperature"]) for label, spec in specs.items()}
    baseline = temperatures.pop(task.baseline)
    grid = _grid(name, options, [each / baseline for each in temperatures.values()])
    suffix = arm.label[len(f"{strategy}+{objective}") :]
    alike = [each for each in profile.arms if each.parts and parse_spec(each.parts[0])[0] == name]
    own = {(resolve(each, profile.recipe), tuple(each.changes.items())): each for each in alike}
    made = []
    for changed in grid:
        spec = format_spec(name, {**parse_spec(strategy)[1], **changed})
        new = replace(arm, label=f"{spec}+{objective}{suffix}", reported=())
        made.append(own.get((resolve(new, profile.recipe), tuple(new.changes.items())), new))
    return (arm, *made)


def _grid(name: str, options: Mapping[str, Any], factors: Sequence[float]) -> list[dict[str, Any]]:
    """Returns the option changes of each further configuration: the temperatures times each factor."""
    declared = options_of(registry().load(registry().get(StrategyInfo, name)))
    moved = (each for each in declared if isinstance(each.kind, Temperature) and each.name not in _RECIPROCALS)
    values = {each.name: options.get(each.name, each.default) for each in moved}
    if values:
        return [{key: float(f"{value * factor:.4g}") for key, value in values.items()} for factor in factors]
    own = OWN.get(name, ())
    found = [dict(each) for each in own if dict(each) != {key: options.get(key, own[0][key]) for key in each}]
    if len(found) < len(factors):
        raise ConfigError(
            f"strategy '{name}' has no temperature and {len(own)} configurations in tempplug_benchmarks.run.tuning, but there "
            f"are {len(factors) + 1} fixed temperatures: declare as many, or run it untuned."
        )
    return found[: len(factors)]


def expanded(runs: Sequence[Run]) -> list[Run]:
    """Returns a plan extended by all configurations of its arms, grouped by seed.

    Args:
        runs: the plan; runs of tasks without a validation metric are kept unchanged.

    Raises:
        ConfigError: see `configurations`.
    """
    found: dict[tuple[str, str, str, str, int], Run] = {}
    for run in runs:
        chosen = configurations(run.task, run.sizes, run.arm) if run.sizes.validation else (run.arm,)
        for arm in chosen:
            specs = run.specs if arm.label == run.arm.label else resolve(arm, run.sizes.recipe)
            each = replace(run, arm=arm, specs=specs)
            found.setdefault(each.key, each)
    return list(found.values())


def best(candidates: Sequence[str], values: Values, profile: Profile) -> str | None:
    """Returns the label with the best mean validation score; None if a candidate has none.

    The mean is over the seeds common to all candidates; without common seeds, over the seeds of each.

    Args:
        candidates: at least one label.
        values: metric values by label, metric and seed.
        profile: declares the validation metric.
    """
    by_label = {label: values.get(label, {}).get(profile.validation) for label in candidates}
    found = {label: by_seed for label, by_seed in by_label.items() if by_seed}
    if not profile.validation or len(found) < len(candidates):
        return None
    metric = next(each for each in profile.metrics if each.name == profile.validation)
    seeds = set.intersection(*map(set, found.values()))
    sign = 1 if metric.higher_is_better else -1
    return max(candidates, key=lambda label: sign * fmean(found[label][seed] for seed in seeds or found[label]))


def best_baseline(task: Task, values: Values, profile: Profile) -> tuple[str, bool]:
    """Returns the label of the baseline, and whether it was chosen on validation data instead of declared by the task."""
    fixed = [label for label in fixed_temperatures(task, list(values)) if values[label]]
    chosen = best(fixed, values, profile) if len(fixed) > 1 else None
    return (task.baseline, False) if chosen is None else (chosen, True)


def best_configurations(task: Task, values: Values, profile: Profile) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Returns the best configuration and all configurations of each arm, by label, if all have results.

    Fixed temperatures are left out, because the best of them is the baseline; so are those with settings of their own.

    Args:
        task: the task of the results.
        values: metric values by label, metric and seed.
        profile: declares arms and the validation metric.
    """
    if not profile.validation or all(profile.arm(label) for label in values):
        return {}  # not a configuration that only tuning plans
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    used = set(fixed_temperatures(task, values))
    # tuned configurations of an arm have more options and are listed after it
    for label in sorted(values, key=lambda label: (profile.arm(label) is None, len(label))):
        parts = Arm(label).parts
        if label in used or not parts or ("@" in label and parse_spec(parts[0])[0] == "fixed"):
            continue
        if not Arm(label).installed:
            continue  # its results are compared, but its configurations are known to its plugin alone
        arm = profile.arm(label) or parse_arm(label, profile.recipe)
        labels = tuple(each.label for each in configurations(task, profile, arm))
        if len(labels) > 1 and (chosen := best(labels, values, profile)) is not None:
            found[label] = chosen, labels
            used |= set(labels)
    return found


def controls(runs: Sequence[Run], results: Sequence[Result]) -> tuple[list[Run], list[str]]:
    """Returns a control run for every run with an adaptive temperature, and a message for each one that cannot have a control.

    Args:
        runs: of any arms; arms with a fixed temperature or without a contrastive loss need no control.
        results: of the runs; an unfinished run has no control.
    """
    finished = {each.key: each for each in results}
    found, without = [], []
    for run in runs:
        result, parts = finished.get(run.key), run.arm.parts
        if result is None or not parts or not run.specs.objective or parse_spec(parts[0])[0] == "fixed":
            continue
        mean = result.temperature.get("mean", 0.0)
        if run.specs.objective.startswith("amcl-top:"):
            without.append(f"no control of {run.describe()}: its objective needs the temperature of every pair")
        elif mean > 0:
            arm = Arm(f"control({run.arm.label})", changes=run.arm.changes)
            strategy = format_spec("fixed", {"temperature": float(f"{mean:.5g}")})
            found.append(replace(run, arm=arm, specs=run.specs._replace(strategy=strategy)))
        else:
            without.append(f"no control of {run.describe()}: its result has no mean temperature, run it again")
    return found, without
