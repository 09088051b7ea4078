"""Any model of sentence-transformers as a sentence encoder, by that library.

For what `encoder.SentenceEncoder` does not do itself: Dense layers, other poolings, static embeddings, and so on. Runs no code
from model repositories.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.loading import load_sentence_transformer


class LibraryEncoder:
    """Turns sentences into vectors as ``SentenceTransformer.encode`` does.

    Args:
        model: a SentenceTransformer, on its device.
        prompt: what stands before every sentence.

    Attributes:
        pooling: what the model consists of, in words, for reports.
        pooling_source: who does it, in words.
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
                f"max_length={max_length} says nothing to {encoder.pooling}, which reads sentences of any length."
            )
        if not 1 <= max_length <= limit:
            raise ConfigError(f"max_length={max_length} must be a whole number from 1 to {limit} for this model.")
        model.max_seq_length = encoder.max_length = max_length
    return encoder
