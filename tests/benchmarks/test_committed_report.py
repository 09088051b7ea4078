"""The committed page and tables are what the committed results give; their figures are recomputed from the JSON files alone."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest
from report_page import HtmlTable, Page
from scipy import stats

from tempplug_benchmarks.kinds import reports
from tempplug_benchmarks.report.across import REFERENCES
from tempplug_benchmarks.report.pages import page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
INDEX = RESULTS / "index.html"
FOLDERS = sorted(RESULTS.glob("*/*/"))
LARGEST = 1_500_000


@pytest.fixture(scope="module")
def committed() -> Page:
    return Page(INDEX.read_text(encoding="utf-8"))


def test_the_page_is_what_the_results_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # as make does: what is left out is named by its path
    made = page([part for report in reports(RESULTS.relative_to(ROOT)) for part in report.html_parts()])
    assert INDEX.read_text(encoding="utf-8") == made, "the page is stale: run `make report`"
    assert INDEX.stat().st_size < LARGEST
    assert "left out" not in made.lower(), "a committed result cannot be reported"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}_{folder.name}")
def test_the_tables_are_what_the_results_give(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (report,) = reports(folder.relative_to(ROOT))
    file = RESULTS / f"{folder.parent.name}_{folder.name}.md"
    assert file.read_text(encoding="utf-8") == report.markdown(), "the tables are stale: run `make report`"


def values(folder: Path) -> dict[str, dict[int, dict[str, float]]]:
    """Returns the metrics of a task, by arm and seed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for file in folder.glob("*/seed-*.json"):
        content = json.loads(file.read_text())
        if "metrics" in content:
            found.setdefault(content["arm"], {})[content["seed"]] = content["metrics"]
    return found


def rounded(text: str) -> tuple[list[float], float]:
    """Returns the numbers of a cell, and half of what their last digit stands for."""
    numbers = re.findall(r"[-+]?\d+(?:\.\d+)?(?:e-\d+)?", text)
    return [float(each) for each in numbers], 0.5 * 10.0 ** -len(numbers[0].partition(".")[2]) * 1.0001


def strategy_of(arm: str) -> str:
    """Returns the name of an arm's strategy."""
    return re.split("[:+]", arm)[0]


def tasks(committed: Page) -> list[tuple[Path, HtmlTable]]:
    """Returns the tasks of the page: the folder of each, and its first table."""
    names = {folder: f"{folder.parents[1].name}-{folder.name}-{folder.parent.name}" for folder in RESULTS.glob("*/*/*/")}
    folders = {re.sub(r"[^a-z0-9_-]", "-", name.lower()): folder for folder, name in names.items()}
    first: dict[str, HtmlTable] = {}
    for table in committed.tables:
        if table.header[:2] == ["arm", "minus baseline"]:
            first.setdefault(table.section, table)
    return [(folders[section], table) for section, table in first.items()]


def shown_arms(committed: Page, folder: Path, table: HtmlTable) -> dict[str, dict[int, dict[str, float]]]:
    """Returns the metrics behind every line of a task's table; that of an arm that was tuned is another arm's."""
    found, tuned = values(folder), selected(committed, table)
    assert set(table.column("arm")) == set(found) if not tuned else set(table.column("arm")) <= set(found)
    return {arm: found[tuned.get(arm, arm)] for arm in table.column("arm")}


def selected(committed: Page, table: HtmlTable) -> dict[str, str]:
    """Returns which arm's results the line of an arm that was tuned has."""
    return dict(re.findall(r"^(\S+): (\S+), the best of \d+ by ", committed.sections[table.section], re.MULTILINE))


def test_every_table_of_a_task_is_recomputed_from_the_files(committed: Page) -> None:
    """Means, deviations, paired differences to baseline and control with t intervals, and p values."""
    found = tasks(committed)
    assert {folder for folder, _ in found} == {
        folder for each in FOLDERS if each.parent.name != "speed" for folder in each.glob("*/")
    }
    checked = 0
    for folder, table in found:
        name = table.header[2].removesuffix(" measured")
        arms = shown_arms(committed, folder, table)
        of = {arm: {seed: each[name] for seed, each in seeds.items()} for arm, seeds in arms.items()}
        (baseline,) = [arm for arm, cell in table.column("minus baseline").items() if cell == "baseline"]
        for arm, seeds in of.items():
            numbers, half = rounded(table.column(table.header[2])[arm])
            expected = [statistics.fmean(seeds.values()), *([statistics.stdev(seeds.values())] if len(seeds) > 1 else [])]
            assert numbers == pytest.approx(expected, abs=half), (folder, arm)
            control = of.get(f"control({selected(committed, table).get(arm, arm)})", {})
            for column, other in (("minus baseline", of[baseline]), ("minus control", control)):
                common = sorted(seeds.keys() & other.keys())
                if column not in table.header or "[" not in (cell := table.column(column)[arm]):
                    continue
                test = stats.ttest_rel([seeds[seed] for seed in common], [other[seed] for seed in common])
                difference = statistics.fmean(seeds[seed] - other[seed] for seed in common)
                checked += 1
                numbers, half = rounded(cell.partition("]")[0])
                assert numbers == pytest.approx([difference, *test.confidence_interval(0.95)], abs=half), (folder, arm)
                p = table.column("p")[arm]
                alike = seeds == other  # of which scipy has no p
                if column == "minus baseline" and p not in ("-", "<0.001") and not alike:
                    assert float(p) == pytest.approx(float(test.pvalue), rel=0.06), (folder, arm)
    assert checked > 20


