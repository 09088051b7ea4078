"""The figures that the guides cite are those of the committed results, recomputed here from the JSON files alone."""

from __future__ import annotations

import itertools
import re
import runpy
import statistics
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest
from committed_results import RESULTS, ROOT, Values, check_difference, check_holm, check_mean, half, looks, numbers, of, values
from scipy import stats

from tempplug_benchmarks.suite import load_suite

STUDIES = ROOT / "benchmarks" / "studies"
PAGES = [
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted(STUDIES.glob("*/README.md")),
    RESULTS / "README.md",
    ROOT / "README.md",
]
MARKER = re.compile(r"<!-- measured ([\w-]+)(?:: (.*?))? -->\n\n((?:\|.*\n)*)")
LINK = re.compile(r"\[([^\]]+) (\S+), (\w+)\]\([^)]*\)(?:: (.*))?")

Table = list[list[str]]


@pytest.fixture(scope="module")
def rewritten() -> Callable[[str, Path], str]:
    """The function that writes the tables."""
    found: Callable[[str, Path], str] = runpy.run_path(str(ROOT / "docs" / "measured.py"))["rewritten"]
    return found


def tables(kind: str, pages: Sequence[Path] = PAGES) -> list[tuple[str, Table]]:
    """Returns the tables of these guides that are of a kind: arguments, header and lines."""
    found = []
    for page in pages:
        for each, arguments, table in MARKER.findall(page.read_text(encoding="utf-8")):
            if each == kind:
                lines = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines()]
                found.append((arguments, [lines[0], *lines[2:]]))
    assert found
    return found


def place_of(link: str) -> tuple[str, str]:
    """Returns suite/profile/task and metric of a table's link."""
    suite, task, profile, metric = re.fullmatch(LINK, link).groups()  # type: ignore[union-attr]
    return f"{suite}/{profile}/{task}", metric


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_tables_of_a_guide_are_what_the_results_give(page: Path, rewritten: Callable[[str, Path], str]) -> None:
    text = page.read_text(encoding="utf-8")
    assert rewritten(text, page.parent) == text, "the tables are stale: run `python docs/measured.py`"
    prose = re.sub(r"```.*?```", "", MARKER.sub("", text), flags=re.DOTALL)  # what a command printed is no result
    assert re.findall(r"\d ± \d", prose) == [], "a figure in the text would become stale unnoticed"


def test_arms_are_recomputed() -> None:
    """Mean, deviation, difference with interval, seeds; Holm's p, times looks, where a task's arms are the whole family."""
    checked = 0
    for arguments, (header, *rows) in tables("arms"):
        place = arguments.split("|")[0].strip()
        found, metric = values(place), header[1]
        (baseline,) = re.findall("`(.*)`", header[2])
        assert header[3] == ("Holm p" if looks(place) == 1 else f"Holm p, results read {looks(place)} times")
        assert {row[0].strip("`") for row in rows} == set(found)
        compared = []
        for row in rows:
            arm = of(found, row[0].strip("`"), metric)
            check_mean(row[1], arm)
            assert int(row[4]) == len(arm)
            # neither an untrained arm nor a control belongs to the family
            strategy = "+" in row[0] and not row[0].startswith("`control(")
            if row[2] != "baseline" and (p := check_difference(row[2], arm, of(found, baseline, metric))) and strategy:
                compared.append((p, row[3]))
        suite, profile, _ = place.split("/")
        report = (RESULTS / f"{suite}_{profile}.md").read_text(encoding="utf-8")
        if "family of comparisons: the strategies of this task" in report and "|" not in arguments:
            check_holm(compared, looks(place))
        checked += len(compared)
    assert checked > 10


def test_means_of_several_tasks_or_metrics_are_recomputed() -> None:
    checked = 0
    for _, (header, *rows) in tables("tasks"):
        for position, title in enumerate(header[1:], 1):
            place, metric = place_of(title)
            found = values(place)
            shown = {row[0].strip("`"): row[position] for row in rows[:-1] if row[position] != "–"}
            assert shown.keys() == {arm for arm in found if of(found, arm, metric)}
            for arm, cell in shown.items():
                check_mean(cell, of(found, arm, metric))
            counts = {len(each) for each in found.values()}
            assert numbers(rows[-1][position]) == sorted({min(counts), max(counts)})
            checked += len(shown)
    for arguments, (header, *rows) in tables("metrics"):
        found = values(arguments.partition("|")[0].strip())
        assert {row[0].strip("`") for row in rows} == set(found)
        for row in rows:
            for name, cell in zip(header[1:-1], row[1:-1], strict=True):
                check_mean(cell, of(found, row[0].strip("`"), name))
                checked += 1
    assert checked > 40


