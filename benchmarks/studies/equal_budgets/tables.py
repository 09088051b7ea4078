"""What each strategy loses to the best arm of a cell, by its default and by the best of all its configurations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from studies.cells import Measured
from studies.gains import named, over, tested
from tempplug.arguments import parse_spec


def configurations(measured: Measured) -> dict[str, list[str]]:
    """Returns the arms of each strategy, its default first, as they ran."""
    found: dict[str, list[str]] = {}
    for arm in measured.test:
        found.setdefault(parse_spec(arm)[0], []).append(arm)
    return found


def advised(measured: Measured) -> str:
    """Returns the temperature of the guide: 0.2 from centred vectors, 0.1 from random ones or from 16 passes on, 0.01."""
    short = {"centred": 0.2, "random": 0.1, "vectors": 0.01}[measured.cell.start]
    return f"fixed:temperature={max(short, 0.1) if measured.cell.passes >= 16 else short:g}"


def over_control(measured: Measured, arm: str) -> float:
    """Returns an arm's figure in per cent of that of its mean temperature held fixed, interpolated along ln τ, minus 100."""
    return 100 * (measured.test[arm] / measured.at(math.log(measured.temperature[arm])) - 1)


def arms_by_budget(cells: Sequence[Measured]) -> dict[str, dict[str, list[str]]]:
    """Returns the arm of each cell by budget and strategy: its default, and the best of all its configurations."""
    budgets, names = {"default": _default, "five configurations": _searched}, configurations(cells[0])
    return {budget: {name: [choose(each, name) for each in cells] for name in names} for budget, choose in budgets.items()}


def regrets(cells: Sequence[Measured], arms: Sequence[str]) -> list[float]:
    """Returns what the arm chosen in each cell loses to the best one; below 0: worse than the best."""
    return _over(cells, arms, [each.chosen(each.test) for each in cells])


def regret_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each strategy loses to the best arm of a cell by its default and by the best of all its
    configurations, of the differences to ``fixed``, and of what adapting adds. The first row is of `advised` temperatures.
    """
    rows, header = {name: [f"`{name}`"] for name in configurations(cells[0])}, ["strategy"]
    for budget, arms in arms_by_budget(cells).items():
        shown = tested(cells, {name: _over(cells, of, arms["fixed"]) for name, of in arms.items() if name != "fixed"})
        for name, of in arms.items():
            lost = regrets(cells, of)
            rows[name] += [f"{fmean(lost):+.1f}, {min(lost):+.1f}", shown.get(name, "-")]
        header += [f"{budget}: mean, worst", "minus `fixed`, 95 %, Holm p"]
    by_guide = regrets(cells, [advised(each) for each in cells])
    guide = ["`fixed` as the guide advises", f"{fmean(by_guide):+.1f}, {min(by_guide):+.1f}", "-", "-", "-", "-"]
    adapting = {name: [over_control(each, _searched(each, name)) for each in cells] for name in rows if name != "fixed"}
    shown = tested(cells, adapting)
    for name, row in rows.items():
        row.append(shown.get(name, "-"))
    return [[*header, "minus its mean temperature held fixed"], guide, *rows.values()]


def cell_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each strategy loses to the best arm, by start and passes: the default, and the best of all its
    configurations, means over the data sets.
    """
    kinds = dict.fromkeys(each.cell for each in cells)
    rows = {name: [f"`{name}`"] for name in configurations(cells[0])}
    for kind in kinds:
        own = [each for each in cells if each.cell == kind]
        budgets = arms_by_budget(own).values()
        for name, row in rows.items():
            row.append(", ".join(f"{fmean(regrets(own, arms[name])):+.1f}" for arms in budgets))
    return [["strategy", *(f"{named(kind)}: default, five" for kind in kinds)], *rows.values()]


def _default(measured: Measured, name: str) -> str:
    return configurations(measured)[name][0]


def _searched(measured: Measured, name: str) -> str:
    return measured.chosen(configurations(measured)[name])


def _over(cells: Sequence[Measured], arms: Sequence[str], others: Sequence[str]) -> list[float]:
    return [over(*each) for each in zip(cells, arms, others, strict=True)]
