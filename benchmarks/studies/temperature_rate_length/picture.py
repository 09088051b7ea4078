"""The picture of what each temperature and rate loses, a panel for each encoder, start and length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.figure import Figure

from studies.cells import Measured
from studies.temperature_rate_length.grids import Configuration, rates_of, temperatures_of
from studies.temperature_rate_length.tables import groups_of, lengths_of, of_length

ACROSS = 3
"""Panels beside each other."""
WORST = -30.0
"""Loss in per cent from which on all losses have the darkest colour."""


def mean_losses(plans: Mapping[str, Sequence[Measured]]) -> dict[tuple[str, int], dict[Configuration, float]]:
    """Returns the mean loss of each configuration to the best of each grid, by group and passes."""
    losses = {}
    for name, grids in groups_of(plans).items():
        for passes in lengths_of(grids):
            own = of_length(grids, passes)
            losses[name, passes] = {
                each: fmean(100 * (grid.test[each] / grid.test[grid.chosen()] - 1) for grid in own) for each in own[0].test
            }
    return losses


def draw_losses(plans: Mapping[str, Sequence[Measured]], title: str) -> Figure:
    """Returns a panel of numbers for each group and length: temperatures from left to right, rates from below."""
    losses, groups = mean_losses(plans), groups_of(plans)
    lines = -(-len(losses) // ACROSS)
    figure = Figure(figsize=(3.4 * ACROSS, 0.6 + 1.75 * lines), facecolor="white", layout="constrained")
    panels = figure.subplots(lines, ACROSS, squeeze=False).flatten()
    for axes, ((name, passes), of) in zip(panels, losses.items(), strict=False):
        temperatures, rates = temperatures_of(groups[name]), rates_of(groups[name])
        shown = [[of[Configuration(temperature, rate)] for temperature in temperatures] for rate in rates]
        axes.imshow(shown, cmap="YlOrBr_r", vmin=WORST, vmax=0, origin="lower", aspect="auto")
        for row, values in enumerate(shown):
            for column, value in enumerate(values):
                colour = "#ffffff" if value < WORST / 2 else "#1c1f26"
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8)
        axes.set_xticks(range(len(temperatures)), [f"{each:g}" for each in temperatures], fontsize=8)
        axes.set_yticks(range(len(rates)), [f"{each:g}" for each in rates], fontsize=8)
        axes.set_title(f"{name}, {passes} pass{'es' if passes > 1 else ''}", loc="left", fontsize=9)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    for axes in panels[len(losses) :]:
        axes.set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
    figure.supxlabel("temperature τ", fontsize=9)
    figure.supylabel("learning rate", fontsize=9)
    return figure