def test_the_cost_of_a_bad_temperature_is_recomputed() -> None:
    """The worst of the fixed temperatures of a task, against its baseline."""
    for arguments, (_, *rows) in tables("spread"):
        assert len(rows) > 3
        for row in rows:
            place, metric = place_of(row[0])
            assert any(fnmatch(place, each) for each in arguments.split())
            found = values(place)
            baselines = [arm for arm in found if re.fullmatch(rf"fixed:temperature={row[2]}\+[^@]*", arm)]
            (baseline,) = baselines if len(baselines) == 1 else [declared(place)]
            objective = baseline.rpartition("+")[2]
            fixed = {arm: of(found, arm, metric) for arm in found if re.fullmatch(rf"fixed:\S+=\S+\+{objective}", arm)}
            taus = {arm: float(arm.partition("=")[2].partition("+")[0]) for arm in fixed}
            assert [float(each) for each in row[1].split(", ")] == sorted(taus.values())
            worst = min(fixed, key=lambda arm: statistics.fmean(fixed[arm].values()))
            assert float(row[4]) == taus[worst], row
            check_mean(row[3], fixed[baseline])
            check_mean(row[5], fixed[worst])
            if worst != baseline:
                check_difference(row[6], fixed[worst], fixed[baseline])


def declared(place: str) -> str:
    """Returns the baseline of a task from its committed report."""
    suite, profile, task = place.split("/")
    report = (RESULTS / f"{suite}_{profile}.md").read_text(encoding="utf-8")
    section = report.partition(f"\n## {suite} / {task} / {profile}\n")[2]
    return re.findall(r"^- baseline: (\S+),", section, re.MULTILINE)[0]


def differences(place: str, metric: str, strategy: str, baseline: str) -> dict[float, int]:
    """Returns mean difference to the baseline and number of common seeds of each arm of a strategy."""
    found, made = values(place), {}
    for arm in found:
        common = found[arm].keys() & found[baseline].keys()
        if re.split("[:+]", arm)[0] == strategy and common:
            made[statistics.fmean(found[arm][seed][metric] - found[baseline][seed][metric] for seed in common)] = len(common)
    return made


def shown_in(cell: str, means: dict[float, int]) -> float:
    """Returns the mean that a cell shows."""
    return next(mean for mean in means if abs(numbers(cell)[0] - mean) <= half(cell))


def test_differences_of_strategies_are_recomputed() -> None:
    """Each is that of one of the strategy's arms. A mark: p below 0.05, five seeds, a tenth of a point (retrieval: half)."""
    checked = 0
    for _, (header, *rows) in tables("strategies"):
        for row in rows:
            place, metric = place_of(row[0])
            for name, cell in zip((each.strip("`") for each in header[2:-1]), row[2:-1], strict=True):
                if cell == "–":
                    continue
                found = differences(place, metric, name, row[1].strip("`"))
                mean = shown_in(cell, found)
                p = re.search(r"\(p <?([\d.]+)\)", cell)
                matters = found[mean] >= 5 and abs(mean) >= (0.5 if place.startswith("retrieval/") else 0.1)
                news = ("▲" if mean > 0 else "▼") if p is not None and float(p[1]) < 0.05 and matters else ""
                assert "".join(re.findall("[▲▼]", cell)) == news, cell
                checked += 1
    assert checked > 10


