"""The page and the terminal text of ``tempplug advise``."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from tempplug_adapters.advise.advice import Advice, label
from tempplug_adapters.advise.pairs import Pairs
from tempplug_adapters.advise.training import FOLDS, HELD_OUT, Course
from tempplug_adapters.figures import COLOURS, new_figure, svg_text

_ACCURACY = "accuracy on held-out pairs, %"


def title(advice: Advice) -> str:
    """Returns the advice in one line."""
    what = "temperature " if advice.chosen.fixed else ""
    return f"Train with {what}{label(advice.chosen)}: accuracy {advice.chosen.accuracy(advice.epoch):.1f} %"


def text(pairs: Pairs, courses: Sequence[Course], advice: Advice) -> list[str]:
    """Returns the lines for the terminal: accuracy by temperature and length, strategies, the advice and its certainty."""
    fixed = [course for course in courses if course.fixed]
    strategies = [f"{course.spec} {course.accuracy(advice.epoch):.1f}" for course in courses if not course.fixed]
    rows = [f"{'epochs':>8}" + "".join(f"{label(course):>7}" for course in fixed)]
    for length in courses[0].credits:
        mark = "> " if length == advice.epoch else "  "
        rows.append(f"{mark}{length:>6}" + "".join(f"{course.accuracy(length):>7.1f}" for course in fixed))
    return [
        f"{pairs.origin}; {pairs.method}",
        f"{_ACCURACY}, by temperature and epochs:",
        *rows,
        *([f"strategies at {_epochs(advice.epoch)}: " + ", ".join(strategies)] if strategies else []),
        "",
        f"{title(advice)} at {_epochs(advice.epoch)}",
        *(f"  {sentence}" for sentence in advice.sentences if sentence),
        *(f"  {where + ':':<23}{line}" for where, line in advice.lines().items()),
    ]


def page(pairs: Pairs, courses: Sequence[Course], advice: Advice) -> str:
    """Returns the page as HTML with one picture."""
    lengths = list(courses[0].credits)
    rows = ["<tr><th>epochs</th>" + "".join(f"<th>{length}</th>" for length in lengths) + "</tr>"]
    for course in sorted(courses, key=lambda course: -course.accuracy(advice.epoch)):
        cells = "".join(f"<td>{course.accuracy(length):.1f}</td>" for length in lengths)
        mark = ' class="chosen"' if course is advice.chosen else ""
        rows.append(f"<tr{mark}><th>{escape(label(course))}</th>{cells}</tr>")
    method = (
        f"Trained: {pairs.method}, on {1 - HELD_OUT:.0%} of the pairs, {FOLDS} times with other pairs held out. Accuracy is the "
        f"share of held-out anchors whose positive is the most similar of all {int(HELD_OUT * pairs.size):,} held-out candidates. "
        "± is one standard error over these anchors; the advice is chosen on them, so its own accuracy is a little too high. A "
        "full training of a large model can differ: confirm the choice on validation data of your own, by tempplug sweep."
    )
    return Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title(advice)),
        data=escape(f"On {pairs.origin}, for a training of {_epochs(advice.epoch)} of these pairs."),
        sentences="".join(f"<li>{escape(sentence)}</li>" for sentence in advice.sentences if sentence),
        picture=_picture(courses, advice),
        lines="".join(f"<p>{escape(where)}:</p><pre>{escape(line)}</pre>" for where, line in advice.lines().items()),
        table="".join(rows),
        method=escape(method),
    )


def _picture(courses: Sequence[Course], advice: Advice) -> str:
    """Draws accuracy over the fixed temperature, a line for each length, with strategies as points at their mean temperature."""
    figure, panel = new_figure(9, 4.8)
    fixed = [course for course in courses if course.fixed]
    temperatures = [float(label(course)) for course in fixed]
    lengths = list(courses[0].credits)
    for place, length in enumerate(lengths):
        shown = length == advice.epoch
        panel.plot(
            temperatures,
            [course.accuracy(length) for course in fixed],
            color=COLOURS[0],
            alpha=1.0 if shown else 0.15 + 0.35 * place / len(lengths),
            linewidth=3 if shown else 1.2,
            marker="o",
            markersize=6 if shown else 3,
        )
        panel.annotate(_epochs(length), (temperatures[-1], fixed[-1].accuracy(length)), (6, -3), textcoords="offset points")
    others = [course for course in courses if not course.fixed]
    for number, course in enumerate(others):
        colour = COLOURS[1 + number % (len(COLOURS) - 1)]
        at = (course.temperatures[advice.epoch], course.accuracy(advice.epoch))
        panel.plot(*at, "D", color=colour, label=course.spec[:40])
    chosen = (advice.chosen.temperatures[advice.epoch], advice.chosen.accuracy(advice.epoch))
    panel.plot(*chosen, "o", markersize=16, markerfacecolor="none", markeredgecolor=COLOURS[1], markeredgewidth=2)
    panel.set_xscale("log")
    panel.set(xlabel="temperature", ylabel=_ACCURACY)
    panel.set_xticks(temperatures, [f"{each:g}" for each in temperatures])
    panel.minorticks_off()
    panel.spines[["top", "right"]].set_visible(False)
    if others:
        figure.legend(loc="outside upper center", ncols=4, frameon=False)
    drawn = svg_text(figure, title(advice))
    return drawn[drawn.index("<svg") :]


def _epochs(number: int) -> str:
    return f"{number} epoch{'s' * (number != 1)}"
