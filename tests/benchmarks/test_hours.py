"""The tables of what results took and of their plans."""

from __future__ import annotations

import json
from pathlib import Path

from tempplug_benchmarks.report.hours import hour_rows, plan_rows


def test_hours_are_those_of_all_runs_by_device(tmp_path: Path) -> None:
    file = tmp_path / "graph" / "small" / "task.jsonl"
    file.parent.mkdir(parents=True)
    runs = [{"seconds": 3600}, {"seconds": 7200, "hardware": {"cpu": "Abacus", "gpu": "NVIDIA A"}}]
    head = {"format": 1, "common": {"hardware": {"cpu": "Abacus"}}}
    file.write_text("".join(f"{json.dumps(each)}\n" for each in (head, *runs)))
    (tmp_path / "law").mkdir()
    lines = [{"seconds": 1800, "machine": "Abacus"}, {"seconds": 5400, "machine": "Abacus, NVIDIA A"}]
    (tmp_path / "law" / "one.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    (tmp_path / "empty").mkdir()
    (tmp_path / "README.md").write_text("nothing")
    assert hour_rows(tmp_path)[1:] == [("graph", "2", "1.0", "2.0"), ("law", "2", "0.5", "1.5"), ("all", "4", "1.5", "3.5")]


def test_plans_are_listed_from_the_oldest(tmp_path: Path) -> None:
    for name, day in (("a", 2), ("b", 1)):
        (tmp_path / f"{name}.toml").write_text(f"date = 2026-01-0{day}\nquestion = 'Is it {name}?'\n")
    assert plan_rows(tmp_path, "plans")[1:] == [
        ("[b](plans/b.toml): Is it b?", "2026-01-01"),
        ("[a](plans/a.toml): Is it a?", "2026-01-02"),
    ]
