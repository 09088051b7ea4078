"""Memory, seconds and gradient of one step of a large batch of texts, by one of three ways to compute it.

    python -m studies.other_libraries.large_batch plain cached library --model FOLDER --texts 8192

``plain`` embeds the batch at once, ``cached`` is `tempplug.cached_backward`, ``library`` is sentence-transformers'
CachedMultipleNegativesRankingLoss. Each way has a process of its own; the texts are sentences of 5 to 25 words, padded to 32
tokens, half of them anchors, half positives. There is no dropout, so that the gradients can be compared with those of the first
way.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.sentence_transformer import losses as library
from torch import Tensor

import tempplug
from studies.other_libraries.sentence_transformers_speed import sentences
from tempplug_adapters.huggingface.loading import load_sentence_transformer
from tempplug_benchmarks.run.store import hardware, versions
from tempplug_benchmarks.speed.measure import peak_growth

WAYS = ("plain", "cached", "library")
WORDS, LENGTH = 2000, 32


def step(way: str, model: Any, columns: Sequence[dict[str, Tensor]], mini_batch_size: int) -> float:
    """Computes the gradient of a batch and returns its loss.

    Args:
        way: one of `WAYS`.
        model: a SentenceTransformer.
        columns: features of the anchors and of the positives.
        mini_batch_size: texts that are embedded at once, except with ``plain``.
    """

    def encode(part: dict[str, Tensor]) -> Tensor:
        embeddings: Tensor = model(dict(part))["sentence_embedding"]
        return embeddings

    if way == "library":
        loss = library.CachedMultipleNegativesRankingLoss(model, mini_batch_size=mini_batch_size)
        value: Tensor = loss([dict(each) for each in columns], None)
        value.backward()  # type: ignore[no-untyped-call]
        return value.item()
    loss_fn = tempplug.ContrastiveLoss(0.05, layout="cross-view")
    if way == "cached":
        return tempplug.cached_backward(loss_fn, encode, *columns, mini_batch_size=mini_batch_size).item()
    value = loss_fn(*(encode(each) for each in columns))
    value.backward()  # type: ignore[no-untyped-call]
    return value.item()


def measure(way: str, folder: str, texts: int, mini_batch_size: int) -> tuple[dict[str, float], Tensor]:
    """Returns peak memory above the start in MiB, CPU seconds and loss of a step, and the gradient of all weights, [P].

    Args:
        way: one of `WAYS`.
        folder: of a sentence-transformers encoder.
        texts: in the batch, even.
        mini_batch_size: see `step`.
    """
    model = load_sentence_transformer(folder).eval()
    tokens = model.tokenizer(
        sentences(texts, WORDS, 0)[0], padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt"
    )
    halves = [{name: tokens[name][part] for name in ("input_ids", "attention_mask")} for part in torch.arange(texts).chunk(2)]
    step(way, model, [{name: each[:8] for name, each in half.items()} for half in halves], mini_batch_size)
    model.zero_grad()
    found: dict[str, float] = {}

    def measured() -> None:
        began = time.process_time()
        found["loss"] = step(way, model, halves, mini_batch_size)
        found["cpu_seconds"] = time.process_time() - began

    found["peak_mebibytes"] = peak_growth(measured, "cpu")
    return found, torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])


def main() -> None:
    """Measures each way in a process of its own and prints JSON; gradients are compared with those of the first way."""
    parser = argparse.ArgumentParser(prog="python -m studies.other_libraries.large_batch", description=__doc__)
    parser.add_argument("ways", nargs="+", choices=WAYS)
    parser.add_argument("--model", required=True, help="folder of an encoder")
    parser.add_argument("--texts", type=int, default=8192, help="in the batch, even (default: 8192)")
    parser.add_argument("--mini-batch-size", type=int, default=64, help="(default: 64)")
    given = parser.parse_args()
    found, first = {}, None
    for way in given.ways:
        with get_context("spawn").Pool(1) as alone:
            of, gradient = alone.apply(measure, (way, given.model, given.texts, given.mini_batch_size))
        first = gradient if first is None else first
        found[way] = {**of, "gradient_error": float((gradient - first).norm() / first.norm())}
    about = {"model": Path(given.model).name, "texts": given.texts, "mini_batch_size": given.mini_batch_size}
    print(json.dumps({**about, "hardware": hardware(), "versions": versions(("sentence-transformers",)), "ways": found}))


if __name__ == "__main__":
    main()
