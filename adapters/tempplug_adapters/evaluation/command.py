"""The commands ``tempplug eval NAME``: one builder, what those for text models share, and ``tempplug eval trained``.

It imports no framework, so that ``--help`` is fast.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tempplug.cli import printable
from tempplug.errors import ConfigError
from tempplug.options import options_of
from tempplug.parser import Parser
from tempplug_adapters.ending import ending, number
from tempplug_adapters.quoting import shell_word
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.training.flags import add_setting, device_flag
from tempplug_adapters.training.use_command import open_folder, trained_parser

Flags = Mapping[str, Mapping[str, Any]]
"""Options of `argparse.ArgumentParser.add_argument` by flag."""
Load = Callable[[argparse.Namespace], Any]
Progress = Callable[[float, str], None]
Measure = Callable[[argparse.Namespace, Any, Progress], dict[str, Any]]
Table = Callable[[argparse.Namespace, dict[str, Any]], list[str]]


@dataclass(frozen=True, kw_only=True)
class EvalCommand:
    """A command ``tempplug eval NAME``; calling it with the words after its name returns the exit status.

    Attributes:
        name: last word of the command.
        description: text above the flags of its help.
        epilog: text below them.
        flags: its flags, in the order of the help.
        settings: class whose fields become a group of further flags; a flag that is not given is None.
        settings_note: text above that group.
        run: measures and prints, given the parsed flags; returns the exit status.
    """

    name: str
    description: str
    epilog: str | None = None
    flags: Flags
    settings: type | None = None
    settings_note: str | None = None
    run: Callable[[argparse.Namespace], int]

    def __call__(self, arguments: list[str]) -> int:
        """Runs the command; raises TempplugError if the input is invalid."""
        parser = Parser(prog=f"tempplug eval {self.name}", description=self.description, epilog=self.epilog)
        for flag, options in self.flags.items():
            parser.add_argument(flag, **options)
        if self.settings is not None:
            group = parser.add_argument_group("settings", self.settings_note)
            for each in options_of(self.settings):
                if each.kind is not None:
                    add_setting(group, each.name, each.kind, {"": self.settings})
        return self.run(parser.parse_args(arguments))


def tasks_flag(known: Collection[str], **more: Any) -> dict[str, Any]:
    """Returns the options of a flag that takes some names out of those known, by default all."""
    return {"nargs": "+", "metavar": "TASK", "choices": known, "help": f"out of {', '.join(known)} (default: all)", **more}


def text_command(
    *,
    model: str,
    data: str,
    batch: tuple[int, str],
    check: Callable[[argparse.Namespace], object],
    load: Load,
    measure: Measure,
    table: Table,
    flags: Flags,
    then: str,
    **more: Any,
) -> EvalCommand:
    """Returns a command that measures a text model, prints a table and writes the figures as JSON.

    Args:
        model: help of the model.
        data: help of ``--data-dir``; if the flag is not given, its value is TEMPPLUG_DATA, or None without it.
        batch: default and help of ``--batch-size``.
        check: given the parsed flags, raises TempplugError if data or packages are missing; called before the model is loaded.
        load: returns the model, given the parsed flags.
        measure: returns the figures, given the flags, the model, and what it calls with the completed fraction and the name of
            what is being done; ``seconds`` are added.
        table: returns the lines of the table, given the flags and the figures.
        flags: further flags.
        then: the next command to type, with ``{model}`` for the model.
        **more: name, description and epilog of the command.
    """

    def run(options: argparse.Namespace) -> int:
        if options.output is not None and not options.output.resolve().parent.is_dir():
            raise ConfigError(f"--output={options.output} lies in a folder that does not exist; create it first.")
        options.data_dir = options.data_dir or os.environ.get("TEMPPLUG_DATA") or None
        check(options)
        from tempplug_adapters.training.command_line import without_loading_bars  # imports torch, which --help does not need

        with without_loading_bars():
            loaded = load(options)
        started = time.perf_counter()
        with shown_progress() as progress:
            found = measure(options, loaded, progress)
        found["seconds"] = round(time.perf_counter() - started, 2)
        print("\n".join(map(printable, [*table(options, found), f"next: {then.format(model=shell_word(options.model))}"])))
        if options.output is not None:
            write_json(options.output, found)
        return 0

    size, what = batch
    shared: Flags = {
        "model": {"help": model},
        "--data-dir": {"help": data},
        "--batch-size": {"type": int, "default": size, "help": f"{what} (default: {size})"},
        "--device": device_flag(),
        "--output": {"type": Path, "help": "JSON file to write the result to"},
    }
    return EvalCommand(flags={**shared, **flags}, run=run, **more)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Yields a function that shows progress on standard error: as a bar on a terminal, else as a line for each part."""
    from tqdm.auto import tqdm

    doings: list[str] = []
    with tqdm(total=1.0, disable=None, leave=False, bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}") as bar:

        def progress(fraction: float, doing: str) -> None:
            if doing not in doings:
                doings.append(doing)
                bar.set_description_str(doing, refresh=False)
                if bar.disable:
                    print(f"{doing} …", file=sys.stderr, flush=True)
            bar.update(fraction - bar.n)

        yield progress


def eval_trained(arguments: list[str]) -> int:
    """Measures a trained folder anew, as ``tempplug eval trained`` with the words after it; returns the exit status."""
    dataset = {"metavar": "DATASET", "help": "where the training's data are now (default: as in the training)"}
    parser = trained_parser(
        "eval trained", "Measure a trained folder anew, as at the end of its training, and compare.", ("--dataset", dataset)
    )
    options = parser.parse_args(arguments)
    from tempplug_adapters.training.command_line import data_folder, quietly  # these import torch, which --help does not need
    from tempplug_adapters.training.trained import METRICS_FILE, read_folder_file

    with quietly():
        trained = open_folder(options)
        with shown_progress() as progress:
            found = trained.evaluate(
                data_folder(options.data_dir), options.dataset, progress=lambda done: progress(done, "evaluate")
            )
        before = read_folder_file(trained.folder, METRICS_FILE)["evaluation"]
    apart = max((abs(found[name] - before[name]) for name in found.keys() & before.keys()), default=0.0)
    said = [f"{len(found)} figures; largest difference from {METRICS_FILE}: {number(apart)}"]
    then = f"tempplug embed {shell_word(options.folder)} DATA --output vectors.npy"
    print(ending(said, found, then, more=str(trained.folder / METRICS_FILE)))
    return 0
