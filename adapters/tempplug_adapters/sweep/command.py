"""``tempplug sweep``: runs the user's training command over temperatures and strategies, and plots a metric.

The plot has the metric over fixed temperatures, and a horizontal band for each strategy.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, DataError, nearest
from tempplug.options import format_value
from tempplug.parser import Parser
from tempplug.plugins import StrategyInfo, registry
from tempplug_adapters.figures import COLOURS, new_figure, svg_text
from tempplug_adapters.storage.files import Folder, make_folder, write_json, write_text
from tempplug_adapters.storage.manifest import locked

RESULT, _STATE = "sweep_result.json", "trainer_state.json"
_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|[+-]?inf)"
_PRINTED_NAME = re.compile(rf"(?<![\w.-])([A-Za-z_][\w.@/-]*)(?:['\"]?\s*[:=]\s*['\"]?|\s+){_NUMBER}(?!\w)", re.IGNORECASE)
_LISTED = 30
TEMPERATURES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
STRATEGIES = ("macl", "dystress", "temperature-free")
_PRINTED = "sweep_output.txt"
_EPILOG = """\
In the command, {strategy} is replaced by a spec string (fixed:temperature=0.05, macl, ...), {output_dir} by a folder of the
run, and {seed} by a seed. The command is run without a shell, in the current folder.

The metric is read from the JSON files in {output_dir} (at the top level or below "evaluation"), or else from a Trainer's
trainer_state.json in it, or else from the output: the last 'NAME: VALUE' or 'NAME = VALUE'.

  tempplug sweep --metric eval_accuracy --seeds 0 1 2 --output sweep \\
      --command "python train.py --output_dir {output_dir} --seed {seed} \\
                 --temperature-strategy {strategy}"

If the first finished run lacks the metric, the sweep ends and lists the metrics that it has.

