"""What is read first is short, and no page uses a phrase that only this project understands."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from snippets import ROOT, pages, prose

from tempplug.cli import main
from tempplug.plugins import CommandInfo, Registry

GUIDE = 1500
GUIDES = (
    *("which-temperature", "which-negatives", "retrieval", "sentences", "graphs", "images", "recommendation", "anomalies"),
    *("debiasing", "two-towers", "distributed", "loss", "training", "speed", "install", "first-five-minutes", "gain"),
    *("large-batches", "which-positives"),
)
PAGES_OF_RESULTS = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "benchmarks").rglob("README.md"))
# what a reader who is not of the project has to guess: regular expressions, in any case
PHRASES = (
    r"letter of the plan",
    r"(?:rule|rules) of the plan",
    r"by the plan\b",
    r"trained for by",
    r"without it it",
    r"(?:kept|told|keep|tell|tells) apart",
    r"\b(?:\d+|two|three|several|of|and|unless|each) looks\b",
    r"\bwas to (?:lose|hold|gain|reach|be)\b",
    r"\bwants? an? (?:cold|warm|low|high)",
    r"\b(?:a fifth|a third|a quarter) (?:better|worse)\b",
    r"so many times as (?:long|much)",
    r"ran before we knew",
    r"\bof (?:ours|yours)\b",
    r"sure: of",
    r"of no positive any number",
    r"lie on a point",
)


def found_in(text: str) -> list[str]:
    """The phrases of `PHRASES` that a text has, line breaks in them included."""
    words = " ".join(prose(text).split())
    return [match[0] for phrase in PHRASES for match in re.finditer(phrase, words, re.IGNORECASE)]


def changes() -> str:
    """The newest section of the changelog."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]


def helps() -> dict[str, str]:
    """What every command prints for ``--help``."""
    texts = {}
    for name in sorted({"", *(info.name for info in Registry().all(CommandInfo))}):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            main([*name.split(), "--help"])
        texts[name] = out.getvalue()
    return texts


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_has_at_most_1500_words(name: str) -> None:
    assert len((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split()) <= GUIDE, "a study's page has room for more"


def test_installation_and_the_first_five_minutes_come_first_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert re.findall(r"^  - .*?: ?(\S*)$", nav, re.MULTILINE)[:2] == ["install.md", "first-five-minutes.md"]


@pytest.mark.parametrize("page", [*pages(), *PAGES_OF_RESULTS])
def test_a_page_has_no_phrase_of_this_project_alone(page: str) -> None:
    assert found_in((ROOT / page).read_text(encoding="utf-8")) == []


def test_changes_and_help_have_no_phrase_of_this_project_alone() -> None:
    texts = {"CHANGELOG.md": changes(), **helps()}
    assert len(texts) > 20
    assert min(map(len, texts.values())) > 100
    assert {name: found for name, text in texts.items() if (found := found_in(text))} == {}


def test_phrases_are_found_across_lines_and_not_in_code() -> None:
    assert found_in("so by the Letter\nof the  plan it fails in 3 looks") == ["Letter of the plan", "3 looks"]
    assert found_in("```text\nletter of the plan\n```\n`3 looks`, and it looks for files") == []
