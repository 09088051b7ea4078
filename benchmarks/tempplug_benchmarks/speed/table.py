"""The tables and remarks of a speed report, as plain strings: what is said, not how it looks. It must not read files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tempplug_benchmarks.environment import describe_environment
from tempplug_benchmarks.fields import plain
from tempplug_benchmarks.report_tables import NOTHING, Row, Table, Tone
from tempplug_benchmarks.speed.case import MAIN_NUMBER, OURS, Setting, SpeedSuite, SpeedTask
from tempplug_benchmarks.speed.store import SpeedResult
from tempplug_benchmarks.speed.targets import Target

READING = (
    "times tempplug: the implementation's figure over tempplug's, above 1 where tempplug is better. wanted: what must be "
    "reached at least. Implementations of a case were measured in turn in one process, each round in reversed order."
)
CLOCKS = {
    "cpu": "CPU time of the process, which busy neighbours cannot distort",
    "wall": "wall time",
    "cuda": "time between CUDA events",
}
# Implementations compute the same loss; beyond this relative difference a comparison of their times would mean nothing.
SAME_LOSS = {"float32": 1e-3, "bfloat16": 5e-2}
_HEADERS = {
    "time": ("median ms", "minimum ms", "rounds"),
    "memory": ("peak MiB",),
    "accuracy": ("gradient error", "loss error"),
}
_NUMBERS = {
    "time": ("milliseconds", "minimum_milliseconds", "rounds"),
    "memory": ("mebibytes",),
    "accuracy": ("gradient_error", "loss_error"),
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

    def ratio(self, result: SpeedResult, implementation: str) -> float | None:
        """Returns how many times tempplug's figure an implementation's is; None where one of them is missing or zero."""
        name = MAIN_NUMBER[self.task.quantity]
        own, other = result.number(OURS, name), result.number(implementation, name)
        return None if own is None or other is None or own <= 0 else other / own

    def target(self, result: SpeedResult, implementation: str) -> Target | None:
        """Returns what is wanted of tempplug against an implementation; None where nothing is."""
        wanted = (
            each
            for each in self.targets
            if (each.case, each.against, each.device) == (result.run.case.name, implementation, self.setting.device)
        )
        return None if self.setting.busy else next(wanted, None)


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
    on_gpu = quantity == "time" and section.setting.device == "cuda"
    header = ["case", *_HEADERS[quantity], "times tempplug", "wanted"]
    if on_gpu:
        header.append("of matmul rate")
    rows: list[Row] = []
    for result in section.results:
        if result.error:
            filling = [NOTHING] * (len(header) - 1)
            rows.append(Row((section.label(result), *filling, "failed, see below"), "failed"))
            continue
        for name in result.run.case.implementations:
            rows.append(_row(section, result, name, on_gpu))
    return Table((*header, "note"), tuple(rows), tone_column=header.index("times tempplug"))


def _row(section: Section, result: SpeedResult, name: str, on_gpu: bool) -> Row:
    outcome = result.outcomes[name]
    ratio, target = section.ratio(result, name), section.target(result, name)
    cells = [f"{section.label(result)} · {name}"]
    cells += [_figure(result.number(name, number), number) for number in _NUMBERS[section.task.quantity]]
    cells.append(NOTHING if ratio is None or name == OURS else f"{ratio:.2f}")
    tone: Tone = ""
    if target is None:
        cells.append(NOTHING)
    else:
        own = result.number(OURS, MAIN_NUMBER[section.task.quantity])
        numbers = {"ratio": ratio, "own": own, "share": result.number(OURS, "matmul_share")}
        reached = target.reached({key: value for key, value in numbers.items() if value is not None})
        cells.append(target.words() + {None: "", True: " reached", False: " missed"}[reached])
        tone = {None: "", True: "better", False: "worse"}[reached]  # type: ignore[assignment]
    if on_gpu:
        share = result.number(name, "matmul_share")
        cells.append(NOTHING if share is None else f"{share:.0%}")
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
        lines.append(f"matmul rate of the same processes, bfloat16: {min(rates):.0f} to {max(rates):.0f} TFLOP/s")
    lines += [f"failed: {result.run.case.name}: {result.error}" for result in results if result.error]
    lines += [line for result in results if (line := _differing_losses(result))]
    environments = (describe_environment(each.hardware, each.versions) for each in results if each.hardware)
    return tuple(map(plain, (*lines, *(f"made on: {environment}" for environment in dict.fromkeys(environments)))))


def _differing_losses(result: SpeedResult) -> str:
    own = result.number(OURS, "loss")
    if own is None:
        return ""
    limit = SAME_LOSS[result.run.setting.precision] * abs(own)
    losses = {name: result.number(name, "loss") for name in result.outcomes}
    wrong = [f"{name} {value:.6g}" for name, value in losses.items() if value is not None and not abs(value - own) <= limit]
    return f"not the same loss: {result.run.case.name}: {', '.join(wrong)}, tempplug {own:.6g}" if wrong else ""
