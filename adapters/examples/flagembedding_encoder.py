"""FlagEmbedding's fine-tuning of an encoder, with any temperature strategy by flag: its arguments, data, model and trainer.

    python adapters/examples/flagembedding_encoder.py --model_name_or_path MODEL --train_data pairs.jsonl --output_dir out \
        --temperature-strategy macl

All flags of ``python -m FlagEmbedding.finetune.embedder.encoder_only.base`` work, except those named in `main`. Its
``--temperature`` (0.02) is the temperature of ``fixed``; options of other strategies are derived from it. Candidates come from
all processes, with their gradient, regardless of ``--negatives_cross_device``. A learned temperature is in the optimizer and in
checkpoints.

Run with FlagEmbedding 1.4.2, transformers 5.23, on one process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from FlagEmbedding.abc.finetune.embedder import EmbedderTrainerCallbackForDataRefresh
from FlagEmbedding.finetune.embedder.encoder_only.base import (
    EncoderOnlyEmbedderDataArguments,
    EncoderOnlyEmbedderModelArguments,
    EncoderOnlyEmbedderRunner,
    EncoderOnlyEmbedderTrainingArguments,
)
from FlagEmbedding.finetune.embedder.encoder_only.base.trainer import EncoderOnlyEmbedderTrainer
from torch import Tensor, nn
from transformers import HfArgumentParser

from tempplug_adapters.huggingface import TemperatureArguments, TemperatureTrainerMixin
from tempplug_adapters.training.recipe import around


class Trainer(TemperatureTrainerMixin, EncoderOnlyEmbedderTrainer):
    """FlagEmbedding's trainer, with the loss of the mixin."""

    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Returns queries, positives, and the hard negatives of each query."""
        if inputs.get("teacher_scores") is not None or inputs.get("no_in_batch_neg_flag"):
            raise ValueError("scores of a teacher and data sets without in-batch negatives are not for this example")
        queries, passages = model(inputs["queries"], inputs["passages"])
        # a query's passages follow each other, its positive first
        groups = passages.unflatten(0, (len(queries), -1))
        return queries, groups[:, 0], {"hard_negatives": groups[:, 1:]} if groups.shape[1] > 1 else {}


class Runner(EncoderOnlyEmbedderRunner):
    """FlagEmbedding's runner, with our trainer."""

    temperature: TemperatureArguments

    def load_trainer(self) -> Trainer:
        """Returns the trainer, for a model that returns the embeddings in place of its own loss."""
        embedder = self.model
        embedder.forward = lambda queries, passages: (embedder.encode(queries), embedder.encode(passages))
        loss = self.temperature.create_loss("cross-view", temperatures=around(self.training_args.temperature))
        trainer = Trainer(
            model=embedder,
            args=self.training_args,
            train_dataset=self.train_dataset,
            data_collator=self.data_collator,
            processing_class=self.tokenizer,
            contrastive_loss=loss,
            log_record=self.temperature.log_record,
        )
        if self.data_args.same_dataset_within_batch:
            trainer.add_callback(EmbedderTrainerCallbackForDataRefresh(self.train_dataset))
        return trainer


def main(words: Sequence[str]) -> list[dict[str, float]]:
    """Trains, saves the model and returns the logs."""
    kinds = (EncoderOnlyEmbedderModelArguments, EncoderOnlyEmbedderDataArguments, EncoderOnlyEmbedderTrainingArguments)
    parser = HfArgumentParser((TemperatureArguments, *kinds))
    temperature, model, data, training = parser.parse_args_into_dataclasses(list(words))
    if training.use_mrl or data.knowledge_distillation:
        parser.error("--use_mrl and --knowledge_distillation are not for this example")
    Runner.temperature = temperature
    runner = Runner(model_args=model, data_args=data, training_args=training)
    runner.run()
    return [entry for entry in runner.trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    for log in main(sys.argv[1:]):
        print(f"epoch {log['epoch']:.2f}  loss {log['loss']:.6f}  temperature {log['temperature']:.4f}")
