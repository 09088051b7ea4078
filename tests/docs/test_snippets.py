"""Every snippet of README and docs is run as it stands there, imports included, but for a few that say why they are not."""

from __future__ import annotations

import os
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from perform import SnippetError, perform
from pygcl_toys import importable_pygcl
from shortened import FILES, NUMBERS, REAL_DATA, RULES, SLOW, WARNINGS, named
from snippets import ROOT, RUN, Snippet, logical_lines, pages, prose, snippets

NOT_RUN_AT_MOST = 8


def all_snippets() -> list[Snippet]:
    return [snippet for page in pages() for snippet in snippets(page)]


def marked(page: str) -> object:
    marks = [pytest.mark.filterwarnings(each) for each in WARNINGS.get(page, [])]
    return pytest.param(page, id=page, marks=[*marks, *([pytest.mark.slow] if page in SLOW else [])])


@pytest.mark.parametrize("page", [marked(page) for page in pages() if snippets(page)])
def test_snippets_of_a_page_run_in_their_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if page in REAL_DATA:
        request.getfixturevalue("data_dir")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["page"])
    if page in SLOW:  # those that start processes are among them
        request.getfixturevalue("warm")
    for name, value in {"OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache"), "MPLBACKEND": "agg"}.items():
        monkeypatch.setenv(name, value)
    for name, number in NUMBERS.items():
        monkeypatch.setattr(name, number)
    for name in ("adapters", "benchmarks", "docs", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    found = snippets(page)
    for name in {name for snippet in found if not snippet.not_run for name in named(snippet.code)}:
        FILES[name](tmp_path / name)
    with torch.random.fork_rng(), importable_pygcl() if any("GCL" in each.code for each in found) else nullcontext():
        torch.manual_seed(0)
        perform(found)


def test_few_snippets_are_not_run_and_they_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = [snippet for snippet in all_snippets() if snippet.not_run]
    with capsys.disabled():
        print(f"\n{len(left_out)} snippets are not run, at most {NOT_RUN_AT_MOST} may be:")
        for snippet in left_out:
            print(f"  {snippet}: {snippet.not_run}")
    assert len(left_out) <= NOT_RUN_AT_MOST


def test_markers_stand_right_before_a_snippet() -> None:
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert prose(text).count("<!-- not run") == len([each for each in snippets(page) if each.not_run]), page


def test_only_known_languages_escape() -> None:
    allowed = {*RUN, "text", "toml", "yaml", "json", "csv", "bibtex"}
    assert [str(each) for each in all_snippets() if each.language not in allowed] == []


def test_a_file_that_a_page_shows_is_used_on_it() -> None:
    for page in pages():
        found = snippets(page)
        for each in (each for each in found if each.title and each.language == "python"):
            name = Path(each.title)
            others = [other.code for other in found if other is not each]
            assert any(re.search(rf"\b{re.escape(name.stem)}\b", code) for code in others), f"{each} is never used"


def test_what_shortens_and_makes_files_has_a_use() -> None:
    found = [snippet for snippet in all_snippets() if not snippet.not_run]
    texts = [text for each in found for text in (logical_lines(each.code) if each.language == "bash" else [each.code])]
    assert [pattern for pattern, _ in RULES if not any(re.search(pattern, text) for text in texts)] == []
    assert set(FILES) - {name for text in texts for name in named(text)} == set()
    assert {*SLOW, *REAL_DATA, *WARNINGS} <= set(pages())


TEXT = """\
```python title="a.py"
print(1)
```
- b
    ```bash
    python a.py > b # c
    ```
<!-- not run: no -->
```bash
false
```
"""


def test_snippets_are_found_and_one_that_fails_fails_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    found = [(each.line, each.language, each.title, each.not_run) for each in snippets("README.md", TEXT)]
    assert found == [(2, "python", "a.py", ""), (6, "bash", "", ""), (10, "bash", "", "no")]
    assert perform(snippets("README.md", TEXT)) == 2
    assert (tmp_path / "b").read_text() == "1\n"
    assert prose("a `b` c\n```python\nd\n```\ne") == "a ``` c\n\n\n\ne"
    with pytest.raises(ValueError, match="never closed"):
        snippets("README.md", "```python\nx")
    with pytest.raises(ZeroDivisionError):
        perform(snippets("README.md", "```python\nx = 0\n```\n```python\n1 / x\n```\n"))
    for command in ("exit 3", "tempplug show mcl", "make nothing", 'pip install "tempplug[simce]"', "pip install -c no.txt x"):
        with pytest.raises(SnippetError, match="status"):
            perform(snippets("README.md", f"```bash\n{command}\n```\n"))
    perform(snippets("README.md", '```bash\nmake test\npip install "tempplug[ray]"\n```\n'))
