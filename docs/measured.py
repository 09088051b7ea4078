"""Rewrites the tables of measured figures in guides and studies from the result files: ``python docs/measured.py``.

A table follows a comment that defines it, ``<!-- measured KIND: ARGUMENTS -->``; `KINDS` has the kinds, `studies.tables`
those of studies. Tasks are named ``suite/profile/task``, with ``*`` for any, and are those below ``benchmarks/results``.
Figures are means ± sample standard deviations over seeds. Differences, p values (corrected for comparisons, and for reading
results before all seeds were there) and verdicts are those of ``tempplug bench report``. This file must not depend on the
text of a guide.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.length.tables import ByLength, differences_by_length, length_rows
from studies.other_libraries import speed_tables
from studies.tables import STUDIES, TABLES
from tempplug.arguments import parse_spec
from tempplug_benchmarks.arm import UNTRAINED, Arm
from tempplug_benchmarks.command import reports
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.profile import Metric
from tempplug_benchmarks.report.across import MARKS, columns
from tempplug_benchmarks.report.comparison import ArmRow, Comparison
from tempplug_benchmarks.report.tables import format_cell, format_difference, format_p, format_summary, tone
from tempplug_benchmarks.training import TrainingReport

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
PAGES = [*sorted(DOCS.glob("**/*.md")), *sorted(STUDIES.glob("**/*.md")), RESULTS / "README.md", DOCS.parent / "README.md"]
LINKS = "../benchmarks/results"
NOTHING = "–"
MARKER = re.compile(r"<!-- measured (?P<kind>[\w-]+)(?:: (?P<arguments>[^\n]*?))? -->\n\n(?P<table>(?:\|[^\n]*\n)*)")


def main(arguments: Sequence[str]) -> None:
    """Rewrites the given guides, by default all, and prints the names of those that changed."""
    for page in [Path(each) for each in arguments] or PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := rewritten(text, page.parent)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page}: rewritten")


def rewritten(text: str, folder: Path = DOCS) -> str:
    """Returns a page of this folder with every table of measured figures as the results have it now."""
    results = os.path.relpath(RESULTS, folder.resolve())

    def table(found: re.Match[str]) -> str:
        head = found[0][: found.start("table") - found.start()]
        lines = KINDS[found["kind"]](found["arguments"] or "")
        return head + "".join(f"{line}\n".replace(f"({LINKS}", f"({results}") for line in lines) + "\n" * (not found["table"])

    return MARKER.sub(table, text)


def arms(arguments: str) -> list[str]:
    """``TASK [| METRIC]``: the arms of one task with difference to the baseline, Holm's p, seeds, and the papers' figures."""
    (comparison,), metric = _asked(arguments)
    reported = any(_reported(row, metric) for row in comparison.rows)
    against, corrected = f"minus `{comparison.baseline}`, 95 %", f"Holm p{_readings(comparison)}"
    header = ["strategy+objective", metric.name, against, corrected, "seeds"]
    lines = [[*header, *(["reported"] if reported else [])]]
    for row in _ordered(comparison.rows):
        summary = row.summaries.get(metric.name)
        adjusted = row.significance.adjusted if row.significance and metric.name == comparison.primary.name else None
        cells = [f"`{row.label}`", format_summary(summary, metric), _difference(row, comparison, metric), format_p(adjusted)]
        lines.append([*cells, str(summary.count if summary else 0), *([_reported(row, metric) or NOTHING] if reported else [])])
    return _table(lines)


def tasks(arguments: str) -> list[str]:
    """``TASK TASK … [| METRIC]``: arms × tasks; a task's baseline is bold, ▲ and ▼ are better and worse."""
    found, metric = _asked(arguments, one_metric="|" in arguments)
    labels = sorted(dict.fromkeys(row.label for each in found for row in each.rows), key=_order)
    lines = [["strategy+objective", *(f"{_link(each)}: {(metric or each.primary).name}" for each in found)]]
    for label in labels:
        lines.append([f"`{label}`", *(_cell(each, label, metric or each.primary) for each in found)])
    lines.append(["seeds", *(_seeds(each.rows, metric or each.primary) for each in found)])
    return _table(lines)


