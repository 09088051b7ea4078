"""The page and the terminal text of ``tempplug advise``."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from string import Template

from tempplug_adapters.advise.advice import Advice, epochs, label
from tempplug_adapters.advise.pairs import Pairs
from tempplug_adapters.advise.training import HELD_OUT, RATES, Course
from tempplug_adapters.figures import COLOURS, new_figure, svg_text
from tempplug_adapters.verdict import CREDIBLE, MATTERS, MISSED

_ACCURACY = "accuracy on held-out pairs, %"
_LEAST_RANGE, _GAP, _MOST_LEVEL = 5.0, 0.055, 7


def text(pairs: Pairs, courses: Sequence[Course], advice: Advice) -> list[str]:
    """Returns the lines for the terminal: accuracy by temperature and length, strategies, and the advice."""
    fixed = [course for course in courses if course.temperature is not None]
    others = [f"{course.spec} {course.accuracy(advice.epoch):.1f}" for course in courses if course.temperature is None]
    rows = [f"{'epochs':>8}" + "".join(f"{label(course):>7}" for course in fixed)]
    for length in courses[0].credits:
        mark = "> " if length == advice.epoch else "  "
        rows.append(f"{mark}{length:>6}" + "".join(f"{course.accuracy(length):>7.1f}" for course in fixed))
    return [
        f"{pairs.origin}; trained: {pairs.method}",
        f"{_ACCURACY}, by temperature and epochs, each at the best of {len(RATES)} learning rates:",
        *rows,
        *([f"strategies at {epochs(advice.epoch)}: " + ", ".join(others)] if others else []),
        "",
        advice.verdict.sentence,
        f"  At {epochs(advice.epoch)}.{_share(pairs)}",
        f"  {rule()}",
        *(f"  {sentence}" for sentence in advice.sentences),
        *(f"  {where + ':':<23}{line}" for where, line in advice.lines().items()),
    ]


def _share(pairs: Pairs) -> str:
    """Returns how epochs of the pairs in use compare with those of all, in words; nothing where all are in use."""
    if pairs.total <= pairs.size:
        return ""
    steps = (
        f" An epoch of all {pairs.total:,} pairs has the steps of {pairs.total / pairs.size:.3g} of the {pairs.size:,} in use."
    )
    return steps + " A longer --time, or --max-pairs, takes more." * (2 * pairs.size < pairs.total)


def page(pairs: Pairs, courses: Sequence[Course], advice: Advice) -> str:
    """Returns the page as HTML with one picture."""
    lengths = list(courses[0].credits)
    rows = ["<tr><th>epochs</th>" + "".join(f"<th>{length}</th>" for length in lengths) + "</tr>"]
    for course in sorted(courses, key=lambda course: -course.accuracy(advice.epoch)):
        cells = "".join(f"<td>{course.accuracy(length):.1f}</td>" for length in lengths)
        mark = ' class="chosen"' if course is advice.chosen else ""
        rows.append(f"<tr{mark}><th>{escape(label(course))}</th>{cells}</tr>")
    origin = f"On {pairs.origin}, for a training of {epochs(advice.epoch)}.{_share(pairs)}"
    return Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(advice.verdict.sentence),
        data=escape(origin),
        sentences="".join(f"<li>{escape(sentence)}</li>" for sentence in advice.sentences),
        picture=_picture(courses, advice),
        lines="".join(f"<p>{escape(where)}:</p><pre>{escape(line)}</pre>" for where, line in advice.lines().items()),
        table="".join(rows),
        method=escape(pairs.method),
        trained=f"{1 - HELD_OUT:.0%}",
        folds=len(courses[0].credits[advice.epoch]),
        rates=len(RATES),
        candidates=f"{pairs.size:,}",
        rule=escape(rule()),
    )


def rule() -> str:
    """Returns the rule of the verdict in words."""
    return (
        f"Rule: change for a likely gain of {MATTERS:g} point or more with an interval above 0 (± is half of it, at "
        f"{100 * CREDIBLE:.0f} %); keep if no other may gain more than {MISSED:g}. "
        "Likely is less than measured, because the best of many is partly luck."
    )


def can_draw() -> bool:
    """Returns whether the page can have a picture: matplotlib is installed."""
    return find_spec("matplotlib") is not None


def _picture(courses: Sequence[Course], advice: Advice) -> str:
    """Draws accuracy over the fixed temperature, a line for each length, and strategies as points at their mean temperature."""
    if not can_draw():
        return ""
    figure, panel = new_figure(5.2, 4.2)
    for each in (figure, panel):
        each.set_facecolor("none")
    fixed = [course for course in courses if course.temperature is not None]
    temperatures = [course.temperature or 0.0 for course in fixed]
    ends: list[tuple[float, int]] = []
    for place, length in enumerate(courses[0].credits):
        shown = length == advice.epoch
        panel.plot(
            temperatures,
            [course.accuracy(length) for course in fixed],
            color=COLOURS[0],
            alpha=1.0 if shown else 0.3 + 0.4 * place / len(courses[0].credits),
            linewidth=3 if shown else 1.2,
            marker="o",
            markersize=6 if shown else 3,
        )
        ends.append((fixed[-1].accuracy(length), length))
    others = [course for course in courses if course.temperature is None]
    for number, course in enumerate(others):
        at = (course.temperatures[advice.epoch], course.accuracy(advice.epoch))
        panel.plot(*at, "D", color=COLOURS[1 + number % (len(COLOURS) - 1)], label=course.spec[:40])
    chosen = (advice.chosen.temperatures[advice.epoch], advice.chosen.accuracy(advice.epoch))
    panel.plot(*chosen, "o", markersize=16, markerfacecolor="none", markeredgecolor=COLOURS[1], markeredgewidth=2)
    low, high = panel.get_ylim()
    wider = max(0.0, _LEAST_RANGE - (high - low)) / 2  # tiny differences must look tiny
    panel.set_ylim(low - wider, high + wider)
    height = -float("inf")
    for end, length in sorted(ends):
        height = max(end, height + _GAP * (high - low + 2 * wider))
        weight = "bold" if length == advice.epoch else "normal"
        panel.annotate(epochs(length), (1.02, height), xycoords=("axes fraction", "data"), va="center", weight=weight)
    panel.set_xscale("log")
    panel.set(xlabel="temperature", ylabel=_ACCURACY)
    panel.set_xticks(
        temperatures, [f"{each:g}" for each in temperatures], rotation=45 if len(temperatures) > _MOST_LEVEL else 0
    )
    panel.minorticks_off()
    panel.spines[["top", "right"]].set_visible(False)
    if others:
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
    drawn = svg_text(figure, advice.verdict.sentence).replace("#000000", "currentColor")
    return f"<figure>{drawn[drawn.index('<svg') :]}</figure>"
