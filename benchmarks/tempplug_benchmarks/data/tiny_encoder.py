"""A tiny untrained BERT for the generated sentences, saved as an ordinary Hugging Face folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizer

from tempplug_benchmarks.data.sentences import vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def bert_tokenizer(folder: Path, tokens: Sequence[str]) -> BertTokenizer:
    """Returns a tokenizer of these tokens, from a temporary file: constructors differ between transformers 4 and 5.

    Args:
        folder: gets the file.
        tokens: special ones, then lower-case words.
    """
    file = folder / "vocab.txt"
    file.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    tokenizer = BertTokenizer(str(file))
    file.unlink()
    return tokenizer


def write_tiny_encoder(
    folder: Path,
    seed: int,
    layers: int = 2,
    width: int = 64,
    dropout: float = 0.1,
    *,
    words: Sequence[str] = (),
    masked: bool = False,
) -> None:
    """Writes an encoder with random weights and a tokenizer for the generated sentences.

    ``AutoModel`` and ``AutoTokenizer`` load the folder. The weights depend only on the seed, and torch's global generator is
    not changed.

    Args:
        folder: created if missing.
        seed: of the weights, at least 0.
        layers: transformer layers, at least 1.
        width: hidden width, a multiple of 4 (the heads).
        dropout: probability in [0, 1), of hidden units and attention alike.
        words: lower-case vocabulary of the tokenizer; empty for the words of the generated sentences.
        masked: whether to add a masked language modelling head.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = [*SPECIAL, *(words or vocabulary())]
    tokenizer = bert_tokenizer(folder, known)
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(known),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        (BertForMaskedLM if masked else BertModel)(config).save_pretrained(folder)
