"""Tevatron's training of a dense retriever, with any temperature strategy by flag: its arguments, data, model and trainer.

    python adapters/examples/tevatron_dense.py --model_name_or_path MODEL --dataset_path pairs.jsonl --dataset_name json \
        --output_dir out --normalize --temperature 0.02 --temperature-strategy macl

The flags are those of ``python -m tevatron.retriever.driver.train``, except ``--grad_cache``. Its ``--temperature`` (1.0) is
the temperature of ``fixed``; options of other strategies are derived from it. Similarities are cosines, as with
``--normalize``. Candidates come from all processes, with their gradient. A learned temperature is in the optimizer and in
checkpoints.

Run with the repository's commit dd06310 (the release on PyPI is of 2022), transformers 5.23, on one process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tevatron.retriever.arguments import DataArguments, ModelArguments, TevatronTrainingArguments
from tevatron.retriever.collator import TrainCollator
from tevatron.retriever.dataset import TrainDataset
from tevatron.retriever.modeling import DenseModel
from tevatron.retriever.trainer import TevatronTrainer
from torch import Tensor, nn
from transformers import HfArgumentParser, set_seed

from tempplug_adapters.huggingface import TemperatureArguments, TemperatureTrainerMixin
from tempplug_adapters.huggingface.loading import load_tokenizer
from tempplug_adapters.training.recipe import around


class Embedder(DenseModel):
    """Tevatron's model, which returns the embeddings in place of its own loss."""

    def forward(self, query: dict[str, Tensor], passage: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Returns the embeddings of queries and of passages."""
        return self.encode_query(query), self.encode_passage(passage)


class Trainer(TemperatureTrainerMixin, TevatronTrainer):
    """Tevatron's trainer, with the loss of the mixin."""

    def contrastive_views(self, model: nn.Module, inputs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Returns queries, positives, and the hard negatives of each query."""
        queries, passages = model(*inputs)
        # a query's passages follow each other, its positive first
        groups = passages.unflatten(0, (len(queries), -1))
        return queries, groups[:, 0], {"hard_negatives": groups[:, 1:]} if groups.shape[1] > 1 else {}


def main(words: Sequence[str]) -> list[dict[str, float]]:
    """Trains, saves the model and returns the logs."""
    parser = HfArgumentParser((TemperatureArguments, ModelArguments, DataArguments, TevatronTrainingArguments))
    temperature, chosen, data, training = parser.parse_args_into_dataclasses(list(words))
    if training.grad_cache:
        parser.error("--grad_cache is not for this example")
    set_seed(training.seed)
    tokenizer = load_tokenizer(chosen.tokenizer_name or chosen.model_name_or_path, cache_dir=chosen.cache_dir)
    tokenizer.padding_side = data.padding_side
    dataset = TrainDataset(data)
    trainer = Trainer(
        model=Embedder.build(chosen, training, cache_dir=chosen.cache_dir, attn_implementation=chosen.attn_implementation),
        args=training,
        train_dataset=dataset,
        data_collator=TrainCollator(data, tokenizer),
        contrastive_loss=temperature.create_loss("cross-view", temperatures=around(chosen.temperature)),
        log_record=temperature.log_record,
    )
    dataset.set_trainer(trainer)
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    for log in main(sys.argv[1:]):
        print(f"epoch {log['epoch']:.2f}  loss {log['loss']:.6f}  temperature {log['temperature']:.4f}")