def metrics(arguments: str) -> list[str]:
    """``TASK | METRIC, METRIC, …``: the arms of one task by several metrics."""
    place, _, names = arguments.partition("|")
    (comparison,), _ = _asked(place)
    chosen = [_asked(f"{place}|{name}")[1] for name in names.split(",")]
    lines = [["strategy+objective", *(metric.name for metric in chosen), "seeds"]]
    for row in _ordered(comparison.rows):
        shown = [format_summary(row.summaries.get(metric.name), metric) for metric in chosen]
        lines.append([f"`{row.label}`", *shown, _seeds([row], chosen[0])])
    return _table(lines)


def spread(arguments: str) -> list[str]:
    """``TASK TASK …``: the worst of the measured fixed temperatures, minus the baseline, without tasks of one seed."""
    lines = [["task", "fixed τ that ran", "baseline", "mean", "worst", "mean", "difference, 95 %", "Holm p", "seeds"]]
    for each in _asked(arguments)[0]:
        metric, own = each.primary, _temperature(each.baseline)
        fixed = [row for row in each.rows if own and (_temperature(row.label) or (0, ""))[1] == own[1]]
        fixed = [row for row in fixed if metric.name in row.summaries]
        if len(fixed) < 2 or each.signal is False or _one_seed(fixed, metric):
            continue
        sign = 1 if metric.higher_is_better else -1
        worst = min(fixed, key=lambda row: sign * row.summaries[metric.name].mean)
        (best,) = [row for row in fixed if row.label == each.baseline]
        if worst is best:
            continue
        tried = ", ".join(map(_tau, _ordered(fixed)))
        cells = [f"{_link(each)}: {metric.name}", tried]
        for row in (best, worst):
            cells += [_tau(row), format_summary(row.summaries[metric.name], metric)]
        adjusted = worst.significance.adjusted if worst.significance else None
        lines.append([*cells, _difference(worst, each, metric), format_p(adjusted), _seeds([best, worst], metric, each)])
    return _table(lines)


def strategies(arguments: str) -> list[str]:
    """``TASK TASK …``: each strategy as the task's recipe has it, minus the baseline, with Holm's p and a mark after it.

    Tasks with one seed are left out.
    """
    found = [each for each in columns(_asked(arguments)[0]) if len(each.rows) > 1 and each.comparison.signal is not False]
    compared = [each for each in found if not _one_seed(each.rows.values(), each.comparison.primary)]
    names = sorted({name for each in compared for name in each.rows} - {"fixed"})
    lines = [["task", "baseline", *(f"`{name}`" for name in names), "seeds"]]
    for each in compared:
        metric, cells = each.comparison.primary, []
        for name in names:
            row = each.rows.get(name)
            said = NOTHING if row is None else format_difference(row.differences.get(metric.name), metric).split(" [")[0]
            adjusted = row.significance.adjusted if row and row.significance else None
            cells.append(f"{said}{_mark(row)}" + ("" if adjusted is None else f" (p {format_p(adjusted)})"))
        of = _seeds(each.rows.values(), metric, each.comparison)
        lines.append([f"{_link(each.comparison)}: {metric.name}", f"`{each.comparison.baseline}`", *cells, of])
    return _table(lines)


def temperatures(arguments: str) -> list[str]:
    """``TASK TASK …``: the first and the last temperature of the arms, and the smallest and the largest of any pair."""
    lines = [["task", "strategy+objective", "first", "last", "smallest", "largest", "seeds"]]
    for each in _asked(arguments)[0]:
        for row in _ordered(each.rows):
            if row.temperatures and _temperature(row.label) is None:
                of = row.temperatures
                low, high = min(of["min"].values.values()), max(of["max"].values.values())
                shown = [f"{number:.3g}" for number in (of["first"].mean, of["last"].mean, low, high)]
                lines.append([_link(each), f"`{row.label}`", *shown, str(of["first"].count)])
    return _table(lines)


