"""The files that make a folder of transformers one of sentence-transformers, so that both give the same vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tempplug_adapters.huggingface.pooling import LAYER_POOLINGS, check_pooling
from tempplug_adapters.sentence_evaluation.encoder_settings import LIBRARY_FILE, MODULES_FILE, OWN_POOLING, TRANSFORMER_FILE


def write_sentence_folder(folder: Path, model: Any, pooling: str, max_length: int) -> None:
    """Adds to a folder what sentence-transformers reads: the modules after the transformer, and what is in them.

    The model's own pooler, which ``cls`` reads, becomes a Dense layer too; averages over layers become its weighted mean of
    layers, for which ``config.json`` is told to return them all.

    Args:
        folder: where model and tokenizer are saved.
        model: the encoder.
        pooling: one of `pooling.POOLINGS`.
        max_length: longest input in tokens, special ones included.

    Raises:
        UnknownNameError: there is no such pooling.
    """
    width, layers = model.config.hidden_size, model.config.num_hidden_layers
    first_token = check_pooling(pooling) in ("cls", "cls_before_pooler")
    names = ["Transformer", "Pooling"]
    contents: dict[str, dict[str, Any]] = {
        "Pooling": {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": first_token,
            "pooling_mode_mean_tokens": not first_token,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        }
    }
    tensors: dict[str, dict[str, torch.Tensor]] = {}
    if pooling in LAYER_POOLINGS:
        start = 1 if pooling == "avg_first_last" else layers - 1
        weights = torch.zeros(layers + 1 - start)
        weights[0] = weights[-1] = 1
        names.insert(1, "WeightedLayerPooling")
        contents["WeightedLayerPooling"] = {
            "word_embedding_dimension": width,
            "layer_start": start,
            "num_hidden_layers": layers,
        }
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
    settings: dict[str, Any] = {
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
        OWN_POOLING: pooling,
    }
    _write(folder / LIBRARY_FILE, settings)


def _write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
