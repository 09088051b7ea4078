"""What a model's folder says of its use as a sentence encoder: the pooling, the longest input, where the transformer lies.

Reads small JSON files only: ``tempplug_encoder.json`` (ours: ``{"pooling": "avg", "max_length": 128}``), else the files of
sentence-transformers. Loads no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.huggingface.pooling import POOLINGS, check_pooling

ENCODER_FILE = "tempplug_encoder.json"
MODULES_FILE = "modules.json"
# A vector's length does not change cosine similarities, and dropout is off, so these modules may be left out.
HARMLESS_MODULES = ("Normalize", "Dropout")
POOLING_OF_MODE = {"mean": "avg", "cls": "cls"}
# Older folders have one flag a mode.
MODE_OF_FLAG = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How to turn a model into a sentence encoder.

    Attributes:
        pooling: a name of `pooling.POOLINGS`.
        source: who says so, in words.
        max_length: longest input in tokens, special ones included; ``None`` where nobody says.
        subfolder: where the transformer lies in the folder; empty for the folder itself.
    """

    pooling: str
    source: str
    max_length: int | None = None
    subfolder: str = ""


def read_encoder_settings(folder: Path, pooling: str | None = None) -> EncoderSettings:
    """Returns the settings of a model's folder.

    Args:
        folder: the folder; what is absent from it has defaults.
        pooling: overrides what the folder says. By default ``tempplug_encoder.json`` decides, else the pooling module of a
            sentence-transformers model, else it is ``cls``.

    Raises:
        UnknownNameError: ``pooling`` names none.
        ConfigError: the folder asks for a pooling or a further module that this evaluation does not have.
        DataError: a settings file is not what it should be.
    """
    own = _read_json(folder / ENCODER_FILE, dict)
    modules: list[dict[str, Any]] | None = _read_json(folder / MODULES_FILE, list)
    subfolder = _transformer_path(folder, modules) if modules else ""
    max_length = (own or {}).get("max_length")
    if max_length is None:
        max_length = (_read_json(folder / subfolder / "sentence_bert_config.json", dict) or {}).get("max_seq_length")
    if pooling is not None:
        return EncoderSettings(check_pooling(pooling), "as asked", max_length, subfolder)
    if own is not None and "pooling" in own:
        if own["pooling"] not in POOLINGS:
            raise ConfigError(f"{folder / ENCODER_FILE}: pooling={own['pooling']!r} must be one of {', '.join(POOLINGS)}.")
        return EncoderSettings(own["pooling"], ENCODER_FILE, max_length, subfolder)
    if modules:
        return EncoderSettings(_module_pooling(folder, modules), "sentence-transformers settings", max_length, subfolder)
    return EncoderSettings("cls", "default, as the model says nothing", max_length, subfolder)


def _module_kinds(folder: Path, modules: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Returns class name and folder of each module of a sentence-transformers model."""
    try:
        return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in modules]
    except (KeyError, TypeError) as error:
        raise DataError(f"{folder / MODULES_FILE}: each module must be an object with type and path.") from error


def _transformer_path(folder: Path, modules: list[dict[str, Any]]) -> str:
    return next((path for kind, path in _module_kinds(folder, modules) if kind == "Transformer"), "")


def _module_pooling(folder: Path, modules: list[dict[str, Any]]) -> str:
    """Returns the pooling of a sentence-transformers model that is a transformer, a pooling and nothing that changes ranks."""
    kinds = _module_kinds(folder, modules)
    others = [kind for kind, _ in kinds if kind not in ("Transformer", "Pooling", *HARMLESS_MODULES)]
    paths = [path for kind, path in kinds if kind == "Pooling"]
    if others or len(paths) != 1:
        raise ConfigError(
            f"{folder / MODULES_FILE} lists {', '.join(kind for kind, _ in kinds)}; only a Transformer with a Pooling can be "
            "evaluated. Load it with sentence-transformers and pass its encode to evaluate_sts, or name a pooling to evaluate "
            "the transformer without the rest."
        )
    file = folder / paths[0] / "config.json"
    config = _read_json(file, dict)
    if config is None:
        raise DataError(f"{file} is missing, though {folder / MODULES_FILE} names it.")
    modes = config.get("pooling_mode") or [mode for flag, mode in MODE_OF_FLAG.items() if config.get(flag)] or "mean"
    modes = [modes] if isinstance(modes, str) else modes
    if len(modes) != 1 or modes[0] not in POOLING_OF_MODE:
        raise ConfigError(
            f"{file} pools by {' and '.join(map(str, modes))}; only {' and '.join(POOLING_OF_MODE)} can be evaluated. Load it "
            f"with sentence-transformers and pass its encode to evaluate_sts, or name one of {', '.join(POOLINGS)} instead."
        )
    return POOLING_OF_MODE[modes[0]]


def _read_json(file: Path, kind: type) -> Any:
    """Returns the content of a JSON file, ``None`` where there is no such file."""
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}.") from error
    if not isinstance(content, kind):
        raise DataError(f"{file} holds a {type(content).__name__}, wanted a {kind.__name__}.")
    return content