def lengths(arguments: str) -> list[str]:
    """``SUITE/PROFILE SET SET … [| BASELINE]``: see `length_rows`."""
    return _table(length_rows(differences_of(arguments)))


def differences_of(arguments: str) -> ByLength:
    """Returns the differences of `lengths`, with the arms in the order of all tables."""
    places, _, baseline = (part.strip() for part in arguments.partition("|"))
    where, *sets = places.split()
    found = {each.task.name: each for each in _comparisons() if _place(each).startswith(f"{where}/")}
    columns = differences_by_length(found, sets, baseline)
    return {length: {label: of[label] for label in sorted(of, key=_order)} for length, of in columns.items()}


def _of_study(kind: str, arguments: str) -> list[str]:
    return _table(TABLES[kind](arguments))


def papers(arguments: str) -> list[str]:
    """``FILE | PAPER TABLE METRIC | …``: what papers report, as transcribed in ``tempplug_benchmarks/papers``."""
    file, *parts = (part.strip() for part in arguments.split("|"))
    found = load(file)
    lines = [["paper, table", "data", "metric", "reported"]]
    for part in parts:
        key, table, name = part.split(" ", 2)
        rows: dict[str, list[str]] = {}
        for cell in found.cells:
            if (cell.paper, cell.table, cell.metric) == (key, table, name) and cell.value is not None:
                deviation = "" if cell.std is None else f" ± {cell.std}"
                rows.setdefault(cell.dataset, []).append(f"{cell.method}: {cell.value}{deviation}")
        if not rows:
            raise SystemExit(f"table {table} of '{key}' has no metric '{name}' in papers/{file}.json.")
        lines += [[f"{found.papers[key].name} {table}", data, name, "; ".join(figures)] for data, figures in rows.items()]
    return _table(lines)


def sentence_transformers(_: str) -> list[str]:
    """Without arguments: STS-B test and validation of the arms of ``sentence_transformers_nli.json``."""
    content = _json("sentence_transformers_nli.json")
    lines = [["strategy", "STS-B test", "STS-B validation", "temperature at first", "at last", "seeds"]]
    for label, arm in sorted(
        content["arms"].items(), key=lambda item: _order(item[0] + "+infonce" * (item[0] != UNTRAINED.label))
    ):
        figures = [f"{arm[name]['mean']:.2f} ± {arm[name]['std']:.2f}" for name in ("stsb_test", "stsb_dev")]
        moved = [_mean(arm[name]) if name in arm else NOTHING for name in ("temperature_first", "temperature_last")]
        lines.append([f"`{label}`", *figures, *moved, str(len(arm["stsb_test"]["values"]))])
    return _table(lines)


def transfer(_: str) -> list[str]:
    """Without arguments: the accuracies of ``transfer.json``."""
    models = _json("transfer.json")["models"]
    names = list(next(iter(models.values()))["accuracy"])
    rows = [[model, *(f"{of['accuracy'][name]:.2f}" for name in names), f"{of['average']:.2f}"] for model, of in models.items()]
    return _table([["model, untrained by us", *names, "mean"], *rows])


def advice(_: str) -> list[str]:
    """Without arguments: what `tempplug advise` chose beside the best of real trainings, of ``advice.json``."""
    lines = [["pairs", "trained", "epochs", "advised", "best", "advised below best, points"]]
    for row in _json("advice.json"):
        best = [spec for spec, score in row["scores"].items() if score == max(row["scores"].values())]
        error = "" if row["standard_error"] is None or not row["points_behind"] else f" ± {row['standard_error']:.1f}"
        named = [
            " and ".join(f"`{spec.removeprefix('fixed:temperature=')}`" for spec in each) for each in ([row["advised"]], best)
        ]
        lines.append([row["pairs"], row["trained"], str(row["epochs"]), *named, f"{row['points_behind']:.1f}{error}"])
    return _table(lines)


