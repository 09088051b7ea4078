"""``tempplug train METHOD``: parses flags, trains, and prints a line for every epoch, the gain and the final metrics.

Frameworks are imported only when training starts, so that ``--help`` and invalid settings are answered at once.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from tempplug.completion import is_completing
from tempplug.errors import ConfigError
from tempplug.parser import Help, Parser
from tempplug_adapters.ending import ending
from tempplug_adapters.quoting import shell_word
from tempplug_adapters.training.config import Config, read_config
from tempplug_adapters.training.flags import build_parser, given_settings
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import Recipe
from tempplug_adapters.training.termination import ProcessLost, Terminated, first_process, let_threads_end, on_termination


def main(info: MethodInfo, arguments: list[str]) -> int:
    """Runs ``tempplug train`` of a method with the words after it; returns 0, 143 after SIGTERM, 129 after SIGHUP, or 75 if
    another process of the training failed.

    Raises:
        TempplugError: the input is wrong.
    """
    if "--help-training" in arguments:
        parser = _training_parser(info)
        parser.set_defaults(eval_on_start=True)  # of the command
        parser.print_help()
        return 0
    parser = build_parser(info)
    parser.others = lambda: _training_parser(info).spellings()
    config = Config() if is_completing() else read_config(info, arguments)
    parsed, rest = parser.parse_known_args([*config.words, *arguments])
    from tempplug_adapters.training.command_line import quietly  # imports torch, which --help does not need

    try:
        with quietly():
            recipe = info.recipe(parsed.recipe)
            recipe = recipe.changed(**{**config.recipe, **given_settings(parsed, recipe)})
            if config.strategy is not None and parsed.temperature_strategy == config.strategy:
                given = parsed.temperature_args, parsed.temperature_learning_rate
                parsed.temperature_strategy, parsed.temperature_args = config.changed_strategy(*given), []
            with on_termination(_end):
                results, then = _train(info, recipe, parsed, rest)
            let_threads_end()
    except (Terminated, ProcessLost) as ended:
        if first_process() or isinstance(ended, ProcessLost):
            with suppress(OSError):  # of a terminal that is closed
                print(ended, file=sys.stderr)
        let_threads_end()
        return ended.status
    if first_process():
        seen = results["temperature"]
        moved = "temperature at the end {last:.4g} (first {first:.4g}, from {min:.4g} to {max:.4g})"
        wrote = f"wrote {parsed.output_dir}; its README.md says how to use it"
        print(ending([*([moved.format(**seen)] if seen else []), wrote], results["evaluation"], then))
    return 0


def _end(number: int) -> None:
    raise Terminated(number=number)


def _train(info: MethodInfo, recipe: Recipe, parsed: argparse.Namespace, rest: list[str]) -> tuple[dict[str, Any], str]:
    """Returns the results, and the next command to type."""
    from tempplug_adapters.gain import figures_at, report_gain
    from tempplug_adapters.huggingface.arguments import TemperatureArguments
    from tempplug_adapters.training.callbacks import ProgressLine
    from tempplug_adapters.training.checkpoints import check_start, output_folder
    from tempplug_adapters.training.command_line import data_folder
    from tempplug_adapters.training.method import Source
    from tempplug_adapters.training.train import train

    given = {each.name: getattr(parsed, each.name) for each in fields(TemperatureArguments) if hasattr(parsed, each.name)}
    temperature = TemperatureArguments(**given)
    training = _training(info, recipe, rest)
    with output_folder(parsed.output_dir):  # report errors before reading data, which may take minutes
        check_start(parsed.output_dir, parsed.resume_from_checkpoint)
    method = info.load()
    training = {"eval_on_start": parsed.evaluate, **training}
    merged = {**recipe.running, **training}
    evaluated = parsed.evaluate or merged["eval_on_start"] or merged.get("eval_strategy", "no") != "no"
    source = Source(parsed.dataset, data_folder(parsed.data_dir), parsed.output_dir / "data", evaluated)
    data = method.load(recipe, source)
    line = ProgressLine(quiet=not first_process())

    def begin(specs: dict[str, str | None]) -> None:
        said = [f"{kind} {spec or 'none'}" for kind, spec in specs.items()]
        tables = method.tables(data)
        files = [f"{Path(each.table.path).name}, " if len(tables) > 1 else "" for each in tables]
        read = [file + column for file, each in zip(files, tables, strict=True) for column in each.lines()]
        line.say("\n".join([*said, ": ".join(filter(None, (parsed.dataset, method.describe(data)))), *read]))

    with line:
        results = train(
            method,
            recipe,
            data,
            temperature,
            parsed.output_dir,
            dataset=parsed.dataset,
            files=partial(method.files, recipe, source, data),
            resume_from_checkpoint=parsed.resume_from_checkpoint,
            resume_on_changed_data=parsed.resume_on_changed_data,
            evaluate=parsed.evaluate,
            training=training,
            begin=begin,
            callbacks=[line],
            evaluation_progress=line.evaluating,
        )
    if first_process():
        report_gain(figures_at(results["history"], 0), results["evaluation"])
    return results, method.next_command(recipe, data, shell_word(parsed.output_dir), shell_word(parsed.dataset))


def _training(info: MethodInfo, recipe: Recipe, words: list[str]) -> dict[str, Any]:
    """Returns the TrainingArguments given on the command line, without defaults."""
    if not words:
        return {}
    parser = _training_parser(info)
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # defaults must not count as given
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        if unknown[0].partition("=")[0] == "--device":
            raise ConfigError("--device is not a training flag: training uses a GPU if there is one; --use-cpu avoids it.")
        own = build_parser(info)
        own.others = parser.spellings
        own.refuse(unknown)
    return dict(vars(parsed))


def _training_parser(info: MethodInfo) -> Parser:
    from transformers import HfArgumentParser

    from tempplug_adapters.training.train import MethodArguments

    class TrainingParser(Parser, HfArgumentParser):
        """transformers' parser with our errors."""

    return TrainingParser(
        MethodArguments,
        prog=f"tempplug train {info.name}",
        usage=f"tempplug train {info.name} ... [flags]",
        description="Flags of transformers' TrainingArguments; those of the recipe are their own.",
        formatter_class=_HelpWithDefaults,
        allow_abbrev=False,
    )


class _HelpWithDefaults(Help, argparse.ArgumentDefaultsHelpFormatter):
    """Our help, with the defaults that transformers leaves to its formatter."""
