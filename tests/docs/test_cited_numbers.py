"""The figures that the guides cite are those of the committed results, recomputed here from the JSON files alone."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest
from scipy import stats

from tempplug_benchmarks.suite import load_suite

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [*sorted((ROOT / "docs").glob("**/*.md")), RESULTS / "README.md", ROOT / "README.md"]
MARKER = re.compile(r"<!-- measured ([\w-]+)(?:: (.*?))? -->\n\n((?:\|.*\n)*)")
LINK = re.compile(r"\[([^\]]+) (\S+), (\w+)\]\([^)]*\)(?:: (.*))?")

Table = list[list[str]]
Values = dict[str, dict[int, dict[str, float]]]


@pytest.fixture(scope="module")
def measured() -> ModuleType:
    """The script that writes the tables."""
    spec = importlib.util.spec_from_file_location("measured", ROOT / "docs" / "measured.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables(*kinds: str) -> list[tuple[Path, str, Table]]:
    """Returns the tables of the guides that are of these kinds: page, arguments, header and lines."""
    found = []
    for page in PAGES:
        for kind, arguments, table in MARKER.findall(page.read_text(encoding="utf-8")):
            if kind in kinds:
                lines = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines()]
                found.append((page, arguments, [lines[0], *lines[2:]]))
    return found


def values(place: str) -> Values:
    """Returns the metrics of ``suite/profile/task`` by arm and seed."""
    found: Values = {}
    for file in (RESULTS / place).glob("*/seed-*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        if "metrics" in content:
            found.setdefault(content["arm"], {})[content["seed"]] = content["metrics"]
    assert found, place
    return found


def looks(place: str) -> int:
    """Returns how often the results of ``suite/profile/task`` were read while seeds were added."""
    file = RESULTS / place / "looks.json"
    return len(json.loads(file.read_text(encoding="utf-8"))["looks"]) if file.exists() else 1


def numbers(cell: str) -> list[float]:
    return [float(each) for each in re.findall(r"(?<![\w=])[-+]?\d+(?:\.\d+)?", cell)]


def half(cell: str) -> float:
    """Returns half of what the last digit of a cell's first number stands for."""
    first = re.findall(r"\d+(?:\.\d+)?", cell)[0]
    return 0.5 * 10.0 ** -len(first.partition(".")[2]) * 1.0001


def of(found: Values, arm: str, metric: str) -> dict[int, float]:
    return {seed: metrics[metric] for seed, metrics in found[arm].items() if metric in metrics}


def check_mean(cell: str, by_seed: dict[int, float]) -> None:
    expected = [statistics.fmean(by_seed.values()), *([statistics.stdev(by_seed.values())] if len(by_seed) > 1 else [])]
    assert numbers(cell) == pytest.approx(expected, abs=half(cell)), cell


def check_difference(cell: str, arm: dict[int, float], baseline: dict[int, float]) -> float | None:
    """Makes sure of the mean difference and its interval; returns p."""
    common = sorted(arm.keys() & baseline.keys())
    expected = [statistics.fmean(arm[seed] - baseline[seed] for seed in common)]
    if len(common) == 1:
        assert numbers(cell) == pytest.approx(expected, abs=half(cell)), cell
        return None
    test = stats.ttest_rel([arm[seed] for seed in common], [baseline[seed] for seed in common])
    if "[" in cell:
        expected += [*test.confidence_interval(0.95)]
    assert numbers(cell.split("(")[0]) == pytest.approx(expected, abs=half(cell)), cell
    return float(test.pvalue)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_tables_of_a_guide_are_what_the_results_give(page: Path, measured: ModuleType) -> None:
    text = page.read_text(encoding="utf-8")
    assert measured.rewritten(text, page.parent) == text, "the tables are stale: run `python docs/measured.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_with_a_deviation_stand_in_tables_that_are_written_from_the_results(page: Path) -> None:
    """What a text says beside them would go stale unseen."""
    assert re.findall(r"\d ± \d", MARKER.sub("", page.read_text(encoding="utf-8"))) == []


def test_arms_are_recomputed() -> None:
    """Mean, deviation, difference with interval, seeds; Holm's p, times looks, where a task's arms are the whole family."""
    checked = 0
    for _, arguments, (header, *rows) in tables("arms"):
        place = arguments.split("|")[0].strip()
        found, metric = values(place), header[1]
        (baseline,) = re.findall("`(.*)`", header[2])
        assert header[3] == ("Holm p" if looks(place) == 1 else f"Holm p, {looks(place)} looks")
        assert {row[0].strip("`") for row in rows} == set(found)
        compared = {}
        for row in rows:
            arm = of(found, row[0].strip("`"), metric)
            check_mean(row[1], arm)
            assert int(row[4]) == len(arm)
            # neither what is not trained nor a control is one of the family
            strategy = "+" in row[0] and not row[0].startswith("`control(")
            if row[2] != "baseline" and (p := check_difference(row[2], arm, of(found, baseline, metric))) and strategy:
                compared[row[0]] = (p, row[3])
        suite, profile, _ = place.split("/")
        report = (RESULTS / f"{suite}_{profile}.md").read_text(encoding="utf-8")
        if "family of comparisons: the strategies of this task" in report and "|" not in arguments:
            largest = 0.0
            for rank, (p, shown) in enumerate(sorted(compared.values())):
                largest = max(largest, min(1.0, (len(compared) - rank) * looks(place) * p))
                assert float(shown.strip("<")) == pytest.approx(largest, rel=0.06) or largest < 0.001, place
        checked += len(compared)
    assert checked > 10


