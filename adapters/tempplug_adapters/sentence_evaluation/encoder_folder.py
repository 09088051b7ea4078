"""Writes the files of sentence-transformers into a folder of transformers, so that both give the same vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tempplug_adapters.huggingface.pooling import LAYER_POOLINGS, check_pooling
from tempplug_adapters.sentence_evaluation.encoder_settings import (
    FLAG,
    LIBRARY_FILE,
    MODULES_FILE,
    OWN_POOLING,
    TRANSFORMER_FILE,
)


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
    modes = {"cls_token": first_token, "mean_tokens": not first_token, "max_tokens": False, "mean_sqrt_len_tokens": False}
    flags = {f"{FLAG}{mode}": value for mode, value in modes.items()}
    names = ["Transformer", "Pooling"]
    contents: dict[str, dict[str, Any]] = {"Pooling": {"word_embedding_dimension": width, **flags}}
    tensors: dict[str, dict[str, torch.Tensor]] = {}
    if pooling in LAYER_POOLINGS:
        start = 1 if pooling == "avg_first_last" else layers - 1
        weights = torch.zeros(layers + 1 - start)
        weights[0] = weights[-1] = 1
        names.insert(1, "WeightedLayerPooling")
        settings = {"word_embedding_dimension": width, "layer_start": start, "num_hidden_layers": layers}
        contents["WeightedLayerPooling"] = settings
        tensors["WeightedLayerPooling"] = {"layer_weights": weights}
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        _write(folder / "config.json", {**config, "output_hidden_states": True})
    if pooling == "cls":
        names.append("Dense")
        activation = "torch.nn.modules.activation.Tanh"
        contents["Dense"] = {"in_features": width, "out_features": width, "bias": True, "activation_function": activation}
        dense = model.pooler.dense
        tensors["Dense"] = {f"linear.{name}": value.detach().cpu().clone() for name, value in dense.named_parameters()}
    paths = {name: "" if name == "Transformer" else f"{place}_{name}" for place, name in enumerate(names)}
    for name, content in contents.items():
        (folder / paths[name]).mkdir()
        _write(folder / paths[name] / "config.json", content)
    for name, values in tensors.items():
        save_file(values, folder / paths[name] / "model.safetensors")
    modules = [
        {"idx": place, "name": str(place), "path": paths[name], "type": f"sentence_transformers.models.{name}"}
        for place, name in enumerate(names)
    ]
    _write(folder / MODULES_FILE, modules)
    _write(folder / TRANSFORMER_FILE, {"max_seq_length": max_length, "do_lower_case": False})
    library: dict[str, Any] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine", OWN_POOLING: pooling}
    _write(folder / LIBRARY_FILE, library)


def _write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
