"""Tables of the guides that list parts of the library list all of them."""

from __future__ import annotations

import re
import runpy
from dataclasses import fields

from links import broken, links
from snippets import ROOT, pages

from tempplug import StepRecord
from tempplug_adapters.metric_names import METRICS, QUALIFIERS


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


def test_the_tables_of_metrics_are_those_that_trainings_print() -> None:
    text = (ROOT / "docs" / "gain.md").read_text(encoding="utf-8").partition("## The metrics")[2]
    rows = re.findall(r"^\| (?!metric|in the name|:--)(.*?) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(name, clause) for name, (_, clause) in (*METRICS.items(), *QUALIFIERS.items())]


def test_the_list_for_assistants_leads_to_pages_and_its_code_is_on_one_that_is_run() -> None:
    page = ROOT / "docs" / "llms.txt"
    text = page.read_text(encoding="utf-8")
    assert broken(page, text, ROOT) == []
    assert len(links(text)) == len(set(links(text))) > 10
    assert "```" not in text
    assert "docs/assistants.md" in pages()


def test_the_tested_releases_are_those_of_the_script() -> None:
    text = (ROOT / "docs" / "which-loss.md").read_text(encoding="utf-8").partition("## Tested releases")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")][1:6]
    assert len(rows) == 5
    for column, name in ((1, "oldest"), (2, "newest")):
        pins = dict(re.findall(r"(?m)^([\w-]+)==(\S+)$", (ROOT / ".ci" / f"{name}.txt").read_text(encoding="utf-8")))
        pairs = [pair for row in rows for pair in zip(row[0].lower().split(", "), row[column].split(", "), strict=True)]
        assert pairs == [(key, pins[key]) for key, _ in pairs]
