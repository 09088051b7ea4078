"""What terms on negatives read of the texts of a batch, of which a data collator has left the token ids alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tempplug.errors import ConfigError


def token_rows(features: Mapping[str, Any]) -> list[list[int]]:
    """Returns the token ids of each text of a column, from a padded, a flattened or a StaticEmbedding's batch.

    Raises:
        ConfigError: the column holds no token ids.
    """
    if "input_ids" not in features:
        raise ConfigError(f"negatives= read the texts of a batch, and its columns have none: they hold {', '.join(features)}.")
    ids = features["input_ids"]
    if "attention_mask" in features and ids.ndim == 2:
        masks = features["attention_mask"].bool().cpu()
        return [row[mask].tolist() for row, mask in zip(ids.cpu(), masks, strict=True)]
    flat = ids.flatten().tolist()
    ends = features["cu_seq_lens_q"].tolist() if "cu_seq_lens_q" in features else [*features["offsets"].tolist(), len(flat)]
    return [flat[start:end] for start, end in pairwise(ends)]


def text_keys(rows: list[list[int]]) -> Tensor:
    """Returns a number for each text, [B] int64, equal for equal texts, also on other processes."""
    digests = (hashlib.blake2b(np.array(row, np.int32).tobytes(), digest_size=8).digest() for row in rows)
    return torch.tensor([int.from_bytes(digest, "little", signed=True) for digest in digests])


class Guide:
    """A guide model's embeddings of the texts of a batch; the model is not trained.

    Args:
        guide: a SentenceTransformer.
        model: the SentenceTransformer that is trained. Where vocabulary or longest text differ, the guide's tokens come from
            the decoded texts, which lack special tokens.

    Raises:
        ConfigError: one of them has no tokenizer.
    """

    def __init__(self, guide: Any, model: Any) -> None:
        for name, each in (("guide", guide), ("model", model)):
            if getattr(each, "tokenizer", None) is None:
                raise ConfigError(
                    f"guide= needs the tokenizers of both models, and {name} of type {type(each).__name__} has none."
                )
        self.guide, self.tokenizer = guide.eval(), model.tokenizer
        both = isinstance(guide.tokenizer, PreTrainedTokenizerBase) and isinstance(model.tokenizer, PreTrainedTokenizerBase)
        alike = both and guide.tokenizer.get_vocab() == model.tokenizer.get_vocab()
        self.same_tokens = alike and guide.max_seq_length >= model.max_seq_length

    @torch.no_grad()
    def embed(self, rows: list[list[int]], size: int, device: torch.device) -> Tensor:
        """Returns the guide's embeddings, [B, E], of token ids of the trained model, ``size`` texts at a time."""
        guide = self.guide.to(device)
        found = []
        for begin in range(0, len(rows), size):
            some = rows[begin : begin + size]
            if self.same_tokens:
                features = dict(guide.tokenizer.pad({"input_ids": some}, return_tensors="pt"))
            else:
                decode = getattr(self.tokenizer, "batch_decode", None) or self.tokenizer.decode_batch
                read = getattr(guide, "preprocess", None) or guide.tokenize  # before 5.4
                features = read(decode(some, skip_special_tokens=True))
            moved = {name: each.to(device) if isinstance(each, Tensor) else each for name, each in features.items()}
            found.append(guide(moved)["sentence_embedding"])
        return torch.cat(found)
