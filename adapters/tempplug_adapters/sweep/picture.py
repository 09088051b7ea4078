"""The plot of a sweep: a metric over fixed temperatures, and a horizontal band for each strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from tempplug_adapters.figures import COLOURS, new_figure, svg_text


def draw(curve: Mapping[float, Sequence[float]], bands: Mapping[str, Sequence[float]], metric: str) -> str:
    """Returns the plot as SVG: means with one standard deviation on either side.

    Args:
        curve: values of the metric by fixed temperature, one for each seed.
        bands: values of the metric by strategy, one for each seed.
        metric: its name.
    """
    figure, panel = new_figure(9, 4.8)
    title = f"{metric} over the temperature"
    panel.set_title(title, loc="left", fontsize=12, fontweight="bold")
    panel.set_xscale("log")
    panel.set(xlabel="fixed temperature", ylabel=metric)
    panel.grid(axis="y", color="#dfe4ec")
    panel.spines[["top", "right"]].set_visible(False)
    temperatures = sorted(curve)
    panel.set_xticks(temperatures, [f"{each:g}" for each in temperatures], minor=False)
    panel.minorticks_off()
    means, spreads = [mean(curve[each]) for each in temperatures], [_spread(curve[each]) for each in temperatures]
    panel.errorbar(temperatures, means, spreads, color=COLOURS[0], marker="o", linewidth=2, gid="curve")
    for number, (name, values) in enumerate(bands.items()):
        colour, middle = COLOURS[1 + number % (len(COLOURS) - 1)], mean(values)
        panel.axhspan(middle - _spread(values), middle + _spread(values), color=colour, alpha=0.15, linewidth=0)
        panel.axhline(middle, color=colour, linestyle="dashed", label=f"{name[:28]} {middle:.4g}", gid=f"band-{number}")
    if bands:
        figure.legend(loc="outside right upper", frameon=False, fontsize=10)
    return svg_text(figure, title)


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
