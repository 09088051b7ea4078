"""The toy suite, importable by name (also in worker processes) and registered in a registry of the module's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from run_checks import FIGURES, SEEDS, write_failure, write_result

from tempplug.plugins import registry
from tempplug_benchmarks.report.comparison import Comparison, compare
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import plan


@pytest.fixture(scope="module")
def toy() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        patch.setattr("tempplug.plugins.manager._registry", None)
        import toy_suite

        registry().register(toy_suite.Plugin(), "toy")
        yield toy_suite
        sys.modules.pop("toy_suite", None)


@pytest.fixture(scope="module")
def comparisons(toy: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, ...]:
    """Five seeds of four arms, three runs failed; versions and machine are made up, so that the report is always the same."""
    folder = tmp_path_factory.mktemp("results")
    for run in plan(toy.SUITE, "quick", SEEDS, strategies=["all", "temperature-free"]):
        if run.seed >= len(FIGURES[run.arm.label]):
            write_failure(run, folder, "RuntimeError: <b>it</b> broke\nbadly", "trace")
            continue
        score, error = FIGURES[run.arm.label][run.seed]
        write_result(run, folder, {"STSB": score, "error": error}, seconds=1)
        content = json.loads(run.path(folder).read_text())
        content["versions"] = {"python": "3.11.0", "tempplug": "0.1.0"}
        content["date"] = f"2026-11-0{1 + run.seed}T08:00:00+00:00"
        content["hardware"] = {"cpu": "Abacus", "cores": 2, "threads": 1, "gpu": "none such"}
        run.path(folder).write_text(json.dumps(content))
    return compare(load_results(folder), {"toy": toy.SUITE})