A metric that depends on the temperature itself, such as eval_loss, cannot compare temperatures. Finished runs (exit status 0)
are kept, and another --metric is read from them; remove the folder of a run to train it again. The same command continues with
the other runs in their folders: a training with a flag that resumes (--resume-from-checkpoint auto) where it stopped, others
from the start. DIR/sweep.svg is the plot, DIR/sweep.json has the numbers. The exit status is 1 if a run failed.
"""


@dataclass(frozen=True)
class Run:
    """One run of the command.

    Attributes:
        strategy: spec string.
        seed: the seed, or None if the command has no ``{seed}``.
        folder: folder of the run.
        words: arguments of the command.
    """

    strategy: str
    seed: int | None
    folder: Path
    words: tuple[str, ...]


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
    parser.add_argument("--command", required=True, help="your training command with {strategy}, see below")
    parser.add_argument("--metric", required=True, metavar="NAME", help="metric to plot, such as eval_accuracy")
    parser.add_argument("--output", action=Folder, required=True, metavar="DIR", help="folder of results")
    parser.add_argument("--temperatures", nargs="+", type=float, default=list(TEMPERATURES), metavar="T", help="of the curve")
    parser.add_argument(
        "--strategies", nargs="*", default=list(STRATEGIES), metavar="SPEC", help=f"bands (default: {' '.join(STRATEGIES)})"
    )
    parser.add_argument("--seeds", nargs="+", type=int, metavar="SEED", help="seeds, for {seed} in the command (default: 0)")
    options = parser.parse_args(arguments)
    runs = plan(options.command, options.temperatures, options.strategies, options.seeds, options.output)
    failed, known = [], False
    values: dict[str, list[float]] = {}
    with locked(make_folder(options.output, "output"), "output"):
        try:
            for number, run in enumerate(runs, 1):
                said = f"[{number}/{len(runs)}] {run.strategy}" + ("" if run.seed is None else f", seed {run.seed}")
                try:
                    words = perform(run)
                    value = read_metric(run.folder, printed_by(run), options.metric)
                    values.setdefault(run.strategy, []).append(value)
                    known = True
                    print(f"{said}: {options.metric} {value:.5g}{words}", flush=True)
                except DataError as error:
                    finished = (run.folder / RESULT).is_file()
                    if isinstance(error, MissingMetricError) and not known:  # probably a misspelled name
                        raise DataError(f"{error} The run is kept: the command with another --metric reads it anew.") from error
                    known = known or finished
                    failed.append(run)
                    print(f"{said}: failed: {error}{' Remove the folder to train it again.' * finished}", flush=True)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt("finished runs are kept, the same command goes on.") from error
        report(values, options.metric, options.output)
    return 1 if failed else 0


def plan(
    command: str, temperatures: Sequence[float], strategies: Sequence[str], seeds: Sequence[int] | None, output: Path
) -> list[Run]:
    """Returns the runs in order of seeds.

    Args:
        command: contains ``{strategy}``, and optionally ``{seed}`` and ``{output_dir}``.
        temperatures: of the curve, each greater than 0.
        strategies: spec strings of the bands.
        seeds: None for 0 if the command contains ``{seed}``.
        output: folder of results.

    Raises:
        ConfigError: the command lacks a placeholder, or a temperature is out of range.
        UnknownNameError: a strategy is unknown.
    """
    if "{strategy}" not in command:
        raise ConfigError(f"command={command!r} must have {{strategy}} where the spec string of a strategy goes.")
    if seeds is not None and "{seed}" not in command:
        raise ConfigError(f"seeds={' '.join(map(str, seeds))} need {{seed}} in the command.")
    for temperature in temperatures:
        if not (math.isfinite(temperature) and temperature > 0):
            raise ConfigError(f"temperatures={temperature:g} must be finite and greater than 0.")
    for spec in strategies:
        registry().get(StrategyInfo, parse_spec(spec)[0])
    specs = dict.fromkeys([*(f"fixed:temperature={format_value(float(each))}" for each in temperatures), *strategies])
    runs = []
    chosen: Sequence[int | None] = (seeds or [0]) if "{seed}" in command else [None]
    for seed in chosen:
        for spec in specs:
            name = re.sub(r"[^\w.=-]+", "_", spec) + ("" if seed is None else f"-seed{seed}")
            folder = output.resolve() / "runs" / name
            words = (
                word.replace("{strategy}", spec).replace("{output_dir}", str(folder)).replace("{seed}", str(seed))
                for word in shlex.split(command)
            )
            runs.append(Run(spec, seed, folder, tuple(words)))
    return runs


def perform(run: Run) -> str:
    """Executes a run unless it has finished, and returns a message about it.

    Raises:
        ConfigError: the finished run in its folder belongs to another command.
        DataError: the training failed.
    """
    result, printed = run.folder / RESULT, run.folder / _PRINTED
    if result.is_file():
        done = json.loads(result.read_text(encoding="utf-8"))
        if done["command"] != list(run.words):
            raise ConfigError(f"{result} is of another command, {shlex.join(done['command'])}: choose another --output.")
        return " (done before)"
    make_folder(run.folder, "output")
    begin = time.monotonic()
    with printed.open("wb") as file:
        try:
            status = subprocess.run(run.words, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
        except OSError as error:
            raise ConfigError(f"command '{run.words[0]}' cannot be run: {error.strerror or error}.") from error
    if status:
        last = printed_by(run).strip().splitlines()[-1:] or ["it printed nothing"]
        raise DataError(f"exit status {status}, {last[0][:200]} ({printed} has all that it printed).")
    write_json(result, {"strategy": run.strategy, "seed": run.seed, "command": list(run.words)})
    return f" ({time.monotonic() - begin:.0f} s)"


def printed_by(run: Run) -> str:
    """Returns the output of a run."""
    printed = run.folder / _PRINTED
    return printed.read_text(encoding="utf-8", errors="replace") if printed.is_file() else ""


def report(values: Mapping[str, Sequence[float]], metric: str, output: Path) -> None:
    """Writes the plot and the values of the metric by strategy, one for each finished run, and prints them as a table."""
    if not values:
        return
    curve = {float(parse_spec(spec)[1]["temperature"]): each for spec, each in values.items() if _is_fixed(spec)}
    bands = {spec: each for spec, each in values.items() if not _is_fixed(spec)}
    write_text(output / "sweep.svg", draw(curve, bands, metric))
    write_json(output / "sweep.json", {"metric": metric, "values": values})
    width = max(map(len, values))
    print(f"\n{'':<{width}}  {metric}")
    for spec, each in values.items():
        spread = f" ± {stdev(each):.2g} over {len(each)} seeds" if len(each) > 1 else ""
        print(f"{spec:<{width}}  {mean(each):.5g}{spread}")
    print(f"\nwrote {output / 'sweep.svg'} and {output / 'sweep.json'}")


def _is_fixed(spec: str) -> bool:
    name, options = parse_spec(spec)
    return name == "fixed" and list(options) == ["temperature"]


def draw(curve: Mapping[float, Sequence[float]], bands: Mapping[str, Sequence[float]], metric: str) -> str:
    """Returns the plot as SVG: means with one standard deviation on either side.

    Args:
        curve: values of the metric by fixed temperature, one for each seed.
        bands: values of the metric by strategy, one for each seed.
        metric: its name.
    """
    figure, panel = new_figure(9, 4.8)
    title = f"{metric} over the temperature"
    panel.set_title(title, loc="left", fontsize=12, fontweight="bold")
    panel.set_xscale("log")
    panel.set(xlabel="fixed temperature", ylabel=metric)
    panel.grid(axis="y", color="#dfe4ec")
    panel.spines[["top", "right"]].set_visible(False)
    temperatures = sorted(curve)
    panel.set_xticks(temperatures, [f"{each:g}" for each in temperatures], minor=False)
    panel.minorticks_off()
    means, spreads = [mean(curve[each]) for each in temperatures], [_spread(curve[each]) for each in temperatures]
    panel.errorbar(temperatures, means, spreads, color=COLOURS[0], marker="o", linewidth=2, gid="curve")
    for number, (name, values) in enumerate(bands.items()):
        colour, middle = COLOURS[1 + number % (len(COLOURS) - 1)], mean(values)
        panel.axhspan(middle - _spread(values), middle + _spread(values), color=colour, alpha=0.15, linewidth=0)
        panel.axhline(middle, color=colour, linestyle="dashed", label=f"{name[:28]} {middle:.4g}", gid=f"band-{number}")
    if bands:
        figure.legend(loc="outside right upper", frameon=False, fontsize=10)
    return svg_text(figure, title)


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


class MissingMetricError(DataError):
    """A finished training has no metric with the given name."""


def read_metric(folder: Path, printed: str, metric: str) -> float:
    """Returns the newest value of a metric.

    Args:
        folder: folder of the training. JSON files are searched first, newest first, for the name at the top level or below
            ``evaluation``; then the Trainer's states in the folder and its checkpoints, for the last log with the name.
        printed: output of the training; if no file has the metric, the last ``NAME: VALUE``, ``NAME = VALUE`` or
            ``"NAME": VALUE`` is used.
        metric: its name.

    Raises:
        MissingMetricError: the metric was not found; the message lists the metrics found and the nearest name.
        DataError: it is not finite.
    """
    found = next((float(each[metric]) for each in _figures(folder) if metric in each), None)
    if found is None:
        pattern = re.compile(rf"(?<![\w.-]){re.escape(metric)}['\"]?\s*[:=]?\s*['\"]?{_NUMBER}(?![\w])", re.IGNORECASE)
        hits = pattern.findall(printed)
        found = float(hits[-1]) if hits else None
    if found is None:
        known = _names(folder, printed)
        left = ", ".join(known[:_LISTED]) + (", ..." if len(known) > _LISTED else "") if known else "none"
        raise MissingMetricError(
            f"metric={metric} was not found in the JSON files of {folder}, nor printed as '{metric}: VALUE'."
            f"{nearest(metric, known)} It has: {left}."
        )
    if not math.isfinite(found):
        raise DataError(f"metric={metric} of {folder} is {found}.")
    return found


def _figures(folder: Path) -> Iterator[dict[str, float]]:
    """Yields the numbers by name from each source, in order of precedence."""
    files = sorted((each for each in folder.glob("*.json") if each.name not in (RESULT, _STATE)), key=_age, reverse=True)
    for content in map(_content, files):
        yield from (_numbers(content), _numbers(content.get("evaluation")))
    for content in map(_content, sorted(folder.rglob(_STATE), key=_age, reverse=True)):
        logs = content.get("log_history")
        yield from map(_numbers, reversed(logs if isinstance(logs, list) else []))


def _names(folder: Path, printed: str) -> list[str]:
    """Returns the names of all metrics of a training."""
    found = [name for each in _figures(folder) for name in each]
    return list(dict.fromkeys([*found, *(name for name, _ in _PRINTED_NAME.findall(printed))]))


def _numbers(content: object) -> dict[str, float]:
    if not isinstance(content, dict):
        return {}
    return {name: value for name, value in content.items() if isinstance(value, int | float)}


def _age(file: Path) -> float:
    return file.stat().st_mtime


def _content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return {}  # another file may have it
    return content if isinstance(content, dict) else {}
