"""Fine-tunes a sentence encoder through sentence-transformers on NLI triplets, with any temperature strategy by flag.

An anchor is a premise, its positive a hypothesis that it entails, its hard negative one that contradicts it. The encoder is a
model of yours or, by default, a StaticEmbedding from scratch, which takes a minute on a CPU::

    python adapters/examples/sentence_transformers_nli.py --data_dir DATA --output_dir out --temperature-strategy macl

Every flag of `SentenceTransformerTrainingArguments` works. ``DATA`` holds ``text/nli/nli_pairs.tsv.gz`` (columns label,
premise, hypothesis), ``text/sts/STSB`` and, for the StaticEmbedding, ``text/bert-wiki-mini/tokenizer.json``.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from transformers import HfArgumentParser, set_seed

from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.huggingface.loading import load_sentence_transformer
from tempplug_adapters.sentence_evaluation.sts import evaluate_stsb
from tempplug_adapters.sentence_transformers import TemperatureSentenceTransformerTrainer


@dataclass
class ExampleArguments:
    """What is trained on which data."""

    data_dir: str = field(metadata={"help": "folder with text/nli, text/sts and, for a StaticEmbedding, a tokenizer"})
    model: str | None = field(default=None, metadata={"help": "SentenceTransformer to start from; else a StaticEmbedding"})
    dimension: int = field(default=256, metadata={"help": "of the StaticEmbedding"})
    triplets: int | None = field(default=None, metadata={"help": "how many to train on; else all"})
    mini_batch_size: int | None = field(default=None, metadata={"help": "rows embedded at a time (GradCache); else a batch"})


def read_triplets(data_dir: Path) -> Dataset:
    """Returns premise, entailed and contradicting hypothesis, each pair of them once."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(data_dir / "text" / "nli" / "nli_pairs.tsv.gz", "rt", encoding="utf-8") as lines:
        columns = next(lines).rstrip("\n").split("\t")
        for line in lines:
            row = dict(zip(columns, line.rstrip("\n").split("\t"), strict=True))
            found[row["premise"]][row["label"]].append(row["hypothesis"])
    rows = [
        {"anchor": premise, "positive": positive, "negative": negative}
        for premise, labels in found.items()
        for positive, negative in itertools.product(labels["entailment"], labels["contradiction"])
    ]
    return Dataset.from_list(rows)


def create_model(arguments: ExampleArguments) -> SentenceTransformer:
    """Returns the encoder that training starts from."""
    if arguments.model is not None:
        return load_sentence_transformer(arguments.model)
    tokenizer = Tokenizer.from_file(str(Path(arguments.data_dir, "text", "bert-wiki-mini", "tokenizer.json")))
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=arguments.dimension)])


def main(words: Sequence[str]) -> dict[str, float | str]:
    """Trains, evaluates on STS-B and returns what ``metrics.json`` holds."""
    parser = HfArgumentParser((TemperatureArguments, SentenceTransformerTrainingArguments, ExampleArguments))
    temperature, training, arguments = parser.parse_args_into_dataclasses(list(words))
    set_seed(training.seed)
    data = read_triplets(Path(arguments.data_dir))
    model = create_model(arguments).to(training.device)
    loss = temperature.create_sentence_transformers_loss(model, mini_batch_size=arguments.mini_batch_size)
    trainer = TemperatureSentenceTransformerTrainer(
        model,
        training,
        train_dataset=data.select(range(min(arguments.triplets or len(data), len(data)))),
        loss=loss,
        log_record=temperature.log_record,
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model()

    def encode(sentences: list[str]) -> torch.Tensor:
        return model.encode(sentences, convert_to_tensor=True, show_progress_bar=False)

    metrics: dict[str, float | str] = {
        "strategy": loss.contrastive_loss.strategy.spec(),
        "triplets": len(trainer.train_dataset),
    }
    logs = [entry["temperature"] for entry in trainer.state.log_history if "temperature" in entry]
    if logs:
        metrics |= {"temperature_first": logs[0], "temperature_last": logs[-1]}
    for split in ("dev", "test"):
        metrics[f"stsb_{split}"] = evaluate_stsb(encode, arguments.data_dir, split)
    Path(training.output_dir, "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    return metrics


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
