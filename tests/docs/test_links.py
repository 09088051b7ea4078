"""All relative links of README, changelog, CONTRIBUTING and docs lead to a file, and their anchors to a heading of it."""

from __future__ import annotations

from pathlib import Path

from links import broken, links
from snippets import ROOT, pages


def test_relative_links_and_anchors_lead_somewhere() -> None:
    of_the_top = ("CHANGELOG.md", "CONTRIBUTING.md")
    found = {page: broken(ROOT / page, (ROOT / page).read_text(encoding="utf-8"), ROOT) for page in (*pages(), *of_the_top)}
    assert {page: wrong for page, wrong in found.items() if wrong} == {}


def test_every_page_is_reached_from_the_first() -> None:
    reached, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in links(page.read_text(encoding="utf-8")):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_relative_to(ROOT / "docs") and target.is_file():
                waiting.append(target)
    assert sorted(str(path.relative_to(ROOT)) for path in reached) == [page for page in pages() if page != "README.md"]


def test_broken_links_are_found(tmp_path: Path) -> None:
    text = (
        "# A `b` & c\n\n# E\n\n## E\n\n[x](y.md#y), [x](y.md#z) ![z](z.svg) `[c](d.md)` [e](#e) [d](#a-b--c) [o](https://o.org)"
    )
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    (tmp_path / "y.md").write_text("# Y", encoding="utf-8")
    assert broken(tmp_path / "page.md", text, tmp_path) == ["y.md#z", "z.svg", "#e"]
