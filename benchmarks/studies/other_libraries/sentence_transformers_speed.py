"""Compares the CPU seconds per training step of sentence-transformers with tempplug's ranking losses and with its own.

The steps alternate in one process with one model and one batch, and consist only of forward and backward passes. Run it as
``python -m studies.other_libraries.sentence_transformers_speed --model FOLDER``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.losses.gradcache import has_static_embedding_input
from sentence_transformers.sentence_transformer import losses as library
from torch import Tensor

from studies.other_libraries.turns import in_turn
from tempplug_adapters.huggingface.loading import load_sentence_transformer
from tempplug_adapters.sentence_transformers import CachedTemperatureRankingLoss, TemperatureRankingLoss
from tempplug_benchmarks.run.store import hardware, versions

COLUMNS = 3  # anchors, positives, hard negatives


def sentences(rows: int, words: int, seed: int) -> list[list[str]]:
    """Returns columns of generated sentences of 5 to 25 words from a vocabulary of a given size."""
    chance = random.Random(seed)
    return [
        [" ".join(f"w{chance.randrange(words)}" for _ in range(chance.randint(5, 25))) for _ in range(rows)]
        for _ in range(COLUMNS)
    ]


def pairs(model: Any, mini_batch_size: int | None, strategy: str) -> dict[str, torch.nn.Module]:
    """Returns the losses of both libraries."""
    if mini_batch_size is None:
        return {"tempplug": TemperatureRankingLoss(model, strategy), "library": library.MultipleNegativesRankingLoss(model)}
    ours, theirs = (
        partial(CachedTemperatureRankingLoss, model, strategy),
        partial(library.CachedMultipleNegativesRankingLoss, model),
    )
    return {"tempplug": ours(mini_batch_size=mini_batch_size), "library": theirs(mini_batch_size=mini_batch_size)}


def measure(
    model: Any, batch: Callable[[], list[dict[str, Tensor]]], rounds: int, mini_batch_size: int | None, strategy: str
) -> dict[str, float]:
    """Returns medians over the rounds, after two warm-up rounds.

    Args:
        model: a SentenceTransformer in training mode.
        batch: creates the features of one batch, which a model may modify.
        rounds: steps of each loss, at least 1.
        mini_batch_size: of the cached losses; None for the plain ones.
        strategy: strategy of tempplug's loss; the library's loss has its default scale of 20.

    Returns:
        ``tempplug_seconds`` and ``library_seconds``, CPU time of a step over all threads; ``ratio``, the median ratio of
        consecutive steps; ``difference``, between the two losses on one batch with the same dropout.
    """
    sides: dict[str, Any] = pairs(model, mini_batch_size, strategy)
    sides["tempplug"].take_charge()
    values: dict[str, float] = {}

    def step(turn: int, name: str) -> float:
        torch.manual_seed(turn)
        model.zero_grad()
        features = batch()
        began = time.process_time()
        value = sides[name](features, None)
        value.backward()
        values[name] = value.item()
        return time.process_time() - began

    seconds = in_turn({name: partial(step, name=name) for name in sides}, rounds)
    ratios = [ours / theirs for ours, theirs in zip(seconds["tempplug"], seconds["library"], strict=True)]
    return {
        "tempplug_seconds": statistics.median(seconds["tempplug"]),
        "library_seconds": statistics.median(seconds["library"]),
        "ratio": statistics.median(ratios),
        "difference": abs(values["tempplug"] - values["library"]),
        "rounds": rounds,
    }


def main() -> None:
    """Measures and prints JSON."""
    parser = argparse.ArgumentParser(prog="python -m studies.other_libraries.sentence_transformers_speed", description=__doc__)
    parser.add_argument("--model", required=True, help="folder or name of an encoder")
    parser.add_argument(
        "--batch-sizes", type=int, nargs="+", default=[32, 128], help="rows of three sentences (default: 32 128)"
    )
    parser.add_argument("--strategies", nargs="+", default=["fixed:temperature=0.05", "macl", "learnable"], metavar="SPEC")
    parser.add_argument("--rounds", type=int, default=15, help="steps of each loss (default: 15)")
    given = parser.parse_args()
    model = load_sentence_transformer(given.model).train()
    found = {}
    for rows in given.batch_sizes:
        columns = sentences(rows, 2000, rows)

        def batch(columns: list[list[str]] = columns) -> list[dict[str, Tensor]]:
            return [model.preprocess(column) for column in columns]

        for strategy in given.strategies:
            for kind, size in (("plain", None), ("cached", 16))[: 1 if has_static_embedding_input(model) else 2]:
                found[f"{strategy} {kind} {rows}"] = measure(model, batch, given.rounds, size, strategy)
    about = {"model": Path(given.model).name, "hardware": hardware(), "versions": versions(("sentence-transformers",))}
    print(json.dumps({**about, "steps": found}, indent=2))


if __name__ == "__main__":
    main()
