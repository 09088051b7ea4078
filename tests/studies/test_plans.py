"""The plans of studies, their pages, and what no package may import."""

from __future__ import annotations

from pathlib import Path

from committed_results import ROOT
from links import broken

from studies.plans import plan_rows

STUDIES = ROOT / "benchmarks" / "studies"
WORDS = 400


def test_plans_are_listed_from_the_oldest(tmp_path: Path) -> None:
    for study, day in (("a", 2), ("b", 1)):
        file = tmp_path / study / "plans" / f"plan_{study}.toml"
        file.parent.mkdir(parents=True)
        file.write_text(f"date = 2026-01-0{day}\nquestion = 'Is it {study}?'\n")
    assert plan_rows(tmp_path)[1:] == [
        ("[b](b/README.md)", "[plan_b](b/plans/plan_b.toml): Is it b?", "2026-01-01"),
        ("[a](a/README.md)", "[plan_a](a/plans/plan_a.toml): Is it a?", "2026-01-02"),
    ]


def test_each_study_has_a_page_that_names_its_plans_and_answers_within_a_page() -> None:
    pages = sorted(STUDIES.glob("*/README.md"))
    assert {page.parent for page in pages} == {file.parents[1] for file in STUDIES.glob("*/plans/*")}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert broken(page, text, ROOT) == []
        assert [file.name for file in (page.parent / "plans").iterdir() if f"](plans/{file.name})" not in text] == []
        headings = [line for line in text.splitlines() if line.startswith("## ")]
        assert headings[:4] == ["## Question", "## Answer", "## What follows", "## Tables"], page
        assert len(text.partition("## Tables")[0].split()) <= WORDS, page
    index = (STUDIES / "README.md").read_text(encoding="utf-8")
    assert broken(STUDIES / "README.md", index, ROOT) == []
