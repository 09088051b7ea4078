"""The report as one self-contained HTML page: tables, plots as inline SVG, a script that sorts tables, nothing from elsewhere.

What the page says is decided in `report_tables` and `report_cross`, what it looks like in ``report.css``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby

from tempplug_benchmarks.comparison import Comparison
from tempplug_benchmarks.report import reading
from tempplug_benchmarks.report_cross import MARKS, QUIET, TITLE, CrossCell, CrossTable, cross
from tempplug_benchmarks.report_curves import course_plot, spread_plot, temperature_plot
from tempplug_benchmarks.report_overview import overview
from tempplug_benchmarks.report_plots import cost_plot, difference_plot, score_plot
from tempplug_benchmarks.report_tables import (
    SEPARATOR,
    Row,
    Table,
    all_metrics,
    conclusion,
    headline,
    remarks,
    task_title,
    title,
)
from tempplug_benchmarks.reproduce import DATA, OUTPUT, commands
from tempplug_benchmarks.run.plan import slug

_INTERVAL = re.compile(r" (\[[^\]]*\])")
_COURSES = (
    ("temperature", "temperature τ, mean over the pairs of a batch"),
    ("positive_similarity", "similarity of positive pairs"),
    ("negative_similarity", "similarity of negative pairs"),
    ("uniformity", "uniformity (lower is more spread)"),
)


def html(comparisons: Sequence[Comparison], problems: Sequence[str]) -> str:
    """Returns the whole page.

    Args:
        comparisons: what to report.
        problems: messages about files that could not be read.
    """
    return page(html_parts(comparisons, problems))


def html_parts(comparisons: Sequence[Comparison], problems: Sequence[str]) -> list[str]:
    """Returns the report as pieces of HTML for a page; the arguments are those of `html`."""
    parts = ["<h1>Benchmark report</h1>", _contents(comparisons) if len(comparisons) > 1 else ""]
    across = cross(comparisons)
    if across is not None:
        figure = _figure("After correction, against each task's baseline", overview(across, "overview"))
        parts += ['<section id="all">', f"<h2>{TITLE}</h2>", _cross_table(across)]
        parts += [f'<div class="plots">{figure}<div class="notes">{html_list(across.remarks)}</div></div>', "</section>"]
    parts += [f'<p class="soft">{escape(line)}</p>' for line in reading(comparisons)]
    for comparison in comparisons:
        parts += _section(comparison)
    if problems:
        parts += ["<section>", "<h2>Left out</h2>", html_list(problems), "</section>"]
    return [*filter(None, parts)]


def page(parts: Sequence[str]) -> str:
    """Returns a page of these pieces of HTML, in the style of the reports."""
    style, script = (files("tempplug_benchmarks").joinpath(f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>tempplug benchmark report</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + f"\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _anchor(comparison: Comparison) -> str:
    return slug(f"{comparison.suite}-{comparison.task.name}-{comparison.profile_name}").replace(".", "-")


def _contents(comparisons: Sequence[Comparison]) -> str:
    lines = []
    for suite, group in groupby(comparisons, lambda each: each.suite):
        links = (f'<a href="#{_anchor(each)}">{escape(f"{each.task.name} ({each.profile_name})")}</a>' for each in group)
        lines.append(f"<li><b>{escape(suite)}</b>{' '.join(links)}</li>")
    return '<nav aria-label="Tasks">\n<ul>\n' + "\n".join(lines) + "\n</ul>\n</nav>"


def _section(comparison: Comparison) -> list[str]:
    name, heading = _anchor(comparison), title(comparison)
    parts = [f'<section id="{name}">', f"<h2>{escape(heading)}</h2>", f'<p class="soft">{escape(comparison.task.summary)}</p>']
    parts.append(f'<p class="said">{escape(conclusion(comparison))}</p>')
    parts.append(html_table(headline(comparison), f"{heading}: {comparison.primary.name}", sortable=True))
    parts.append(_plots(_deciding(comparison, name)))
    beside = _plots(_further(comparison, name))
    parts.append(_details("Trainings, temperatures and cost", beside) if beside else "")
    if len(comparison.profile.metrics) > 1:
        table = html_table(all_metrics(comparison), f"{heading}: all metrics", sortable=True)
        parts.append(_details("All metrics", table))
    parts.append(_details("Data, recipe, environment, sources", html_list(remarks(comparison))))
    parts.append(_details("Commands", _commands(comparison)))
    return [*filter(None, parts), "</section>"]


def _deciding(comparison: Comparison, name: str) -> Iterator[tuple[str, str]]:
    metric = comparison.primary.name
    yield f"{metric} minus baseline, 95 % interval", difference_plot(comparison, f"{name}-difference")
    yield f"{metric}, mean ± standard deviation, seeds", score_plot(comparison, f"{name}-score")
    yield f"{metric} by temperature", temperature_plot(comparison, f"{name}-tau")


def _further(comparison: Comparison, name: str) -> Iterator[tuple[str, str]]:
    for quantity, told in _COURSES:
        drawn = course_plot(comparison, f"{name}-{quantity.replace('_', '-')}", quantity, told)
        yield f"{told[0].upper()}{told[1:]}, over training", drawn
    yield spread_plot(comparison, f"{name}-spread")
    yield "Seconds a run, training and evaluation", cost_plot(comparison, f"{name}-cost")


def _plots(drawn: Iterator[tuple[str, str]]) -> str:
    figures = [_figure(caption, drawing) for caption, drawing in drawn if drawing]
    return '<div class="plots">\n' + "\n".join(figures) + "\n</div>" if figures else ""


def _figure(caption: str, drawing: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>\n{drawing}</figure>"


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>\n{content}\n</details>"


def _commands(comparison: Comparison) -> str:
    told = f"{DATA} is the folder of real data, {OUTPUT} any folder of results."
    return f"<p>{told}</p>\n" + "\n".join(f"<p><code>{escape(each)}</code></p>" for each in commands(comparison))


def _cross_table(found: CrossTable) -> str:
    suites = [(suite, len(list(group))) for suite, group in groupby(each.comparison.suite for each in found.columns)]
    over = "".join(f'<th colspan="{count}" scope="colgroup"><b>{escape(suite)}</b></th>' for suite, count in suites)
    heads = "".join(
        f'<th scope="col"><b>{escape(task_title(each))}</b> {escape(each.primary.name)}</th>'
        for each in (column.comparison for column in found.columns)
    )
    lines = [f"<thead><tr><th></th><th></th>{over}</tr>"]
    lines.append(f'<tr><th scope="col">strategy</th><th scope="col">mean rank</th>{heads}</tr></thead>')
    for strategy, cells in found.cells.items():
        row = f"<td>{escape(strategy)}</td><td>{found.mean_ranks[strategy] or '-'}</td>"
        lines.append(f"<tbody><tr>{row}{''.join(map(_cross_cell, cells))}</tr></tbody>")
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Strategies by tasks"><table class="cross sortable">\n'
        + ("\n".join(lines) + "\n</table></div>")
    )


def _cross_cell(cell: CrossCell) -> str:
    if not cell.figure:
        return "<td>-</td>"
    quiet, mark = cell.verdict in QUIET, MARKS.get(cell.verdict, "")
    kind = cell.verdict if mark else "quiet" if quiet else ""
    rank = "" if cell.rank in QUIET else cell.rank
    return (
        f'<td class="{kind}" data-key="{rank}"><span class="rank">{rank}</span> {_with_interval(cell.figure)}'
        f'<span class="verdict">{mark} {cell.verdict}</span></td>'
    )


def _with_interval(text: str) -> str:
    return _INTERVAL.sub(r' <span class="interval">\1</span>', escape(text, quote=False)).replace(SEPARATOR, f"{SEPARATOR}<br>")


def _breakable(label: str) -> str:
    """Returns a label that a narrow column breaks behind its marks."""
    return re.sub(r"(?<=[:+,=])", "<wbr>", escape(label, quote=False))


def _scrolled(label: str) -> str:
    """Returns what opens a part that is moved aside where it is too wide, by keys too."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'


