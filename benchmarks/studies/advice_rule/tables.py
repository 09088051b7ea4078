"""The tables of the study: how often each rule is right."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from studies.advice_rule.telling import COUNTS

RESULTS = Path(__file__).with_name("results") / "simulated" / "rules.jsonl"
TELLING, SHRUNKEN, LIMITED = (
    Path(__file__).with_name("results") / plan / "rules.jsonl" for plan in ("telling", "shrunken", "limited")
)
MOST = 10.0
"""Per cent of answers that may be wrong, and of data sets without a gain that may get a change."""
MATTERS = 2.0
"""Smallest difference of the share of verdicts that matters, in per cent of the answers."""


def read(file: Path = RESULTS) -> list[dict[str, Any]]:
    """Returns the counts, a line each rule, kind of curve, number of repetitions, decay and gain."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def share(lines: Iterable[dict[str, Any]], what: str) -> str:
    """Returns the share of data sets, in per cent."""
    counted = list(lines)
    return f"{100 * sum(line[what] for line in counted) / sum(line['data_sets'] for line in counted):.1f}"


def rule_rows(lines: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Returns, by rule, the shares within a point of the best (all) and kept (nothing to gain), by repetitions and noise."""
    settings = sorted({(line["repetitions"], -line["decay"]) for line in lines})
    names = [f"{repetitions} repetitions, decay {-decay:g}: within, kept" for repetitions, decay in settings]
    rows = [["rule", *names]]
    for rule in dict.fromkeys(line["rule"] for line in lines):
        cells = []
        for repetitions, decay in settings:
            of = [line for line in lines if (line["rule"], line["repetitions"], -line["decay"]) == (rule, repetitions, decay)]
            cells.append(f"{share(of, 'within')}, {share((line for line in of if line['gain'] == 'below 1'), 'kept')}")
        rows.append([f"`{rule}`", *cells])
    return rows


def gain_rows(lines: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Returns, by what is to be gained, the shares within a point of the best, over all settings."""
    gains = ("below 1", "1 to 2", "above 2")
    rows = [["rule", *(f"{gain} points to gain" for gain in gains)]]
    for rule in dict.fromkeys(line["rule"] for line in lines):
        of = [line for line in lines if line["rule"] == rule]
        rows.append([f"`{rule}`", *(share((line for line in of if line["gain"] == gain), "within") for gain in gains)])
    return rows


Lines = Sequence[dict[str, Any]]


def read_telling(file: Path) -> Lines:
    """Returns the counts of `studies.advice_rule.telling`, a line for each limit, which is infinite if there is none."""
    return [
        {**line, "limit": float(limit), **dict(zip(COUNTS, counts, strict=True))}
        for line in read(file)
        for limit, counts in line["limits"].items()
    ]


def of(lines: Lines, **wanted: object) -> Lines:
    """Returns the lines with these values."""
    return [line for line in lines if all(line[name] == value for name, value in wanted.items())]


def percent(part: float, whole: float) -> float:
    """Returns a share in per cent; that of nothing is 0."""
    return 100 * part / whole if whole else 0.0


def faults(lines: Lines) -> tuple[float, float, float]:
    """Returns in per cent: wrong verdicts of all answers, changes where there is no gain, wrong ones of verdicts to keep."""

    def total(name: str, counted: Lines = lines) -> int:
        return sum(line[name] for line in counted)

    no_gain = of(lines, gain="below 1")
    return (
        percent(total("wrong"), total("data_sets")),
        percent(total("verdicts", no_gain) - total("keep", no_gain), total("data_sets", no_gain)),
        percent(total("wrong_keep"), total("keep")),
    )


def settings(lines: Lines, schedules: Sequence[object] = (2, 5)) -> list[Lines]:
    """Returns the lines of each schedule, number of held-out pairs and decay."""
    keys = dict.fromkeys((line["schedule"], line["held_out"], line["decay"]) for line in lines if line["schedule"] in schedules)
    return [of(lines, schedule=schedule, held_out=held_out, decay=decay) for schedule, held_out, decay in keys]


def told(lines: Lines, schedules: Sequence[object] = (2, 5)) -> float:
    """Returns the verdicts in per cent of the answers, the mean over settings."""
    shares = [
        percent(sum(line["verdicts"] for line in each), sum(line["data_sets"] for line in each))
        for each in settings(lines, schedules)
    ]
    return sum(shares) / len(shares)


def worst(lines: Lines, schedules: Sequence[object] = (2, 5)) -> list[float]:
    """Returns the largest of each of the `faults` over all settings."""
    return [max(each) for each in zip(*map(faults, settings(lines, schedules)), strict=True)]


def qualified(lines: Lines) -> list[tuple[str, float]]:
    """Returns the rules and limits that qualify by the plan, the one that it takes first."""
    pairs = dict.fromkeys((line["rule"], line["limit"]) for line in lines)
    found = {pair: each for pair in pairs if max(worst(each := of(lines, rule=pair[0], limit=pair[1]))) <= MOST}
    shares = {pair: told(each) for pair, each in found.items()}
    most = max(shares.values(), default=0.0)
    names = list(dict.fromkeys(rule for rule, _ in pairs))
    near = [pair for pair, share in shares.items() if share >= most - MATTERS]
    first = min(near, key=lambda pair: (names.index(pair[0]), pair[1]), default=None)
    return sorted(shares, key=lambda pair: (pair != first, -shares[pair]))


def telling_rows() -> list[list[str]]:
    """Returns, for the rules of the later plans, the worst shares over all settings and the shares of verdicts."""
    shown = [
        (TELLING, "bonferroni", math.inf),
        (TELLING, "bonferroni", 3.0),
        (TELLING, "dunnett", 3.0),
        (TELLING, "repeated-80", 2.0),
    ]
    shown += [(TELLING, "shrunken", math.inf)]
    shown += [(SHRUNKEN, f"shrunken-{level}", 1.5) for level in (80, 90, 95)] + [(LIMITED, "limited-80", 1.5)]
    rows = [["rule", "limit", "wrong", "changed for nothing", "wrong of keep", "verdicts: two", "five", "adaptive"]]
    for file, rule, limit in shown:
        lines = of(read_telling(file), curves="confirm", rule=rule, limit=limit)
        figures = (*worst(lines), *(told(lines, [schedule]) for schedule in (2, 5, "adaptive")))
        rows.append([f"`{rule}`", "none" if limit == math.inf else f"{limit:g}", *(f"{figure:.1f}" for figure in figures)])
    return rows


def answer_rows() -> list[list[str]]:
    """Returns how often the rule of the command gives which answer, by setting, without and with something to gain."""
    rows = [["held-out pairs, repetitions, decay", "keep", "cannot tell", "change", "change", "cannot tell", "keep"]]
    lines = of(read_telling(LIMITED), curves="confirm", rule="limited-80", limit=1.5)
    for setting in settings(lines):
        first = setting[0]
        cells = []
        for gained in (False, True):
            some = [line for line in setting if (line["gain"] != "below 1") == gained]
            whole, verdicts, keep = (sum(line[name] for line in some) for name in ("data_sets", "verdicts", "keep"))
            shares = [percent(part, whole) for part in (keep, whole - verdicts, verdicts - keep)]
            cells += [f"{share:.1f}" for share in (shares[::-1] if gained else shares)]
        rows.append([f"{first['held_out']}, {first['schedule']}, {first['decay']:g}", *cells])
    return rows
