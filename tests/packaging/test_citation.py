"""How to cite the library: the file says what the package says, and names the papers of its strategies."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

import tempplug
from tempplug.plugins import ObjectiveInfo, Registry, StrategyInfo

ROOT = Path(__file__).resolve().parents[2]


def citation() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return loaded


def test_the_file_says_what_the_package_says() -> None:
    told = citation()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} < set(told)
    assert told["version"] == tempplug.__version__
    assert (told["license"], told["abstract"]) == (project["license"], project["description"])


def test_every_paper_has_authors_a_year_and_a_place() -> None:
    papers = citation()["references"]
    assert len(papers) == 5
    for paper in papers:
        assert all({"given-names", "family-names"} == set(author) for author in paper["authors"]), paper["title"]
        assert "collection-title" in paper or "identifiers" in paper, paper["title"]


def test_its_strategies_and_objectives_exist() -> None:
    told = " ".join(paper["notes"] for paper in citation()["references"])
    names = {name.strip(",") for name in told.split()} - {"strategy", "strategies", "objective", "and"}
    assert names <= {info.name for kind in (StrategyInfo, ObjectiveInfo) for info in Registry().all(kind)}
    assert {"macl", "dystress", "temperature-free", "schedule", "amcl"} <= names
