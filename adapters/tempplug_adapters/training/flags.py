"""The flags of a training command, generated from the fields of a recipe: each field defines a flag, its help and its check.

It imports no framework, so that ``--help`` is fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import tempplug
from tempplug.options import Choice, Flag, Kind, Number, Numbers, Words, format_value
from tempplug.parser import Parser
from tempplug_adapters.measurements import RECORDS
from tempplug_adapters.storage.files import Folder
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import TRAINING, Recipe

EPILOG = "Several processes: torchrun or accelerate launch, with `-m tempplug.cli train {name} ...`."
TRAINING_NOTE = (
    "Flags of transformers' TrainingArguments. All of them work: --gradient-accumulation-steps, --fp16, --eval-strategy epoch, "
    "--save-steps, --report-to tensorboard, --load-best-model-at-end, ...; --help-training lists them."
)


def build_parser(info: MethodInfo) -> Parser:
    """Returns the parser of a method's flags; a setting that is not given is None and takes the recipe's value."""
    required = info.default_dataset is None
    parser = Parser(
        prog=f"tempplug train {info.name}",
        usage=f"tempplug train {info.name} {'--dataset DATASET ' * required}--output-dir DIR [flags]",
        description=info.summary,
        epilog=EPILOG.format(name=info.name),
        allow_abbrev=False,
    )
    temperature = tempplug.add_temperature_arguments(parser, default=None)
    _add(
        temperature,
        "temperature_learning_rate",
        type=_number,
        metavar="N",
        help="of the strategy's parameters, on the schedule of --learning-rate (default: its own, 0.01 for learnable, or else "
        "--learning-rate)",
    )
    _add(
        temperature,
        "log_record",
        choices=RECORDS,
        default=RECORDS[0],
        help="numbers of a log; brief: temperature, similarities and gradient scale; full: all (default: brief)",
    )
    run = parser.add_argument_group("run")
    settings_file = "settings in TOML, or the settings.json of a training; flags beside it win"
    _add(run, "config", metavar="FILE", help=settings_file)
    shown = f" (default: {info.default_dataset})" if info.default_dataset else ""
    _add(run, "dataset", help=info.datasets + shown, required=required, default=info.default_dataset)
    _add(run, "data_dir", metavar="DIR", help="folder of data (default: TEMPPLUG_DATA; without it, data are downloaded)")
    _add(run, "output_dir", metavar="DIR", action=Folder, required=True, help="for checkpoints, encoder and metrics.json")
    _add(run, "resume_from_checkpoint", metavar="auto|DIR", help="resume a killed run; auto: from its newest checkpoint")
    _add(
        run,
        "resume_on_changed_data",
        action="store_true",
        help="resume although files of the data have other contents than when the checkpoint was written",
    )
    _add(
        run,
        "evaluate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure when the training has ended (default: yes)",
    )
    run.add_argument("--help-training", action="store_true", help="list the flags of transformers' TrainingArguments, and exit")
    settings = parser.add_argument_group(info.name)
    default = next(iter(info.recipes))
    known = f"recipe of the settings below: {', '.join(info.recipes)} (default: {default})"
    _add(settings, "recipe", metavar="NAME", help=known)
    training = parser.add_argument_group("training", TRAINING_NOTE)
    for name, kind in next(iter(info.recipes.values())).kinds().items():
        add_setting(training if name in TRAINING else settings, name, kind, info.recipes)
    strategies = {name: recipe.loss.strategy for name, recipe in info.recipes.items()}
    if len(set(strategies.values())) > 1:
        action = next(each for each in parser._actions if each.dest == "temperature_strategy")
        action.help = f"{action.help} ({_describe(strategies)})"
    # None means "not given", and the recipe's value is used
    parser.set_defaults(contrastive_objective=None)
    return parser


def add_setting(group: Any, name: str, kind: Kind, recipes: Mapping[str, Any]) -> None:
    """Adds the flag of a setting.

    Args:
        group: group of a parser.
        name: name of the setting.
        kind: declaration of its values.
        recipes: recipes with the setting, by name; the help shows their defaults.
    """
    more: dict[str, Any]
    match kind:
        case Flag():
            more = {"action": argparse.BooleanOptionalAction}
        case Numbers():
            more = {"type": _number, "nargs": "+", "metavar": "N"}
        case Words():
            more = {"nargs": "*", "metavar": "WORD"}
        case Number():
            more = {"type": _whole if kind.integer else _number, "metavar": "N"}
        case Choice():
            more = {"choices": kind.values}
        case _:
            more = {"metavar": "WORD"}
    defaults = _describe({recipe: _word(getattr(settings, name)) for recipe, settings in recipes.items()})
    _add(group, name, help=f"{kind.help} ({defaults})", **more)


def device_flag(default: str = "auto", note: str = "") -> dict[str, Any]:
    """Returns argparse's options of ``--device``, which `choose_device` checks; ``note`` is appended to its help."""
    return {"default": default, "help": f"cpu, cuda, cuda:N, or auto: a GPU where there is one{note} (default: {default})"}


def given_settings(parsed: argparse.Namespace, recipe: Recipe) -> dict[str, Any]:
    """Returns the settings given by flags."""
    return {name: value for name in recipe.kinds() if (value := getattr(parsed, name)) is not None}


def _describe(values: Mapping[str, str]) -> str:
    """Describes the defaults: the value of the first recipe and differing values of the others."""
    first = next(iter(values.values()))
    others = [f"{recipe}: {word}" for recipe, word in values.items() if word != first]
    return "; ".join([f"default: {first}", *others])


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(format_value, value)) or "none" if isinstance(value, tuple) else format_value(value)


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _whole(text: str) -> int:
    return int(text)


# argparse names a value after the conversion function that rejected it.
_number.__name__, _whole.__name__ = "number", "integer"


def _add(group: Any, name: str, *, help: str, **more: Any) -> None:
    flag = f"--{name.replace('_', '-')}"
    group.add_argument(flag, dest=name, help=help.replace("%", "%%"), **more)  # argparse would expand a %
