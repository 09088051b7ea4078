"""The speed report on a terminal, as Markdown with a plot, and as pieces of HTML. What it says is decided in `table`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.text import Text

from tempplug_adapters.storage.files import write_text
from tempplug_benchmarks.report.pages import escape_markdown, html_list, html_table, markdown_table
from tempplug_benchmarks.report.terminal import fitting, terminal_table
from tempplug_benchmarks.speed.table import READING, Section, remarks, table


def print_report(console: Console, found: Sequence[Section], problems: Sequence[str]) -> None:
    """Prints the tables of every section on a terminal.

    Args:
        console: where to print.
        found: what to print.
        problems: messages about files that could not be read.
    """
    for section in found:
        console.print(f"[bold]{escape_markup(section.title)}[/bold]  {escape_markup(section.task.summary)}", highlight=False)
        for part in fitting(table(section), console.width):
            console.print(terminal_table(part))
        for line in remarks(section):
            console.print(Text(line, style="red" if line.startswith(("failed:", "not the same")) else "dim"))
        console.print()
    for problem in problems:
        console.print(Text(f"left out: {problem}", style="red"))
    console.print(Text(READING, style="dim"))


def markdown(found: Sequence[Section], problems: Sequence[str], plots: Sequence[str] = ()) -> str:
    """Returns the report as Markdown.

    Args:
        found: what to report.
        problems: messages about files that could not be read.
        plots: names of image files beside the report.
    """
    blocks = ["# Speed report", READING, *(f"![times tempplug's figure, against N]({name})" for name in plots)]
    for section in found:
        blocks += [
            f"## {escape_markdown(section.title)}",
            escape_markdown(section.task.summary),
            markdown_table(table(section)),
        ]
        blocks.append("\n".join(f"- {escape_markdown(line)}" for line in remarks(section)))
    if problems:
        blocks += ["## Left out", "\n".join(f"- {escape_markdown(problem)}" for problem in problems)]
    return "\n\n".join(blocks) + "\n"


def html_parts(found: Sequence[Section], problems: Sequence[str]) -> list[str]:
    """Returns the report as pieces of HTML for a page.

    Args:
        found: what to report.
        problems: messages about files that could not be read.
    """
    parts = ["<h1>Speed report</h1>", f'<p class="soft">{escape(READING)}</p>']
    for section in found:
        parts += [f"<h2>{escape(section.title)}</h2>", f'<p class="soft">{escape(section.task.summary)}</p>']
        parts += [html_table(table(section), section.title), html_list(remarks(section))]
    if problems:
        parts += ["<h2>Left out</h2>", html_list(problems)]
    return parts


def write_report(folder: Path, found: Sequence[Section], problems: Sequence[str]) -> Path:
    """Writes ``report.md`` and the plot as ``speed.svg`` and ``speed.png`` into a folder and returns the report's path.

    Args:
        folder: of one profile and setting.
        found: sections of that profile and setting.
        problems: messages about files that could not be read.
    """
    from tempplug_benchmarks.speed.plot import draw  # matplotlib takes a second that listings and tables should not

    # Both endings: pages show the one, slides and terminals the other.
    drawn = [name for name in ("speed.svg", "speed.png") if draw(found, folder / name)]
    report = folder / "report.md"
    write_text(report, markdown(found, problems, drawn[:1]))
    return report
