"""A report's page, read by the standard library as XML, which it is but for its code and its void elements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree


@dataclass
class HtmlTable:
    """A table: its class and section, the last row of its head, and texts and classes of the cells of its rows."""

    kind: str
    section: str
    header: list[str]
    rows: list[list[str]]
    classes: list[list[str]]


class Page:
    """What is on a page; raises `ElementTree.ParseError` if an element is not closed."""

    def __init__(self, content: str) -> None:
        content = re.sub(r"<(script|style)>.*?</\1>", "", content.removeprefix("<!doctype html>"), flags=re.DOTALL)
        root = ElementTree.fromstring(re.sub(r"<((?:meta|br|wbr|input)\b[^>]*)>", r"<\1/>", content))
        elements = list(root.iter())
        self.tags = [each.tag for each in elements]
        self.attributes = [item for each in elements for item in each.attrib.items()]
        self.ids = [value for name, value in self.attributes if name == "id"]
        self.text = "".join(root.itertext())
        self.tables = []
        for section in root.iter("section"):
            for table in section.iter("table"):
                *_, head = table.iter("thead")
                body = [list(row) for part in table.findall("tbody") for row in part]
                header = ["".join(cell.itertext()) for cell in list(head)[-1]]
                rows = [["".join(cell.itertext()) for cell in row] for row in body]
                classes = [[cell.get("class", "") for cell in row] for row in body]
                self.tables.append(HtmlTable(table.get("class", ""), section.get("id", ""), header, rows, classes))
