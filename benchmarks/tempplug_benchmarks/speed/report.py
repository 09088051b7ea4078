"""The report of speed suites: sections of results, their tables and remarks, in every output format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from statistics import median
from typing import Any, ClassVar

from rich.console import Console
from rich.markup import escape

from tempplug.errors import ConfigError, UnknownNameError
from tempplug_benchmarks.report.comparison import check_known
from tempplug_benchmarks.report.pages import Report, print_lines, print_tables
from tempplug_benchmarks.report.tables import EXPLAINED, NOTHING, Row, Table, Tone
from tempplug_benchmarks.run.fields import plain
from tempplug_benchmarks.run.store import Entry, Failure, Result, describe_environment
from tempplug_benchmarks.speed.cases import SpeedSuite, Target
from tempplug_benchmarks.speed.recipe import OURS, SpeedRecipe
from tempplug_benchmarks.task import Task

READING = EXPLAINED["speed"]
GROWTH = 4.0
"""Largest allowed ratio of memory or time for twice the pairs."""
CLOCKS = {
    "cpu": "CPU time of the process, which busy neighbours cannot distort",
    "wall": "wall time",
    "cuda": "time between CUDA events",
}
SAME_LOSS = {"float32": 1e-3, "bfloat16": 5e-2}
"""Largest relative difference between the losses of implementations, by precision; beyond it they are not comparable."""
_COLUMNS = {
    "milliseconds": {"median ms": "milliseconds", "cold ms": "milliseconds_cold", "rounds": "rounds"},
    "mebibytes": {"peak MiB": "mebibytes"},
    "gradient_error": {"gradient error": "gradient_error", "loss error": "loss_error"},
}


@dataclass(frozen=True)
class Measured:
    """One measured or failed case.

    Attributes:
        implementations: see `Result`; empty if the case failed.
        error: the reason for the failure; empty without one.
        made_on: machine and versions; empty if the case failed.
    """

    name: str
    case: SpeedRecipe
    implementations: Mapping[str, Mapping[str, float | str]]
    error: str = ""
    made_on: str = ""

    def number(self, implementation: str, name: str) -> float | None:
        """Returns a number of an implementation, or None if it was not measured."""
        value = self.implementations.get(implementation, {}).get(name)
        return None if value is None else float(value)

    def numbers(self, name: str) -> list[float]:
        """Returns the number of that name for each implementation that has it."""
        return [value for each in self.implementations if (value := self.number(each, name))]


def read_case(entry: Entry, suite: SpeedSuite) -> Measured:
    """Returns the case of a stored result.

    Raises:
        UnknownNameError: the suite does not have the task, profile or case.
        ConfigError: a setting is out of range, or a metric, an implementation, or both its number and its note are missing.
    """
    check_known(entry, suite)
    profile = suite.task(entry.task).profile(entry.profile)
    if (arm := profile.arm(entry.arm)) is None:
        raise UnknownNameError(f"suite '{suite.name}' has no case '{entry.arm}' in profile '{entry.profile}'")
    if not isinstance(entry, Result):
        error = entry.error if isinstance(entry, Failure) else ""
        return Measured(entry.arm, profile.recipe.changed(**arm.changes), {}, error)  # type: ignore[arg-type]
    case = SpeedRecipe().changed(**entry.recipe, **entry.changes)
    for name in case.implementations:
        if profile.primary not in (found := entry.implementations.get(name, {})) and "note" not in found:
            raise ConfigError(f"case '{entry.arm}' lacks the outcome of implementation '{name}'.")
    return Measured(entry.arm, case, entry.implementations, "", describe_environment(entry.hardware, entry.versions))


@dataclass(frozen=True)
class Section:
    """The results of one task under one setting.

    Attributes:
        results: in the order of the task's cases.
        targets: targets of the suite.
    """

    suite: str
    profile: str
    task: Task
    results: tuple[Measured, ...]
    targets: tuple[Target, ...]

    @property
    def figure(self) -> str:
        """The name of the number that the task measures; smaller is better."""
        return self.task.profile(self.profile).primary

    @property
    def setting(self) -> SpeedRecipe:
        """The conditions under which the cases were measured."""
        return self.results[0].case

    @property
    def title(self) -> str:
        """Suite, task, profile and setting."""
        return f"{self.suite} / {self.task.name.partition('@')[0]} / {self.profile} / {self.setting.slug}"

    def label(self, result: Measured) -> str:
        """Returns a case's size, and those of loss, temperature and environment that vary within the task."""
        case, cases = result.case, [each.case for each in self.results]
        words = [case.loss_name] if len({each.loss_name for each in cases}) > 1 else []
        words.append(f"{case.rows}×{case.dimension}")
        if len({each.temperature for each in cases if each.loss_name == case.loss_name}) > 1:
            words.append(f"τ={case.temperature:g}")
        if case.environment and not all(each.environment for each in cases):
            words.append("in the environment below")
        return " ".join(words)

    def ratio(self, result: Measured, implementation: str, *, of: str = OURS, cold: bool = False) -> float | None:
        """Returns the figure of ``implementation`` divided by that of ``of``, or None if one is missing or zero."""
        name = self.figure + "_cold" * cold
        own, other = result.number(of, name), result.number(implementation, name)
        return None if own is None or other is None or own <= 0 else other / own

    def wanted(self, result: Measured, implementation: str) -> tuple[Target, ...]:
        """Returns the targets against an implementation."""
        place = (result.name, implementation, self.setting.device)
        return tuple(each for each in self.targets if (each.case, each.against, each.device) == place and not self.setting.busy)


