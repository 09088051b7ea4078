"""Renders the report on a terminal, as Markdown and as a self-contained HTML page; `tables` provides the content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from tempplug_adapters.quoting import escape_markdown
from tempplug_benchmarks.arm import format_settings
from tempplug_benchmarks.report import across, answers, tables
from tempplug_benchmarks.report.comparison import Comparison
from tempplug_benchmarks.report.tables import SEPARATOR, Row, Table
from tempplug_benchmarks.run.plan import slug

if TYPE_CHECKING:
    from jinja2 import Environment


from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as TerminalTable
from rich.text import Text

from tempplug_benchmarks.report.across import MARKS, TITLE, cross_table
from tempplug_benchmarks.report.tables import (
    all_metrics,
    commands,
    conclusion,
    headline,
    reading,
    remarks,
    title,
)

PLOTTED = 12
"""Number of tasks up to which a page shows them unfolded and has all of their plots."""
_MARKER = re.compile("<defs>(<path [^>]*>)</defs>")
_INTERVAL = re.compile(r" (\[[^\]]*\])")


class Report:
    """A report with templates for Markdown and HTML. Subclasses are dataclasses; the templates get their fields."""

    template: ClassVar[str]

    def values(self) -> dict[str, Any]:
        """Returns the values of the templates."""
        return vars(self)

    def markdown(self) -> str:
        """Returns the report as Markdown."""
        return render(f"{self.template}.md", **self.values()).rstrip("\n") + "\n"

    def html_parts(self) -> list[str]:
        """Returns the report as fragments of an HTML page."""
        return [render(f"{self.template}.html", **self.values())]


def page(parts: Sequence[str]) -> str:
    """Returns an HTML page of these fragments in the style of the reports, with each marker of their plots once."""
    markers = dict.fromkeys(marker for part in parts for marker in _MARKER.findall(part))
    return render("page.html", parts=[_MARKER.sub("", part) for part in parts], markers=markers)


def markdown_table(table: Table) -> str:
    """Returns a table as Markdown."""
    header = _markdown_row([escape_markdown(name) for name in table.header])
    lines = [header, "|" + "|".join([" :-- ", *[" --: "] * (len(table.header) - 1)]) + "|"]
    return "\n".join([*lines, *(_markdown_row(_emphasised(row)) for row in table.rows)])


def _emphasised(row: Row) -> list[str]:
    mark = {"reported": "*", "baseline": "**"}.get(row.kind, "")
    return [f"{mark}{escape_markdown(cell)}{mark}" for cell in row.cells]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def render(template: str, **values: Any) -> str:
    """Returns a template of `report/templates` with these values."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup, escape

    def intervals(text: str) -> Markup:
        """Splits figures and intervals, each on a separate line."""
        marked = _INTERVAL.sub(r' <span class="interval">\1</span>', str(escape(text)))
        return Markup(marked.replace(SEPARATOR, f"{SEPARATOR}<br>"))

    def breakable(label: str) -> Markup:
        """Returns a label with line break opportunities after punctuation."""
        return Markup(re.sub(r"(?<=[:+,=])", "<wbr>", str(escape(label))))

    made = Environment(
        loader=PackageLoader("tempplug_benchmarks.report"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"intervals": intervals, "breakable": breakable, "escaped": escape_markdown, "settings": format_settings}
    made.globals |= vars(tables)  # all words of the report
    made.globals |= {name: getattr(answers, name) for name in ("answers", "outcomes", "strategy_table")}
    made.globals |= {"cross_table": across.cross_table, "TITLE": across.TITLE, "plots_module": _plots, "PLOTTED": PLOTTED}
    made.globals |= {"markdown_table": markdown_table, "anchor": _anchor, "runs_of": _runs_of}
    return made


def _plots() -> Any:
    from tempplug_benchmarks.report import plots  # matplotlib takes half a second to import

    return plots


def _anchor(comparison: Comparison) -> str:
    return slug(f"{comparison.suite}-{comparison.task.name}-{comparison.profile_name}").replace(".", "-")


def _runs_of(items: Sequence[Any], attribute: str) -> list[tuple[str, list[Any]]]:
    """Returns (value, items) groups of consecutive items with an equal attribute."""
    return [(name, list(group)) for name, group in groupby(items, attrgetter(attribute))]


_STYLES = {"baseline": "bold", "reported": "dim", "failed": "red", "measured": ""}
_RED = ("failed:", "left out:", "not the same loss:")
_TONES = {"better": "green", "worse": "red", "": ""}


def print_report(
    console: Console, comparisons: Sequence[Comparison], problems: Sequence[str], *, briefly: bool = False
) -> None:
    """Prints the tables and the conclusion of every comparison, then the table of all tasks.

    Briefly means: the primary metric alone, in as many columns as fit, and of the notes only data and failures.
    """
    for comparison in comparisons:
        metric, notes = comparison.primary, remarks(comparison)
        about = f"{metric.name}: {metric.summary}" if briefly else comparison.task.summary
        console.print(f"[bold]{escape(title(comparison))}[/bold]  {escape(about)}", highlight=False)
        if briefly:
            print_lines(console, notes[:1])
            console.print(terminal_table(fitting(headline(comparison), console.width)[0]))
        else:
            print_tables(console, [headline(comparison), all_metrics(comparison)][: len(comparison.profile.metrics)])
        console.print(Text(conclusion(comparison), style="bold"))
        failed = [line for line in notes if line.startswith("failed:")]
        print_lines(console, failed if briefly else [*notes, *commands(comparison)])
        console.print()
    _print_end(console, comparisons, problems)


def _print_end(console: Console, comparisons: Sequence[Comparison], problems: Sequence[str]) -> None:
    """Prints the explanation of the figures, then the table of all tasks, so that it is visible at the end."""
    print_lines(console, [*(f"left out: {problem}" for problem in problems), *reading(comparisons)])
    across = cross_table(comparisons)
    if across is None:
        return
    table, told = across
    if len(table.rows) < len(table.header):
        _, *strategies = zip(table.header, *(row.cells for row in table.rows), strict=True)
        header = ("strategy", *(row.cells[0] for row in table.rows))
        table = Table(header, tuple(Row(cells, "measured") for cells in strategies))
    console.print(f"\n[bold]{TITLE}[/bold]")
    print_tables(console, [table])
    print_lines(console, told)


def print_tables(console: Console, tables: Sequence[Table]) -> None:
    """Prints tables in parts that fit the terminal."""
    for table in tables:
        for part in fitting(table, console.width):
            console.print(terminal_table(part))


def print_lines(console: Console, lines: Sequence[str]) -> None:
    """Prints lines; those about failures, omissions or differing losses are red."""
    for line in lines:
        console.print(Text(line, style="red" if line.startswith(_RED) else "dim"))


def fitting(table: Table, width: int) -> list[Table]:
    """Splits a table into parts of a width in characters, each with the first column; a column that is too wide is alone."""
    columns = zip(table.header, *(row.cells for row in table.rows), strict=True)
    needed = [max(len(line) for cell in column for line in cell.split(SEPARATOR)) + 2 for column in columns]
    # The label may wrap, but not below half the terminal's width; the border adds a character on each side.
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
    """Returns a table for the terminal."""
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
