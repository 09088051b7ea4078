"""The command ``tempplug bench``: lists suites, runs them, reports their results. It must not know any particular suite."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tempplug.errors import ConfigError, TempplugError
from tempplug.plugins import SuiteInfo, registry
from tempplug_benchmarks.comparison import compare
from tempplug_benchmarks.plan import plan
from tempplug_benchmarks.progress import Progress
from tempplug_benchmarks.report import markdown, print_report
from tempplug_benchmarks.report_html import html
from tempplug_benchmarks.results import Loaded, load_results
from tempplug_benchmarks.runner import execute
from tempplug_benchmarks.store import Entry, write_atomically
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import PROFILES

_RUN_HELP = """\
Every finished run is one JSON file below DIR. Killing the command loses at most the runs in flight; the same command
goes on where it stopped. A result of another recipe, data or spec is never reused: the command stops and says what differs.

An ARM is a label of the task (tempplug bench list), 'all' for every label, or STRATEGY[+OBJECTIVE] with spec strings:

  --strategies macl                           the task's own macl, with the settings of its recipe
  --strategies macl+dcl                       the same strategy with another objective
  --strategies macl:alpha=1 fixed:temperature=0.07+flatnce
  --strategies all temperature-free:eps=1e-3  the task's arms and one more

The task's baseline always runs too, because every arm is compared with it. Exit code: 0, 1 where a run failed, 2 on an error.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: the words behind ``tempplug bench``; None means those of the process.

    Returns:
        0; 1 where a run failed; 2 where the command could not be carried out; 130 where it was interrupted.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.action(options)
    except TempplugError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: finished runs are kept, the same command goes on.", file=sys.stderr)
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tempplug bench", description="Run benchmark suites and report measured beside reported figures."
    )
    actions = parser.add_subparsers(required=True, metavar="{list,run,report}")

    listing = actions.add_parser("list", help="show suites, tasks, profiles and arms", description="Show what can be run.")
    listing.add_argument("suite", nargs="?", help="show this suite alone")
    listing.set_defaults(action=_list)

    run = actions.add_parser(
        "run",
        help="run a suite",
        description="Train and measure every arm of every task with every seed.",
        epilog=_RUN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("suite", help="name of the suite (tempplug bench list)")
    run.add_argument(
        "--profile",
        choices=PROFILES,
        default="quick",
        help="quick: generated data, seconds a run; small: real data, minutes a run on two cores; paper: the paper's "
        "recipe, for a GPU (default: quick)",
    )
    run.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of results, made where missing")
    run.add_argument("--tasks", nargs="+", metavar="TASK", help="run these tasks alone (default: all)")
    run.add_argument("--strategies", nargs="+", metavar="ARM", help="what to compare, see below (default: all)")
    run.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="SEED", help="(default: 0 1 2)")
    run.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="folder of real data (default: the environment's TEMPPLUG_DATA)"
    )
    run.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="runs at once, each in its own process; threads are divided (default: 1)",
    )
    run.add_argument(
        "--rerun-changed", action="store_true", help="replace stored results of another recipe, data or spec (default: stop)"
    )
    run.set_defaults(action=_run)

    report = actions.add_parser(
        "report", help="report the results of a folder", description="Report measured beside reported figures."
    )
    report.add_argument("folder", type=Path, metavar="DIR", help="the --output of tempplug bench run")
    report.add_argument("--format", choices=("terminal", "markdown", "html"), default="terminal", help="(default: terminal)")
    report.add_argument("--out", type=Path, metavar="FILE", help="write there instead of standard output")
    report.set_defaults(action=_report)
    return parser


def _list(options: argparse.Namespace) -> int:
    known = registry()
    infos = [known.get(SuiteInfo, options.suite)] if options.suite else known.all(SuiteInfo)
    for info in infos:
        suite: Suite = known.load(info)
        print(f"{suite.name}: {suite.summary}")
        for task in suite.tasks:
            print(f"  {task.name}: {task.summary}")
            for name, profile in task.profiles.items():
                needs = f"; needs {', '.join(profile.needs)}" if profile.needs else ""
                print(f"    {name}: {profile.dataset}{needs}")
                for arm in profile.arms:
                    baseline = " (baseline)" if arm.label == task.baseline else ""
                    print(f"      {arm.label}: {arm.strategy} with {arm.objective}{baseline}")
    return 0


def _run(options: argparse.Namespace) -> int:
    suite: Suite = _suite(options.suite)
    runs = plan(suite, options.profile, options.seeds, options.tasks, options.strategies)
    failures = execute(
        runs,
        options.output,
        _data_dir(options.data_dir),
        Progress(Console(stderr=True)),
        workers=options.workers,
        rerun_changed=options.rerun_changed,
    )
    asked = {(run.suite, run.profile, run.task.name, run.arm.label, run.seed) for run in runs}

    def of_these(entry: Entry) -> bool:
        return (entry.suite, entry.profile, entry.task, entry.arm, entry.seed) in asked

    loaded = load_results(options.output)
    these = Loaded(tuple(filter(of_these, loaded.results)), tuple(filter(of_these, loaded.failures)), loaded.problems)
    print_report(Console(), compare(these, {suite.name: suite}), these.problems)
    return 1 if failures else 0


def _report(options: argparse.Namespace) -> int:
    loaded = load_results(options.folder)
    entries: tuple[Entry, ...] = (*loaded.results, *loaded.failures)
    comparisons = compare(loaded, {name: _suite(name) for name in dict.fromkeys(entry.suite for entry in entries)})
    if options.format == "terminal":
        if options.out is not None:
            raise ConfigError(f"--out {options.out} goes with --format markdown or html.")
        print_report(Console(), comparisons, loaded.problems)
        return 0
    content = (markdown if options.format == "markdown" else html)(comparisons, loaded.problems)
    if options.out is None:
        sys.stdout.write(content)
    else:
        write_atomically(options.out, content)
    return 0


def _suite(name: str) -> Suite:
    known = registry()
    suite: Suite = known.load(known.get(SuiteInfo, name))
    return suite


def _data_dir(given: Path | None) -> Path | None:
    """Returns the folder of real data that the command line or the environment names, None where neither does.

    Raises:
        ConfigError: it is not a folder.
    """
    name = given if given is not None else os.environ.get("TEMPPLUG_DATA") or None
    if name is None:
        return None
    folder = Path(name)
    if not folder.is_dir():
        raise ConfigError(f"{'--data-dir' if given is not None else 'TEMPPLUG_DATA'} {folder} is not a folder.")
    return folder.resolve()


if __name__ == "__main__":
    sys.exit(main())