def sections(entries: Iterable[Entry], suites: Mapping[str, SpeedSuite]) -> tuple[Section, ...]:
    """Returns one section for every profile, setting and task that has results; `read_case` must accept the entries."""
    found: dict[tuple[str, str, str, int], dict[str, Measured]] = {}
    for entry in entries:
        suite = suites[entry.suite]
        measured = read_case(entry, suite)
        position = [each.name for each in suite.tasks].index(entry.task.partition("@")[0])
        found.setdefault((suite.name, entry.profile, measured.case.slug, position), {})[entry.arm] = measured
    made = []
    for (name, profile, _, position), results in sorted(found.items()):
        task = suites[name].tasks[position]
        ordered = tuple(results[arm.label] for arm in task.profile(profile).arms if arm.label in results)
        made.append(Section(name, profile, task, ordered, suites[name].targets))
    return tuple(made)


def table(section: Section) -> Table:
    """Returns the table of a section: one row for each case and implementation."""
    timed = section.figure == "milliseconds"
    header = ["case", *_COLUMNS[section.figure], "times tempplug", *["cold", "of matmul rate"] * timed, "wanted"]
    rows: list[Row] = []
    for result in section.results:
        failed = [Row((section.label(result), *[NOTHING] * (len(header) - 1), "failed, see below"), "failed")]
        rows += failed if result.error else [_row(section, result, name) for name in result.case.implementations]
    return Table((*header, "note"), tuple(rows), tone_column=header.index("times tempplug"))


def _row(section: Section, result: Measured, name: str) -> Row:
    timed = section.figure == "milliseconds"
    cells = [f"{section.label(result)} · {name}"]
    cells += [_figure(result.number(name, number), number) for number in _COLUMNS[section.figure].values()]
    for cold in (False, True)[: 1 + timed]:
        ratio = section.ratio(result, name, cold=cold)
        cells.append(NOTHING if ratio is None or name == OURS else f"{ratio:.2f}")
    if timed:
        share = result.number(name, "matmul_share")
        cells.append(NOTHING if share is None else f"{share:.0%}")
    said: dict[str, bool | None] = {}
    for target in section.wanted(result, name):
        ratio = section.ratio(result, name, of=target.of, cold=target.cold)
        own, share = result.number(target.of, section.figure), result.number(target.of, "matmul_share")
        reached = target.reached({"ratio": ratio, "own": own, "share": share})
        said[target.words() + {None: "", True: " reached", False: " missed"}[reached]] = reached
    cells.append("; ".join(said) or NOTHING)
    tone: Tone = "worse" if False in said.values() else "better" if True in said.values() else ""
    note = str(result.implementations[name].get("note", NOTHING))
    if section.figure in result.implementations[name]:
        return Row((*cells, note), "baseline" if name == OURS else "measured", tone)
    return Row((*cells, note), "failed" if note.startswith("failed") else "reported")


def _figure(value: float | None, number: str) -> str:
    """Returns a number with three significant digits; counts are left unchanged."""
    if value is None:
        return NOTHING
    whole = number == "rounds" or value >= 100
    return f"{value:.1e}" if number.endswith("_error") else f"{value:.0f}" if whole else f"{value:.3g}"


