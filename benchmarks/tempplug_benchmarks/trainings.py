"""What the trainings of an arm took and what was seen in them, over its seeds. It must not know how anything is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tempplug_benchmarks.results import Summary, summarise
from tempplug_benchmarks.run.store import Result


@dataclass(frozen=True)
class Trainings:
    """The trainings of one arm.

    Attributes:
        seconds: wall time of a run, evaluation included.
        course: means over the seeds at each look, see `Result.course`; empty where no run noted it.
        days: the first and the last that a run finished on, ISO 8601, UTC.
    """

    seconds: Summary
    course: Mapping[str, Sequence[float]]
    days: tuple[str, str]


def describe_trainings(results: Sequence[Result]) -> Trainings | None:
    """Returns what the trainings of an arm took and what was seen in them; None where none has finished.

    Args:
        results: of one arm, one a seed.
    """
    if not results:
        return None
    noted = [each.course for each in results if each.course]
    # A run whose data differ in number has other steps; means are over the runs that looked at the steps of the first.
    alike = [course for course in noted if (course["step"], course.keys()) == (noted[0]["step"], noted[0].keys())]
    names = alike[0] if alike else ()
    course = {name: [fmean(values) for values in zip(*(each[name] for each in alike), strict=True)] for name in names}
    days = sorted(each.date[:10] for each in results)
    return Trainings(summarise({each.seed: each.seconds for each in results}), course, (days[0], days[-1]))
