"""What the tests of all suites that train ask alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tempplug.cli import main as tempplug
from tempplug_adapters.training.method import Source
from tempplug_benchmarks.profile import Profile
from tempplug_benchmarks.run.plan import plan
from tempplug_benchmarks.run_method import RunContext
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.tasks import graph, molecule, node, recommendation
from tempplug_benchmarks.tasks.images import ANOMALY, LONG_TAIL, VISION
from tempplug_benchmarks.tasks.text import BIAS, RETRIEVAL, SENTENCE

SUITES = (node.SUITE, graph.SUITE, molecule.SUITE, SENTENCE, RETRIEVAL, BIAS, VISION, LONG_TAIL, ANOMALY, recommendation.SUITE)
PROFILES = [
    (f"{suite.name}/{task.name}/{name}", task, name, profile)
    for suite in SUITES
    for task in suite.tasks
    for name, profile in task.profiles.items()
]


def run_context(suite: Suite, work_dir: Path, label: str, profile: str, task: str, seed: int = 0, **more: Any) -> RunContext:
    """Returns the context of a run; ``data_dir``, ``progress`` and settings of the recipe may be others."""
    run = next(each for each in plan(suite, profile, [seed], [task]) if each.arm.label == label)
    own = {name: more.pop(name) for name in ("data_dir", "progress") if name in more}
    return RunContext(
        method=run.task.method,
        profile=run.sizes,
        recipe=run.sizes.recipe.changed(**{**run.arm.changes, "seed": seed, **more}),
        strategy=run.specs.strategy,
        objective=run.specs.objective,
        work_dir=work_dir,
        **{"data_dir": None, **own},
    )


def bench(words: list[str]) -> int:
    """Runs ``tempplug bench`` and returns its exit status."""
    return tempplug(["bench", *words])


def read(profile: Profile, data_dir: Path | None, cache_dir: Path, **changes: Any) -> tuple[Any, Any]:
    """Returns recipe and data of a profile that reads or makes its own."""
    assert profile.load is not None
    return profile.load(profile.recipe.changed(**changes), Source(profile.source, data_dir, cache_dir))
