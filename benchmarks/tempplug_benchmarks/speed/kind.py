"""The kind of suites that measure speed: their options, runs and reports."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from tempplug.errors import ConfigError, UnknownNameError, nearest
from tempplug.options import format_value
from tempplug_adapters.training.flags import device_flag
from tempplug_benchmarks.arm import Arm, Specs
from tempplug_benchmarks.results import load_results
from tempplug_benchmarks.run.executor import InProcesses
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.runner import Progress, execute
from tempplug_benchmarks.speed.cases import BUDGETS, SpeedSuite
from tempplug_benchmarks.speed.report import SpeedReport, read_case, sections

TITLE = SpeedSuite.kind


def add_options(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    """Adds the options of speed suites and returns them."""
    add = group.add_argument
    budgets = ", ".join(f"{profile} {seconds:g}" for profile, seconds in BUDGETS.items())
    threads = "of torch; one is timed in CPU time, several in wall time (default: 1; 2 with --busy)"
    return [
        add("--device", **device_flag("cpu", "; a GPU is timed in bfloat16, by CUDA events")),
        add("--threads", type=int, metavar="N", help=threads),
        add("--busy", action="store_true", help="measure wall time beside two processes that use the processor all the time"),
        add("--budget", type=float, metavar="SECONDS", help=f"time for a case's rounds, at least three (default: {budgets})"),
    ]


def run(suite: SpeedSuite, options: argparse.Namespace) -> int:
    """Measures the unfinished cases, prints the requested tables and draws the plots; returns 1 if a case failed."""
    from tempplug_benchmarks.speed.plot import draw  # importing matplotlib takes a second, which listings should avoid

    runs = plan_cases(suite, options)
    failures = execute(runs, options.output, None, Progress(Console(stderr=True)), InProcesses(None), options.rerun_changed)
    asked = {each.key for each in runs}
    loaded = load_results(options.output / suite.name / options.profile, lambda entry: read_case(entry, suite))
    entries = [each for each in (*loaded.results, *loaded.failures) if each.suite == suite.name]
    shown = sections([each for each in entries if each.key in asked], {suite.name: suite})
    SpeedReport(shown, loaded.problems).print(Console())
    here = [each for each in sections(entries, {suite.name: suite}) if each.setting.slug == shown[0].setting.slug]
    for ending in ("svg", "png"):  # SVG for web pages, PNG for slides
        file = options.output / suite.name / options.profile / f"{shown[0].setting.slug}.{ending}"
        if draw(here, file):
            Console(stderr=True).print(f"wrote {file}", markup=False, highlight=False, soft_wrap=True)
    return 1 if failures else 0


def plan_cases(suite: SpeedSuite, options: argparse.Namespace) -> list[Run]:
    """Returns one run for every requested case, with the conditions given by the options.

    Raises:
        UnknownNameError: a name is neither a task nor a case of the profile.
        ConfigError: no case is left, a number is out of range, the device does not exist, or options conflict.
    """
    from tempplug_benchmarks.speed.losses import installed_packages  # loads torch

    conditions = _conditions(options)
    written = ",".join(f"{name}={format_value(value)}" for name, value in conditions.items())
    tasks = {task.name: task for task in suite.tasks if options.profile in task.profiles}
    task_of = {arm.label: name for name, task in tasks.items() for arm in task.profiles[options.profile].arms}
    found: dict[tuple[str, str], Run] = {}
    for name in options.tasks or tasks:
        known = [*tasks, *task_of]
        base, _, own = name.partition("@")
        if base not in known:
            raise UnknownNameError(
                f"suite '{suite.name}' has no task or case '{name}' in profile '{options.profile}'.{nearest(name, known)} "
                f"Its tasks are: {', '.join(tasks)}."
            )
        settings = ",".join(filter(None, (own, written)))
        task = suite.task(task_of.get(base, base) + f"@{settings}" * bool(settings))
        if options.budget is not None:
            task = task.changed(task.name, {"budget": options.budget})
        device = conditions.get("device", "cpu")
        for arm in task.profile(options.profile).arms:
            if arm.changes.get("only_on", device) == device and base in (arm.label, task_of[arm.label]):
                packages = installed_packages(arm.changes["loss_name"], arm.changes["implementations"])
                measured = Arm(arm.label, changes={**arm.changes, "packages": packages})
                found[task.name, arm.label] = Run(suite.name, options.profile, task, measured, Specs(), seed=0)
    if not found:
        raise ConfigError(f"profile '{options.profile}' of suite '{suite.name}' has none of these cases for device '{device}'.")
    return list(found.values())


def _conditions(options: argparse.Namespace) -> Mapping[str, Any]:
    """Returns the settings whose results are stored in separate folders."""
    from tempplug_adapters.training.command_line import choose_device  # loads torch

    if options.device != "cpu" and (options.busy or options.threads is not None):
        raise ConfigError("--busy and --threads go with --device cpu.")
    chosen = choose_device(options.device)
    if chosen.index:
        raise ConfigError(f"--device {chosen}: the first GPU is measured; CUDA_VISIBLE_DEVICES chooses which one that is.")
    if chosen.type != "cpu":
        return {"device": chosen.type, "precision": "bfloat16"}
    threads = options.threads if options.threads is not None else 2 if options.busy else 1
    return ({"busy": True} if options.busy else {}) | ({"threads": threads} if threads != 1 else {})
