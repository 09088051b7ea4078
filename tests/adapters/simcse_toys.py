"""Generated sentences, pairs and triplets with a tiny encoder and an STS-B of their own, and SimCSE's training on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.simcse.data import Sentences
from tempplug_adapters.simcse.method import SimCSEMethod
from tempplug_adapters.simcse.recipe import METHOD, SimCSERecipe
from tempplug_adapters.training.method import Source
from tempplug_adapters.training.train import train
from tempplug_benchmarks.data.sentences import paraphrase_pairs, plain_sentences, write_sts
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder


def write_toys(folder: Path) -> Path:
    """Writes ``encoder``, ``sts``, ``pairs.tsv``, ``triplets.csv`` and ``sentences.txt`` into a folder."""
    write_tiny_encoder(folder / "encoder", seed=0, layers=1, width=32)
    write_sts(folder / "sts", seed=0, train=2, dev=60, test=60)
    pairs = paraphrase_pairs(160, 0)
    (folder / "pairs.tsv").write_text("anchor\tpositive\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    hard = [pairs[position - 1][1] for position in range(len(pairs))]
    rows = zip(pairs, hard, strict=True)
    (folder / "triplets.csv").write_text("anchor,positive,negative\n" + "".join(f'"{a}","{b}","{n}"\n' for (a, b), n in rows))
    (folder / "sentences.txt").write_text("\n".join(plain_sentences(160, 0)))
    return folder


def recipe(folder: Path, **changes: Any) -> SimCSERecipe:
    """SimCSE's settings for the toys of a folder."""
    small = {"model_name_or_path": str(folder / "encoder"), "per_device_train_batch_size": 16, "learning_rate": 1e-3}
    return SimCSERecipe(**{**small, **changes})


def read(folder: Path, file: str, settings: SimCSERecipe) -> Sentences:
    return SimCSEMethod(METHOD).load(settings, Source(str(folder / file), folder / "sts", folder))


def run(folder: Path, output: Path, file: str = "pairs.tsv", strategy: str = "fixed", **more: Any) -> dict[str, Any]:
    """Trains on the toys; what is no setting of the recipe goes to `train`."""
    settings = recipe(folder, **{name: more.pop(name) for name in list(more) if name in SimCSERecipe.kinds()})
    training = {"eval_steps": 5, "save_steps": 5, "logging_steps": 5, **more.pop("training", {})}
    temperature, data = TemperatureArguments(strategy, [], None), read(folder, file, settings)
    return train(SimCSEMethod(METHOD), settings, data, temperature, output, training=training, **more)
