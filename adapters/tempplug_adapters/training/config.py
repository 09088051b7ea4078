"""``--config FILE`` of a training command: settings in TOML or JSON, as the ``settings.json`` of a training.

It imports transformers only to know the names of its arguments.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from tempplug.arguments import parse_options, parse_spec
from tempplug.errors import ConfigError, DataError, nearest, quoted
from tempplug.options import format_spec
from tempplug_adapters.training.method_info import MethodInfo

_FLAGS = {
    "strategy": "temperature_strategy",
    "objective": "contrastive_objective",
    "negatives": "contrastive_negatives",
    **{name: name for name in ("temperature_learning_rate", "log_record", "dataset", "data_dir", "output_dir", "evaluate")},
}
"""Keys that are flags of the command, and the names of these."""
DESCRIPTIVE = frozenset(
    {"items", "machine", "processes", "effective_batch_size"}
    | {"unreadable", "initial_weights", "pairs_without_gender_words", "ambiguous_words"}
)
"""Keys of a ``settings.json`` that describe data and machine, and are not read."""


@dataclass(frozen=True)
class Config:
    """The settings of a file.

    Attributes:
        words: flags with their values, for the parsers of the command; what is typed comes after them and wins.
        recipe: settings of the recipe by name.
        strategy: spec string; None where the file has none.
    """

    words: Sequence[str] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    strategy: str | None = None

    def changed_strategy(self, options: Sequence[str], learning_rate: float | None) -> str | None:
        """Returns the file's strategy with the options of ``--temperature-args``, and without a rate that is given apart."""
        if self.strategy is None:
            return None
        name, values = parse_spec(self.strategy)
        if learning_rate is not None:
            values.pop("learning_rate", None)
        return format_spec(name, {**values, **parse_options(options)})


def read_config(info: MethodInfo, arguments: Sequence[str]) -> Config:
    """Returns the settings of the file that ``--config`` names among the words of a command; none without the flag.

    Raises:
        DataError: the file cannot be read.
        ConfigError: it belongs to another method, or has a key or a setting that does not exist.
    """
    words_and_next = pairwise([*arguments, ""])
    files = [word.partition("=")[2] or following for word, following in words_and_next if word.partition("=")[0] == "--config"]
    if not files:
        return Config()
    file = Path(files[-1])
    given = _read(file)
    recipe, method = given.pop("recipe", {}), given.pop("method", info.name)
    if method != info.name:
        raise ConfigError(f"config={file} has method {quoted(str(method))}, and this is `tempplug train {info.name}`.")
    settings = next(iter(info.recipes.values())).kinds()
    if not isinstance(recipe, dict):
        raise ConfigError(f"config={file}: recipe={recipe!r} must be a table of settings; --recipe names a recipe.")
    for name in recipe:
        if name not in settings:
            raise ConfigError(f"config={file}: recipe has no setting {quoted(name)}.{nearest(name, settings)}")
    words: list[str] = []
    for name, value in given.items():
        if name in settings:
            raise ConfigError(f"config={file}: {quoted(name)} is a setting of the recipe: write it below [recipe].")
        if name not in DESCRIPTIVE:
            _check_known(file, name)
            words += _words(_FLAGS.get(name, name).replace("_", "-"), value)
    return Config(words, recipe, given.get("strategy"))


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        given = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise DataError(f"config={file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        kind = "JSON" if file.suffix == ".json" else "TOML"
        raise DataError(f"config={file} is not {kind} (.json is read as JSON, others as TOML): {error}.") from error
    if not isinstance(given, dict):
        raise DataError(f"config={file} must be an object of settings, as the settings.json of a training.")
    return given


def _check_known(file: Path, name: str) -> None:
    if name in _FLAGS:
        return
    from tempplug_adapters.training.train import MethodArguments  # imports transformers

    known = [each.name for each in fields(MethodArguments)]
    if name not in known:
        near = nearest(name, [*_FLAGS, "recipe", "method", *known])
        raise ConfigError(f"config={file} has an unknown key {quoted(name)}.{near}")


def _words(flag: str, value: Any) -> list[str]:
    """Returns a flag with its value as it is typed; none for a value that is absent."""
    match value:
        case None:
            return []
        case bool() if flag == "evaluate":
            return ["--evaluate" if value else "--no-evaluate"]
        case list():
            return [f"--{flag}", *map(str, value)]
        case dict():
            return [f"--{flag}={json.dumps(value)}"]
        case _:
            return [f"--{flag}={value}"]
