"""What results took to obtain, and the plans that were fixed before them, as rows of tables."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from tempplug_benchmarks.temperature_law import read_lines


def hour_rows(results: Path) -> list[Sequence[str]]:
    """Returns a row for each suite and for each folder of results of `temperature_law`, after a header.

    Hours are those of processes, training and evaluation: of the clock for suites, of the processor for `temperature_law`.
    """
    rows = []
    for folder in sorted(each for each in results.iterdir() if each.is_dir()):
        tasks = [list(read_lines(file)) for file in sorted(folder.glob("*/*.jsonl"))]
        lines = [{**head["common"], **line} for head, *runs in tasks for line in runs]
        lines += [line for file in folder.glob("*.jsonl") for line in read_lines(file)]
        gpu = [line["seconds"] for line in lines if "gpu" in line.get("hardware", ()) or "NVIDIA" in line.get("machine", "")]
        hours = (sum(line["seconds"] for line in lines) - sum(gpu)) / 3600, sum(gpu) / 3600
        if lines:
            rows.append((folder.name, len(lines), *hours))
    rows.append(("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    texts = [(name, f"{runs:,}", f"{cpu:.1f}", f"{gpu:.1f}") for name, runs, cpu, gpu in rows]
    return [("results", "runs", "hours on a CPU", "hours with a GPU"), *texts]


def plan_rows(plans: Path, link: str) -> list[Sequence[str]]:
    """Returns a row for each plan, the oldest first, after a header; ``link`` is the address of their folder."""
    found = []
    for file in sorted(plans.glob("*.toml")):
        plan = tomllib.loads(file.read_text(encoding="utf-8"))
        found.append((f"[{file.stem}]({link}/{file.name}): {plan['question']}", str(plan["date"])))
    return [("plan and its question", "fixed on"), *sorted(found, key=itemgetter(1))]
