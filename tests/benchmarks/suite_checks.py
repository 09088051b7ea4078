"""What the tests of all suites of images ask alike: a run's context, light imports, arms that are told apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tempplug_benchmarks.plan import resolve, slug
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Profile, RunContext

HEAVY = {"torch", "transformers", "kornia", "sklearn", "PIL"}


def run_context(suite: Suite, work_dir: Path, label: str, profile: str, task: str, seed: int, **more: Any) -> RunContext:
    """Returns the context of a run without data; ``data_dir``, ``progress`` and settings of the recipe may be others."""
    data_dir, progress = more.pop("data_dir", None), more.pop("progress", lambda fraction, text: None)
    found = suite.task(task).profile(profile)
    arm = found.arm(label)
    assert arm is not None
    return RunContext(
        arm=resolve(arm),
        seed=seed,
        profile=profile,
        recipe={**found.recipe, **more},
        data_dir=data_dir,
        work_dir=work_dir,
        progress=progress,
    )


def check_imports_are_light(module: str) -> None:
    """Makes sure that importing a module loads no framework."""
    code = f"import sys, {module}; print(sorted({HEAVY} & sys.modules.keys()))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


def check_profile(profile: Profile) -> None:
    """Makes sure that no two arms are the same or share a folder, and that the recipe can be written."""
    specs = {(resolved.strategy, resolved.objective) for resolved in map(resolve, profile.arms)}
    assert len(specs) == len(profile.arms), "two arms are the same"
    assert len({slug(arm.label) for arm in profile.arms}) == len(profile.arms)
    json.dumps(dict(profile.recipe), allow_nan=False)
