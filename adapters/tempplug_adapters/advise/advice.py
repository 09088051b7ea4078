"""Compares the measured temperatures with the current one, and says what follows in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tempplug_adapters.advise.training import MOST_FOLDS, RATES, Course
from tempplug_adapters.verdict import MATTERS, Weighed, weigh

ALIKE = 0.5
"""Mean similarity of different pairs above which their mean embedding is in the way (docs/retrieval.md)."""

CEILING = 95.0
"""Accuracy in percent above which differences have little room."""

LONGER = 4
"""Times as long as the longest measured training: then its temperature says little of yours (benchmarks/studies/length)."""


@dataclass(frozen=True)
class Advice:
    """What to train with, for a length of training.

    Attributes:
        epoch: the length, in epochs of the sample.
        verdict: on the fixed temperatures at that length.
        chosen: the best fixed temperature if the verdict is to change, otherwise the current one.
        sentences: other temperatures, the learning rate, strategies, the influence of the length, and what to do first.
    """

    epoch: int
    verdict: Weighed
    chosen: Course
    sentences: list[str]

    def lines(self) -> dict[str, str]:
        """Returns the line of code to paste by the program that it belongs to; none where the current temperature stays."""
        if self.verdict.answer != "change":
            return {}
        return {
            "sentence-transformers": f'loss = TemperatureRankingLoss(model, "{self.chosen.spec}")',
            "your own loop": f'loss_fn = ContrastiveLoss({label(self.chosen)}, layout="cross-view")',
            "a trainer's flag": f"--temperature-strategy {self.chosen.spec}",
        }


def advise(courses: Sequence[Course], planned: int, current: float, alike: float = 0.0) -> Advice:
    """Returns the advice for the planned length, or for the longest that was measured if that is shorter.

    Args:
        courses: of one training for each temperature and strategy; the current temperature is one of several fixed ones.
        planned: epochs of the sample that have as many steps as the planned training.
        current: temperature of the planned training.
        alike: mean cosine similarity of different pairs by a static model before the training.
    """
    lengths = list(courses[0].credits)
    epoch = max(length for length in lengths if length <= max(planned, lengths[0]))
    fixed = {label(course): course for course in courses if course.temperature is not None}
    verdict = _weigh(fixed, f"{current:g}", epoch)
    if planned > LONGER * lengths[-1]:
        compared, _, _ = verdict.sentence.rpartition(":")
        sentence = f"{compared}: cannot tell yet, your training is {planned / lengths[-1]:.0f} times as long as was measured."
        verdict = replace(verdict, answer="open", sentence=sentence)
    chosen = fixed[verdict.best if verdict.answer == "change" else verdict.current]
    likely = _weigh({label(course): course for course in courses}, label(chosen), epoch).likely
    others = [name for name in fixed if name not in (label(chosen), verdict.current)]
    sentences = [
        *_temperatures({name: likely[name] for name in others}, fixed, chosen, epoch),
        *_rates(list(fixed.values()), chosen, epoch),
        *_strategies({name: likely[name] for name in likely if name not in fixed}, label(chosen)),
        _length(fixed, chosen, epoch),
    ]
    if verdict.answer == "open":
        sentences.insert(0, f"Until more is measured, keep {verdict.current}: a longer --time, such as 300, measures more.")
    if planned > lengths[-1]:
        sentences.append(
            f"Your training is longer, {epochs(planned)} of these pairs: this is the advice at {epochs(lengths[-1])}, "
            "the longest that was measured. A longer --time measures longer ones."
        )
    if (highest := max(course.accuracy(epoch) for course in fixed.values())) > CEILING:
        sentences.append(
            f"The most accurate temperature finds {highest:.0f} % of the positives, so that differences have little room: more "
            "pairs, or harder ones, tell temperatures apart better."
        )
    folds = len(courses[0].credits[epoch])
    if folds < MOST_FOLDS and verdict.answer != "open":
        sentences.append(
            f"Each was trained {folds} times; with {MOST_FOLDS}, which take a longer --time, a smaller gain would show as well."
        )
    if alike > ALIKE:
        sentences.append(
            f"Before the training, different pairs have a mean similarity of {alike:.2f}. Subtract the mean embedding first "
            "(tempplug_adapters.sentence_transformers.subtract_mean), then ask again: other temperatures are better then."
        )
    return Advice(epoch, verdict, chosen, sentences)


def label(course: Course) -> str:
    """Returns the fixed temperature as a number, or the spec string of a strategy."""
    return course.spec if course.temperature is None else f"{course.temperature:g}"


def epochs(number: int) -> str:
    """Returns a number of epochs with its unit."""
    return f"{number} epoch{'s' * (number != 1)}"


def _weigh(courses: dict[str, Course], current: str, epoch: int) -> Weighed:
    return weigh({name: 100 * course.credits[epoch].numpy() for name, course in courses.items()}, current)


def _clearly(gain: float, half_width: float) -> bool:
    return gain >= MATTERS and gain > half_width


def _temperatures(likely: dict[str, tuple[float, float]], fixed: dict[str, Course], chosen: Course, epoch: int) -> list[str]:
    """Returns which temperatures are clearly worse than the chosen one, by how much the worst, and which are not."""
    alike = [name for name, (gain, half_width) in likely.items() if not _clearly(-gain, half_width)]
    if len(alike) == len(likely):
        return [f"No other temperature is clearly worse than {label(chosen)}."]
    worst = min(likely.keys() - set(alike), key=lambda name: fixed[name].accuracy(epoch))
    loss = chosen.accuracy(epoch) - fixed[worst].accuracy(epoch)
    return [
        f"Not clearly worse than {label(chosen)}: {', '.join(alike) or 'none'}.",
        f"A wrong temperature costs points: {worst} is {loss:.1f} below.",
    ]


def _rates(fixed: Sequence[Course], chosen: Course, epoch: int) -> list[str]:
    """Returns what the learning rate is worth beside the temperature; nothing where one rate was measured."""
    by_rate = chosen.by_rate.get(epoch, {})
    if len(by_rate) < 2:
        return []
    rate = max(by_rate, key=by_rate.__getitem__)
    of_rate = by_rate[rate] - min(by_rate.values())
    accuracies = [course.accuracy(epoch) for course in fixed]
    of_temperature = max(accuracies) - min(accuracies)
    end = "" if rate < max(RATES) else " The best is the highest: try a higher one in your training as well."
    return [
        f"Learning rate: each temperature has its best of {len(by_rate)} rates, three times apart. At {label(chosen)} the best "
        f"rate is {of_rate:.1f} points above the worst; the best temperature is {of_temperature:.1f} above the worst.{end}"
    ]


def _strategies(likely: dict[str, tuple[float, float]], chosen: str) -> list[str]:
    """Returns the strategies that are clearly better than the chosen temperature."""
    above = [f"{name} (+{gain:.1f} ± {half:.1f})" for name, (gain, half) in likely.items() if _clearly(gain, half)]
    if not above:
        return [f"No strategy is clearly better than {chosen}."] if likely else []
    return [f"Clearly better than {chosen} here: {', '.join(above)}. Check by `tempplug sweep` before you change to it."]


def _length(fixed: dict[str, Course], chosen: Course, epoch: int) -> str:
    """Returns whether another temperature is clearly better at another length; of several, the shortest and the longest."""
    better = []
    lengths = list(chosen.credits)
    for length in lengths:
        verdict = _weigh(fixed, label(chosen), length)
        if length != epoch and verdict.answer == "change":
            gain, half_width = verdict.likely[verdict.best]
            better.append(f"{epochs(length)} {verdict.best} (+{gain:.1f} ± {half_width:.1f})")
    if better:
        return f"It depends on the length of your training. Better at {'; at '.join(dict.fromkeys([better[0], better[-1]]))}."
    if len(lengths) == 1:
        return "No other length of training was measured."
    return f"From {min(lengths)} to {epochs(max(lengths))} no other temperature is clearly better."
