"""The tables and notes of a report as plain strings, without layout.

Terminal, Markdown and HTML output render the same `Table`.
"""

from __future__ import annotations

import math
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from tempplug_benchmarks.arm import UNTRAINED, Arm, format_settings
from tempplug_benchmarks.papers import Cell
from tempplug_benchmarks.profile import Metric
from tempplug_benchmarks.report.comparison import ArmRow, Comparison, ReportedLine
from tempplug_benchmarks.report.significance import Significance
from tempplug_benchmarks.results import Difference, Summary
from tempplug_benchmarks.run.fields import plain

Kind = Literal["measured", "baseline", "reported", "failed"]
Tone = Literal["", "better", "worse"]
NOTHING = "-"
DATA, OUTPUT = "DATA", "runs"
"""Placeholders in commands for the folder of real data and for a folder of results."""
SEPARATOR = "; "
STILL = 1e-4
"""Relative change below which a temperature counts as constant."""
_READING = tomllib.loads(files(__package__).joinpath("reading.toml").read_text(encoding="utf-8"))
LEGEND: dict[str, str] = {word: meaning.replace("\n", " ") for word, meaning in _READING.pop("legend").items()}
"""Meanings of the words and signs of a page."""
EXPLAINED: dict[str, str] = {name: text.replace("\n", " ") for name, text in _READING.items()}
"""Explanations of the figures, by name."""
READING, REPORTED, CONTROLS = (EXPLAINED[name] for name in ("measured", "reported", "controls"))


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        cells: one for each column.
        tone: whether the figure in the table's tone column is better or worse.
    """

    cells: tuple[str, ...]
    kind: Kind
    tone: Tone = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple(map(plain, self.cells)))


@dataclass(frozen=True)
class Table:
    """Columns and rows; the first column contains text, the others figures.

    Attributes:
        tone_column: index of the column that the rows' tones refer to.
    """

    header: tuple[str, ...]
    rows: tuple[Row, ...]
    tone_column: int = 1


def title(comparison: Comparison) -> str:
    """Returns suite, task and profile."""
    return f"{comparison.suite} / {task_title(comparison)} / {comparison.profile_name}"


def task_title(comparison: Comparison) -> str:
    """Returns the name of the task and of the data that replace its own."""
    data = comparison.profile.stands_in
    return f"{comparison.task.name} (on {data})" if data else comparison.task.name


def format_summary(summary: Summary | None, metric: Metric) -> str:
    """Returns ``76.25 ± 0.31``, without the deviation for a single seed."""
    return NOTHING if summary is None else _with_deviation(summary.mean, summary.std, metric)


def _with_deviation(value: float, deviation: float | None, metric: Metric) -> str:
    return " ± ".join(f"{each:.{metric.decimals}f}" for each in (value, deviation) if each is not None)


def format_difference(difference: Difference | None, metric: Metric) -> str:
    """Returns ``+0.41 [-0.10, +0.92]``, without the interval for a single common seed."""
    if difference is None:
        return NOTHING
    mean, *ends = (
        f"{each:+.{metric.decimals}f}" for each in (difference.mean, difference.low, difference.high) if each is not None
    )
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def format_cell(cell: Cell | None, metric: Metric) -> str:
    """Returns a figure as printed in a paper."""
    return NOTHING if cell is None or cell.value is None else _with_deviation(cell.value, cell.std, metric)


def ordered(comparison: Comparison) -> list[ArmRow]:
    """Returns the arms by mean of the primary metric, best first; arms without results come last."""
    metric = comparison.primary
    sign = -1 if metric.higher_is_better else 1
    means = {row.label: sign * row.summaries[metric.name].mean for row in comparison.rows if metric.name in row.summaries}
    return sorted(comparison.rows, key=lambda row: means.get(row.label, math.inf))


def headline(comparison: Comparison) -> Table:
    """Returns the table of the primary metric: difference to the baseline, measured and reported figures."""
    metric = comparison.primary
    with_reported, with_control = any(row.reported for row in comparison.rows), has_controls(comparison)
    header = (
        *("arm", "minus baseline", f"{metric.name} measured", *([f"{metric.name} reported"] if with_reported else [])),
        *("verdict", holm_p(comparison), "p", "detectable", *(["minus control", "adapting"] if with_control else []), "seeds"),
    )
    rows = []
    for row in ordered(comparison):
        summary, difference = row.summaries.get(metric.name), row.differences.get(metric.name)
        found, is_baseline = row.significance, row.label == comparison.baseline
        parts = [(format_cell(line.cells.get(metric.name), metric), line) for line in row.reported]
        shown = [f"{value} {line.paper.name} {line.table}" for value, line in parts if value != NOTHING]
        cells = (
            row.label,
            "baseline" if is_baseline else _with_count(difference, summary, metric),
            format_summary(summary, metric) if summary or not row.failures else "failed",
            *([SEPARATOR.join(shown) or NOTHING] if with_reported else []),
            found.verdict if found else NOTHING,
            format_p(found.adjusted if found else None),
            format_p(found.p if found else None),
            NOTHING if found is None or found.detectable is None else f"{found.detectable:.{metric.decimals}f}",
            *([format_difference(row.adapting, metric), _adapting(row)] if with_control else []),
            _seeds(summary, row),
        )
        kind: Kind = "failed" if summary is None else "baseline" if is_baseline else "measured"
        rows.append(Row(cells, kind, tone(found)))
    return Table(header, tuple(rows))


def reading(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """Returns an explanation of the figures."""
    with_reported = any(row.reported for comparison in comparisons for row in comparison.rows)
    with_controls = any(map(has_controls, comparisons))
    return (READING, *([REPORTED] if with_reported else []), *([CONTROLS] if with_controls else []))


def holm_p(comparison: Comparison) -> str:
    """Returns the heading of corrected p-values, with the number of times that results were read if seeds were added."""
    return f"Holm p, results read {len(comparison.looks)} times" if len(comparison.looks) > 1 else "Holm p"


def has_controls(comparison: Comparison) -> bool:
    """Returns whether an arm of the task has a control."""
    return any(row.adapting is not None for row in comparison.rows)


def _adapting(row: ArmRow) -> str:
    """Returns the verdict on the gain of an adaptive temperature, with its corrected p-value."""
    found = row.adapting_significance
    if found is None:
        return NOTHING
    return found.verdict if found.adjusted is None else f"{found.verdict}, {format_p(found.adjusted)}"


def conclusion(comparison: Comparison) -> str:
    """Summarises the differences of a task in a few sentences, from the verdicts alone."""
    judged = {row.label: row.significance for row in ordered(comparison) if row.significance}
    labels = _by_verdict(judged)
    baseline = comparison.baseline
    if "no signal" in labels:
        return f"No signal: {baseline} is not clearly better than {_without(comparison)}, so that nothing is concluded."
    if set(labels) <= {"one seed"}:
        return "One seed: nothing is concluded." if labels else "Nothing is compared."
    said = [f"{name} than {baseline}: {', '.join(labels[name])}." for name in ("better", "worse") if name in labels]
    if not said:
        said = [f"No arm is shown to be better or worse than {baseline}."]
    for name in ("too small", "underpowered", "no difference seen", "one seed"):
        if name in labels:
            needed = [least for label in labels[name] if (least := judged[label].detectable) is not None]
            digits = comparison.primary.decimals
            ends = " to ".join(dict.fromkeys(f"{end:.{digits}f}" for end in (min(needed), max(needed)))) if needed else ""
            said.append(f"{name}: {_arms(labels[name])}" + (f" (detectable: {ends})." if ends else "."))
    controlled = _by_verdict({row.label: row.adapting_significance for row in ordered(comparison) if row.adapting_significance})
    news = [f"{name} for {', '.join(controlled[name])}" for name in ("better", "worse") if name in controlled]
    said += [f"adapting is {' and '.join(news)} than the mean temperature held."] if news else []
    said += ["no arm is shown to gain or lose by adapting."] if controlled and not news else []
    return " ".join(sentence[0].upper() + sentence[1:] for sentence in said)


def _by_verdict(judged: Mapping[str, Significance]) -> dict[str, list[str]]:
    """Returns the labels of each verdict."""
    verdicts = dict.fromkeys(found.verdict for found in judged.values())
    return {verdict: [label for label, found in judged.items() if found.verdict == verdict] for verdict in verdicts}


def _arms(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{len(labels)} arms"


def format_p(p: float | None) -> str:
    """Returns a p-value with two significant digits, or ``<0.001``."""
    return NOTHING if p is None else "<0.001" if p < 0.001 else f"{p:.2g}"


def all_metrics(comparison: Comparison) -> Table:
    """Returns the table of all metrics; the measured row of each arm is followed by figures of papers."""
    metrics = comparison.profile.metrics
    rows = []
    for row in ordered(comparison):
        if row.summaries:
            cells = tuple(format_summary(row.summaries.get(metric.name), metric) for metric in metrics)
            rows.append(Row((row.label, *cells), "baseline" if row.label == comparison.baseline else "measured"))
        for line in row.reported:
            cells = tuple(format_cell(line.cells.get(metric.name), metric) for metric in metrics)
            if set(cells) != {NOTHING}:
                rows.append(Row((f"{row.label}: {line.source}", *cells), "reported"))
    return Table(("arm", *(metric.name for metric in metrics)), tuple(rows))


def tone(found: Significance | None) -> Tone:
    """Returns whether a difference is better or worse after correction, or neither."""
    return found.verdict if found and found.verdict in ("better", "worse") else ""


_SIGNAL = {
    True: "the baseline is clearly better than {}",
    False: "the baseline is not clearly better than {}",
    None: "not known, as fewer than two seeds have both the baseline and {}",
}


def _without(comparison: Comparison) -> str:
    """Returns the arm that the baseline must be better than, in words."""
    label = comparison.task.without
    return "what was not trained" if label == UNTRAINED.label else f"{label}, the training without the loss"


def remarks(comparison: Comparison) -> tuple[str, ...]:
    """Returns notes for the tables: data, recipe, metric, specs, failures, notes of papers and machines."""
    metric, family = comparison.primary, comparison.task.family
    direction = "higher" if metric.higher_is_better else "lower"
    lines = [
        f"data: {comparison.dataset}",
        f"recipe: {format_settings(comparison.recipe) or 'none'}",
        f"{metric.name}: {metric.summary}; {direction} is better",
        _baseline(comparison),
        f"family of comparisons: the strategies of {f'{family} of the suite' if family else 'this task'}",
    ]
    if len(comparison.looks) > 1:
        dated = "; ".join(f"{look.date} {look.seeds}" for look in comparison.looks)
        lines.append(f"results read {len(comparison.looks)} times, by which p is multiplied before Holm's correction: {dated}")
    if (plan := comparison.plan) is not None:
        done = sum(row.summaries[metric.name].count for row in comparison.rows if metric.name in row.summaries)
        lines.append(
            f"plan of {plan.date}, fixed before the runs: {plan.question} {done} of {len(plan.arms) * len(plan.seeds)} runs"
        )
    if metric.smallest_difference:
        lines.append(f"smallest difference that matters: {metric.smallest_difference:g}")
    lines.append(f"signal: {_SIGNAL[comparison.signal].format(_without(comparison))}")
    lines += [
        f"{row.label}: {row.selected}, the best of {row.configurations} by {comparison.profile.validation}"
        for row in comparison.rows
        if row.configurations > 1
    ]
    if sampled := [each for each in comparison.rows if each.over_samples]:
        ends = {row.label: [f"{end:+.{metric.decimals}f}" for end in row.over_samples or ()] for row in sampled}
        shown = "; ".join(f"{label} [{', '.join(each)}]" for label, each in ends.items())
        lines.append(f"minus baseline over samples of the test data, these runs alone, 95 %: {shown}")
    lines += [f"{row.label}: {row.resolved}" for row in comparison.rows if row.resolved not in ("", row.label)]
    lines += [f"{row.label}: {moved}" for row in comparison.rows if (moved := _moved(row))]
    lines += [
        f"failed: {row.label}, seed {failure.seed}: {failure.error}" for row in comparison.rows for failure in row.failures
    ]
    reported = [line for row in comparison.rows for line in row.reported]
    lines += dict.fromkeys(f"{line.paper.name}: {line.paper.citation}" for line in reported)
    lines += dict.fromkeys(f"{line.source}: {_settings(line)}" for line in reported)
    lines += [f"{line.source}, {cell.metric}: {cell.note}" for line in reported for cell in line.cells.values() if cell.note]
    lines += [f"made on: {environment}" for environment in comparison.environments]
    days = sorted(day for row in comparison.rows if row.trainings for day in row.trainings.days)
    lines += [f"finished: {' to '.join(dict.fromkeys((days[0], days[-1])))}"] if days else []
    return tuple(map(plain, lines))


def _baseline(comparison: Comparison) -> str:
    chosen = f"the best of the fixed temperatures by {comparison.profile.validation}"
    return f"baseline: {comparison.baseline}, {chosen if comparison.chosen else 'as declared, not chosen on validation data'}"


def _settings(line: ReportedLine) -> str:
    """Returns the settings that a paper gives for a row; all its cells share them."""
    settings = next(iter(line.cells.values())).settings
    return ", ".join(f"{key}={value}" for key, value in settings.items()) or "no settings printed"


def _moved(row: ArmRow) -> str:
    """Returns the first, last, lowest and highest temperature of an arm; empty if unknown or constant."""
    if not row.temperatures:
        return ""
    first, last = (row.temperatures[name] for name in ("first", "last"))
    low, high = min(row.temperatures["min"].values.values()), max(row.temperatures["max"].values.values())
    spread = "" if last.std is None else f" ± {last.std:.2g}"
    moved = f"temperature {first.mean:.3g} at first, {last.mean:.3g}{spread} at last, between {low:.3g} and {high:.3g}"
    return moved if high - low > STILL * high else ""


def _seeds(summary: Summary | None, row: ArmRow) -> str:
    count = summary.count if summary else 0
    return f"{count} of {count + len(row.failures)}" if row.failures else str(count)


def _with_count(difference: Difference | None, summary: Summary | None, metric: Metric) -> str:
    text = format_difference(difference, metric)
    if difference is not None and summary is not None and difference.count < summary.count:
        text += f" over {difference.count} common"
    return text


def commands(comparison: Comparison) -> list[str]:
    """Returns shell commands that together run every arm of a task with its seeds.

    Arms with the same seeds share a command, and each command includes the declared baseline. Tuned arms and arms with a
    control have separate commands.
    """
    arms: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = {}
    for row in comparison.rows:
        if Arm(row.label).controlled:
            continue
        measured = {seed for summary in row.summaries.values() for seed in summary.values}
        seeds = tuple(sorted(measured | {each.seed for each in row.failures}))
        flags = (*(("--tuned",) if row.configurations > 1 else ()), *(("--controls",) if row.adapting else ()))
        arms.setdefault((seeds, flags), []).append(row.label)
    found = []
    for (seeds, flags), labels in arms.items():
        words = ["tempplug", "bench", "run", comparison.suite, "--profile", comparison.profile_name]
        words += ["--tasks", comparison.task.name, "--strategies", *labels, *flags, "--seeds", *map(str, seeds)]
        words += ["--data-dir", DATA] if comparison.profile.needs else []
        found.append(shlex.join([*words, "--output", OUTPUT]))
    return found
