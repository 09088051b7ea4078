"""A hook of mkdocs: what pages link to outside of docs (results, examples, README) becomes part of the site.

The pages are written for a code host, with links relative to their place in the tree. mkdocs reads the folder docs alone, so a
linked file outside of it is added to the site under ``tree/``: pages are rendered, other files copied, and the links to and
from them rewritten. It must not depend on any page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#]+)(?P<rest>[^)]*\))")
INSIDE = "tree"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds every file that a page links to, also the files that an added page links to."""
    top = Path(config.config_file_path).parent
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        source = Path(str(page.abs_src_path))
        for match in LINK.finditer(source.read_text(encoding="utf-8")):
            target = _target(source, match["target"], top)
            if target is None or files.get_file_from_path(_place(target, config)) is not None:
                continue
            added = File.generated(config, _place(target, config), abs_src_path=str(target))
            files.append(added)
            if added.is_documentation_page():
                waiting.append(added)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the links of a page to files outside of docs to the places of these files in the site."""
    top = Path(config.config_file_path).parent
    source = Path(str(page.file.abs_src_path))

    def led(match: re.Match[str]) -> str:
        target = _target(source, match["target"], top)
        if target is None:
            return match[0]
        place = os.path.relpath(_place(target, config), Path(page.file.src_uri).parent)
        return f"{match['before']}{place}{match['rest']}"

    return LINK.sub(led, markdown)


def _target(source: Path, link: str, top: Path) -> Path | None:
    """Returns the file that a relative link refers to, for a folder its index.html or README.md; None if there is none."""
    if re.match(r"[a-z]+:|/", link):
        return None
    target = (source.parent / link).resolve()
    if target.is_dir():
        target = next((file for name in ("index.html", "README.md") if (file := target / name).is_file()), target)
    return target if target.is_file() and target.is_relative_to(top.resolve()) else None


def _place(target: Path, config: MkDocsConfig) -> str:
    """Returns the path of a file among the sources of the site."""
    docs = Path(config.docs_dir).resolve()
    if target.is_relative_to(docs):
        return target.relative_to(docs).as_posix()
    return f"{INSIDE}/{target.relative_to(docs.parent).as_posix()}"
