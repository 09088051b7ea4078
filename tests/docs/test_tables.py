"""Tables of the guides that list parts of the library list all of them."""

from __future__ import annotations

import re
import runpy
from dataclasses import fields

from snippets import ROOT

from tempplug import StepRecord


def test_the_table_of_the_record_has_every_field_once() -> None:
    text = (ROOT / "docs" / "loss.md").read_text(encoding="utf-8").partition("## What a step looked like")[2]
    rows = re.findall(r"^\| (`.*?`) \| ", text.partition("\n## ")[0], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(each.name for each in fields(StepRecord))


def test_the_table_of_integrations_is_what_they_do() -> None:
    """Made again by the losses themselves; a strategy that is new has a line."""
    page = ROOT / "docs" / "which-loss.md"
    rewritten = runpy.run_path(str(ROOT / "docs" / "tools" / "integrations.py"))["rewritten"]
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- integrations -->\n\n| strategy |") == 1
    assert rewritten(text) == text, "the table is stale: run `python docs/tools/integrations.py`"
