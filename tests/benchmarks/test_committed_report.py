"""The committed page and tables are what the committed results give; `tests/docs` recomputes figures from the JSON files."""

from __future__ import annotations

import re
import statistics

import pytest
from committed_results import RESULTS, ROOT, records, values

import tempplug
from studies.cells import read_lines
from tempplug_benchmarks.command import Report, reports
from tempplug_benchmarks.report.pages import PLOTTED, page
from tempplug_benchmarks.speed.report import SpeedReport
from tempplug_benchmarks.training import TrainingReport

STUDIES = ROOT / "benchmarks" / "studies"
INDEX = RESULTS / "index.html"
LARGEST = 1_000_000


@pytest.fixture(scope="module")
def found() -> list[Report]:
    """The reports of all results, named by their paths as `make report` names them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return reports(RESULTS.relative_to(ROOT))


def test_the_page_is_what_the_results_give(found: list[Report]) -> None:
    made = page([part for report in found for part in report.html_parts()])
    assert INDEX.read_text(encoding="utf-8") == made, "the page is stale: run `make report`"
    assert INDEX.stat().st_size < LARGEST
    ids = re.findall(r'<[^>]* id="([^"]*)"', made)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'<use href="#([^"]*)"', made)) <= set(ids)
    assert 'open="open"' not in made
    assert "left out" not in made.lower(), "a committed result cannot be reported"


def test_a_page_of_few_tasks_has_all_plots(found: list[Report]) -> None:
    trained = found[0]
    assert isinstance(trained, TrainingReport)
    few = [each for each in trained.comparisons if each.suite in ("sentence", "vision")]
    made = page(TrainingReport(few, ()).html_parts())
    assert len(few) <= PLOTTED < len(trained.comparisons)
    assert made.count("<figcaption>Seconds a run") == len(few)
    assert made.count('<details class="task" open="open">') == len(few)
    styles = re.findall(r"(?m)^svg \.([\w-]+) \{ \S+ \}$", made)
    assert [each for each in styles if f'class="{each}"' not in made] == [], "a class that no plot has"


def test_the_tables_are_what_the_results_give(found: list[Report]) -> None:
    """A folder's report has those comparisons or sections of the whole that are its own."""
    trained, measured = found
    assert isinstance(trained, TrainingReport)
    assert isinstance(measured, SpeedReport)
    for folder in sorted(RESULTS.glob("*/*/")):
        place = (folder.parent.name, folder.name)
        report: Report = SpeedReport([each for each in measured.found if (each.suite, each.profile) == place], ())
        if folder.parent.name != "speed":
            report = TrainingReport([each for each in trained.comparisons if (each.suite, each.profile_name) == place], ())
        file = RESULTS / f"{folder.parent.name}_{folder.name}.md"
        assert file.read_text(encoding="utf-8") == report.markdown(), f"{file} is stale: run `make report`"


def test_statuses_are_those_of_the_committed_results() -> None:
    """What is called measured or reproduced has arms with results, and what is called implemented has none."""
    arms = {record["arm"] for file in RESULTS.glob("*/*/*.jsonl") for record in records(file)}
    lines = [line for file in STUDIES.glob("*/results/*/*.jsonl") for line in read_lines(file)]
    arms |= {line["strategy"] for line in lines if "strategy" in line}  # a simulation trains none
    parts = {part for arm in arms for part in re.split(r"\+(?=[a-z])", arm.partition("@")[0])}
    trained = {part.partition(":")[0] for part in parts}
    for info in [*tempplug.strategies(), *tempplug.objectives(), *tempplug.negatives()]:
        assert (info.status in ("measured", "reproduced")) == (info.name in trained), info.name


@pytest.mark.parametrize(
    ("place", "arm", "metric", "reported", "spread"),
    [
        ("node/paper/citeseer", "temperature-free+infonce", "F1-micro", 67.95, 2.10),
        ("graph/paper/imdb-binary", "macl+dcl", "accuracy", 71.42, 1.05),
        ("graph/paper/nci1", "macl+dcl", "accuracy", 78.41, 0.47),
    ],
)
def test_what_is_called_reproduced_has_numbers_of_its_paper(
    place: str, arm: str, metric: str, reported: float, spread: float
) -> None:
    found = [each[metric] for each in values(place)[arm].values()]
    assert abs(statistics.mean(found) - reported) <= spread
    assert next(info for info in tempplug.strategies() if info.name == arm.partition("+")[0]).status == "reproduced"
