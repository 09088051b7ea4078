"""The report as one self-contained HTML page: tables, plots as inline SVG, no script, nothing fetched from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tempplug_benchmarks.comparison import Comparison
from tempplug_benchmarks.report import reading
from tempplug_benchmarks.report_cross import TITLE, cross_table
from tempplug_benchmarks.report_plots import difference_plot, metric_plot
from tempplug_benchmarks.report_tables import Table, all_metrics, headline, remarks, title

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #667085; --line: #d9dee7; --page: #fff; --mark: #2563a8;
  --better: #1a7f4b; --worse: #b3372f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #3a4150; --page: #14171d;
  --mark: #6ea8e6; --better: #5cc48d; --worse: #ef8078; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1180px; margin: 2rem auto;
  padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.2rem; margin: 2.4rem 0 .2rem; }
p.soft, li { color: var(--soft); font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .28rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr.baseline { font-weight: 600; } tr.reported { color: var(--soft); font-style: italic; } tr.failed { color: var(--worse); }
.better { color: var(--better); } .worse { color: var(--worse); }
.plots { display: flex; flex-wrap: wrap; gap: 1.2rem; }
figure { margin: 0; } figcaption { font-weight: 600; font-size: .9rem; }
svg { max-width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .grid { stroke: var(--line); } svg .base { stroke: var(--soft); stroke-dasharray: 4 3; } svg .bar { stroke: var(--mark);
  stroke-width: 2; } svg .dot { fill: var(--mark); } svg .seed { fill: var(--mark); opacity: .35; }
svg .tick { fill: var(--soft); }
"""


def html(comparisons: Sequence[Comparison], problems: Sequence[str]) -> str:
    """Returns the whole page.

    Args:
        comparisons: what to report.
        problems: messages about files that could not be read.
    """
    return page(html_parts(comparisons, problems))


def html_parts(comparisons: Sequence[Comparison], problems: Sequence[str]) -> list[str]:
    """Returns the report as pieces of HTML for a page; the arguments are those of `html`."""
    parts = ["<h1>Benchmark report</h1>", *(f'<p class="soft">{escape(line)}</p>' for line in reading(comparisons))]
    across = cross_table(comparisons)
    if across is not None:
        table, told = across
        parts += [f"<h2>{TITLE}</h2>", html_table(table), html_list(told)]
    for comparison in comparisons:
        parts += _section(comparison)
    if problems:
        parts += ["<h2>Left out</h2>", html_list(problems)]
    return parts


def page(parts: Sequence[str]) -> str:
    """Returns a page of these pieces of HTML, in the style of the reports."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>tempplug benchmark report</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _section(comparison: Comparison) -> list[str]:
    parts = [f"<h2>{escape(title(comparison))}</h2>", f'<p class="soft">{escape(comparison.task.summary)}</p>']
    parts.append(html_table(headline(comparison)))
    figures = [
        _figure(f"{comparison.primary.name} minus {comparison.baseline}, 95 % interval", difference_plot(comparison)),
        *(
            _figure(f"{metric.name}, mean ± standard deviation", metric_plot(comparison, metric))
            for metric in sorted(comparison.profile.metrics, key=lambda metric: metric != comparison.primary)
        ),
    ]
    parts.append('<div class="plots">\n' + "\n".join(figure for figure in figures if figure) + "\n</div>")
    if len(comparison.profile.metrics) > 1:
        parts.append(html_table(all_metrics(comparison)))
    parts.append(html_list(remarks(comparison)))
    return parts


def _figure(caption: str, drawing: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>\n{drawing}</figure>" if drawing else ""


def html_table(table: Table) -> str:
    """Returns a table as HTML."""
    lines = ["<tr>" + "".join(f"<th>{escape(name)}</th>" for name in table.header) + "</tr>"]
    for row in table.rows:
        cells = [
            f'<td class="{row.tone}">{escape(cell)}</td>'
            if row.tone and position == table.tone_column
            else f"<td>{escape(cell)}</td>"
            for position, cell in enumerate(row.cells)
        ]
        lines.append(f'<tr class="{row.kind}">' + "".join(cells) + "</tr>")
    return '<div class="scroll"><table>\n' + "\n".join(lines) + "\n</table></div>"


def html_list(lines: Sequence[str]) -> str:
    """Returns lines as an HTML list."""
    return "<ul>\n" + "\n".join(f"<li>{escape(line)}</li>" for line in lines) + "\n</ul>"
