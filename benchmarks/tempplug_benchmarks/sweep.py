"""``tempplug bench sweep``: runs tasks over fixed temperatures (a curve) and tuning-free strategies (horizontal bands).

It runs and stores the same results as ``bench run``; it must not depend on any particular suite.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError
from tempplug.options import format_value
from tempplug.plugins import SuiteInfo, registry
from tempplug_adapters.storage.files import write_text
from tempplug_adapters.sweep.command import STRATEGIES, TEMPERATURES, draw
from tempplug_benchmarks import training
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.plan import Run, plan
from tempplug_benchmarks.run.store import Result
from tempplug_benchmarks.suite import load_suite


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that ``bench sweep`` has in addition to those of ``bench run``."""
    parser.add_argument("--suite", required=True, help="name of a suite that trains (tempplug bench list)")
    parser.add_argument(
        "--temperatures",
        nargs="+",
        type=float,
        default=list(TEMPERATURES),
        metavar="T",
        help="of the curve (default: 0.02 to 1)",
    )


def run(options: argparse.Namespace) -> int:
    """Executes the unfinished runs, prints the tables and writes one figure for each task; returns 1 if a run failed.

    Args:
        options: of the command; ``strategies`` are drawn as bands.

    Raises:
        ConfigError: the suite does not train, or a temperature is out of range.
    """
    suite = load_suite(options.suite)
    if suite.kind != training.TITLE:
        raise ConfigError(f"suite '{options.suite}' must be one that trains: it has no temperature to sweep.")
    for temperature in options.temperatures:
        if not (math.isfinite(temperature) and temperature > 0):
            raise ConfigError(f"temperatures={temperature:g} must be finite and greater than 0.")
    curve = [f"fixed:temperature={format_value(float(each))}" for each in options.temperatures]
    options.strategies = [*curve, *(options.strategies or STRATEGIES)]
    with registry().explaining(registry().get(SuiteInfo, options.suite)):
        status = training.run(suite, options)
    runs = plan(suite, options.profile, options.seeds or training.SEEDS, options.tasks, options.strategies)
    found = load_results(options.output).results
    for task in dict.fromkeys(each.task.name for each in runs):
        _draw(task, [each for each in runs if each.task.name == task], found, options)
    return status


def _draw(task: str, runs: Sequence[Run], results: Sequence[Result], options: argparse.Namespace) -> None:
    metric = runs[0].sizes.primary_metric()
    keys = {each.key for each in runs}
    curve: dict[float, list[float]] = {}
    bands: dict[str, list[float]] = {}
    for result in results:
        if result.key not in keys or result.strategy is None:
            continue
        name, given = parse_spec(result.strategy)
        if name == "fixed":
            curve.setdefault(float(given["temperature"]), []).append(result.metrics[metric.name])
        else:
            bands.setdefault(result.arm, []).append(result.metrics[metric.name])
    if curve or bands:
        file = options.output / f"sweep-{options.suite}-{task}.svg"
        write_text(file, draw(curve, bands, f"{task}: {metric.name}"))
        print(f"wrote {file}")
