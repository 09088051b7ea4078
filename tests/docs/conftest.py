"""The option that writes down how long each snippet of the documentation took."""

from __future__ import annotations

from pathlib import Path

import pytest

HEADING = "| snippet | seconds | CPU seconds |\n|---|---|---|\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--snippet-times", metavar="FILE", help="write what each snippet of README and docs took, as Markdown")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    file = config.getoption("--snippet-times", default=None)
    if not file:
        return
    reports = [each for outcome in ("passed", "failed") for each in terminalreporter.stats.get(outcome, [])]
    rows = sorted(value for report in reports for name, value in getattr(report, "user_properties", []) if name == "snippet")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(HEADING + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    terminalreporter.write_line(f"{len(rows)} snippets and their times: {file}")
