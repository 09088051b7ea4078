"""A model as a sentence encoder: a callable from sentences to vectors, for `sts.evaluate_sts` and the other evaluations.

Transformers with a pooling; other models of sentence-transformers by that library. No code of a model repository is run.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.loading import explained, load_pretrained, load_sentence_transformer, load_tokenizer
from tempplug_adapters.huggingface.pooling import LAYER_POOLINGS, check_pooling, pool
from tempplug_adapters.modes import evaluating
from tempplug_adapters.sentence_evaluation.encoder_folder import (
    ENCODER_FILE,
    LIBRARY_FILE,
    MODULES_FILE,
    TRANSFORMER_FILE,
    read_encoder_settings,
)
from tempplug_adapters.training.command_line import choose_device


class LibraryEncoder:
    """Turns sentences into vectors as ``SentenceTransformer.encode`` does.

    Args:
        model: a SentenceTransformer, on its device.
        prompt: text in front of every sentence.

    Attributes:
        pooling: names of the model's modules, for reports.
        pooling_source: the library that pools, in words.
        max_length: longest input in tokens; None without a limit.
    """

    def __init__(self, model: Any, prompt: str = "") -> None:
        self.model, self.prompt = model, prompt
        self.pooling = " + ".join(type(module).__name__ for module in model)
        self.pooling_source = "by sentence-transformers" + (f", prompt {prompt!r}" if prompt else "")
        limit = model.max_seq_length
        self.max_length: int | None = int(limit) if isinstance(limit, int | float) and math.isfinite(limit) else None

    def __call__(self, sentences: list[str]) -> Tensor:
        """Returns the vectors of the sentences, [n, D], in their order and on the model's device."""
        # an empty prompt keeps the library from using the model's default one
        vectors: Tensor = self.model.encode(sentences, prompt=self.prompt, convert_to_tensor=True, show_progress_bar=False)
        return vectors


SETTINGS_FILES = [ENCODER_FILE, MODULES_FILE, LIBRARY_FILE, "*_Pooling/config.json", f"*{TRANSFORMER_FILE}"]
SHORTEST = 3  # [CLS], one token, [SEP]
FORWARD_BATCH = 64  # sentences; larger batches save no time on a CPU and have more padding


class SentenceEncoder:
    """Turns sentences into vectors: pooled, without gradient and without dropout.

    Args:
        model: a transformers encoder on its device; its training mode is restored after each call, so that an encoder can be
            evaluated during training.
        tokenizer: its tokenizer.
        pooling: one of `pooling.POOLINGS`.
        max_length: maximum number of tokens, special ones included; longer sentences are truncated. From 3 to the number of
            positions of the model, which is the default.
        pooling_source: where the pooling was set, in words, for reports.
        normalised: whether vectors get the length 1.
        prompt: text in front of every sentence.

    Raises:
        UnknownNameError: there is no such pooling.
        ConfigError: ``max_length`` is out of range.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        pooling: str,
        max_length: int | None = None,
        pooling_source: str = "as given",
        normalised: bool = False,
        prompt: str = "",
    ) -> None:
        limit = longest_input(model, tokenizer)
        self.max_length = limit if max_length is None else checked_length(max_length, SHORTEST, limit)
        self.model, self.tokenizer, self.pooling = model, tokenizer, check_pooling(pooling)
        self.pooling_source = pooling_source + (f", prompt {prompt!r}" if prompt else "")
        self.normalised, self.prompt = normalised, prompt

    def __call__(self, sentences: list[str]) -> Tensor:
        """Returns the vectors of the sentences (one at least), [n, D], in their order and on the model's device."""
        device = next(self.model.parameters()).device
        prompted = [self.prompt + sentence for sentence in sentences]
        encoded = self.tokenizer(prompted, truncation=True, max_length=self.max_length)
        # sentences of similar length share a forward pass: batches by the number of characters would be one third padding
        order = sorted(range(len(sentences)), key=lambda row: len(encoded["input_ids"][row]), reverse=True)
        vectors = []
        with evaluating(self.model), torch.no_grad():
            for start in range(0, len(order), FORWARD_BATCH):
                rows = order[start : start + FORWARD_BATCH]
                batch = {key: [values[row] for row in rows] for key, values in encoded.items()}
                inputs = self.tokenizer.pad(batch, return_tensors="pt").to(device)
                outputs = self.model(**inputs, output_hidden_states=self.pooling in LAYER_POOLINGS)
                vectors.append(pool(outputs, inputs["attention_mask"], self.pooling))
        longest_first = torch.cat(vectors)
        in_order = torch.empty_like(longest_first)
        in_order[order] = longest_first
        return functional.normalize(in_order, dim=1) if self.normalised else in_order


