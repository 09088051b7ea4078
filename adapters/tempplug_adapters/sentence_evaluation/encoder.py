"""A transformers model as a sentence encoder: a callable from sentences to vectors, for `sts.evaluate_sts` and the like.

BERT- and RoBERTa-like encoders, from a folder or from the Hugging Face hub. Runs no code from model repositories. Knows
nothing of the data that it encodes or of training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from torch import Tensor, nn
from transformers import AutoModel

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.loading import explained, load_pretrained, load_tokenizer
from tempplug_adapters.huggingface.pooling import check_pooling, pool
from tempplug_adapters.sentence_evaluation.encoder_settings import ENCODER_FILE, MODULES_FILE, read_encoder_settings
from tempplug_adapters.training.command_line import choose_device

SETTINGS_FILES = [ENCODER_FILE, MODULES_FILE, "*_Pooling/config.json", "*sentence_bert_config.json"]
SHORTEST = 3  # [CLS], one token, [SEP]
FORWARD_BATCH = 64  # sentences; larger ones save no time on a CPU, and pad more


class SentenceEncoder:
    """Turns sentences into vectors: pooled, not normalised, without gradient and without dropout.

    Args:
        model: a transformers encoder, used on the device where it is; its training mode is put back after each call, so
            that an encoder in training can be evaluated.
        tokenizer: its tokenizer.
        pooling: one of `pooling.POOLINGS`.
        max_length: tokens, special ones included, after which a sentence is cut; at least 3 and at most what the model has
            positions for, which is the default.
        pooling_source: who chose the pooling, in words, for reports.

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
    ) -> None:
        limit = _longest_input(model, tokenizer)
        if max_length is not None and (not isinstance(max_length, int) or not SHORTEST <= max_length <= limit):
            raise ConfigError(f"max_length={max_length!r} must be a whole number from {SHORTEST} to {limit} for this model.")
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = check_pooling(pooling)
        self.pooling_source = pooling_source
        self.max_length = limit if max_length is None else max_length

    def __call__(self, sentences: list[str]) -> Tensor:
        """Returns the vectors of the sentences, [n, D], in their order and on the model's device.

        Args:
            sentences: at least one; several hundred at a time leave the least padding.
        """
        device = next(self.model.parameters()).device
        encoded = self.tokenizer(sentences, truncation=True, max_length=self.max_length)
        # Sentences of like length share a forward pass: with batches by the number of characters a third would be padding.
        order = sorted(range(len(sentences)), key=lambda row: len(encoded["input_ids"][row]), reverse=True)
        vectors = []
        with _evaluating(self.model):
            for start in range(0, len(order), FORWARD_BATCH):
                rows = order[start : start + FORWARD_BATCH]
                batch = {key: [values[row] for row in rows] for key, values in encoded.items()}
                inputs = self.tokenizer.pad(batch, return_tensors="pt").to(device)
                outputs = self.model(**inputs, output_hidden_states=self.pooling == "avg_first_last")
                vectors.append(pool(outputs, inputs["attention_mask"], self.pooling))
        longest_first = torch.cat(vectors)
        in_order = torch.empty_like(longest_first)
        in_order[order] = longest_first
        return in_order


def load_encoder(
    model_name_or_path: str | Path,
    pooling: str | None = None,
    max_length: int | None = None,
    device: str | torch.device | None = None,
) -> SentenceEncoder:
    """Returns the sentence encoder of a model, in float32.

    Args:
        model_name_or_path: a folder (transformers or sentence-transformers layout) or a name on the Hugging Face hub.
        pooling: ``cls``, ``avg`` or ``avg_first_last``; by default what the model's folder says, else ``cls``
            (see `encoder_settings.read_encoder_settings`).
        max_length: longest input in tokens; by default what the folder says, else what the model has positions for.
        device: by default the first CUDA device if there is one, else the CPU.

    Raises:
        ConfigError: the model cannot be loaded, lacks weights, or is no plain encoder; an option does not fit it; the
            device does not exist.
        UnknownNameError: ``pooling`` names none.
        DataError: a settings file in the folder is malformed.
    """
    name = str(model_name_or_path)
    chosen = choose_device("auto" if device is None else str(device))
    if pooling is not None:
        check_pooling(pooling)
    with explained(name):
        folder = Path(name) if Path(name).is_dir() else Path(snapshot_download(name, allow_patterns=SETTINGS_FILES))
        settings = read_encoder_settings(folder, pooling)
    tokenizer = load_tokenizer(name, subfolder=settings.subfolder)
    model = load_pretrained(AutoModel, name, subfolder=settings.subfolder).to(chosen)
    wanted = settings.max_length if max_length is None else max_length
    return SentenceEncoder(model.eval(), tokenizer, settings.pooling, wanted, settings.source)


def _longest_input(model: nn.Module, tokenizer: Any) -> int:
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
