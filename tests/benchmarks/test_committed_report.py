"""The committed page and tables are what the committed results give; their figures are recomputed from the JSON files alone."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest
from committed_results import RESULTS, ROOT, Values, check_difference, check_mean, looks, numbers, of, values
from report_page import HtmlTable, Page
from scipy import stats

from tempplug_benchmarks.kinds import reports
from tempplug_benchmarks.report.across import REFERENCES
from tempplug_benchmarks.report.pages import page

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


def strategy_of(arm: str) -> str:
    """Returns the name of an arm's strategy."""
    return re.split("[:+]", arm)[0]


def tasks(committed: Page) -> list[tuple[str, HtmlTable, Values]]:
    """Returns the tasks of the page: ``suite/profile/task``, its first table, and the metrics behind every line of it."""
    places = ["/".join(folder.parts[-3:]) for folder in RESULTS.glob("*/*/*/")]
    names = {re.sub(r"[^a-z0-9_-]", "-", "{0}-{2}-{1}".format(*place.split("/")).lower()): place for place in places}
    first: dict[str, HtmlTable] = {}
    for table in committed.tables:
        if table.header[:2] == ["arm", "minus baseline"]:
            first.setdefault(table.section, table)
    found = []
    for section, table in first.items():
        every, tuned = values(names[section]), selected(committed, table)
        assert table.column("arm").keys() <= every.keys()
        assert tuned or table.column("arm").keys() == every.keys()
        found.append((names[section], table, {arm: every[tuned.get(arm, arm)] for arm in table.column("arm")}))
    return found


def selected(committed: Page, table: HtmlTable) -> dict[str, str]:
    """Returns the arm whose results the line of a tuned arm has."""
    return dict(re.findall(r"^(\S+): (\S+), the best of \d+ by ", committed.sections[table.section], re.MULTILINE))


def baseline_of(table: HtmlTable) -> str:
    (baseline,) = [arm for arm, cell in table.column("minus baseline").items() if cell == "baseline"]
    return baseline


def test_every_table_of_a_task_is_recomputed_from_the_files(committed: Page) -> None:
    """Means, deviations, paired differences to baseline and control with t intervals, and p values."""
    found = tasks(committed)
    measured = {"/".join(folder.parts[-3:]) for folder in RESULTS.glob("*/*/*/")}
    assert {place for place, *_ in found} == {place for place in measured if not place.startswith("speed/")}
    checked = 0
    for place, table, arms in found:
        name = table.header[2].removesuffix(" measured")
        tuned = selected(committed, table)
        for arm in arms:
            seeds = of(arms, arm, name)
            check_mean(table.column(table.header[2])[arm], seeds)
            control = of(arms, f"control({tuned.get(arm, arm)})", name)
            for column, other in (("minus baseline", of(arms, baseline_of(table), name)), ("minus control", control)):
                if column in table.header and "[" in (cell := table.column(column)[arm]):
                    p, shown = check_difference(cell, seeds, other), table.column("p")[arm]
                    checked += 1
                    if column == "minus baseline" and p is not None and shown not in ("-", "<0.001"):
                        assert float(shown) == pytest.approx(p, rel=0.06), (place, arm)
    assert checked > 20


def test_colours_of_a_task_are_recomputed_by_holms_rule(committed: Page) -> None:
    """The page's own p values, corrected for looks and all that it shows of the family.

    Green and red: below 0.05, five seeds at least, and a tenth of a point; and nothing else is.
    """
    families: dict[str, list[tuple[float, str, str, bool]]] = {}
    for place, table, arms in tasks(committed):
        alone = "family of comparisons: the strategies of this task" in committed.sections[table.section]
        family = table.section if alone else place.rpartition("/")[0]
        factor = looks(place)
        assert ("Holm p" if factor == 1 else f"Holm p, {factor} looks") in table.header
        for row, classes in zip(table.rows, table.classes, strict=True):
            arm, difference, p = row[0], row[1], row[table.header.index("p")]
            if p != "-":
                common = arms[arm].keys() & arms[baseline_of(table)].keys()
                matters = len(common) >= 5 and abs(numbers(difference)[0]) >= 0.1
                shown = (factor * float(p.lstrip("<")), classes[1], table.column("verdict")[arm], matters)
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
        (table, arms)
        for _, table, arms in tasks(committed)
        if len({strategy_of(arm) for arm in arms if "+" in arm and "(" not in arm}) > 1
    ]
    assert len(compared) == len(across.header) - 2
    for position, (table, arms_shown) in enumerate(compared, 2):
        name = table.header[2].removesuffix(" measured")
        sign = 1 if "; lower is better" in committed.sections[table.section] else -1
        means = {arm: sign * statistics.fmean(of(arms_shown, arm, name).values()) for arm in arms_shown}
        measured = table.column(table.header[2])
        figures = {arm: measured[arm] if cell == "baseline" else cell for arm, cell in table.column("minus baseline").items()}
        told = {row[0]: re.sub(r"τ [\d.e-]+: ", "", row[position]) for row in across.rows if row[position] != "-"}
        shown = {name: cell.split(" ", 1) for name, cell in told.items() if name not in REFERENCES}
        arms = {
            strategy: [arm for arm in means if strategy_of(arm) == strategy and figure.startswith(figures[arm])]
            for strategy, (_, figure) in shown.items()
        }
        assert all(arms.values()), (table.section, arms)
        ranks = stats.rankdata([means[each[0]] for each in arms.values()])
        expected = [
            "" if "no signal" in figure else f"{rank:g}" for rank, (_, figure) in zip(ranks, shown.values(), strict=True)
        ]
        assert [rank for rank, _ in shown.values()] == expected, table.section