def remarks(section: Section) -> tuple[str, ...]:
    """Returns notes for the table: clock, setting, failures, differing losses and machines."""
    setting, results = section.setting, section.results
    threads = f"{setting.threads} thread{'s' * (setting.threads > 1)}"
    conditions = f"{threads}, {setting.precision}, seed {setting.seed}"
    if section.figure == "milliseconds":
        conditions = f"{CLOCKS[setting.clock]}, {conditions}"
    lines = [f"measured: {conditions}" + (", two processes that never rest beside it" if setting.busy else "")]
    lines += [f"environment: {each}" for each in dict.fromkeys(each for of in results for each in of.case.environment)]
    shares = [each for result in results for each in result.numbers("cpu_per_wall")]
    if shares and setting.clock == "wall":
        lines.append(f"CPU time over wall time: {min(shares):.2f} to {max(shares):.2f}; a quiet machine gives the threads")
    rates = [each for result in results for each in result.numbers("matmul_teraflops")]
    if rates:
        unit, scale = ("TFLOP/s", 1.0) if min(rates) >= 10 else ("GFLOP/s", 1e3)
        shown = f"{min(rates) * scale:.0f} to {max(rates) * scale:.0f} {unit}"
        lines += [f"matmul rate of the same processes, {setting.precision}: {shown}", EXPLAINED["products"]]
    lines += _growth(section)
    lines += [f"failed: {result.name}: {result.error}" for result in results if result.error]
    lines += [line for result in results if (line := _differing_losses(result))]
    lines += [f"made on: {each}" for each in dict.fromkeys(result.made_on for result in results if result.made_on)]
    return tuple(map(plain, lines))


def answer(found: Iterable[Section]) -> str:
    """Returns how tempplug's times compare with those of all other implementations; empty without such times."""
    ratios = [
        ratio
        for section in found
        if section.figure == "milliseconds"
        for result in section.results
        for name in result.implementations
        if name != OURS and (ratio := section.ratio(result, name)) is not None
    ]
    if not ratios:
        return ""
    return (
        f"Of {len(ratios)} times of other implementations, {sum(ratio > 1 for ratio in ratios)} are longer than tempplug's of "
        f"the same case. Divided by tempplug's time they are {median(ratios):.1f} in the median, {min(ratios):.1f} at least "
        f"and {max(ratios):.1f} at most; above 1 tempplug is faster."
    )


_KIND = attrgetter("loss_name", "dimension", "temperature", "environment", "only_on")


def _growth(section: Section) -> list[str]:
    """Returns the largest growth of tempplug's figure for twice as many pairs; empty without such cases."""
    grown = []
    for before, after in product(section.results, repeat=2):
        one, other = before.case, after.case
        same = other.rows == 2 * one.rows and _KIND(one) == _KIND(other)
        figures = [result.number(OURS, section.figure) for result in (before, after)]
        if same and section.figure != "gradient_error" and all(figures):
            grown.append((figures[1] / figures[0], f"{section.label(before)} to {section.label(after)}"))  # type: ignore[operator]
    if not grown:
        return []
    most, where = max(grown)
    said = "reached" if most <= GROWTH else "missed"
    return [f"growth for twice the pairs: {most:.2f} times at most ({where}); wanted is at most {GROWTH:g}: {said}"]


def _differing_losses(result: Measured) -> str:
    own = result.number(OURS, "loss")
    if own is None:
        return ""
    limit = SAME_LOSS[result.case.precision] * abs(own)
    losses = {name: result.number(name, "loss") for name in result.implementations}
    wrong = [f"{name} {value:.6g}" for name, value in losses.items() if value is not None and not abs(value - own) <= limit]
    return f"not the same loss: {result.name}: {', '.join(wrong)}, tempplug {own:.6g}" if wrong else ""


@dataclass(frozen=True)
class SpeedReport(Report):
    """The sections of a results folder.

    Attributes:
        found: sections of every suite, profile, setting and task.
        problems: messages about files that could not be read.
    """

    template: ClassVar[str] = "speed"

    found: Sequence[Section]
    problems: Sequence[str]

    def print(self, console: Console) -> None:
        """Prints the tables."""
        for section in self.found:
            console.print(f"[bold]{escape(section.title)}[/bold]  {escape(section.task.summary)}", highlight=False)
            print_tables(console, [table(section)])
            print_lines(console, remarks(section))
            console.print()
        print_lines(console, [*(f"left out: {problem}" for problem in self.problems), READING])

    def values(self) -> dict[str, Any]:
        """Returns the values of the templates."""
        return {**vars(self), "READING": READING, "answer": answer(self.found), "table_of": table, "remarks": remarks}
