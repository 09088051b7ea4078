"""The notebook of the first five minutes is run from top to bottom, offline, and is committed without outputs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOK = Path(__file__).parents[2] / "adapters" / "examples" / "first_five_minutes.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, 4)


def test_it_is_committed_without_outputs() -> None:
    code = [cell for cell in read().cells if cell.cell_type == "code"]
    assert len(code) > 4
    assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * len(code)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_it_runs_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that raises ends it; a command that fails lacks its last line."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = read()
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.get("text", "") for output in outputs)
    assert "128 pairs, such as {'anchor': 'what does the kettle cost'" in printed
    assert "strategy fixed:temperature=0.1, objective infonce, layout cross-view" in printed
    assert "temperature_mean     0.100" in printed
    assert "accuracy on held-out pairs" in printed
    assert "wrote advice.html" in printed
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    assert "<html" in (tmp_path / "advice.html").read_text(encoding="utf-8")