def graph_cost(_: str) -> list[str]:
    """Without arguments: time and memory of GRACE, of ``node_speed.json`` and ``node_large.json``."""
    speed, large = _json("node_speed.json", STUDIES / "other_libraries" / "results"), _json("node_large.json")
    epochs, own = speed["epochs"], large["own_encoder"]["nodes_169343"]["temperature-free"]
    ratio, batches = speed["plain_seconds"] / speed["tempplug_seconds"], "batches of 1,024"
    after, gat = large["after"], f"GAT, generated graph of ogbn-arxiv's layout, 169,343 nodes, {batches}: the whole command"
    plain = f"the same model with the loss in plain PyTorch: {ratio:.1f} times as much"
    return _table(
        [
            ["what", "CPU seconds, one thread", "peak memory, GiB", "beside it"],
            [f"{epochs} epochs on CiteSeer", f"{speed['tempplug_seconds']:.2f}", NOTHING, plain],
            [f"200,000 nodes, {batches}: a step", f"{after['step_seconds']:.2f}", f"{after['epoch_peak_gib']}", "width 128"],
            ["… all representations", *_figures(after, "representations_seconds", "representations_peak_gib"), NOTHING],
            ["… evaluation by both protocols", *_figures(after, "evaluation_seconds", "evaluation_peak_gib"), NOTHING],
            [gat, *_figures(own, "cpu_seconds", "peak_gib"), "one epoch with evaluation"],
        ]
    )


def _of_speed(kind: str, arguments: str) -> list[str]:
    """``SETTING [LOSS …]``: one of the tables of the speed suite; ``speed`` may be of some losses alone."""
    setting, *losses = arguments.split()
    profile = "paper" if setting.startswith("cuda") else "small"
    return _table(speed_tables.TABLES[kind](speed_tables.results_of(RESULTS / "speed" / profile, setting), *losses))


def _figures(of: Mapping[str, float], *names: str) -> list[str]:
    return [f"{of[name]:.2f}" for name in names]


def _mean(values: Any) -> str:
    """Returns the mean of one number, of a list or of a summary, in three digits."""
    numbers = values["mean"] if isinstance(values, Mapping) else values
    return f"{fmean(numbers if isinstance(numbers, list) else [numbers]):.3g}"


def _json(name: str, folder: Path = RESULTS) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _comparisons() -> tuple[Comparison, ...]:
    found = reports(RESULTS)[0]
    if not isinstance(found, TrainingReport) or found.problems:
        raise SystemExit(f"{RESULTS} cannot be reported: it has no results of trainings, or such as cannot be read.")
    return tuple(found.comparisons)


def _asked(arguments: str, one_metric: bool = True) -> tuple[list[Comparison], Any]:
    """Returns the selected tasks in the order of the patterns, and the named metric or that of the first task."""
    places, _, name = (part.strip() for part in arguments.partition("|"))
    found: dict[str, Comparison] = {}
    for pattern in places.split():
        matches = {place: each for each in _comparisons() if fnmatch(place := _place(each), pattern)}
        if not matches:
            raise SystemExit(f"there are no results of '{pattern}' below {RESULTS}.")
        found.update(sorted(matches.items()))
    chosen = list(found.values())
    metric = next((each for each in chosen[0].profile.metrics if each.name == name), None) if name else chosen[0].primary
    if metric is None:
        raise SystemExit(f"'{places}' has no metric '{name}'.")
    return chosen, metric if one_metric else None


def _place(comparison: Comparison) -> str:
    return f"{comparison.suite}/{comparison.profile_name}/{comparison.task.name}"


