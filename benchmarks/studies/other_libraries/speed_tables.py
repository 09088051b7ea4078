"""Tables of the guide from results of the speed suite: a header and rows of cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.store import Result
from tempplug_benchmarks.speed.cases import CONTENT
from tempplug_benchmarks.speed.recipe import OURS, SpeedRecipe, told_time

NOTHING = "–"
LOSSES, COLUMNS, LIBRARIES = (CONTENT["titles"][name] for name in ("losses", "columns", "libraries"))
Numbers = Mapping[str, float | str]


def results_of(folder: Path, slug: str) -> tuple[Result, ...]:
    """Returns the results in a profile's ``folder`` measured under the setting ``slug``, such as ``cpu-1-thread``."""
    return tuple(each for each in load_results(folder).results if _case(each).slug == slug)


def speed(results: Sequence[Result], *losses: str) -> list[list[str]]:
    """Returns the milliseconds of every implementation in a training, and tempplug's share of the peak rate.

    Implementations that are faster than tempplug are marked. If losses are given, only these are included.
    """
    lines = [["loss", "N × D", "call", "tempplug, ms", *_headings(), "others, ms", "of peak"]]
    for case, found in _cases(results, "milliseconds"):
        if losses and case.loss_name not in losses:
            continue
        call, ours, times = _told(case, found)
        others = ", ".join(f"{title} {_milliseconds(times[name])}" for name, title in LIBRARIES.items() if name in times)
        share = found[OURS].get("matmul_share")
        cells = [*_named(case), call, _milliseconds(ours), *(_marked(times, name, ours) for name in COLUMNS)]
        lines.append([*cells, others or NOTHING, NOTHING if share is None else f"{share:.0%}"])
    return lines


def short(results: Sequence[Result]) -> list[list[str]]:
    """Returns some cases of `speed`, one row for each loss, without marks."""
    lines = [["loss", "N", "tempplug, ms", *_headings()]]
    for loss, of in CONTENT["short"].items():
        chosen = [each for each in _cases(results, "milliseconds") if each[0].loss_name == loss and each[0].rows in of["rows"]]
        chosen = [each for each in chosen if each[0].dimension == of["dimension"]]
        told = [_told(*each) for each in chosen]
        cells = [[str(case.rows) for case, _ in chosen], [_milliseconds(ours) for _, ours, _ in told]]
        cells += [[_milliseconds(times[name]) if name in times else NOTHING for *_, times in told] for name in COLUMNS]
        if chosen:
            title = LOSSES[loss] + f", D = {of['dimension']}" * (of["dimension"] != 128)
            lines.append([title, *(", ".join(each) for each in cells)])
    return lines


def errors(results: Sequence[Result]) -> list[list[str]]:
    """Returns the largest gradient error against float64, relative to the largest entry; ▼: above plain PyTorch's."""
    lines = [["loss", "N × D", "τ", "tempplug", "plain PyTorch"]]
    for case, found in _cases(results, "gradient_error"):
        ours = float(found[OURS]["gradient_error"])
        theirs = float(found.get("eager", {}).get("gradient_error", math.inf))  # plain PyTorch's may not be finite
        shown = f"{theirs:.1e}" if math.isfinite(theirs) else "not finite"
        lines.append([*_named(case), f"{case.temperature:g}", f"{ours:.1e}{' ▼' * (ours > theirs)}", shown])
    return lines


def _case(result: Result) -> SpeedRecipe:
    return SpeedRecipe().changed(**result.recipe, **result.changes)


def _named(case: SpeedRecipe) -> tuple[str, str]:
    return LOSSES[case.loss_name], f"{case.rows} × {case.dimension}"


def _told(case: SpeedRecipe, found: Mapping[str, Numbers]) -> tuple[str, float, dict[str, float]]:
    """Returns cold or hot, tempplug's milliseconds, and those of each implementation."""
    name = told_time(case.rows, found[OURS])
    times = {other: float(of[name]) for other, of in found.items()}
    return "cold" if name.endswith("cold") else "hot", times[OURS], times


def _cases(results: Sequence[Result], figure: str, variable: str = "") -> list[tuple[SpeedRecipe, dict[str, Numbers]]]:
    """Returns the cases of a figure by loss and size, under one environment variable, each with its measured numbers."""
    cases = []
    for result in results:
        case = _case(result)
        if figure in result.metrics and "".join(each.partition("=")[0] for each in case.environment) == variable:
            cases.append((case, {name: of for name, of in result.implementations.items() if figure in of}))
    order = [*LOSSES]
    return sorted(
        cases, key=lambda each: (order.index(each[0].loss_name), each[0].rows, each[0].dimension, each[0].temperature)
    )


def _milliseconds(value: float) -> str:
    return f"{value:.{0 if value >= 10 else 1 if value >= 1 else 2}f}"


def _headings() -> list[str]:
    return [f"{title}, ms" for title in COLUMNS.values()]


def _marked(times: Mapping[str, float], name: str, ours: float) -> str:
    """Returns the milliseconds of an implementation, marked if tempplug is slower."""
    return NOTHING if name not in times else _milliseconds(times[name]) + " ▼" * (times[name] < ours)


TABLES: dict[str, Callable[..., list[list[str]]]] = {each.__name__: each for each in (speed, short, errors)}
