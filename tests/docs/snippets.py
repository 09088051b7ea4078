"""The fenced snippets of a page of documentation: where they stand, in which language, and whether they are to be run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,})(?P<language>[\w+-]*)(?P<rest>[^`\n]*)$")
NOT_RUN = re.compile(r"^\s*<!-- not run: (?P<reason>.+?) -->\s*$")
RUN = ("python", "bash")


@dataclass(frozen=True)
class Snippet:
    """A fenced block.

    Attributes:
        page: its page, relative to the top of the tree.
        line: the number of its first line of code.
        language: the word behind the fence, or "".
        code: what stands between the fences.
        title: the file that it is, from ``title="FILE"`` behind the language: it is written there and not executed.
        not_run: why it is not run, from an HTML comment ``<!-- not run: REASON -->`` on the line before the fence, or "".
    """

    page: str
    line: int
    language: str
    code: str
    title: str = ""
    not_run: str = ""

    def __str__(self) -> str:
        first = next((line.strip() for line in self.code.splitlines() if line.strip()), "")
        return f"{self.page}:{self.line} {self.language} {self.title or first[:60]}"


def pages() -> list[str]:
    """README.md and all pages below docs, relative to the top of the tree."""
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def snippets(page: str, text: str | None = None) -> list[Snippet]:
    """All fenced blocks of a page, in their order.

    Args:
        page: relative to the top of the tree.
        text: of the page; by default what its file holds.
    """
    lines = ((ROOT / page).read_text(encoding="utf-8") if text is None else text).splitlines()
    found: list[Snippet] = []
    at = 0
    while at < len(lines):
        opened = FENCE.match(lines[at])
        if not opened:
            at += 1
            continue
        indent, marks = len(opened["indent"]), opened["marks"]
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == marks), None)
        if end is None:
            raise ValueError(f"{page}:{at + 1}: a fence is opened and never closed")
        title = re.search(r'\btitle="([^"]+)"', opened["rest"])
        reason = NOT_RUN.match(lines[at - 1]) if at else None
        code = "\n".join(line[indent:] for line in lines[at + 1 : end]) + "\n"
        found.append(
            Snippet(page, at + 2, opened["language"], code, title[1] if title else "", reason["reason"] if reason else "")
        )
        at = end + 1
    return found


def prose(text: str) -> str:
    """The text of a page with everything inside of fences and back quotes blanked, lines kept."""
    inside = False
    kept = []
    for line in text.split("\n"):
        fence = FENCE.match(line) if not inside else line.strip().startswith("```")
        inside = inside != bool(fence)
        kept.append("" if fence or inside else re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", lambda code: "`" * len(code[0]), line))
    return "\n".join(kept)


def logical_lines(code: str) -> list[str]:
    """The commands of a shell snippet: continued lines joined, comments and empty lines left out."""
    joined = re.sub(r"\\\n\s*", " ", code)
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]
