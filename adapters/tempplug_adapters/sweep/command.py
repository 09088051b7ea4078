"""``tempplug sweep``: runs the user's training command over temperatures and strategies, and plots a metric.

The plot has the metric over fixed temperatures, and beside the curve a point for each strategy.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError
from tempplug.options import format_value
from tempplug.parser import Parser
from tempplug.plugins import StrategyInfo, registry
from tempplug_adapters.storage.files import Folder
from tempplug_adapters.sweep.report import report
from tempplug_adapters.sweep.runs import Candidate, Trainings

TEMPERATURES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
STRATEGIES = ("macl", "dystress", "temperature-free")
COMMAND = """\
In the command, {strategy} is replaced by a spec string (fixed:temperature=0.05, macl, ...), {output_dir} by a folder of the
run, {seed} by a seed and {learning_rate} by a learning rate. The command is run without a shell, in the current folder.

The metric is read from the JSON files in {output_dir} (at the top level or below "evaluation"), or else from a Trainer's
trainer_state.json in it, or else from the output: the last 'NAME: VALUE' or 'NAME = VALUE'.
"""
_EPILOG = f"""\
{COMMAND}
  tempplug sweep --metric eval_accuracy --seeds 0 1 2 --current 0.05 \\
      --command "python train.py --output_dir {{output_dir}} --seed {{seed}} \\
                 --temperature-strategy {{strategy}}" --output sweep

If the first finished run lacks the metric, the sweep ends and lists the metrics that it has.

A metric that depends on the temperature itself, such as eval_loss, cannot compare temperatures. Finished runs (exit status 0)
are kept, and another --metric is read from them; remove the folder of a run to train it again. The same command continues with
the other runs in their folders: a training with a flag that resumes (--resume-from-checkpoint auto) where it stopped, others
from the start. The sweep ends with a verdict: the best, its difference to the current one with a 95 % interval over the seeds,
and how many seeds would tell. DIR/sweep.svg is the plot, DIR/sweep.json has the numbers. The exit status is 1 if a run failed.
`tempplug advise --train` asks the same question with fewer trainings.
"""


def main(arguments: list[str]) -> int:
    """Runs ``tempplug sweep`` with the words after it and returns 0, or 1 if a run failed.

    Raises:
        TempplugError: the input is invalid, a finished run belongs to another command, or the first run lacks the metric.
        KeyboardInterrupt: the command was interrupted; the message says what was kept.
    """
    parser = Parser(
        prog="tempplug sweep",
        description="Run a training command over temperatures and strategies, and draw how much the temperature matters.",
        epilog=_EPILOG,
    )
    add_comparison(parser, TEMPERATURES, STRATEGIES)
    parser.add_argument(
        "--current", metavar="T", help="your temperature or strategy, for the verdict (default: the second best)"
    )
    parser.add_argument("--seeds", nargs="+", type=int, metavar="SEED", help="seeds, for {seed} in the command (default: 0)")
    options = parser.parse_args(arguments)
    if options.seeds is not None and "{seed}" not in options.command:
        raise ConfigError(f"seeds={' '.join(map(str, options.seeds))} need {{seed}} in the command.")
    seeds = dict.fromkeys(options.seeds or [0]) if "{seed}" in options.command else [None]
    compared, current = comparison(options, TEMPERATURES, STRATEGIES)
    trainings = Trainings(options.command, options.metric, options.output, len(seeds) * len(compared))
    each = f", each with {len(seeds)} seeds" if len(seeds) > 1 else ""
    print(f"{trainings.planned} trainings: {', '.join(candidate.label for candidate in compared)}{each}", flush=True)

    def work() -> None:
        for seed in seeds:
            for candidate in compared:
                trainings.measure(candidate, seed)
        report(trainings, trainings.values, current, options.lower_is_better, "sweep")

    return trainings.conduct(work)


def add_comparison(parser: argparse.ArgumentParser, temperatures: tuple[float, ...], strategies: tuple[str, ...]) -> None:
    """Adds the flags that name a command, its metric and what is compared, with defaults."""
    add = parser.add_argument
    add("--command", required=True, help="your training command with {strategy}, see below")
    add("--metric", required=True, metavar="NAME", help="metric of the task, such as eval_accuracy")
    add("--lower-is-better", action="store_true", help="of the metric (default: higher is better)")
    add("--output", action=Folder, required=True, metavar="DIR", help="folder of results")
    add("--temperatures", nargs="+", type=float, metavar="T", help=f"fixed temperatures ({' '.join(map(str, temperatures))})")
    listed = f"{' '.join(strategies)}; with --temperatures none" if strategies else "none"
    add("--strategies", nargs="*", metavar="SPEC", help=f"strategies to compare (default: {listed})")
    add(
        "--learning-rates",
        nargs="+",
        type=float,
        metavar="RATE",
        help="each with each of these, for {learning_rate}; first yours",
    )


def comparison(
    options: argparse.Namespace, temperatures: Sequence[float], strategies: Sequence[str]
) -> tuple[list[Candidate], Candidate | None]:
    """Returns what is compared, the current one among it, and the current one.

    Args:
        options: the parsed flags of `add_comparison`, with ``current``.
        temperatures: that are compared where the flags name none.
        strategies: that are compared where the flags name neither strategies nor temperatures.

    Raises:
        ConfigError: a number is out of range, or the command and the flags do not agree on learning rates.
        UnknownNameError: a strategy is unknown.
    """
    if (options.learning_rates is not None) != ("{learning_rate}" in options.command):
        raise ConfigError("--learning-rates and {learning_rate} in the command must go together: one of them is missing.")
    current = None if options.current is None else _spec(options.current)
    if options.temperatures is not None:  # who names temperatures alone asks for nothing else
        temperatures, strategies = options.temperatures, ()
    if options.strategies is not None:
        strategies = options.strategies
    specs = [*(_fixed("temperatures", temperature) for temperature in temperatures), *strategies]
    for spec in (*specs, current) if current else specs:
        registry().get(StrategyInfo, parse_spec(spec)[0])
    rates: list[float | None] = [_positive("learning_rates", rate) for rate in options.learning_rates or ()]
    rates = rates or [None]
    compared = [Candidate(spec, rate) for rate in rates for spec in (*specs, *([current] if current else ()))]
    return list(dict.fromkeys(compared)), None if current is None else Candidate(current, rates[0])


def _spec(current: str) -> str:
    """Returns the spec string of a number or a spec string."""
    try:
        temperature = float(current)
    except ValueError:
        return current
    return _fixed("current", temperature)


def _fixed(name: str, temperature: float) -> str:
    return f"fixed:temperature={format_value(_positive(name, temperature))}"


def _positive(name: str, number: float) -> float:
    if not (math.isfinite(number) and number > 0):
        raise ConfigError(f"{name}={number:g} must be finite and greater than 0.")
    return number
