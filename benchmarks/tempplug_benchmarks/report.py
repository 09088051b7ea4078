"""The report on a terminal and as Markdown. What it says is decided in `report_tables`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as TerminalTable
from rich.text import Text

from tempplug_benchmarks.comparison import Comparison
from tempplug_benchmarks.report_cross import MARKS, TITLE, cross_table
from tempplug_benchmarks.report_tables import (
    CONTROLS,
    READING,
    REPORTED,
    SEPARATOR,
    Row,
    Table,
    all_metrics,
    conclusion,
    has_controls,
    headline,
    remarks,
    title,
)
from tempplug_benchmarks.reproduce import commands
from tempplug_benchmarks.run.fields import plain

_STYLES = {"baseline": "bold", "reported": "dim", "failed": "red", "measured": ""}
# Of what could also be meant as it is, only where it would not be: links, entities, emphasis around a word, headings.
_MARKUP = re.compile(r"[|*`<\\]|\](?=\()|&(?=#?\w+;)|~(?=~)|(?<![^\W_])_|_(?![^\W_])|^[#>]|^[-+](?= )")
_TONES = {"better": "green", "worse": "red", "": ""}


def print_report(console: Console, comparisons: Sequence[Comparison], problems: Sequence[str]) -> None:
    """Prints the tables of every comparison on a terminal.

    Args:
        console: where to print.
        comparisons: what to print.
        problems: messages about files that could not be read.
    """
    for comparison in comparisons:
        console.print(f"[bold]{escape(title(comparison))}[/bold]  {escape(comparison.task.summary)}", highlight=False)
        tables = (headline(comparison), all_metrics(comparison))
        for table in tables if len(comparison.profile.metrics) > 1 else tables[:1]:
            for part in fitting(table, console.width):
                console.print(terminal_table(part))
        console.print(Text(conclusion(comparison), style="bold"))
        for line in (*remarks(comparison), *commands(comparison)):
            console.print(Text(line, style="red" if line.startswith("failed:") else "dim"))
        console.print()
    _print_end(console, comparisons, problems)


def print_summary(console: Console, comparisons: Sequence[Comparison], problems: Sequence[str]) -> None:
    """Prints what a glance wants: the primary metric and the conclusion of every comparison, then the table of all.

    Args:
        console: where to print.
        comparisons: what to print.
        problems: messages about files that could not be read.
    """
    for comparison in comparisons:
        metric = comparison.primary
        console.print(
            f"[bold]{escape(title(comparison))}[/bold]  {escape(metric.name)}: {escape(metric.summary)}", highlight=False
        )
        console.print(Text(f"data: {comparison.dataset}", style="dim"))
        console.print(terminal_table(fitting(headline(comparison), console.width)[0]))
        console.print(Text(conclusion(comparison), style="bold"))
        failed = (line for line in remarks(comparison) if line.startswith("failed:"))
        for line in failed:
            console.print(Text(line, style="red"))
        console.print()
    _print_end(console, comparisons, problems)


def _print_end(console: Console, comparisons: Sequence[Comparison], problems: Sequence[str]) -> None:
    """Prints how to read the figures, and the table of all tasks last, because a terminal is read from its end."""
    for problem in problems:
        console.print(Text(f"left out: {problem}", style="red"))
    for line in reading(comparisons):
        console.print(Text(line, style="dim"))
    across = cross_table(comparisons)
    if across is None:
        return
    table, told = across
    if len(table.rows) < len(table.header):
        _, *strategies = zip(table.header, *(row.cells for row in table.rows), strict=True)
        header = ("strategy", *(row.cells[0] for row in table.rows))
        table = Table(header, tuple(Row(cells, "measured") for cells in strategies))
    console.print(f"\n[bold]{TITLE}[/bold]")
    for part in fitting(table, console.width):
        console.print(terminal_table(part))
    for line in told:
        console.print(Text(line, style="dim"))


def markdown(comparisons: Sequence[Comparison], problems: Sequence[str]) -> str:
    """Returns the report as Markdown.

    Args:
        comparisons: what to report.
        problems: messages about files that could not be read.
    """
    blocks = ["# Benchmark report", *reading(comparisons)]
    across = cross_table(comparisons)
    if across is not None:
        table, told = across
        lines = "\n".join(f"- {escape_markdown(line)}" for line in told)
        blocks += [f"## {TITLE}", markdown_table(table), lines]
    for comparison in comparisons:
        blocks += [f"## {escape_markdown(title(comparison))}", escape_markdown(comparison.task.summary)]
        blocks += [f"**{escape_markdown(conclusion(comparison))}**", markdown_table(headline(comparison))]
        if len(comparison.profile.metrics) > 1:
            blocks.append(markdown_table(all_metrics(comparison)))
        items = [*map(escape_markdown, remarks(comparison)), *(f"`{each}`" for each in commands(comparison))]
        blocks.append("\n".join(f"- {item}" for item in items))
    if problems:
        blocks += ["## Left out", "\n".join(f"- {escape_markdown(problem)}" for problem in problems)]
    return "\n\n".join(blocks) + "\n"


def reading(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """Returns how the figures are to be read."""
    with_reported = any(row.reported for comparison in comparisons for row in comparison.rows)
    with_controls = any(map(has_controls, comparisons))
    return (READING, *([REPORTED] if with_reported else []), *([CONTROLS] if with_controls else []))


def fitting(table: Table, width: int) -> list[Table]:
    """Returns the table in parts that fit a terminal, each with the first column; a column wider than that stands alone.

    Args:
        table: any.
        width: of the terminal, in letters.
    """
    columns = zip(table.header, *(row.cells for row in table.rows), strict=True)
    needed = [max(len(line) for cell in column for line in cell.split(SEPARATOR)) + 2 for column in columns]
    # The label may fold, but not below half the terminal; the box adds a letter on either side.
    room = width - 2 - min(needed[0], width // 2)
    parts: list[list[int]] = [[]]
    for position in range(1, len(needed)):
        if parts[-1] and sum(needed[each] for each in parts[-1]) + needed[position] > room:
            parts.append([])
        parts[-1].append(position)
    return [_columns(table, (0, *part)) for part in parts]


def _columns(table: Table, kept: Sequence[int]) -> Table:
    has_tone = table.tone_column in kept
    rows = tuple(Row(tuple(row.cells[each] for each in kept), row.kind, row.tone if has_tone else "") for row in table.rows)
    return Table(tuple(table.header[each] for each in kept), rows, kept.index(table.tone_column) if has_tone else 0)


def terminal_table(table: Table) -> TerminalTable:
    """Returns a table as a terminal shows it."""
    shown = TerminalTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for position, name in enumerate(table.header):
        first, last = position == 0, position == len(table.header) - 1
        shown.add_column(name, justify="left" if first else "right", overflow="fold", no_wrap=not first and not last)
    for row in table.rows:
        cells = [Text(cell.replace(SEPARATOR, "\n"), style=_STYLES[row.kind]) for cell in row.cells]
        if row.tone:
            cells[table.tone_column].stylize(_TONES[row.tone])
        for tone, mark in MARKS.items():
            for cell in cells:
                cell.highlight_regex(rf".*{mark}", _TONES[tone])
        shown.add_row(*cells)
    return shown


def markdown_table(table: Table) -> str:
    """Returns a table as Markdown."""
    header = _markdown_row([escape_markdown(name) for name in table.header])
    lines = [header, "|" + "|".join([" :-- ", *[" --: "] * (len(table.header) - 1)]) + "|"]
    return "\n".join([*lines, *(_markdown_row(_emphasised(row)) for row in table.rows)])


def _emphasised(row: Row) -> tuple[str, ...]:
    if row.kind == "reported":
        return tuple(f"*{escape_markdown(cell)}*" for cell in row.cells)
    cells = tuple(escape_markdown(cell) for cell in row.cells)
    return tuple(f"**{cell}**" for cell in cells) if row.kind == "baseline" else cells


def escape_markdown(text: str) -> str:
    """Returns text that Markdown shows as it is: ``w/ DySTreSS**`` is a name, not emphasis, nor is a name a link or HTML."""
    return _MARKUP.sub(r"\\\g<0>", plain(text))


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
