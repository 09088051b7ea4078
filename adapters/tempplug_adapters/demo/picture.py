"""The plot of ``tempplug demo`` as SVG and as text: temperatures of each strategy, and their effect on the gradient."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from tempplug_adapters.demo.effects import HARDEST, Effect
from tempplug_adapters.figures import COLOURS, svg_text

_BAR = 12


def columns(negatives: int) -> dict[str, str]:
    """Returns the units of the three columns of bars by title, given the number of negatives of an anchor."""
    return {
        "on the hardest": f"share of the {max(1, math.ceil(HARDEST * negatives))} hardest negatives",
        "negatives that count": f"effective number, of {negatives}",
        "gradient scale": "1 - probability of the positive",
    }


def shares(effect: Effect, negatives: int) -> tuple[tuple[float, str], ...]:
    """Returns the length, in [0, 1], and the text of the three bars of a strategy."""
    return (
        (effect.hardest, f"{effect.hardest:.0%}"),
        (effect.effective / negatives, f"{effect.effective:.3g}"),
        (effect.scale, f"{effect.scale:.2g}"),
    )


def temperatures(effect: Effect) -> str:
    """Returns the temperature as text, with its range if it varies."""
    begins = "" if effect.begins is None else f", began at {effect.begins:.2g}"
    if effect.high - effect.low < 0.01 * effect.mean:
        return f"{effect.mean:.2g}{begins}"
    return f"{effect.low:.2g} to {effect.high:.2g}, mean {effect.mean:.2g}{begins}"


def bars(found: Sequence[Effect], negatives: int) -> list[str]:
    """Returns the bars as lines of text.

    Args:
        found: effects of strategies.
        negatives: number of negatives of an anchor.
    """
    cells = [("strategy", "temperature", *columns(negatives))]
    for effect in found:
        lengths = [(round(min(max(length, 0.0), 1.0) * _BAR), words) for length, words in shares(effect, negatives)]
        drawn = (f"{'█' * full}{'░' * (_BAR - full)} {words}" for full, words in lengths)
        cells.append((effect.label, temperatures(effect), *drawn))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def draw(found: Sequence[Effect], negatives: int, sentence: str) -> str:
    """Returns the plot as SVG.

    Args:
        found: effects of strategies, at least one.
        negatives: number of negatives of an anchor.
        sentence: title of the plot.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 1.6 + 0.3 * len(found)), facecolor="white", layout="constrained")
    figure.suptitle(textwrap.fill(sentence, 130), x=0.01, ha="left", fontsize=12, fontweight="bold")
    panels = figure.subplots(1, 4, sharey=True)
    rows = range(len(found))
    panels[0].set_xscale("log")
    panels[0].xaxis.set_major_formatter("{x:g}")
    panels[0].hlines(rows, [each.low for each in found], [each.high for each in found], COLOURS[0], linewidth=5, alpha=0.45)
    panels[0].plot([each.mean for each in found], rows, "o", color=COLOURS[0])
    panels[0].set_title("temperature\nrange and mean over all pairs", loc="left", fontsize=9)
    panels[0].set_yticks(rows, [each.label[:40] for each in found])
    panels[0].invert_yaxis()
    for place, (title, unit) in enumerate(columns(negatives).items()):
        panel, values = panels[place + 1], [shares(each, negatives)[place] for each in found]
        panel.barh(rows, 1, color="#e8ecf2", height=0.5)
        drawn = panel.barh(rows, [length for length, _ in values], color=COLOURS[0], height=0.5)
        panel.bar_label(drawn, [words for _, words in values], padding=4, fontsize=8)
        panel.set_title(f"{title}\n{unit}", loc="left", fontsize=9)
        panel.set(xlim=(0, 1.2), xticks=[])
    for panel in panels:
        panel.spines[["top", "right", "left", "bottom"]].set_visible(False)
        panel.tick_params(left=False)
    return svg_text(figure, sentence)