def _link(comparison: Comparison) -> str:
    file = f"{comparison.suite}_{comparison.profile_name}.md"
    return f"[{comparison.suite} {comparison.task.name}, {comparison.profile_name}]({LINKS}/{file})"


def _order(label: str) -> tuple[int, float, str]:
    """Returns the sort key of an arm: arms without a strategy come first, then fixed temperatures, then the others."""
    fixed = _temperature(label)
    return (1, *fixed) if fixed else (2 if Arm(label).parts else 0, 0.0, label)


def _ordered(rows: Iterable[ArmRow]) -> list[ArmRow]:
    return sorted(rows, key=lambda row: _order(row.label))


def _temperature(label: str) -> tuple[float, str] | None:
    """Returns temperature and the rest of the label of an arm with a fixed temperature, otherwise None."""
    strategy, _ = Arm(label).parts or (label, "")
    return (float(parse_spec(strategy)[1]["temperature"]), label.partition("+")[2]) if strategy.startswith("fixed:") else None


def _tau(row: ArmRow) -> str:
    fixed = _temperature(row.label)
    return "" if fixed is None else f"{fixed[0]:g}"


def _difference(row: ArmRow, comparison: Comparison, metric: Metric) -> str:
    if row.label == comparison.baseline:
        return "baseline"
    return format_difference(row.differences.get(metric.name), metric)


def _mark(row: ArmRow | None) -> str:
    """Returns ▲ or ▼ where the verdict is better or worse."""
    found = tone(row.significance if row else None)
    return f" {MARKS[found]}" if found else ""


def _cell(comparison: Comparison, label: str, metric: Metric) -> str:
    row = next((each for each in comparison.rows if each.label == label), None)
    if row is None or metric.name not in row.summaries:
        return NOTHING
    shown = format_summary(row.summaries[metric.name], metric)
    primary = metric.name == comparison.primary.name
    return f"**{shown}**" if label == comparison.baseline else shown + (_mark(row) if primary else "")


def _reported(row: ArmRow, metric: Metric) -> str:
    parts = [(format_cell(line.cells.get(metric.name), metric), line) for line in row.reported]
    return "; ".join(f"{value} ({line.paper.name} {line.table})" for value, line in parts if any(map(str.isdigit, value)))


def _one_seed(rows: Iterable[ArmRow], metric: Metric) -> bool:
    return any(row.summaries[metric.name].count == 1 for row in rows if metric.name in row.summaries)


def _seeds(rows: Iterable[ArmRow], metric: Metric, looked: Comparison | None = None) -> str:
    """Returns the number of seeds of the rows, and how often results were read if p-values are corrected for that."""
    counts = [row.summaries[metric.name].count for row in rows if metric.name in row.summaries]
    return " to ".join(dict.fromkeys((str(min(counts)), str(max(counts))))) + (_readings(looked) if looked else "")


def _readings(comparison: Comparison) -> str:
    """Returns how often results were read while seeds were added, if more than once."""
    return f", results read {len(comparison.looks)} times" if len(comparison.looks) > 1 else ""


def _table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Returns Markdown: words in the first column, figures in the others."""
    header, *rows = ([cell.replace("|", "\\|") if cell != "-" else NOTHING for cell in line] for line in lines)
    rule = [":--", *("--:" for _ in header[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


KINDS: dict[str, Callable[[str], list[str]]] = {
    **{"arms": arms, "tasks": tasks, "metrics": metrics, "spread": spread, "strategies": strategies},
    **{"temperatures": temperatures, "papers": papers, "lengths": lengths},
    **{kind: partial(_of_study, kind) for kind in TABLES},
    **{"sentence-transformers": sentence_transformers, "transfer": transfer, "graph-cost": graph_cost, "advice": advice},
    **{name: partial(_of_speed, name) for name in speed_tables.TABLES},
}

if __name__ == "__main__":
    main(sys.argv[1:])
