"""Runs a training command by candidate and seed, each in a folder of its own, and reads a metric of each.

A finished run is kept and read again, so an interrupted comparison continues where it stopped. The module knows neither which
runs a comparison needs nor what follows from their metrics.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, DataError
from tempplug.options import format_value
from tempplug_adapters.storage.files import make_folder, write_json
from tempplug_adapters.storage.manifest import locked
from tempplug_adapters.sweep.metrics import RESULT, MissingMetricError, read_metric
from tempplug_adapters.training.termination import Terminated, on_termination

_PRINTED = "sweep_output.txt"
_CONTINUES = "finished runs are kept, the same command goes on."


@dataclass(frozen=True)
class Candidate:
    """What is compared with others.

    Attributes:
        strategy: spec string.
        learning_rate: the learning rate, or None if the command has no ``{learning_rate}``.
    """

    strategy: str
    learning_rate: float | None = None

    @property
    def temperature(self) -> float | None:
        """The fixed temperature; None for a strategy."""
        name, options = parse_spec(self.strategy)
        return float(options["temperature"]) if name == "fixed" and list(options) == ["temperature"] else None

    @property
    def label(self) -> str:
        """The name, with a fixed temperature as a number."""
        return self.name if self.temperature is None else self.name.removeprefix("fixed:temperature=")

    @property
    def name(self) -> str:
        """The spec string, and the learning rate if there is one."""
        return self.strategy + ("" if self.learning_rate is None else f" at learning rate {self.learning_rate:g}")


@dataclass(frozen=True)
class Run:
    """One run of the command.

    Attributes:
        folder: folder of the run.
        words: arguments of the command.
    """

    folder: Path
    words: tuple[str, ...]


class Trainings:
    """The runs of a comparison.

    Attributes:
        values: metric by candidate and seed, of the runs that have it.
        failed: whether a run failed or lacks the metric.
    """

    def __init__(self, command: str, metric: str, output: Path, planned: int) -> None:
        """Stores what all runs share.

        Args:
            command: contains ``{strategy}``, and optionally ``{seed}``, ``{learning_rate}`` and ``{output_dir}``.
            metric: its name.
            output: folder of results.
            planned: number of runs that the comparison needs, for messages.

        Raises:
            ConfigError: the command has no ``{strategy}``, or a quotation mark that is not closed.
        """
        self.command, self.metric, self.output, self.planned = command, metric, output, planned
        self.values: dict[Candidate, dict[int | None, float]] = {}
        self.failed = False
        if "{strategy}" not in command:
            raise ConfigError(f"command={command!r} must have {{strategy}} where the spec string of a strategy goes.")
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"command={command!r} cannot be read: {error}.") from error
        self._started, self._durations, self._metric_known = 0, list[float](), False

    def conduct(self, work: Callable[[], None]) -> int:
        """Calls a function with the folder of results locked; returns 0, 1 if a run failed, or 128 + a signal that ended it.

        Raises:
            KeyboardInterrupt: by Ctrl-C; the message says how to continue.
        """
        try:
            with locked(make_folder(self.output, "output"), "output"), on_termination(_end):
                work()
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(_CONTINUES) from error
        except Terminated as ended:
            print(f"ended by {ended.name}: {_CONTINUES}", file=sys.stderr)
            return ended.status
        return 1 if self.failed else 0

    def measure(self, candidate: Candidate, seed: int | None) -> None:
        """Trains unless that is done, adds the metric to `values`, and prints one line.

        Raises:
            ConfigError: the command cannot be run, or the finished run is of another command.
            MissingMetricError: the first finished run lacks the metric.
        """
        self._started += 1
        title = f"[{self._started}/{self.planned}] {candidate.name}" + ("" if seed is None else f", seed {seed}")
        run = self.run(candidate, seed)
        try:
            duration = perform(run)
            value = read_metric(run.folder, printed_by(run), self.metric)
        except DataError as error:
            finished = (run.folder / RESULT).is_file()
            if isinstance(error, MissingMetricError) and not self._metric_known:  # probably a misspelled name
                raise DataError(f"{error} The run is kept: the command with another --metric reads it anew.") from error
            self._metric_known = self._metric_known or finished
            self.failed = True
            print(f"{title}: failed: {error}{' Remove the folder to train it again.' * finished}", flush=True)
        else:
            self._metric_known = True
            self.values.setdefault(candidate, {})[seed] = value
            print(f"{title}: {self.metric} {value:.5g} ({self._time(duration)})", flush=True)

    def _time(self, duration: float | None) -> str:
        """Returns how long a run took, and how long those to come will take at most."""
        if duration is None:
            return "done before"
        self._durations.append(duration)
        left = (self.planned - self._started) * sum(self._durations) / len(self._durations)
        return f"{duration:.0f} s" + (f", about {left / 60:.0f} min left" if left >= 90 else "")

    def run(self, candidate: Candidate, seed: int | None) -> Run:
        """Returns the run of a candidate with a seed."""
        rate = "" if candidate.learning_rate is None else format_value(candidate.learning_rate)
        name = (
            re.sub(r"[^\w.=-]+", "_", candidate.strategy) + (rate and f"-rate{rate}") + ("" if seed is None else f"-seed{seed}")
        )
        folder = self.output.resolve() / "runs" / name
        texts = {"strategy": candidate.strategy, "learning_rate": rate, "seed": str(seed), "output_dir": str(folder)}
        words = []
        for word in self._words:
            words.append(re.sub(r"\{(strategy|learning_rate|seed|output_dir)\}", lambda match: texts[match[1]], word))
        return Run(folder, tuple(words))


def perform(run: Run) -> float | None:
    """Executes a run unless it has finished, and returns the seconds that it took, or None.

    Raises:
        ConfigError: the finished run in its folder belongs to another command, or the command cannot be run.
        DataError: the training failed.
    """
    result, printed = run.folder / RESULT, run.folder / _PRINTED
    if result.is_file():
        command = json.loads(result.read_text(encoding="utf-8"))["command"]
        if command != list(run.words):
            raise ConfigError(f"{result} is of another command, {shlex.join(command)}: choose another --output.")
        return None
    make_folder(run.folder, "output")
    begin = time.monotonic()
    with printed.open("wb") as file:
        try:
            process = subprocess.Popen(run.words, stdout=file, stderr=subprocess.STDOUT)
        except OSError as error:
            raise ConfigError(f"command '{run.words[0]}' cannot be run: {error.strerror or error}.") from error
        try:
            status = process.wait()
        except BaseException:  # it must not train on beside the one that continues
            process.terminate()
            process.wait()
            raise
    if status:
        last = printed_by(run).strip().splitlines()[-1:] or ["it printed nothing"]
        raise DataError(f"exit status {status}, {last[0][:200]} ({printed} has all that it printed).")
    write_json(result, {"command": list(run.words)})
    return time.monotonic() - begin


def _end(number: int) -> None:
    raise Terminated(number=number)


def printed_by(run: Run) -> str:
    """Returns the output of a run."""
    printed = run.folder / _PRINTED
    return printed.read_text(encoding="utf-8", errors="replace") if printed.is_file() else ""
