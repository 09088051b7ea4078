"""What every ``tempplug eval`` of a text model shares: the flags of a model, and the report as a table and as a file."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tempplug.errors import ConfigError
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.training.flags import add_device

M = TypeVar("M")


def model_parser(
    command: str, description: str, epilog: str, *, model: str, data: str, batch: int, batched: str
) -> argparse.ArgumentParser:
    """Returns a parser with the flags that say which model is measured, on what, where, and where the result goes.

    Args:
        command: the words after ``tempplug``.
        description: of the command.
        epilog: below the flags.
        model: help of the model.
        data: help of ``--data-dir``.
        batch: default of ``--batch-size``.
        batched: help of it.
    """
    parser = argparse.ArgumentParser(prog=f"tempplug {command}", description=description, epilog=epilog)
    parser.add_argument("model", help=model)
    parser.add_argument("--data-dir", default=os.environ.get("TEMPPLUG_DATA") or None, help=data)
    parser.add_argument("--batch-size", type=int, default=batch, help=f"{batched} (default: {batch})")
    add_device(parser)
    parser.add_argument("--output", type=Path, help="JSON file to write the result to")
    return parser


def report(
    options: argparse.Namespace,
    load: Callable[[], M],
    measure: Callable[[M], dict[str, Any]],
    lines: Callable[[dict[str, Any]], list[str]],
) -> None:
    """Loads a model, measures it, prints the lines of a table and writes the JSON file, with ``seconds`` added.

    Raises:
        ConfigError: the file cannot be written where ``--output`` says.
    """
    if options.output is not None and not options.output.resolve().parent.is_dir():
        raise ConfigError(f"--output={options.output} lies in a folder that does not exist; create it first.")
    model = load()
    started = time.perf_counter()
    found = measure(model)
    found["seconds"] = round(time.perf_counter() - started, 2)
    print("\n".join(lines(found)))
    if options.output is not None:
        write_json(options.output, found)
