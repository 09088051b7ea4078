"""A model as a sentence encoder: a callable from sentences to vectors, for `sts.evaluate_sts` and the like.

Transformers with a pooling; other models of sentence-transformers by that library. No code of a model repository runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
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
from tempplug_adapters.sentence_evaluation.encoder_settings import (
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
        prompt: what stands before every sentence.

    Attributes:
        pooling: what the model consists of, in words, for reports.
        pooling_source: the library that pools, in words.
        max_length: longest input in tokens; None where any length is read.
    """

    def __init__(self, model: Any, prompt: str = "") -> None:
        self.model = model
        self.prompt = prompt
        self.pooling = " + ".join(type(module).__name__ for module in model)
        self.pooling_source = "by sentence-transformers" + (f", prompt {prompt!r}" if prompt else "")
        limit = model.max_seq_length
        self.max_length: int | None = int(limit) if isinstance(limit, int | float) and math.isfinite(limit) else None

    def __call__(self, sentences: list[str]) -> Tensor:
        """Returns the vectors of the sentences, [n, D], in their order and on the model's device."""
        # a prompt of no characters keeps the library from taking the model's default one
        vectors: Tensor = self.model.encode(sentences, prompt=self.prompt, convert_to_tensor=True, show_progress_bar=False)
        return vectors


def load_library_encoder(name: str, prompt: str, max_length: int | None, device: torch.device) -> LibraryEncoder:
    """Returns the encoder of a model, in float32.

    Args:
        name: a folder or a name on the Hugging Face hub.
        prompt: what stands before every sentence.
        max_length: tokens after which a sentence is cut; None: as the model says.
        device: where it computes.

    Raises:
        ConfigError: the model cannot be loaded, or ``max_length`` is out of range.
        ModuleNotFoundError: sentence-transformers is not installed.
    """
    model = load_sentence_transformer(name, device)
    encoder = LibraryEncoder(model.float().eval(), prompt)
    if max_length is not None:
        limit = encoder.max_length
        if limit is None:
            raise ConfigError(
                f"max_length={max_length} does not apply to {encoder.pooling}, which reads sentences of any length."
            )
        if not 1 <= max_length <= limit:
            raise ConfigError(f"max_length={max_length} must be a whole number from 1 to {limit} for this model.")
        model.max_seq_length = encoder.max_length = max_length
    return encoder


SETTINGS_FILES = [ENCODER_FILE, MODULES_FILE, LIBRARY_FILE, "*_Pooling/config.json", f"*{TRANSFORMER_FILE}"]
SHORTEST = 3  # [CLS], one token, [SEP]
FORWARD_BATCH = 64  # sentences; larger ones save no time on a CPU, and pad more


class SentenceEncoder:
    """Turns sentences into vectors: pooled, without gradient and without dropout.

    Args:
        model: a transformers encoder, used on the device where it is; its training mode is put back after each call, so
            that an encoder in training can be evaluated.
        tokenizer: its tokenizer.
        pooling: one of `pooling.POOLINGS`.
        max_length: tokens, special ones included, after which a sentence is cut; at least 3 and at most what the model has
            positions for, which is the default.
        pooling_source: where the pooling is stated, in words, for reports.
        normalised: whether vectors get the length 1.
        prompt: what stands before every sentence.

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
        pooling_source: str = "as asked",
        normalised: bool = False,
        prompt: str = "",
    ) -> None:
        limit = longest_input(model, tokenizer)
        if max_length is not None and (not isinstance(max_length, int) or not SHORTEST <= max_length <= limit):
            raise ConfigError(f"max_length={max_length!r} must be a whole number from {SHORTEST} to {limit} for this model.")
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = check_pooling(pooling)
        self.pooling_source = pooling_source + (f", prompt {prompt!r}" if prompt else "")
        self.normalised, self.prompt = normalised, prompt
        self.max_length = limit if max_length is None else max_length

    def __call__(self, sentences: list[str]) -> Tensor:
        """Returns the vectors of the sentences (one at least), [n, D], in their order and on the model's device."""
        device = next(self.model.parameters()).device
        prompted = [self.prompt + sentence for sentence in sentences]
        encoded = self.tokenizer(prompted, truncation=True, max_length=self.max_length)
        # Sentences of like length share a forward pass: with batches by the number of characters a third would be padding.
        order = sorted(range(len(sentences)), key=lambda row: len(encoded["input_ids"][row]), reverse=True)
        vectors = []
        with _evaluating(self.model):
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

    A folder of sentence-transformers gives that library's vectors: where it is a transformer, a pooling and at most a
    normalisation without the library, which is faster, else by the library.

    Args:
        model_name_or_path: a folder (transformers or sentence-transformers layout) or a name on the Hugging Face hub.
        pooling: one of `pooling.POOLINGS`, of the transformer alone, without what else the folder has; by default what the
            folder says, else ``cls_before_pooler`` (see `encoder_settings.read_encoder_settings`).
        max_length: longest input in tokens; by default what the folder says, else what the model has positions for.
        device: by default the first CUDA device if there is one, else the CPU.
        prompt_name: of the model's prompts; by default the one that its folder names for this, if any.

    Raises:
        ConfigError: the model cannot be loaded, lacks weights, or needs sentence-transformers, which is not installed; an
            option does not fit it; the device does not exist.
        UnknownNameError: ``pooling`` or ``prompt_name`` names none.
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
    reads_pooler = settings.pooling == "cls"
    model = load_pretrained(AutoModel, name, pooler=reads_pooler, subfolder=settings.subfolder).to(chosen)
    wanted = settings.max_length if max_length is None else max_length
    return SentenceEncoder(
        model.eval(), tokenizer, settings.pooling, wanted, settings.source, settings.normalised, settings.prompt
    )


def _by_the_library(name: str, beyond: str, prompt: str, max_length: int | None, device: torch.device) -> LibraryEncoder:
    try:
        return load_library_encoder(name, prompt, max_length, device)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{beyond}; without sentence-transformers only a Transformer with a Pooling by mean or cls can be evaluated. "
            "Install sentence-transformers, or name a pooling to evaluate the transformer without the rest."
        ) from error


def longest_input(model: nn.Module, tokenizer: Any) -> int:
    """Returns the number of tokens that the model has positions for, or the tokenizer's limit where that is smaller."""
    config: Any = model.config
    positions = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    # RoBERTa-like models number positions from the padding index on, and so lose as many.
    padding_index = getattr(positions, "padding_idx", None)
    offset = 0 if padding_index is None else int(padding_index) + 1
    limit = getattr(config, "max_position_embeddings", None)
    return int(tokenizer.model_max_length if limit is None else min(limit - offset, tokenizer.model_max_length))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switches dropout and gradients off, and puts the training mode back."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
