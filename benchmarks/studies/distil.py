"""Makes word vectors of a sentence encoder, as Model2Vec does, for the model ``static``.

    python -m studies.distil ENCODER OUTPUT

The vector of a token is the mean of the encoder's states of the token between [CLS] and [SEP], projected on the principal
components of all tokens and multiplied by ln(1 + rank), the tokens being sorted by their frequency. The projection subtracts
the mean over the vocabulary. The vectors are scaled to the deviation of GloVe's, so that the same learning rates are in the
range of both.

Source: Tulkens and van Dongen 2024, Model2Vec (its first version).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import BertModel

from tempplug.cli import shell
from tempplug_adapters.huggingface.loading import load_pretrained, load_tokenizer

WIDTH = 128
DEVIATION = 0.69
"""Root mean square of the numbers in GloVe's 100,000 vectors."""
AT_ONCE = 1024


@torch.no_grad()
def token_vectors(network: BertModel, first: int, last: int) -> Tensor:
    """Returns the mean state [V, D] of each token alone, between the special tokens ``first`` and ``last``."""
    vectors = []
    for tokens in torch.split(torch.arange(network.config.vocab_size), AT_ONCE):
        ends = torch.full_like(tokens, first), torch.full_like(tokens, last)
        vectors.append(network(torch.stack([ends[0], tokens, ends[1]], dim=1)).last_hidden_state.mean(1))
    return torch.cat(vectors)


def reduce(vectors: Tensor, width: int) -> Tensor:
    """Returns the principal components [V, ``width``] of vectors sorted by frequency, weighted and scaled; see the module."""
    centred = vectors - vectors.mean(0)
    _, directions = torch.linalg.eigh(centred.T @ centred)
    weighted: Tensor = centred @ directions[:, -width:] * torch.arange(len(vectors)).add(1).log()[:, None]
    scaled: Tensor = weighted * (DEVIATION / weighted.square().mean().sqrt())
    return scaled


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes ``tokenizer.json`` and ``model.safetensors`` into a folder, as sentence-transformers' ``StaticEmbedding`` does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("encoder", type=Path, help="folder of a sentence encoder that is a BERT")
    parser.add_argument("output", type=Path, help="folder of the vectors")
    options = parser.parse_args(arguments)
    tokenizer = load_tokenizer(str(options.encoder))
    network = load_pretrained(BertModel, str(options.encoder), add_pooling_layer=False).eval()
    vectors = reduce(token_vectors(network, tokenizer.cls_token_id, tokenizer.sep_token_id), WIDTH)
    vectors[[tokenizer.unk_token_id, tokenizer.pad_token_id]] = 0
    content = json.loads((options.encoder / "tokenizer.json").read_text(encoding="utf-8"))
    content |= {"post_processor": None, "truncation": None, "padding": None}
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    save_file({"embedding.weight": vectors.contiguous()}, options.output / "model.safetensors")


if __name__ == "__main__":
    sys.exit(shell(main))
