"""The commands that measure the figures of a report again. It must not know how anything is printed."""

from __future__ import annotations

import shlex

from tempplug_benchmarks.arm import Arm
from tempplug_benchmarks.comparison import Comparison

DATA, OUTPUT = "DATA", "runs"
"""What stands in a command for the folder of real data, and for any folder of results."""


def commands(comparison: Comparison) -> list[str]:
    """Returns commands, as a shell takes them, that together run every arm of a task with the seeds that it has here.

    Arms with the same seeds share one; the task's declared baseline runs with each. Tuned arms, and arms with a control,
    stand apart from others.

    Args:
        comparison: of the task.
    """
    arms: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = {}
    for row in comparison.rows:
        if Arm(row.label).controlled:
            continue
        measured = {seed for summary in row.summaries.values() for seed in summary.values}
        seeds = tuple(sorted(measured | {each.seed for each in row.failures}))
        flags = (*(("--tuned",) if row.configurations > 1 else ()), *(("--controls",) if row.adapting else ()))
        arms.setdefault((seeds, flags), []).append(row.label)
    found = []
    for (seeds, flags), labels in arms.items():
        words = ["tempplug", "bench", "run", comparison.suite, "--profile", comparison.profile_name]
        words += ["--tasks", comparison.task.name, "--strategies", *labels, *flags, "--seeds", *map(str, seeds)]
        words += ["--data-dir", DATA] if comparison.profile.needs else []
        found.append(shlex.join([*words, "--output", OUTPUT]))
    return found
