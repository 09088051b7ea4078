"""The links of Markdown pages: what each leads to, and the anchors that a page offers."""

from __future__ import annotations

import re
from pathlib import Path

from snippets import prose

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|\b(?:src|href)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def links(text: str) -> list[str]:
    """Targets of all links and pictures of a page, code left out."""
    return [first or second for first, second in LINK.findall(prose(text))]


def anchors(text: str) -> set[str]:
    """What may stand behind # in a link to a page: explicit ids, and headings that it has once.

    Code hosts and mkdocs agree on the anchor of such a heading (mkdocs.yml sees to that), and not on that of a second one.
    """
    slugs = []
    for line, kept in zip(text.split("\n"), prose(text).split("\n"), strict=True):
        heading = re.match(r"#{1,6} +(.+?)\s*#*$", line)
        if heading and kept:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            slugs.append(re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-"))
    return {*re.findall(r"\bid=\"([^\"]+)\"", text), *(slug for slug in slugs if slugs.count(slug) == 1)}


def broken(page: Path, text: str, root: Path) -> list[str]:
    """The relative links of a page that lead nowhere, or out of the tree.

    Args:
        page: its file.
        text: what it holds.
        root: the top of the tree.
    """
    wrong = []
    for link in links(text):
        if ELSEWHERE.match(link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        there = not name.startswith("/") and target.exists() and target.is_relative_to(root)
        if there and anchor:
            there = target.suffix == ".md" and anchor in anchors(target.read_text(encoding="utf-8"))
        if not there:
            wrong.append(link)
    return wrong
