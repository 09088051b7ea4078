"""Chooses among measured temperatures and strategies, and says how sure the choice is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tempplug_adapters.advise.training import Course, stopped

MATTERS = 1.0
"""Points of accuracy that a difference must have to be mentioned."""
SURE = 2.0
"""Standard errors that a difference must have to be called clear."""
ALIKE = 0.5
"""Mean similarity of different pairs above which their mean embedding is in the way (docs/retrieval.md)."""


@dataclass(frozen=True)
class Advice:
    """The choice for a length of training.

    Attributes:
        epoch: the length, in epochs of the sample.
        chosen: the middle one of the fixed temperatures within one standard error of the most accurate course; where there
            is none, that course.
        sentences: the certainty of the choice, the cost of a wrong one, the influence of the length, and what to do first.
        clear: whether any other choice is clearly worse.
    """

    epoch: int
    chosen: Course
    sentences: list[str]
    clear: bool

    def lines(self) -> dict[str, str]:
        """Returns the line of code to paste, by the program that it belongs to."""
        spec = self.chosen.spec
        short = f'"{spec}"' if self.chosen.temperature is None else label(self.chosen)
        return {
            "sentence-transformers": f'loss = TemperatureRankingLoss(model, "{spec}")',
            "your own loop": f'loss_fn = ContrastiveLoss({short}, layout="cross-view")',
            "a trainer's flag": f"--temperature-strategy {spec}",
        }


def advise(courses: Sequence[Course], planned: int, alike: float = 0.0) -> Advice:
    """Returns the choice for the planned length, or for the longest that was measured if that is shorter.

    Args:
        courses: of one training for each temperature and strategy, fixed temperatures among them in ascending order.
        planned: epochs of the sample that have as many steps as the planned training.
        alike: mean cosine similarity of different pairs by a static model before the training.
    """
    lengths = list(courses[0].credits)
    epoch = max(length for length in lengths if length <= max(planned, lengths[0]))
    chosen = choose(courses, epoch)
    ranked = sorted((course for course in courses if course is not chosen), key=lambda course: -course.accuracy(epoch))
    equals = [course for course in ranked if not _clearly(chosen, course, epoch)]
    clear = len(equals) < len(ranked)
    sentences = [_certainty(equals, ranked), *_cost(courses, chosen, epoch), _length(courses, chosen, epoch)]
    if planned > lengths[-1]:
        reason = "accuracy stopped rising before" if stopped(courses) else "the longest that was tried, and accuracy still rose"
        sentences.append(f"Your training is longer, {epochs(planned)}: this is the advice at {epochs(lengths[-1])}, {reason}.")
    if alike > ALIKE:
        sentences.append(
            f"Before the training, different pairs have a mean similarity of {alike:.2f}. Subtract the mean embedding first "
            "(tempplug_adapters.sentence_transformers.subtract_mean), then ask again: other temperatures are better then."
        )
    return Advice(epoch, chosen, sentences, clear)


def choose(courses: Sequence[Course], epoch: int) -> Course:
    """Returns the choice at a length, as `Advice.chosen` says."""
    best = max(courses, key=lambda course: course.accuracy(epoch))
    near = []
    for course in courses:
        difference, error = _difference(best, course, epoch)
        if course.temperature is not None and difference <= error:
            near.append(course)
    middle = near[(len(near) - 1) // 2 : len(near) // 2 + 1]
    return max(middle or [best], key=lambda course: course.accuracy(epoch))


def label(course: Course) -> str:
    """Returns the fixed temperature as a number, or the spec string of a strategy."""
    return course.spec if course.temperature is None else f"{course.temperature:g}"


def epochs(number: int) -> str:
    """Returns a number of epochs with its unit."""
    return f"{number} epoch{'s' * (number != 1)}"


def _difference(first: Course, second: Course, epoch: int) -> tuple[float, float]:
    """Returns how much more accurate the first is, and the standard error over held-out pairs, in points."""
    found = 100 * (first.credits[epoch] - second.credits[epoch])
    return float(found.mean()), float(found.std()) / math.sqrt(len(found))


def _clearly(first: Course, second: Course, epoch: int) -> bool:
    """Returns whether the first is clearly more accurate."""
    difference, error = _difference(first, second, epoch)
    return difference >= MATTERS and difference > SURE * error


def _certainty(equals: Sequence[Course], others: Sequence[Course]) -> str:
    if len(equals) == len(others):
        return "Sure: no. None of the others is clearly worse: on these pairs the choice hardly matters, so keep what you have."
    if equals:
        return f"Sure: of the range, not of the value. Not clearly worse: {', '.join(map(label, equals))}."
    return "Sure: yes. Each of the others is clearly worse."


def _cost(courses: Sequence[Course], chosen: Course, epoch: int) -> list[str]:
    worst = min((course for course in courses if course.temperature is not None), key=lambda course: course.accuracy(epoch))
    difference, error = _difference(chosen, worst, epoch)
    if not _clearly(chosen, worst, epoch):
        return []
    return [f"A wrong temperature costs points: {label(worst)} is {difference:.1f} ± {error:.1f} below."]


def _length(courses: Sequence[Course], chosen: Course, epoch: int) -> str:
    """Returns whether another choice is clearly better at another measured length; of several, the shortest and the longest."""
    found = []
    for length in courses[0].credits:
        there = choose(courses, length)
        if length != epoch and _clearly(there, chosen, length):
            difference, error = _difference(there, chosen, length)
            found.append(f"{epochs(length)} {label(there)} (+{difference:.1f} ± {error:.1f})")
    if not found:
        first, last = min(courses[0].credits), epochs(max(courses[0].credits))
        return f"The length of your training does not decide: from {first} to {last} no other choice is clearly better."
    return f"It depends on the length of your training. Better at {'; at '.join(dict.fromkeys([found[0], found[-1]]))}."
