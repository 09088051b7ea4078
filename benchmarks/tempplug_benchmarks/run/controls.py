"""Control arms: ``fixed`` at the mean temperature that an adaptive arm had with the same seed.

They are planned once the results of the arm exist. A control also omits whatever else its strategy adds, such as the extra
projection heads and the regulariser of AMCL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tempplug.arguments import parse_spec
from tempplug_benchmarks.arm import Arm, Specs
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import Result


def controls(runs: Sequence[Run], results: Sequence[Result]) -> tuple[list[Run], list[str]]:
    """Returns a control run for every run with an adaptive temperature, and a message for each one that cannot have a control.

    Args:
        runs: of any arms; arms with a fixed temperature or without a contrastive loss need no control.
        results: of the runs; an unfinished run has no control.
    """
    finished = {(each.suite, each.profile, each.task, each.arm, each.seed): each for each in results}
    found, without = [], []
    for run in runs:
        result = finished.get((run.suite, run.profile, run.task.name, run.arm.label, run.seed))
        parts = run.arm.parts
        if result is None or not parts or not run.specs.objective or parse_spec(parts[0])[0] == "fixed":
            continue
        mean = result.temperature.get("mean", 0.0)
        if run.specs.objective.startswith("amcl-top:"):
            without.append(f"no control of {run.describe()}: its objective wants a temperature of every pair")
        elif mean > 0:
            arm = Arm(f"control({run.arm.label})", changes=run.arm.changes)
            found.append(replace(run, arm=arm, specs=Specs(resolved_fixed(mean), run.specs.objective)))
        else:
            without.append(f"no control of {run.describe()}: its result has no mean temperature, run it again")
    return found, without


def resolved_fixed(temperature: float) -> str:
    """Returns the spec of a fixed temperature, rounded to five significant digits.

    >>> resolved_fixed(0.123456789)
    'fixed:temperature=0.12346'
    """
    from tempplug import create_strategy

    return create_strategy("fixed", temperature=float(f"{temperature:.5g}")).spec()
