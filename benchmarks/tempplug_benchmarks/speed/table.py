"""The tables and remarks of a speed report, as plain strings: what is said, not how it looks. It must not read files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from tempplug_benchmarks.environment import describe_environment
from tempplug_benchmarks.fields import plain
from tempplug_benchmarks.report.tables import NOTHING, Row, Table, Tone
from tempplug_benchmarks.speed.case import MAIN_NUMBER, OURS, Setting, SpeedSuite, SpeedTask
from tempplug_benchmarks.speed.store import SpeedResult
from tempplug_benchmarks.speed.targets import Target

READING = (
    "times tempplug: the implementation's figure over tempplug's, above 1 where tempplug is better. cold: after the step of a "
    "small network, as in a training. wanted: what must be reached at least. Implementations of a case were measured in turn "
    "in one process, each round in reversed order."
)
PRODUCTS = (
    "of matmul rate: operations of tempplug's matrix products over its hot time and the best rate of a few large products in "
    "the same process. Counted are half a square forward and a whole one backward with two views or labels (twice that with "
    "AMCL), elsewhere one product forward and two backward (one with a queue)"
)
# So many times the memory or time at most for twice the pairs.
GROWTH = 4.0
CLOCKS = {
    "cpu": "CPU time of the process, which busy neighbours cannot distort",
    "wall": "wall time",
    "cuda": "time between CUDA events",
}
# Implementations compute the same loss; beyond this relative difference a comparison of their times would mean nothing.
SAME_LOSS = {"float32": 1e-3, "bfloat16": 5e-2}
# The columns of figures, by what they are called and by the name of the number.
_COLUMNS = {
    "time": {"median ms": "milliseconds", "cold ms": "milliseconds_cold", "rounds": "rounds"},
    "memory": {"peak MiB": "mebibytes"},
    "accuracy": {"gradient error": "gradient_error", "loss error": "loss_error"},
}


@dataclass(frozen=True)
class Section:
    """The results of one task under one setting.

    Attributes:
        suite: name of the suite.
        profile: name of the profile.
        task: the task.
        setting: how its cases were measured.
        results: in the order of the task's cases.
        targets: of the suite.
    """

    suite: str
    profile: str
    task: SpeedTask
    setting: Setting
    results: tuple[SpeedResult, ...]
    targets: tuple[Target, ...]

    @property
    def title(self) -> str:
        """Suite, task, profile and setting."""
        return f"{self.suite} / {self.task.name} / {self.profile} / {self.setting.slug}"

    def label(self, result: SpeedResult) -> str:
        """Returns a case in few words: its size; loss, temperature and environment where the task has several of them."""
        case, cases = result.run.case, [each.run.case for each in self.results]
        words = [case.loss] if len({each.loss for each in cases}) > 1 else []
        words.append(f"{case.rows}×{case.dimension}")
        if len({each.temperature for each in cases if each.loss == case.loss}) > 1:
            words.append(f"τ={case.temperature:g}")
        if case.environment and not all(each.environment for each in cases):
            words.append("in the environment below")
        return " ".join(words)

    def ratio(self, result: SpeedResult, implementation: str, *, of: str = OURS, cold: bool = False) -> float | None:
        """Returns how many times that of another an implementation's figure is; None where one of them is missing or zero.

        Args:
            result: of a case.
            implementation: whose figure is divided.
            of: by whose figure.
            cold: whether the time after a network's step is meant.
        """
        name = MAIN_NUMBER[self.task.quantity] + "_cold" * cold
        own, other = result.number(of, name), result.number(implementation, name)
        return None if own is None or other is None or own <= 0 else other / own

    def wanted(self, result: SpeedResult, implementation: str) -> tuple[Target, ...]:
        """Returns what is wanted against an implementation."""
        place = (result.run.case.name, implementation, self.setting.device)
        return tuple(each for each in self.targets if (each.case, each.against, each.device) == place and not self.setting.busy)


def sections(suite: SpeedSuite, results: Sequence[SpeedResult]) -> tuple[Section, ...]:
    """Returns the sections of a suite's results: one for every profile, setting and task that has any.

    Args:
        suite: whose tasks.
        results: of that suite.
    """
    found = []
    places = dict.fromkeys((result.run.profile, result.run.setting.slug) for result in results)
    for profile, slug in places:
        here = {each.run.case.name: each for each in results if (each.run.profile, each.run.setting.slug) == (profile, slug)}
        for task in suite.tasks:
            mine = tuple(here.pop(case.name) for case in task.profiles.get(profile, ()) if case.name in here)
            if mine:
                found.append(Section(suite.name, profile, task, mine[0].run.setting, mine, suite.targets))
    return tuple(found)


def strangers(suite: SpeedSuite, results: Sequence[SpeedResult]) -> tuple[str, ...]:
    """Returns messages about results of cases that the suite does not have, or no longer.

    Args:
        suite: whose tasks.
        results: of that suite.
    """
    known = {(profile, case.name) for task in suite.tasks for profile, cases in task.profiles.items() for case in cases}
    return tuple(
        f"suite '{suite.name}' has no case '{each.run.case.name}' in profile '{each.run.profile}'"
        for each in results
        if (each.run.profile, each.run.case.name) not in known
    )


def table(section: Section) -> Table:
    """Returns the table of a section: a line for every case and implementation."""
    quantity = section.task.quantity
    header = ["case", *_COLUMNS[quantity], "times tempplug"]
    header += ["cold", "of matmul rate", "wanted"] if quantity == "time" else ["wanted"]
    rows: list[Row] = []
    for result in section.results:
        if result.error:
            filling = [NOTHING] * (len(header) - 1)
            rows.append(Row((section.label(result), *filling, "failed, see below"), "failed"))
            continue
        for name in result.run.case.implementations:
            rows.append(_row(section, result, name))
    return Table((*header, "note"), tuple(rows), tone_column=header.index("times tempplug"))


def _row(section: Section, result: SpeedResult, name: str) -> Row:
    outcome = result.outcomes[name]
    quantity = section.task.quantity
    cells = [f"{section.label(result)} · {name}"]
    cells += [_figure(result.number(name, number), number) for number in _COLUMNS[quantity].values()]
    for cold in (False, True)[: 1 + (quantity == "time")]:
        ratio = section.ratio(result, name, cold=cold)
        cells.append(NOTHING if ratio is None or name == OURS else f"{ratio:.2f}")
    if quantity == "time":
        share = result.number(name, "matmul_share")
        cells.append(NOTHING if share is None else f"{share:.0%}")
    said: dict[str, bool | None] = {}
    for target in section.wanted(result, name):
        numbers = {
            "ratio": section.ratio(result, name, of=target.of, cold=target.cold),
            "own": result.number(target.of, MAIN_NUMBER[quantity]),
            "share": result.number(target.of, "matmul_share"),
        }
        reached = target.reached({key: value for key, value in numbers.items() if value is not None})
        said[target.words() + {None: "", True: " reached", False: " missed"}[reached]] = reached
    cells.append("; ".join(said) or NOTHING)
    tone: Tone = "worse" if False in said.values() else "better" if True in said.values() else ""
    status, note = outcome["status"], str(outcome["note"])
    if status == "measured":
        return Row((*cells, note or NOTHING), "baseline" if name == OURS else "measured", tone)
    return Row((*cells, f"failed: {note}" if status == "failed" else note), "failed" if status == "failed" else "reported")


def _figure(value: float | None, number: str) -> str:
    """Returns a number with three significant digits, a count as it is.

    >>> _figure(0.012345, "milliseconds"), _figure(1234.5, "mebibytes"), _figure(3.2e-7, "gradient_error")
    ('0.0123', '1234', '3.2e-07')
    """
    if value is None:
        return NOTHING
    if number == "rounds":
        return f"{value:.0f}"
    if number.endswith("_error"):
        return f"{value:.1e}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def remarks(section: Section) -> tuple[str, ...]:
    """Returns what a reader must know beside the table: clock, setting, failures, differing losses, machines."""
    setting, results = section.setting, section.results
    threads = f"{setting.threads} {'thread' if setting.threads == 1 else 'threads'}"
    conditions = f"{threads}, {setting.precision}, seed {setting.seed}"
    if section.task.quantity == "time":
        conditions = f"{CLOCKS[setting.clock]}, {conditions}"
    lines = [f"measured: {conditions}" + (", two processes that never rest beside it" if setting.busy else "")]
    for variable, value in {pair for result in results for pair in result.run.case.environment.items()}:
        lines.append(f"environment: {variable}={value}")
    shares = [each for result in results for name in result.outcomes if (each := result.number(name, "cpu_per_wall"))]
    if shares and setting.clock == "wall":
        lines.append(f"CPU time over wall time: {min(shares):.2f} to {max(shares):.2f}; a quiet machine gives the threads")
    rates = [each for result in results for name in result.outcomes if (each := result.number(name, "matmul_teraflops"))]
    if rates:
        unit, scale = ("TFLOP/s", 1.0) if min(rates) >= 10 else ("GFLOP/s", 1e3)
        shown = f"{min(rates) * scale:.0f} to {max(rates) * scale:.0f} {unit}"
        lines += [f"matmul rate of the same processes, {setting.precision}: {shown}", PRODUCTS]
    lines += _growth(section)
    lines += [f"failed: {result.run.case.name}: {result.error}" for result in results if result.error]
    lines += [line for result in results if (line := _differing_losses(result))]
    environments = (describe_environment(each.hardware, each.versions) for each in results if each.hardware)
    return tuple(map(plain, (*lines, *(f"made on: {environment}" for environment in dict.fromkeys(environments)))))


def _growth(section: Section) -> list[str]:
    """Returns how tempplug's figure grows at most for twice the pairs; nothing where no case has twice those of another."""
    quantity, grown = section.task.quantity, []
    for before, after in product(section.results, repeat=2):
        one, other = before.run.case, after.run.case
        same = replace(one, name=other.name, rows=2 * one.rows, implementations=other.implementations) == other
        figures = [result.number(OURS, MAIN_NUMBER[quantity]) for result in (before, after)]
        if same and quantity != "accuracy" and all(figures):
            grown.append((figures[1] / figures[0], f"{section.label(before)} to {section.label(after)}"))  # type: ignore[operator]
    if not grown:
        return []
    most, where = max(grown)
    said = "reached" if most <= GROWTH else "missed"
    return [f"growth for twice the pairs: {most:.2f} times at most ({where}); wanted is at most {GROWTH:g}: {said}"]


def _differing_losses(result: SpeedResult) -> str:
    own = result.number(OURS, "loss")
    if own is None:
        return ""
    limit = SAME_LOSS[result.run.setting.precision] * abs(own)
    losses = {name: result.number(name, "loss") for name in result.outcomes}
    wrong = [f"{name} {value:.6g}" for name, value in losses.items() if value is not None and not abs(value - own) <= limit]
    return f"not the same loss: {result.run.case.name}: {', '.join(wrong)}, tempplug {own:.6g}" if wrong else ""