def test_cells_of_several_tasks_are_recomputed() -> None:
    checked = 0
    for _, _, (header, *rows) in tables("tasks"):
        for position, title in enumerate(header[1:], 1):
            suite, task, profile, metric = re.fullmatch(LINK, title).groups()  # type: ignore[union-attr]
            found = values(f"{suite}/{profile}/{task}")
            for row in rows[:-1]:
                if row[position] != "–":
                    check_mean(row[position], of(found, row[0].strip("`"), metric))
                    checked += 1
            shown = {row[0].strip("`") for row in rows[:-1] if row[position] != "–"}
            assert shown == {arm for arm in found if of(found, arm, metric)}
            counts = {len(each) for each in found.values()}
            assert numbers(rows[-1][position]) == sorted({min(counts), max(counts)})
    assert checked > 20


def test_several_metrics_of_a_task_are_recomputed() -> None:
    checked = 0
    for _, arguments, (header, *rows) in tables("metrics"):
        found = values(arguments.partition("|")[0].strip())
        assert {row[0].strip("`") for row in rows} == set(found)
        for row in rows:
            for name, cell in zip(header[1:-1], row[1:-1], strict=True):
                check_mean(cell, of(found, row[0].strip("`"), name))
                checked += 1
    assert checked > 20


def test_what_a_bad_temperature_costs_is_recomputed() -> None:
    """The worst of the fixed temperatures of a task, against its baseline."""
    checked = 0
    for _, arguments, (_, *rows) in tables("spread"):
        assert all(any(fnmatch(place_of(row[0])[0], each) for each in arguments.split()) for row in rows)
        for row in rows:
            place, metric = place_of(row[0])
            found = values(place)
            baselines = [arm for arm in found if re.match(rf"fixed:temperature={row[2]}\+", arm)]
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
            checked += 1
    assert checked > 3


def test_differences_of_strategies_are_recomputed() -> None:
    """Each is that of one of the strategy's arms. A mark: p below 0.05, five seeds, a tenth of a point; and nowhere else."""
    checked = 0
    for _, _, (header, *rows) in tables("strategies"):
        names = [cell.strip("`") for cell in header[2:-1]]
        for row in rows:
            place, metric = place_of(row[0])
            found, baseline = values(place), row[1].strip("`")
            for name, cell in zip(names, row[2:-1], strict=True):
                if cell == "–":
                    continue
                differences = {}
                for arm in found:
                    common = sorted(found[arm].keys() & found[baseline].keys())
                    if re.split("[:+]", arm)[0] == name and common:
                        mean = statistics.fmean(found[arm][seed][metric] - found[baseline][seed][metric] for seed in common)
                        differences[mean] = len(common)
                shown = [mean for mean in differences if abs(numbers(cell)[0] - mean) <= half(cell)]
                assert shown, (row[0], name)
                p = re.search(r"\(p <?([\d.]+)\)", cell)
                matters = differences[shown[0]] >= 5 and abs(shown[0]) >= 0.1
                mark = {1: "▲", -1: "▼"}[1 if shown[0] > 0 else -1]
                news = mark if p is not None and float(p[1]) < 0.05 and matters else ""
                assert "".join(re.findall("[▲▼]", cell)) == news, cell
                checked += 1
    assert checked > 10


def test_what_macl_and_the_recipes_own_temperature_lose_is_recomputed() -> None:
    """The one place where a text cites figures of all tasks: means and worst of the rows with `macl`."""
    own, macl = (
        r"over its (\d+) rows that value is (\S+) below\s+the baseline on average and (\S+) at worst",
        r"`macl` (\S+) and (\S+)\.",
    )
    (page,) = (each for each in PAGES if each.name == "which-temperature.md")
    (cited,) = re.findall(f"{own}, and {macl}", page.read_text(encoding="utf-8"))
    ((header, *rows),) = (table for where, _, table in tables("strategies") if where == page)
    lost: dict[str, list[float]] = {"own": [], "macl": []}
    for row in rows:
        cell = row[header.index("`macl`")]
        if cell == "–":
            continue
        place, metric = place_of(row[0])
        suite, _, task = place.split("/")
        found, baseline = values(place), row[1].strip("`")

        def below(arm: str, found: Values = found, baseline: str = baseline, metric: str = metric) -> float:
            common = found[arm].keys() & found[baseline].keys()
            return statistics.fmean(found[baseline][seed][metric] - found[arm][seed][metric] for seed in common)

        lost["own"].append(below(load_suite(suite).task(task).baseline))
        shown = [below(arm) for arm in found if re.match("macl[:+]", arm)]
        lost["macl"].append(next(each for each in shown if abs(numbers(cell)[0] + each) <= half(cell)))
    expected = [len(lost["macl"])]
    expected += [round(f(each), 2) for each in lost.values() for f in (statistics.fmean, max)]
    assert [float(each) for each in cited] == expected


def test_what_is_said_of_validation_data_on_sentences_holds() -> None:
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


def place_of(link: str) -> tuple[str, str]:
    """Returns suite/profile/task and metric of a table's link."""
    suite, task, profile, metric = re.fullmatch(LINK, link).groups()  # type: ignore[union-attr]
    return f"{suite}/{profile}/{task}", metric


def declared(place: str) -> str:
    """Returns the baseline of a task from its committed report."""
    suite, profile, task = place.split("/")
    report = (RESULTS / f"{suite}_{profile}.md").read_text(encoding="utf-8")
    section = report.partition(f"\n## {suite} / {task} / {profile}\n")[2]
    return re.findall(r"^- baseline: (\S+),", section, re.MULTILINE)[0]