def test_differences_by_length_are_recomputed() -> None:
    """Mean, t interval over the data sets and worst in per cent of the baseline, and Spearman's correlation of the means."""
    checked = 0
    for arguments, (_, *rows, orders) in tables("lengths"):
        places, _, given = (part.strip() for part in arguments.partition("|"))
        (suite, profile), names = places.split()[0].split("/"), places.split()[1:]
        means: list[dict[str, float]] = []
        for column, suffix in enumerate(("-short", "", "-long"), start=1):
            found = [values(f"{suite}/{profile}/{name}{suffix}") for name in names]
            task = load_suite(suite).task(names[0] + suffix)
            sizes = task.profile(profile)
            means.append({})
            for row in rows:
                label, cell = row[0].strip("`"), row[column]
                if cell == "–":
                    assert not any(label in each for each in found)
                    continue
                differences = [
                    100
                    * (
                        mean_of(each, label, sizes.primary)
                        / mean_of(each, given or best(each, sizes.validation, task.baseline), sizes.primary)
                        - 1
                    )
                    for each in found
                    if label in each
                ]
                expected = [statistics.fmean(differences)]
                if len(differences) > 1:
                    expected += [*stats.ttest_1samp(differences, 0).confidence_interval(0.95)] if any(differences) else [0, 0]
                    expected.append(min(differences))
                assert numbers(cell) == pytest.approx(expected, abs=0.051), (label, cell)
                checked += 1
                if label != "untrained":
                    means[-1][label] = expected[0]
        for place, (first, second) in enumerate(itertools.pairwise(means), start=2):
            both = first.keys() & second.keys()
            correlation = stats.spearmanr(*([of_length[label] for label in both] for of_length in (first, second))).statistic
            assert float(orders[place]) == pytest.approx(correlation, abs=0.0051)
    assert checked > 30


def mean_of(found: Values, arm: str, metric: str) -> float:
    return statistics.fmean(of(found, arm, metric).values())


def best(found: Values, metric: str, recipe: str) -> str:
    """Returns the fixed temperature that is best on validation data, among those with objective and settings of the recipe."""
    alike = (arm for arm in found if arm.startswith("fixed:") and arm.partition("+")[2] == recipe.partition("+")[2])
    return max(alike, key=lambda arm: mean_of(found, arm, metric))


def test_losses_of_macl_and_of_the_recipes_own_temperature_are_recomputed() -> None:
    """The one place where a text cites figures of all tasks: means and worst of the rows with `macl`."""
    page = RESULTS / "README.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    own = r"over the (\d+) rows of `macl` in the table above, that value is (\S+) points below the baseline on average"
    (cited,) = re.findall(rf"{own} and (\S+) at worst, and `macl` (\S+) and (\S+)\.", text)
    ((_, (header, *rows)),) = tables("strategies", [page])
    lost: dict[str, list[float]] = {"own": [], "macl": []}
    for row in rows:
        if (cell := row[header.index("`macl`")]) != "–":
            place, metric = place_of(row[0])
            suite, _, task = place.split("/")
            found, baseline, recipe = values(place), row[1].strip("`"), load_suite(suite).task(task).baseline
            common = found[recipe].keys() & found[baseline].keys()
            lost["own"].append(statistics.fmean(found[baseline][seed][metric] - found[recipe][seed][metric] for seed in common))
            lost["macl"].append(-shown_in(cell, differences(place, metric, "macl", baseline)))
    expected = [len(lost["macl"]), *(round(f(each), 2) for each in lost.values() for f in (statistics.fmean, max))]
    assert [float(each) for each in cited] == expected


def test_the_text_on_validation_data_of_sentences_holds() -> None:
    """STS-B dev: dystress is the best arm, with each seed above fixed 0.05, the best fixed one; fixed 0.07 is below that."""
    found = values("sentence/small/supervised")
    means = {arm: statistics.fmean(of(found, arm, "STSB-dev").values()) for arm in found}
    baseline, warmer = (f"fixed:temperature={each}+infonce" for each in ("0.05", "0.07"))
    assert max(means, key=means.__getitem__) == "dystress+infonce"
    assert max((arm for arm in means if arm.startswith("fixed")), key=means.__getitem__) == baseline
    dystress, fixed = of(found, "dystress+infonce", "STSB-dev"), of(found, baseline, "STSB-dev")
    assert len(dystress) == len(fixed) == 8
    assert all(dystress[seed] > fixed[seed] for seed in fixed)
    assert means[warmer] == pytest.approx(means[baseline] - 0.36, abs=0.01)