def load_encoder(
    model_name_or_path: str | Path,
    pooling: str | None = None,
    max_length: int | None = None,
    device: str | torch.device | None = None,
    prompt_name: str | None = None,
) -> SentenceEncoder | LibraryEncoder:
    """Returns the sentence encoder of a model, in float32.

    A sentence-transformers folder gives that library's vectors. A transformer with a pooling and at most a normalisation is
    evaluated without the library, which is faster.

    Args:
        model_name_or_path: a folder (transformers or sentence-transformers layout) or a name on the Hugging Face hub.
        pooling: one of `pooling.POOLINGS`, for the transformer alone, without the other modules of the folder; by default that
            of the folder, else ``cls_before_pooler`` (see `encoder_folder.read_encoder_settings`).
        max_length: longest input in tokens; by default that of the folder, else the number of positions of the model.
        device: by default the first CUDA device if there is one, else the CPU.
        prompt_name: name of one of the model's prompts; by default the default prompt of its folder, if any.

    Raises:
        ConfigError: the model cannot be loaded, lacks weights, or needs sentence-transformers, which is not installed; an
            option does not fit the model; the device does not exist.
        UnknownNameError: ``pooling`` or ``prompt_name`` is unknown.
        DataError: a settings file in the folder is malformed.
    """
    name = str(model_name_or_path)
    chosen = choose_device("auto" if device is None else str(device))
    if pooling is not None:
        check_pooling(pooling)
    with explained(name):
        folder = Path(name) if Path(name).is_dir() else Path(snapshot_download(name, allow_patterns=SETTINGS_FILES))
        settings = read_encoder_settings(folder, pooling, prompt_name)
    if settings.beyond:
        return _by_the_library(name, settings.beyond, settings.prompt, max_length, chosen)
    tokenizer = load_tokenizer(name, subfolder=settings.subfolder)
    model = load_pretrained(AutoModel, name, pooler=settings.pooling == "cls", subfolder=settings.subfolder).to(chosen).eval()
    longest = settings.max_length if max_length is None else max_length
    return SentenceEncoder(model, tokenizer, settings.pooling, longest, settings.source, settings.normalised, settings.prompt)


def _by_the_library(name: str, beyond: str, prompt: str, max_length: int | None, device: torch.device) -> LibraryEncoder:
    try:
        model = load_sentence_transformer(name, device)
    except ModuleNotFoundError as error:
        fault = "without sentence-transformers only a Transformer with a Pooling by mean or cls can be evaluated"
        remedy = "Install sentence-transformers, or name a pooling to evaluate the transformer without the rest"
        raise ConfigError(f"{beyond}; {fault}. {remedy}.") from error
    encoder = LibraryEncoder(model.float().eval(), prompt)
    if max_length is not None:
        if encoder.max_length is None:
            raise ConfigError(f"max_length={max_length} does not apply to {encoder.pooling}, which reads any length.")
        model.max_seq_length = encoder.max_length = checked_length(max_length, 1, encoder.max_length)
    return encoder


def checked_length(length: int, shortest: int, longest: int) -> int:
    """Returns a length in tokens; raises `ConfigError` if it is out of range."""
    if not isinstance(length, int) or not shortest <= length <= longest:
        raise ConfigError(f"max_length={length!r} must be a whole number from {shortest} to {longest} for this model.")
    return length


def longest_input(model: nn.Module, tokenizer: Any) -> int:
    """Returns the number of tokens that the model has positions for, or the tokenizer's limit where that is smaller."""
    positions = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    # RoBERTa-like models number positions from the padding index on, so that many positions are unused
    padding_index = getattr(positions, "padding_idx", None)
    offset = 0 if padding_index is None else int(padding_index) + 1
    limit = getattr(model.config, "max_position_embeddings", None)
    return int(tokenizer.model_max_length if limit is None else min(limit - offset, tokenizer.model_max_length))
