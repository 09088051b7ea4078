"""The tables of the study: how often each rule is right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results") / "simulated" / "rules.jsonl"


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
