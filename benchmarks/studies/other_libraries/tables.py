"""The time of a step of sentence-transformers with tempplug's loss and with the library's own, as a table."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "sentence_transformers_speed.json"


def step_rows() -> list[list[str]]:
    """Returns a row for each model, loss and batch, after a header: the median ratio of steps and the rounds."""
    rows = [["model", "strategy", "loss", "batch", "tempplug's time / the library's", "rounds"]]
    for measured in json.loads(RESULTS.read_text(encoding="utf-8")):
        for name, step in measured["steps"].items():
            strategy, loss, batch = name.split()
            rows.append([measured["model"], f"`{strategy}`", loss, batch, f"{step['ratio']:.2f}", str(step["rounds"])])
    return rows
