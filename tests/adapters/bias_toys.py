"""Masked language models whose answers are known, and small files in the layout of the bias benchmarks."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from tempplug_adapters.bias_evaluation import crows_pairs, stereoset
from tempplug_adapters.bias_evaluation.masked_language_model import MaskedLanguageModel

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def tokenizer_of(words: Sequence[str]) -> Any:
    tokenizer = BertTokenizer(vocab={word: place for place, word in enumerate((*SPECIAL, *words))}, do_lower_case=True)
    tokenizer.model_max_length = 40
    return tokenizer


def random_model(words: Sequence[str], seed: int = 0, batch_size: int = 64) -> MaskedLanguageModel:
    """A model that does look at its input, with dropout for who forgets to switch it off."""
    tokenizer = tokenizer_of(words)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        initializer_range=0.5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return MaskedLanguageModel(BertForMaskedLM(config), tokenizer, batch_size)


def frequency_model(counts: Mapping[str, float]) -> MaskedLanguageModel:
    """A model that ignores its input: a word's probability is its count, out of all."""
    model = random_model(list(counts))
    bias = torch.full((len(model.tokenizer),), -1e4)
    for word, count in counts.items():
        bias[model.tokenizer.convert_tokens_to_ids(word)] = math.log(count)
    with torch.no_grad():
        model.model.get_output_embeddings().weight.zero_()
        model.model.get_output_embeddings().bias.copy_(bias)
    return model


def write_stereoset(folder: Path, rows: Sequence[Mapping[str, Any]], name: str = stereoset.FILE) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / name).write_bytes(gzip.compress(text.encode()))


def write_crows_pairs(folder: Path, rows: Sequence[tuple[str, str, str, str]]) -> None:
    lines = [",".join(("", *crows_pairs.COLUMNS))]
    lines += [f'{number},"{more}","{less}",{direction},{bias}' for number, (more, less, direction, bias) in enumerate(rows)]
    (folder / crows_pairs.FILE).write_text("\n".join(lines) + "\n")
