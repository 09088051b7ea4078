"""A report's page, read by the standard library: its tables, plots, text, and whether it is whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

Attributes = dict[str, str | None]


@dataclass
class HtmlTable:
    """A table: names of the columns, and its rows as texts; the class and the place of every cell beside them."""

    kind: str
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    classes: list[list[str]] = field(default_factory=list)
    section: str = ""


class Page(HTMLParser):
    """Collects what is on a page and checks that every element is closed."""

    VOID = ("meta", "br", "wbr")

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.ids: list[str | None] = []
        self.plots: list[Attributes] = []
        self.tables: list[HtmlTable] = []
        self.text = ""
        self._section, self._cell = "", False
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [found["id"]] if "id" in found else []
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "section":
            self._section = found.get("id") or ""
        elif tag == "svg":
            self.plots.append(found)
        elif tag == "table":
            self.tables.append(HtmlTable(found.get("class") or "", section=self._section))
        elif tag == "tr":
            self.tables[-1].rows.append([])
            self.tables[-1].classes.append([])
        elif tag in ("td", "th"):
            self.tables[-1].rows[-1].append("")
            self.tables[-1].classes[-1].append(found.get("class") or "")
            self._cell = True

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self._cell = False
        elif tag == "thead":
            table = self.tables[-1]
            table.header, table.rows, table.classes = table.rows[-1], [], []

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell:
            self.tables[-1].rows[-1][-1] += data
