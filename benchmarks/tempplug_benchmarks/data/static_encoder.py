"""A static encoder for training in seconds: the mean of word vectors, as an ordinary Hugging Face folder without layers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from tempplug_adapters.token_vectors import subtract_mean_vector

ENCODER = f"{__name__}:StaticEncoder"
"""The setting ``encoder`` of a recipe that trains such a folder."""
_UNKNOWN, _PADDING = "[UNK]", "[PAD]"


class StaticEncoder(PreTrainedModel):  # type: ignore[no-untyped-call]
    """The word vectors of a model as its last hidden states, [n, T, D], without positions or layers."""

    config_class = BertConfig
    _supports_sdpa = True  # the configuration names one; nothing here attends

    def __init__(self, model: Any) -> None:
        super().__init__(model.config)
        self.words: nn.Embedding = model.embeddings.word_embeddings

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **ignored: Any) -> BaseModelOutput:
        """Returns the vectors of the tokens; the mask is that of the pooling."""
        return BaseModelOutput(last_hidden_state=self.words(input_ids))


def static_words(
    vectors: Path, texts: Iterable[str] | None = None, centre: Sequence[str] = ()
) -> tuple[dict[str, Any], Tensor]:
    """Returns the part of a static encoder that some texts need: a tokenizer of their words, and a vector for each, [V, D].

    Args:
        vectors: folder with ``tokenizer.json`` and ``embedding.weight`` in ``model.safetensors``, as sentence-transformers'
            ``StaticEmbedding`` has it.
        texts: their words are kept, beside padding and unknown words, whose vectors are 0; by default all.
        centre: the mean over the words of these texts is subtracted, see `subtract_mean_vector`; nothing by default.

    Returns:
        The content of a ``tokenizer.json``, and the vectors.
    """
    file = vectors / "tokenizer.json"
    whole = PreTrainedTokenizerFast(tokenizer_file=str(file), unk_token=_UNKNOWN)  # type: ignore[no-untyped-call]
    unknown = whole.convert_tokens_to_ids(_UNKNOWN)

    def numbers(those: Iterable[str]) -> list[int]:
        return list(chain.from_iterable(whole(list(those), add_special_tokens=False)["input_ids"]))

    kept = sorted({*(range(len(whole)) if texts is None else numbers(texts))} - {unknown})
    words = [_PADDING, _UNKNOWN, *whole.convert_ids_to_tokens(kept)]
    content = json.loads(file.read_text(encoding="utf-8"))
    content["model"]["vocab"] = {word: number for number, word in enumerate(words)}
    content["added_tokens"] = []
    weight = load_file(vectors / "model.safetensors")["embedding.weight"].float()
    if centre:
        subtract_mean_vector(weight, torch.tensor(numbers(centre)))
    return content, torch.cat([torch.zeros(2, weight.shape[1]), weight[kept]])


def write_static_encoder(folder: Path, tokenizer: Mapping[str, Any], vectors: Tensor) -> None:
    """Writes a static encoder as a folder that ``AutoModel`` and ``AutoTokenizer`` load; training starts from its vectors.

    Args:
        folder: created if missing.
        tokenizer: see `static_words`.
        vectors: [V, D], one of each word.
    """
    config = BertConfig(
        vocab_size=len(vectors),
        hidden_size=vectors.shape[1],
        num_hidden_layers=0,
        num_attention_heads=1,
        intermediate_size=4,
        pad_token_id=0,
    )
    model = BertModel(config, add_pooling_layer=False)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.copy_(vectors)
    model.save_pretrained(folder)
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    longest = config.max_position_embeddings
    options = {"unk_token": _UNKNOWN, "pad_token": _PADDING, "model_max_length": longest}
    PreTrainedTokenizerFast(tokenizer_file=str(file), **options).save_pretrained(folder)  # type: ignore[no-untyped-call]
