"""What a plan sets of the texts that `studies.texts` reads; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

GLOVE, BERT = "text/glove-6b-50d-100k", "text/bert-wiki-mini"
"""Encoders below the data folder that are used unless a plan names another one."""
HELD_OUT = 0.1


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """Encoder and measurement of texts.

    Attributes:
        encoder: folder below the data folder with word vectors (model ``static``) or a BERT; empty: `GLOVE` or `BERT`.
        held_out: share of the documents that are held out with their queries.
        queries: most queries of the test collection.
        documents: most documents of the test collection, all relevant ones among them; 0: all.
        bf16: whether a BERT computes in bfloat16 by autocast, as ``bf16`` of a Trainer; its vectors are float32.
    """

    encoder: str = ""
    held_out: float = HELD_OUT
    queries: int = 2000
    documents: int = 0
    bf16: bool = False