def test_colours_of_a_task_are_recomputed_by_holms_rule(committed: Page) -> None:
    """The page's own p values, corrected for looks and all that it shows of the family.

    Green and red: below 0.05, five seeds at least, and a tenth of a point; and nothing else is.
    """
    families: dict[str, list[tuple[float, str, str, bool]]] = {}
    for folder, table in tasks(committed):
        alone = "family of comparisons: the strategies of this task" in committed.sections[table.section]
        family = table.section if alone else f"{folder.parents[1].name} {folder.parent.name}"
        file = folder / "looks.json"
        looks = len(json.loads(file.read_text(encoding="utf-8"))["looks"]) if file.exists() else 1
        assert ("Holm p" if looks == 1 else f"Holm p, {looks} looks") in table.header
        seeds = values(folder)
        (baseline,) = [arm for arm, cell in table.column("minus baseline").items() if cell == "baseline"]
        for arm, p in table.column("p").items():
            if p != "-":
                colour = table.classes[[row[0] for row in table.rows].index(arm)][1]
                common = seeds[selected(committed, table).get(arm, arm)].keys() & seeds[baseline].keys()
                matters = len(common) >= 5 and abs(rounded(table.column("minus baseline")[arm])[0][0]) >= 0.1
                shown = (looks * float(p.lstrip("<")), colour, table.column("verdict")[arm], matters)
                families.setdefault(family, []).append(shown)
    assert len(families) > 3
    for family, members in families.items():
        largest = 0.0
        for rank, (p, colour, verdict, matters) in enumerate(sorted(members)):
            largest = max(largest, (len(members) - rank) * p)
            news = verdict in ("better", "worse")
            assert colour == (verdict if news else ""), family
            if abs(largest / 0.05 - 1) > 0.06:  # p is rounded to two digits
                assert news == (largest < 0.05 and matters and verdict != "no signal"), (family, p)


def test_the_table_of_all_tasks_is_recomputed_from_the_files(committed: Page) -> None:
    """A strategy's figure is that of one of its arms, and its rank that of the arm's mean among those of the strategies."""
    across = committed.tables[0]
    assert across.header[:2] == ["strategy", "mean rank"]
    compared = [
        (folder, table)
        for folder, table in tasks(committed)
        if len({strategy_of(arm) for arm in table.column("arm") if "+" in arm and "(" not in arm}) > 1
    ]
    assert len(compared) == len(across.header) - 2
    for position, (folder, table) in enumerate(compared, 2):
        name = table.header[2].removesuffix(" measured")
        sign = 1 if "; lower is better" in committed.sections[table.section] else -1
        arms_shown = shown_arms(committed, folder, table)
        means = {arm: sign * statistics.fmean(each[name] for each in of.values()) for arm, of in arms_shown.items()}
        measured = table.column(table.header[2])
        figures = {arm: measured[arm] if cell == "baseline" else cell for arm, cell in table.column("minus baseline").items()}
        told = {row[0]: re.sub(r"τ [\d.e-]+: ", "", row[position]) for row in across.rows if row[position] != "-"}
        shown = {name: cell.split(" ", 1) for name, cell in told.items() if name not in REFERENCES}
        arms = {
            strategy: [arm for arm in means if strategy_of(arm) == strategy and figure.startswith(figures[arm])]
            for strategy, (_, figure) in shown.items()
        }
        assert all(arms.values()), (folder, arms)
        ranks = stats.rankdata([means[of[0]] for of in arms.values()])
        expected = [
            "" if "no signal" in figure else f"{rank:g}" for rank, (_, figure) in zip(ranks, shown.values(), strict=True)
        ]
        assert [rank for rank, _ in shown.values()] == expected, folder