def html_table(table: Table, label: str, *, sortable: bool = False) -> str:
    """Returns a table as HTML.

    Args:
        table: any; what papers report stays below the line that it is about.
        label: what a screen reader calls it.
        sortable: whether its headings sort it.
    """
    kind = ' class="sortable"' if sortable else ""
    lines = ["<thead><tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header) + "</tr></thead>"]
    for position, row in enumerate(table.rows):
        first = row.kind != "reported" or position == 0
        lines.append(("</tbody>\n" if first and position else "") + ("<tbody>" if first else "") + _table_row(table, row))
    return f"{_scrolled(label)}<table{kind}>\n" + "\n".join(lines) + ("</tbody>" if table.rows else "") + "\n</table></div>"


def _table_row(table: Table, row: Row) -> str:
    cells = []
    for position, cell in enumerate(row.cells):
        toned = f' class="{row.tone}"' if row.tone and position == table.tone_column else ""
        key = ' data-key="0"' if cell == "baseline" else ""
        cells.append(f"<td{toned}{key}>{_breakable(cell) if position == 0 else _with_interval(cell)}</td>")
    return f'<tr class="{row.kind}">' + "".join(cells) + "</tr>"


def html_list(lines: Sequence[str]) -> str:
    """Returns lines as an HTML list."""
    return "<ul>\n" + "\n".join(f"<li>{escape(line)}</li>" for line in lines) + "\n</ul>"
