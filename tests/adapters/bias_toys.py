"""Masked language models with known probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from tempplug_adapters.bias_evaluation.masked_language_model import MaskedLanguageModel

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def tokenizer_of(words: Iterable[str]) -> Any:
    tokenizer = BertTokenizer(vocab={word: place for place, word in enumerate((*SPECIAL, *words))}, do_lower_case=True)
    tokenizer.model_max_length = 40
    return tokenizer


def random_model(words: Iterable[str], seed: int = 0, batch_size: int = 64) -> MaskedLanguageModel:
    """A model that does look at its input, with dropout, which must be switched off."""
    tokenizer = tokenizer_of(words)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=40, initializer_range=0.5, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return MaskedLanguageModel(BertForMaskedLM(config), tokenizer, batch_size)


def frequency_model(counts: Mapping[str, float]) -> MaskedLanguageModel:
    """A model that ignores its input: a word's probability is its count, out of all."""
    model = random_model(counts)
    bias = torch.full((len(model.tokenizer),), -1e4)
    for word, count in counts.items():
        bias[model.tokenizer.convert_tokens_to_ids(word)] = math.log(count)
    with torch.no_grad():
        model.model.get_output_embeddings().weight.zero_()
        model.model.get_output_embeddings().bias.copy_(bias)
    return model


def save(model: MaskedLanguageModel, folder: Path) -> None:
    for each in (model.model, model.tokenizer):
        each.save_pretrained(folder)
