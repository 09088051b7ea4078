"""The kind of suites that train: how the command runs and reports them, and ``tempplug bench sweep``.

A sweep runs tasks over fixed temperatures (a curve) and tuning-free strategies (points beside it); it stores the same results
as ``bench run``. Nothing here depends on a particular suite.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from rich.console import Console

from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, DataError, MissingDependencyError
from tempplug.options import format_value
from tempplug.plugins import SuiteInfo, registry
from tempplug_adapters.storage.files import write_text
from tempplug_adapters.sweep.command import STRATEGIES, TEMPERATURES
from tempplug_adapters.sweep.report import draw
from tempplug_benchmarks.arm import Arm
from tempplug_benchmarks.report import pages
from tempplug_benchmarks.report.comparison import Comparison, check_known, compare
from tempplug_benchmarks.results import Loaded, load_results
from tempplug_benchmarks.run.fixed_plan import FixedPlan, copy_plan, read_plan
from tempplug_benchmarks.run.plan import Run, plan
from tempplug_benchmarks.run.runner import EXECUTORS, Progress, create_executor, execute
from tempplug_benchmarks.run.store import Failure, Result
from tempplug_benchmarks.run.table_plan import plan_tables, tables_of
from tempplug_benchmarks.run.tuning import controls, expanded
from tempplug_benchmarks.suite import Suite, load_suite

TITLE = Suite.kind
ALL = "all"
"""The name that selects every suite of this kind."""
QUICK = "quick"
SEEDS, QUICKSTART_SEEDS = (0, 1, 2), (5, 6, 7, 8, 9)
"""Default seeds; no recipe was chosen with those of a quick run of all suites."""
PAGE = "index.html"
"""The report of a run of all suites, in the folder of its results."""


def add_options(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    """Adds the options of training suites and returns them."""
    add = group.add_argument
    tuned = "give every arm as many configurations as its task has fixed temperatures; validation data choose among them"
    controls = "train each adaptive arm again with the mean temperature of its own run, held fixed"
    seeds = "at least five for a verdict (default: 0 1 2; for all in profile quick 5 to 9)"
    workers = "simultaneous runs, each in its own process (default: 1; on a cluster as many as fit)"
    address = "address of the cluster (default: RAY_ADDRESS, or the cluster that runs on this machine)"
    return [
        add(
            "--plan", type=Path, metavar="FILE", help="instead of a suite: the runs of a plan that was fixed beforehand (TOML)"
        ),
        add("--table", nargs="+", metavar="PAPER/NUMBER", help="instead of a suite: the runs of these tables of papers"),
        add("--paper", help="instead of a suite: the runs of all tables and figures of a paper"),
        add("--strategies", nargs="+", metavar="ARM", help="arms to compare, see below (default: all)"),
        add("--tuned", action="store_true", help=tuned),
        add("--controls", action="store_true", help=controls),
        add("--seeds", nargs="+", type=int, metavar="SEED", help=seeds),
        add("--data-dir", type=Path, metavar="DIR", help="folder of real data (default: TEMPPLUG_DATA)"),
        add("--workers", type=int, metavar="N", help=workers),
        add("--time-limit", type=float, metavar="SECONDS", help="limit of a run, which then fails (default: none)"),
        add("--executor", choices=EXECUTORS, default="local", help="local: this machine; ray: a Ray cluster (default: local)"),
        add("--ray-address", metavar="HOST:PORT", help=address),
    ]


def run(suite: Suite, options: argparse.Namespace) -> int:
    """Executes the unfinished runs of a suite and prints the requested tables; returns 1 if a run failed."""
    runs = plan(suite, options.profile, options.seeds or SEEDS, options.tasks, options.strategies)
    status, found = _run([suite], runs, options)
    found.print(Console())
    return status


def run_plan(options: argparse.Namespace) -> int:
    """Executes the unfinished runs of a plan and prints its tables; returns 1 if a run failed.

    Raises:
        ConfigError: other options name runs too, or the folder holds another plan of these tasks.
        DataError: the file is malformed.
        TempplugError: the plan names an unknown suite, task or arm.
    """
    named = ("table", "paper", "tasks", "strategies", "seeds", "tuned", "controls")
    given = [f"--{name}" for name in named if getattr(options, name)]
    if given:
        raise ConfigError(f"{' and '.join(given)} must not go together with --plan, which names the runs.")
    fixed = read_plan(options.plan, FixedPlan)
    suite = load_suite(fixed.suite)
    if suite.kind != TITLE:
        raise ConfigError(f"suite '{fixed.suite}' of plan {options.plan} must be one that trains.")
    runs = plan(suite, fixed.profile, fixed.seeds, fixed.tasks, fixed.arms)
    copy_plan(options.plan, runs, options.output)
    status, found = _run([suite], runs, options)
    found.print(Console())
    return status


def run_all(options: argparse.Namespace) -> int:
    """Executes every training suite like `run`, prints shorter tables and writes an HTML report.

    Suites without their data or framework are skipped with a message. Profile ``quick`` runs only the quickstart tasks and
    arms.
    """
    if options.tasks:
        raise ConfigError(f"--tasks {' '.join(options.tasks)} goes with one suite, not with {ALL}: its tasks are all tasks.")
    known = registry()
    suites, runs = [], []
    for info in known.all(SuiteInfo):
        suite = known.load(info)
        planned = _planned(suite, options) if isinstance(suite, Suite) and suite.kind == TITLE else []
        if not planned:
            continue
        try:
            known.check_installed(info)
        except MissingDependencyError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        suites.append(suite)
        runs += planned
    status, found = _run(suites, _with_data(runs, options, "task of any suite"), options)
    pages.print_report(Console(), found.comparisons, found.problems, briefly=True)
    file = options.output / PAGE
    write_text(file, pages.page(found.html_parts()))
    print(f"All tables, plots and commands: {file.resolve().as_uri()}")
    return status


def _planned(suite: Suite, options: argparse.Namespace) -> list[Run]:
    """Returns the runs of a suite that belong to a run of all suites."""
    quick = options.profile == QUICK
    seeds = options.seeds or (QUICKSTART_SEEDS if quick else SEEDS)
    return [
        run
        for task in suite.default_tasks(options.profile)
        if task.quickstart or not quick
        for run in plan(suite, options.profile, seeds, [task.name], options.strategies or (task.quickstart if quick else None))
    ]


def run_tables(options: argparse.Namespace) -> int:
    """Executes the runs that tables of papers compare; tasks without their data or the profile are skipped with a message."""
    given = [f"--{name}" for name in ("tasks", "strategies", "tuned") if getattr(options, name)]
    if given or (options.table and options.paper):
        raise ConfigError(f"{' and '.join(given or ['--table and --paper'])} must not go together with tables of papers.")
    tables = tables_of(options.table or (), options.paper)
    planned = plan_tables(tables, options.profile, options.seeds or SEEDS)
    for line in planned.left_out:
        print(f"left out: {line}", file=sys.stderr)
    status, found = _run(planned.suites, _with_data(planned.runs, options, "task of these tables"), options)
    found.print(Console())
    return status


def _with_data(runs: Sequence[Run], options: argparse.Namespace, which: str) -> list[Run]:
    """Returns the runs with available data and prints the tasks left out; raises `DataError` if no run is left."""
    missing = set()
    for place, run in {(run.suite, run.task.name): run for run in runs}.items():
        try:
            run.sizes.check_data(run.task.name, _data_dir(options.data_dir))
        except DataError as error:
            print(f"left out: {error}", file=sys.stderr)
            missing.add(place)
    kept = [run for run in runs if (run.suite, run.task.name) not in missing]
    if not kept:
        raise DataError(f"no {which} has its data for profile '{options.profile}': pass --data-dir or set TEMPPLUG_DATA.")
    return kept


def _run(suites: Sequence[Suite], runs: Sequence[Run], options: argparse.Namespace) -> tuple[int, TrainingReport]:
    """Executes the unfinished runs of a plan; returns 1 if a run failed, and the loaded results."""
    by_name = {suite.name: suite for suite in suites}
    if options.tuned:
        for task in dict.fromkeys(run.task.name for run in runs if not run.sizes.validation):
            print(f"not tuned: task '{task}' has no validation data in profile '{options.profile}'", file=sys.stderr)
        runs = expanded(runs)
    failures = _execute(runs, options)
    these = _load(runs, options.output, by_name)
    if options.controls:
        found = compare(these, by_name)
        shown = {(each.suite, each.profile_name, each.task.name, row.selected) for each in found for row in each.rows}
        of_shown = [run for run in runs if run.key[:4] in shown]
        more, without = controls(of_shown, these.results)
        print("".join(f"{line}\n" for line in without), end="", file=sys.stderr)
        failures += _execute(more, options)
        these = _load([*runs, *more], options.output, by_name)
    return 1 if failures else 0, TrainingReport(compare(these, by_name), these.problems)


def _execute(runs: Sequence[Run], options: argparse.Namespace) -> list[Failure]:
    data_dir = _data_dir(options.data_dir)
    executor = create_executor(options.executor, data_dir, options.workers, options.time_limit, options.ray_address)
    return execute(runs, options.output, data_dir, Progress(Console(stderr=True)), executor, options.rerun_changed)


def _load(runs: Sequence[Run], output: Path, by_name: Mapping[str, Suite]) -> Loaded:
    """Returns the stored results of these runs."""
    keys = {run.key for run in runs}
    loaded = load_results(output, lambda entry: check_known(entry, by_name[entry.suite]) if entry.key in keys else None)
    return loaded.only(lambda entry: entry.key in keys)


def verify(options: argparse.Namespace) -> int:
    """Repeats stored runs that are drawn at random and prints both figures; returns 1 if one differs by more than what matters.

    Figures of the same kind of processor, number of threads and versions are equal; others round otherwise.
    """
    suites: dict[str, Suite] = {}
    found = load_results(options.folder).results
    for name in {each.suite for each in found}:
        suite = load_suite(name)
        if suite.kind == TITLE:
            suites[name] = suite
    trained = [each for each in found if each.suite in suites and not Arm(each.arm).controlled]
    stored = sorted((each for each in trained if Arm(each.arm).installed), key=lambda each: each.key)
    if left_out := {each.arm for each in trained} - {each.arm for each in stored}:
        print(f"left out, as their strategies are not installed: {', '.join(sorted(left_out))}", file=sys.stderr)
    if not stored:
        raise DataError(f"{options.folder} has no result of a suite that trains.")
    drawn = random.Random(options.seed).sample(stored, min(options.runs, len(stored)))
    runs = [
        next(run for run in plan(suites[each.suite], each.profile, [each.seed], [each.task], [each.arm]) if run.key == each.key)
        for each in drawn
    ]
    with TemporaryDirectory() as scratch:
        output = Path(scratch)
        data_dir = _data_dir(options.data_dir)
        failures = execute(runs, output, data_dir, Progress(Console(stderr=True)), create_executor("local", data_dir))
        again = {each.key: each for each in load_results(output).results}
    status = 1 if failures else 0
    for run, before in zip(runs, drawn, strict=True):
        if before.key in again:
            metric = run.sizes.primary_metric()
            old, new = (each.metrics[metric.name] for each in (before, again[before.key]))
            differs = abs(new - old) > metric.smallest_difference
            status = max(status, int(differs))
            places = metric.decimals
            verdict = "differs" if differs else "equal" if new == old else f"within {metric.smallest_difference:g}"
            print(f"{before.suite} · {run.describe()}: {metric.name} {old:.{places}f}, again {new:.{places}f}: {verdict}")
    return status


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that ``bench sweep`` has in addition to those of ``bench run``."""
    parser.add_argument("--suite", required=True, help="name of a suite that trains (tempplug bench list)")
    kind: Any = {"nargs": "+", "type": float, "default": list(TEMPERATURES), "metavar": "T"}
    parser.add_argument("--temperatures", **kind, help="of the curve (default: 0.02 to 1)")


