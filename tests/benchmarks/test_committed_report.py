"""The committed page and tables are what the committed results give; `tests/docs` recomputes figures from the JSON files."""

from __future__ import annotations

from pathlib import Path

import pytest
from committed_results import RESULTS, ROOT

from tempplug_benchmarks.kinds import reports
from tempplug_benchmarks.report.pages import page

INDEX = RESULTS / "index.html"
FOLDERS = sorted(RESULTS.glob("*/*/"))
LARGEST = 1_500_000


def test_the_page_is_what_the_results_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # as make does: what is left out is named by its path
    made = page([part for report in reports(RESULTS.relative_to(ROOT)) for part in report.html_parts()])
    assert INDEX.read_text(encoding="utf-8") == made, "the page is stale: run `make report`"
    assert INDEX.stat().st_size < LARGEST
    assert "left out" not in made.lower(), "a committed result cannot be reported"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}_{folder.name}")
def test_the_tables_are_what_the_results_give(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (report,) = reports(folder.relative_to(ROOT))
    file = RESULTS / f"{folder.parent.name}_{folder.name}.md"
    assert file.read_text(encoding="utf-8") == report.markdown(), "the tables are stale: run `make report`"
