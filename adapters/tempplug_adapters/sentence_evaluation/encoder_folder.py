"""How a model's folder is used as a sentence encoder: pooling, prompt, longest input, folder of the transformer.

Read from ``tempplug_encoder.json`` (written by hand: ``{"pooling": "avg", "max_length": 128}``), else from the files of
sentence-transformers, which a saved encoder gets, so that both libraries compute the same vectors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tempplug.errors import ConfigError, DataError, UnknownNameError, listed, nearest
from tempplug_adapters.huggingface.pooling import LAYER_POOLINGS, POOLINGS, check_pooling
from tempplug_adapters.storage.files import inside

ENCODER_FILE = "tempplug_encoder.json"
MODULES_FILE = "modules.json"
LIBRARY_FILE = "config_sentence_transformers.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
OWN_POOLING = "tempplug_pooling"
"""Key in `LIBRARY_FILE` for the pooling of the transformer. sentence-transformers ignores it, and drops it when it saves the
folder again, whose modules may then pool differently."""
POOLING_OF_MODE = {"mean": "avg", "cls": "cls_before_pooler"}
# settings of a Transformer that returns token vectors, in new folders
PLAIN_TRANSFORMER = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
# of older folders, which have a flag for each mode, such as pooling_mode_mean_tokens
FLAG = "pooling_mode_"


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How to turn a model into a sentence encoder.

    Attributes:
        pooling: a name of `pooling.POOLINGS`.
        source: where the pooling was set, in words.
        max_length: longest input in tokens, special ones included; ``None`` if it is not set.
        subfolder: subfolder of the transformer; empty for the folder itself.
        normalised: whether vectors get the length 1.
        prompt: text in front of every sentence.
        beyond: why the folder needs sentence-transformers, in words; empty if the transformer with its pooling is enough.
    """

    pooling: str
    source: str
    max_length: int | None = None
    subfolder: str = ""
    normalised: bool = False
    prompt: str = ""
    beyond: str = ""


def read_encoder_settings(folder: Path, pooling: str | None = None, prompt_name: str | None = None) -> EncoderSettings:
    """Returns the settings of a model's folder.

    Args:
        folder: the folder; missing files have defaults.
        pooling: pooling of the transformer alone, without the other modules. By default that of ``tempplug_encoder.json``, else
            that of the sentence-transformers modules, else ``cls_before_pooler``.
        prompt_name: name of one of the folder's prompts; by default its default prompt.

    Raises:
        UnknownNameError: ``pooling`` or ``prompt_name`` is unknown.
        ConfigError: ``pooling`` is given for a folder without a transformer, or the folder sets an unknown one.
        DataError: a settings file is malformed.
    """
    own = _read_json(folder / ENCODER_FILE, dict) or {}
    modules: list[dict[str, Any]] | None = _read_json(folder / MODULES_FILE, list)
    library = _read_json(folder / LIBRARY_FILE, dict) or {}
    kinds = _module_kinds(folder, modules or [])
    subfolder = next((path for kind, path in kinds if kind == "Transformer"), "")
    transformer = _read_json(folder / subfolder / TRANSFORMER_FILE, dict) or {}
    max_length = own.get("max_length", transformer.get("max_seq_length"))
    prompt = _prompt(library, prompt_name)
    stated = own.get("pooling") or library.get(OWN_POOLING)
    if pooling is not None:
        if kinds and "Transformer" not in dict(kinds):
            names = ", ".join(kind for kind, _ in kinds)
            raise ConfigError(f"pooling='{pooling}' needs a transformer, but {folder / MODULES_FILE} lists {names}.")
        return EncoderSettings(check_pooling(pooling), "as given", max_length, subfolder, prompt=prompt)
    if stated:
        file = ENCODER_FILE if "pooling" in own else LIBRARY_FILE
        if stated not in POOLINGS:
            raise ConfigError(f"{folder / file}: pooling={stated!r} must be one of {', '.join(POOLINGS)}.")
        return EncoderSettings(stated, file, max_length, subfolder, prompt=prompt)
    if not kinds:
        return EncoderSettings("cls_before_pooler", "default, the model sets none", max_length, prompt=prompt)
    mode, beyond = _plain_mode(folder, kinds, transformer, prompt)
    source, normalised = "sentence-transformers settings", "Normalize" in dict(kinds)
    return EncoderSettings(POOLING_OF_MODE.get(mode, ""), source, max_length, subfolder, normalised, prompt, beyond)


