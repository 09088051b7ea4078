"""The site of the documentation builds without a warning, and is whole on its own: it asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from snippets import ROOT, pages

pytestmark = pytest.mark.slow

# what a browser loads by itself; a link waits for a click
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)\"|<link\b(?=[^>]*rel=\"(?:stylesheet|preload|icon)\")[^>]*href=\"([^\"]+)\""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    said = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 0, "\n".join(said)
    assert [line for line in said if not line.startswith("INFO ")] == []
    return folder


def test_every_page_is_in_the_site_and_once_in_its_navigation(site: Path) -> None:
    inside = sorted(page.removeprefix("docs/") for page in pages() if page.startswith("docs/"))
    assert [page for page in inside if not (site / page.replace(".md", ".html")).is_file()] == []
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert sorted(re.findall(r"^ +- [^#\n]*: (\S+\.md)$", nav, re.MULTILINE)) == inside


def test_the_site_needs_no_network(site: Path) -> None:
    loaded = {
        address: file.name
        for file in site.rglob("*.html")
        if "tree" not in file.relative_to(site).parts
        for match in LOADED.findall(file.read_text(encoding="utf-8"))
        for address in match
        if address
    }
    assert loaded
    assert {address: name for address, name in loaded.items() if re.match(r"(?:https?:)?//", address)} == {}
