"""The speed suite: tasks, cases and targets of ``cases.toml``, and the function that measures one case.

Profile ``quick`` takes seconds, ``small`` is sized for two CPU cores, and ``paper`` has all sizes, some of them for a GPU.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any, ClassVar

from tempplug_adapters.training.method_info import MethodInfo
from tempplug_benchmarks.arm import Arm
from tempplug_benchmarks.profile import PROFILES, Metric, Profile
from tempplug_benchmarks.run_method import RunContext
from tempplug_benchmarks.speed.recipe import OURS, SMALL_ROWS, SpeedRecipe
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task


@dataclass(frozen=True, kw_only=True)
class Target:
    """One performance target. It applies to an idle machine, not to measurements with busy processes.

    Attributes:
        case: name of the case.
        against: implementation that ``of`` is compared with; ``of`` itself if the target limits its own number.
        at_least: minimum ratio of ``against`` to ``of``; None if the target limits the number itself.
        at_most: maximum of the number itself; None for a comparison.
        share: minimum share of the matrix product rate, in [0, 1]; None without such a target.
        device: the device that the target applies to.
        of: implementation that must reach the target.
        cold: whether the target applies to the time after a network's step.
    """

    case: str
    against: str
    at_least: float | None = None
    at_most: float | None = None
    share: float | None = None
    device: str = "cpu"
    of: str = "tempplug"
    cold: bool = False

    def reached(self, numbers: Mapping[str, float | None]) -> bool | None:
        """Returns whether measured ``numbers`` (``ratio``, ``own``, ``share``) reach the target; None if one is missing."""
        name = "ratio" if self.at_least is not None else "share" if self.share is not None else "own"
        if (number := numbers.get(name)) is None:
            return None
        least = self.at_least if self.at_least is not None else self.share
        return number <= self.at_most if self.at_most is not None else least is not None and number >= least

    def words(self) -> str:
        """Returns the target as shown in tables, e.g. ``≥ 6×``."""
        before = f"{self.of} " * (self.of not in ("tempplug", self.against)) + "cold " * self.cold
        if self.share is not None:
            return f"{before}≥ {self.share:.0%} of matmul rate"
        return before + (f"≥ {self.at_least:.3g}×" if self.at_least is not None else f"≤ {self.at_most:g}")


@dataclass(frozen=True)
class SpeedSuite(Suite):
    """A suite whose arms are cases, each one loss at one size.

    Attributes:
        targets: performance targets.
    """

    kind: ClassVar[str] = "suites that measure speed"

    targets: tuple[Target, ...] = ()


BUDGETS = {"quick": 0.2, "small": 3.0, "paper": 30.0}
"""Seconds for the rounds of one case."""
METRICS = {
    "time": Metric(name="milliseconds", summary="of a forward and backward pass", higher_is_better=False, decimals=3),
    "memory": Metric(name="mebibytes", summary="beside the inputs, at the peak", higher_is_better=False, decimals=1),
    "accuracy": Metric(name="gradient_error", summary="largest one, relative", higher_is_better=False, decimals=9),
}
METHOD = MethodInfo(name="speed", summary="nothing", target="", recipes={"speed": SpeedRecipe()}, datasets="none")
# Default temperatures of these losses; 0.1 for the others.
_TEMPERATURES = dict.fromkeys(("one-way", "two-way", "hard-negatives"), 0.05)
# The losses that are also measured compiled, and the numbers of pairs.
_COMPILED_LOSSES, _COMPILED_ROWS = ("nt-xent", "one-way", "two-way"), (64, 256)
# Minimum speedup over plain PyTorch up to this many pairs, with a network's step between calls.
_COLD = {64: 0.9, 128: 0.95, 2048: 1.0}


def train(context: RunContext) -> dict[str, float]:
    """Measures one case in this process, which must not run anything else."""
    from tempplug_benchmarks.speed.measure import measure_alone  # imports torch

    (metric,) = context.profile.metrics
    assert isinstance(context.recipe, SpeedRecipe)
    context.implementations.update(measure_alone(context.recipe, metric.name))
    return {metric.name: float(context.implementations[OURS][metric.name])}


def _task(name: str, summary: str, defaults: Mapping[str, Any], quantity: str = "time", **entries: Any) -> Task:
    """Returns a task; its paper profile defaults to the small one."""
    profiles = {
        profile: Profile(
            dataset="two correlated gaussian views",
            recipe=SpeedRecipe(budget=BUDGETS[profile]),
            arms=tuple(_cases([defaults | each for each in entries.get(profile, entries["small"])], quantity, profile)),
            metrics=(METRICS[quantity],),
            primary=METRICS[quantity].name,
        )
        for profile in PROFILES
    }
    return Task(
        name=name, summary=summary, method=METHOD, baseline="", profiles=profiles, train=train, variables=SpeedRecipe.variables
    )


def _cases(entries: Sequence[Mapping[str, Any]], quantity: str, profile: str) -> Iterator[Arm]:
    for entry in entries:
        dimensions, losses, sizes = (
            each if isinstance(each, list) else [each] for each in (entry[name] for name in ("dimension", "loss", "rows"))
        )
        for dimension, loss, rows in product(dimensions, losses, sizes):
            names = [OURS, *entry.get("others", ["eager"])]
            if (quantity, profile) in (("time", "small"), ("time", "paper")) and "environment" not in entry:
                names += _compiled(loss, rows, names)
            changes = {name: entry[name] for name in ("environment", "only_on") if name in entry}
            case = {"loss_name": loss, "rows": rows, "dimension": dimension, "implementations": names}
            temperature = entry.get("temperature", _TEMPERATURES.get(loss, 0.1))
            label = "-".join(filter(None, (loss, f"{rows}x{dimension}", entry.get("tag"))))
            yield Arm(label, changes={**case, "temperature": temperature, **changes})


def _compiled(loss: str, rows: int, names: Sequence[str]) -> list[str]:
    """Returns the compiled implementations that are added for small batches."""
    if rows > SMALL_ROWS or "eager" not in names:
        return []
    both = loss in _COMPILED_LOSSES and rows in _COMPILED_ROWS
    return [name for name in ("compiled", *["tempplug-compiled"] * both) if name not in names]


def _targets(tasks: Sequence[Task]) -> Iterator[Target]:
    """Returns the targets of the file and those that apply to every case outside profile ``quick``."""
    for entry in CONTENT["targets"]:
        yield from (Target(**entry | {"case": name}) for name in entry["case"].split())
    profiles = [each.profiles[name] for each in tasks for name in ("small", "paper")]
    cases = {arm.label: (arm.changes, profile.primary) for profile in profiles for arm in profile.arms}
    for name, (case, figure) in cases.items():
        limits = [limit for rows, limit in _COLD.items() if case["rows"] <= rows]
        if figure == "milliseconds" and limits and "eager" in case["implementations"]:
            yield Target(case=name, against="eager", at_least=limits[0], cold=True)
        if "tempplug-compiled" in case["implementations"]:
            yield Target(case=name, against="compiled", of="tempplug-compiled", at_least=1, cold=True)
        if "tempplug-dystress" in case["implementations"]:
            yield Target(case=name, against="tempplug-dystress", at_least=1 / 1.5, cold=True)
        if figure == "gradient_error":
            yield Target(case=name, against="eager", at_least=1)


CONTENT: Mapping[str, Any] = tomllib.loads(files(__package__).joinpath("cases.toml").read_text("utf-8"))
"""Of ``cases.toml``."""
_TASKS = tuple(_task(**each) for each in CONTENT["tasks"])
SUITE = SpeedSuite(
    name="speed",
    summary="time, memory and exactness of a forward and backward pass, tempplug beside eager code and other libraries",
    tasks=_TASKS,
    targets=tuple(_targets(_TASKS)),
)
