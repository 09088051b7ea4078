"""Chooses among measured temperatures and strategies, and says how sure the choice is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tempplug.arguments import parse_spec
from tempplug_adapters.advise.training import Course

MATTERS = 1.0
"""Points of accuracy that a difference must have to be mentioned."""
SURE = 2.0
"""Standard errors that a difference must have to be called clear."""


@dataclass(frozen=True)
class Advice:
    """The choice for a length of training.

    Attributes:
        epoch: the length, in epochs of the trained sample.
        chosen: the most accurate; or a fixed temperature within one standard error of it, as the simpler choice.
        equals: others of which none is clearly worse, best first.
        worst: the least accurate fixed temperature.
        sentences: what is sure and what is not.
    """

    epoch: int
    chosen: Course
    equals: list[Course]
    worst: Course
    sentences: list[str]

    @property
    def temperature(self) -> float | None:
        """The advised fixed temperature; None for a strategy."""
        return float(parse_spec(self.chosen.spec)[1]["temperature"]) if self.chosen.fixed else None

    def lines(self) -> dict[str, str]:
        """Returns the line to paste, by where it belongs."""
        spec = f'"{self.chosen.spec}"' if self.temperature is None else f"{self.temperature:g}"
        return {
            "sentence-transformers": f"loss = TemperatureRankingLoss(model, {spec})",
            "your own loop": f'loss_fn = ContrastiveLoss({spec}, layout="cross-view")',
            "a trainer's flag": f"--temperature-strategy {self.chosen.spec}",
        }


def advise(courses: Sequence[Course], planned: int) -> Advice:
    """Returns the choice for the planned length, or for the longest that was measured if that is shorter.

    Args:
        courses: of one training for each temperature and strategy, fixed temperatures among them.
        planned: epochs of the sample that have as many steps as the planned training.
    """
    lengths = list(courses[0].credits)
    epoch = max(length for length in lengths if length <= max(planned, lengths[0]))
    chosen = choose(courses, epoch)
    ranked = sorted(courses, key=lambda course: -course.accuracy(epoch))
    others = [course for course in ranked if course is not chosen]
    equals = [
        course for course in others if _difference(chosen, course, epoch)[0] < SURE * _difference(chosen, course, epoch)[1]
    ]
    worst = min((course for course in courses if course.fixed), key=lambda course: course.accuracy(epoch))
    sentences = [_rank(chosen, equals, others), _cost(chosen, worst, epoch)]
    if planned > lengths[-1]:
        sentences.append(
            f"The planned training has as many steps as {planned} epochs of this sample; accuracy stopped rising before, so the "
            f"advice is that of {lengths[-1]}."
        )
    sentences += _lengths(courses, chosen, epoch)
    return Advice(epoch, chosen, equals, worst, sentences)


def choose(courses: Sequence[Course], epoch: int) -> Course:
    """Returns the most accurate at a length, or the best fixed temperature if it is within one standard error of that."""
    best = max(courses, key=lambda course: course.accuracy(epoch))
    fixed = max((course for course in courses if course.fixed), key=lambda course: course.accuracy(epoch))
    difference, error = _difference(best, fixed, epoch)
    return fixed if difference <= error else best


def label(course: Course) -> str:
    """Returns the fixed temperature as a number, or the spec string of a strategy."""
    return f"{float(parse_spec(course.spec)[1]['temperature']):g}" if course.fixed else course.spec


def _difference(first: Course, second: Course, epoch: int) -> tuple[float, float]:
    """Returns how much more accurate the first is, and the standard error over held-out pairs, in points."""
    found = 100 * (first.credits[epoch] - second.credits[epoch])
    return float(found.mean()), float(found.std()) / math.sqrt(len(found))


def _rank(chosen: Course, equals: Sequence[Course], others: Sequence[Course]) -> str:
    if len(equals) == len(others):
        return "Sure: no. None of the others is clearly worse: on these pairs the choice hardly matters."
    if equals:
        return f"Sure: of the range, not of the value. Not clearly worse: {', '.join(label(each) for each in equals)}."
    return f"Sure: yes. Each of the others is worse by more than {SURE:g} standard errors."


def _cost(chosen: Course, worst: Course, epoch: int) -> str:
    difference, error = _difference(chosen, worst, epoch)
    return (
        f"A wrong temperature costs points: {label(worst)} is {difference:.1f} ± {error:.1f} below."
        if difference > error
        else ""
    )


def _lengths(courses: Sequence[Course], chosen: Course, epoch: int) -> list[str]:
    """Returns a sentence for each measured length at which another choice is clearly better, the shortest and the longest."""
    found = []
    for length in courses[0].credits:
        there = choose(courses, length)
        difference, error = _difference(there, chosen, length)
        if length != epoch and difference >= MATTERS and difference > SURE * error:
            found.append(f"{length} epoch{'s' * (length > 1)}: {label(there)} (+{difference:.1f} ± {error:.1f})")
    if not found:
        return ["It does not depend on the length of the training: no measured length has a clearly better choice."]
    named = [found[0]] if len(found) == 1 else [found[0], found[-1]]
    return [f"It depends on the length of the training. Better at {'; at '.join(named)}."]