def run_sweep(options: argparse.Namespace) -> int:
    """Executes the unfinished runs, prints the tables and writes one figure for each task; returns 1 if a run failed.

    Args:
        options: of the command; ``strategies`` are drawn beside the curve.

    Raises:
        ConfigError: the suite does not train, or a temperature is out of range.
    """
    suite = load_suite(options.suite)
    if suite.kind != TITLE:
        raise ConfigError(f"suite '{options.suite}' must be one that trains: it has no temperature to sweep.")
    for temperature in options.temperatures:
        if not (math.isfinite(temperature) and temperature > 0):
            raise ConfigError(f"temperatures={temperature:g} must be finite and greater than 0.")
    curve = [f"fixed:temperature={format_value(float(each))}" for each in options.temperatures]
    options.strategies = [*curve, *(options.strategies or STRATEGIES)]
    with registry().explaining(registry().get(SuiteInfo, options.suite)):
        status = run(suite, options)
    runs = plan(suite, options.profile, options.seeds or SEEDS, options.tasks, options.strategies)
    found = load_results(options.output).results
    for task in dict.fromkeys(each.task.name for each in runs):
        _draw_sweep(task, [each for each in runs if each.task.name == task], found, options)
    return status


def _draw_sweep(task: str, runs: Sequence[Run], results: Sequence[Result], options: argparse.Namespace) -> None:
    metric = runs[0].sizes.primary_metric()
    keys = {each.key for each in runs}
    values: dict[float | str, list[float]] = {}
    for result in results:
        if result.key not in keys or result.strategy is None:
            continue
        name, options_of_strategy = parse_spec(result.strategy)
        place = float(options_of_strategy["temperature"]) if name == "fixed" else result.arm
        values.setdefault(place, []).append(result.metrics[metric.name])
    if values:
        file = options.output / f"sweep-{options.suite}-{task}.svg"
        write_text(file, draw({"": values}, f"{task}: {metric.name}"))
        print(f"wrote {file}")


@dataclass(frozen=True)
class TrainingReport(pages.Report):
    """The comparisons of a results folder.

    Attributes:
        comparisons: of every suite, profile and task.
        problems: messages about files that could not be read.
    """

    template: ClassVar[str] = "training"

    comparisons: Sequence[Comparison]
    problems: Sequence[str]

    def print(self, console: Console) -> None:
        """Prints the tables."""
        pages.print_report(console, self.comparisons, self.problems)


def _data_dir(given: Path | None) -> Path | None:
    """Returns the data folder given by --data-dir or TEMPPLUG_DATA, or None; raises `ConfigError` if it is not a folder."""
    name = given if given is not None else os.environ.get("TEMPPLUG_DATA") or None
    if name is None:
        return None
    folder = Path(name)
    if not folder.is_dir():
        raise ConfigError(f"{'--data-dir' if given is not None else 'TEMPPLUG_DATA'} {folder} is not a folder.")
    return folder.resolve()