def _module_kinds(folder: Path, modules: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Returns the class name and the folder of each module of a sentence-transformers model."""
    try:
        kinds = [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in modules]
    except (KeyError, TypeError) as error:
        raise DataError(f"{folder / MODULES_FILE}: each module must be an object with type and path.") from error
    for _, path in kinds:
        inside(folder, path, MODULES_FILE)
    return kinds


def _prompt(library: dict[str, Any], name: str | None) -> str:
    """Returns a prompt of a sentence-transformers model, the default one without a name."""
    prompts = library.get("prompts") or {}
    if name is not None and name not in prompts:
        known = f"{nearest(name, prompts)} It has: {listed(prompts)}." if prompts else " It has none."
        raise UnknownNameError(f"prompt_name='{name}' is no prompt of this model.{known}")
    return str(prompts.get(library.get("default_prompt_name") if name is None else name) or "")


def _plain_mode(folder: Path, kinds: list[tuple[str, str]], transformer: dict[str, Any], prompt: str) -> tuple[str, str]:
    """Returns the pooling mode of a Transformer with a Pooling, or why the folder needs sentence-transformers."""
    names = [kind for kind, _ in kinds]
    if names[:2] != ["Transformer", "Pooling"] or not set(names[2:]) <= {"Normalize", "Dropout"}:
        return "", f"{folder / MODULES_FILE} lists {', '.join(names)}"
    file = folder / kinds[1][1] / "config.json"
    config = _read_json(file, dict)
    if config is None:
        raise DataError(f"{file} is missing, though {folder / MODULES_FILE} names it.")
    flags = [name.removeprefix(FLAG) for name, value in config.items() if name.startswith(FLAG) and value]
    modes = config.get("pooling_mode") or [flag.removesuffix("_tokens").removesuffix("_token") for flag in flags] or "mean"
    modes = [modes] if isinstance(modes, str) else modes
    if len(modes) != 1 or modes[0] not in POOLING_OF_MODE:
        return "", f"{file} pools by {' and '.join(map(str, modes))}"
    if prompt and not config.get("include_prompt", True):
        return "", f"{file} leaves out the tokens of a prompt"
    stated = {key: value for key, value in transformer.items() if value and key != "max_seq_length"}
    if others := [key for key, value in stated.items() if value != PLAIN_TRANSFORMER.get(key)]:
        return "", f"{folder / kinds[0][1] / TRANSFORMER_FILE} sets {', '.join(others)}"
    return modes[0], ""


def _read_json(file: Path, kind: type) -> Any:
    """Returns the content of a JSON file, ``None`` if it does not exist."""
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}.") from error
    if not isinstance(content, kind):
        raise DataError(f"{file} holds a {type(content).__name__}, wanted a {kind.__name__}.")
    return content


def write_sentence_folder(folder: Path, model: Any, pooling: str, max_length: int) -> None:
    """Adds the modules after the transformer to a folder, with their settings and weights.

    For ``cls``, the model's own pooler is also saved as a Dense layer. Averages over layers become a WeightedLayerPooling,
    which needs ``output_hidden_states`` in ``config.json``.

    Args:
        folder: folder with the saved model and tokenizer.
        model: the encoder.
        pooling: one of `pooling.POOLINGS`.
        max_length: longest input in tokens, special ones included.

    Raises:
        UnknownNameError: there is no such pooling.
    """
    width, layers = model.config.hidden_size, model.config.num_hidden_layers
    first_token = check_pooling(pooling) in ("cls", "cls_before_pooler")
    # settings and tensors of each module, in order
    parts: dict[str, tuple[dict[str, Any], dict[str, torch.Tensor]]] = {"Transformer": ({}, {})}
    if pooling in LAYER_POOLINGS:
        start = 1 if pooling == "avg_first_last" else layers - 1
        weights = torch.zeros(layers + 1 - start)
        weights[0] = weights[-1] = 1
        settings = {"word_embedding_dimension": width, "layer_start": start, "num_hidden_layers": layers}
        parts["WeightedLayerPooling"] = settings, {"layer_weights": weights}
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        _write(folder / "config.json", {**config, "output_hidden_states": True})
    modes = {"cls_token": first_token, "mean_tokens": not first_token, "max_tokens": False, "mean_sqrt_len_tokens": False}
    parts["Pooling"] = {"word_embedding_dimension": width, **{f"{FLAG}{mode}": value for mode, value in modes.items()}}, {}
    if pooling == "cls":
        activation = {"activation_function": "torch.nn.modules.activation.Tanh"}
        layer = {f"linear.{name}": value.detach().cpu().clone() for name, value in model.pooler.dense.named_parameters()}
        parts["Dense"] = {"in_features": width, "out_features": width, "bias": True, **activation}, layer
    modules = []
    for place, (name, (settings, tensors)) in enumerate(parts.items()):
        path = f"{place}_{name}" if place else ""
        modules.append({"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{name}"})
        if settings:
            (folder / path).mkdir()
            _write(folder / path / "config.json", settings)
        if tensors:
            save_file(tensors, folder / path / "model.safetensors")
    _write(folder / MODULES_FILE, modules)
    _write(folder / TRANSFORMER_FILE, {"max_seq_length": max_length, "do_lower_case": False})
    library: dict[str, Any] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine", OWN_POOLING: pooling}
    _write(folder / LIBRARY_FILE, library)


def _write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
