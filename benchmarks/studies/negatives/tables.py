"""What each term on negatives gains over none, both at the temperatures that held-out pairs choose for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from studies.cells import Measured
from studies.gains import named, over, tested


def variants(measured: Measured) -> dict[str, list[str]]:
    """Returns the arms at every fixed temperature, by what follows the strategy; an empty text for the fixed ones alone."""
    found: dict[str, list[str]] = {}
    for arm in measured.test:
        cut = min((place for mark in "+@" if (place := arm.find(mark)) >= 0), default=len(arm))
        found.setdefault(arm[cut:], []).append(arm)
    return found


def gains(cells: Sequence[Measured]) -> dict[str, list[float]]:
    """Returns what each variant of the negatives gains over none in each cell, both at the temperatures chosen for them."""
    names = [name for name in variants(cells[0]) if name]
    return {name.removeprefix("+infonce+").removeprefix("@"): [_gain(each, name) for each in cells] for name in names}


def by_negatives(cells: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Returns the cells without and with false negatives or mined hard negatives."""
    found: dict[str, list[Measured]] = {}
    for each in cells:
        more = "a fifth false negatives" if each.cell.noise else "mined hard negatives" if each.cell.hard else "as they are"
        found.setdefault(more, []).append(each)
    return found


def negative_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of what each variant of the negatives gains over none, each at the temperature chosen for it, by the
    negatives that the batches have; and of what mined hard negatives gain over none.
    """
    rows, header = {name: [f"`{name}`"] for name in gains(cells)}, ["term or layout"]
    groups = by_negatives(cells)
    for negatives, of in groups.items():
        gained = gains(of)
        shown = tested(of, gained)
        for name, figures in gained.items():
            rows[name] += [shown[name], f"{min(figures):+.1f}"]
        header += [f"{negatives}: mean, 95 %, Holm p", "worst"]
    found = [header, *rows.values()]
    if of := [each for each in cells if each.cell.hard]:
        without = {(each.data, each.cell): each for each in cells}
        others = [without[each.data, replace(each.cell, hard=False)] for each in of]
        none = [[each.test[each.chosen(variants(each)[""])] for each in own] for own in (of, others)]
        figures = [100 * (new / old - 1) for new, old in zip(*none, strict=True)]
        found.append(["no term, mined hard negatives", tested(of, {"": figures})[""], f"{min(figures):+.1f}", "-", "-"])
    return found


def negative_cell_rows(cells: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of the same gains by cell, means over the data sets, and of the nDCG@10 without a term."""
    kinds = dict.fromkeys(each.cell for each in cells)
    header, rows = ["term or layout", *map(named, kinds)], []
    none = [fmean(each.test[each.chosen(variants(each)[""])] for each in cells if each.cell == kind) for kind in kinds]
    rows.append(["none: nDCG@10", *(f"{figure:.2f}" for figure in none)])
    for name, gained in gains(cells).items():
        means = [fmean(gain for each, gain in zip(cells, gained, strict=True) if each.cell == kind) for kind in kinds]
        rows.append([f"`{name}`", *(f"{mean:+.1f}" for mean in means)])
    return [header, *rows]


def _gain(measured: Measured, variant: str) -> float:
    of = variants(measured)
    return over(measured, measured.chosen(of[variant]), measured.chosen(of[""]))
