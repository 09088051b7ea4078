"""Renders the report as Markdown and as a self-contained HTML page with templates; `tables` provides the content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from tempplug_benchmarks.arm import format_settings
from tempplug_benchmarks.report import across, tables
from tempplug_benchmarks.report.comparison import Comparison
from tempplug_benchmarks.report.tables import SEPARATOR, Row, Table
from tempplug_benchmarks.run.fields import plain
from tempplug_benchmarks.run.plan import slug

if TYPE_CHECKING:
    from jinja2 import Environment

# Ambiguous characters are escaped only where they would be markup: links, entities, emphasis around a word, headings.
_MARKUP = re.compile(r"[|*`<\\]|\](?=\()|&(?=#?\w+;)|~(?=~)|(?<![^\W_])_|_(?![^\W_])|^[#>]|^[-+](?= )")
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
    """Returns an HTML page of these fragments in the style of the reports."""
    return render("page.html", parts=parts)


def markdown_table(table: Table) -> str:
    """Returns a table as Markdown."""
    header = _markdown_row([escape_markdown(name) for name in table.header])
    lines = [header, "|" + "|".join([" :-- ", *[" --: "] * (len(table.header) - 1)]) + "|"]
    return "\n".join([*lines, *(_markdown_row(_emphasised(row)) for row in table.rows)])


def escape_markdown(text: str) -> str:
    """Escapes text for Markdown, so that ``w/ DySTreSS**`` is not read as emphasis, a link or HTML."""
    return _MARKUP.sub(r"\\\g<0>", plain(text))


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
    made.globals |= {"marks": across.MARKS, "quiet": across.QUIET, "TITLE": across.TITLE}
    made.globals |= {"cross": across.cross, "cross_table": across.cross_table, "plots_module": _plots}
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
