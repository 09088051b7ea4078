"""A late-interaction model trained with PyLate, with any temperature strategy that is defined for scores.

    python adapters/examples/pylate_colbert.py --model MODEL --triplets triplets.jsonl --output_dir out \
        --temperature-strategy learnable --temperature-args initial_temperature=0.5

A line of the triplets has ``query``, ``positive`` and ``negative``. For PyLate's ``Distillation`` it has ``query``,
``documents``, a list of as many texts in each line, and ``scores``, a teacher's of each document. MaxSim adds up a cosine for
each token of a query, and has no range: `tempplug.ContrastiveLoss.from_scores` takes ``fixed``, ``learnable``, ``schedule`` and
others, and refuses those that need cosines by name. Temperatures are in units of the scores; PyLate's default is 1.

Run with PyLate 1.6.0, sentence-transformers 5.3, transformers 5.3, on one process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from datasets import load_dataset
from pylate import losses, models, utils
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import Tensor
from transformers import HfArgumentParser, set_seed

import tempplug
from tempplug.distributed import active
from tempplug.targets import soft_targets
from tempplug_adapters.huggingface import TemperatureArguments, TemperatureCallback
from tempplug_adapters.training.recipe import around


@dataclass
class ExampleArguments:
    """What is trained on what."""

    model: str = field(metadata={"help": "folder or hub name of the encoder"})
    triplets: str = field(metadata={"help": "JSON Lines of query, positive, negative"})
    teacher_temperature: float = field(default=1.0, metadata={"help": "that divides the scores of a teacher"})
    document_length: int | None = field(default=None, metadata={"help": "tokens of a document; else PyLate's default"})


class TemperatureContrastive(losses.Contrastive):
    """PyLate's ``Contrastive`` with a loss of its scores in place of the cross entropy.

    The loss is part of this module, so that the trainer's optimizer has its parameters; they are in no checkpoint, as those of
    other losses of sentence-transformers.
    """

    def __init__(self, model: Any, contrastive_loss: tempplug.ContrastiveLoss, **options: Any) -> None:
        super().__init__(model, **options)
        self.contrastive_loss = contrastive_loss
        self._score, self.score_metric = self.score_metric, self._keep
        self._scores: list[Tensor] = []

    def _keep(self, *args: Any, **kwargs: Any) -> Tensor:
        self._scores.append(self._score(*args, **kwargs))
        return self._scores[-1]

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Returns the mean loss; PyLate's own is computed from the same scores, and not used."""
        self._scores.clear()
        super().forward(sentence_features, labels)
        scores = torch.cat(self._scores)
        # the documents of query i begin at column i · (columns of a query)
        rank, world = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if active() else (0, 1)
        shared = world if self.gather_across_devices else 1
        own = torch.arange(len(scores), device=scores.device) + (rank * len(scores) if shared > 1 else 0)
        positive = torch.zeros_like(scores, dtype=torch.bool)
        positive[torch.arange(len(scores)), own * (scores.shape[1] // (len(scores) * shared))] = True
        loss: Tensor = self.contrastive_loss.from_scores(scores, positive_mask=positive, negative_mask=~positive)
        return loss * shared


class TemperatureDistillation(losses.Distillation):
    """PyLate's ``Distillation`` with a loss of its scores: the cross entropy of the teacher's softmax, in place of KL.

    With ``fixed`` it is PyLate's but for the teacher's entropy. Scores are scaled from 0 to 1 in each row, as there, unless
    ``normalize_scores=False``.
    """

    def __init__(
        self, model: Any, contrastive_loss: tempplug.ContrastiveLoss, teacher_temperature: float = 1.0, **options: Any
    ) -> None:
        super().__init__(model, **options)
        self.contrastive_loss, self.teacher_temperature = contrastive_loss, teacher_temperature
        del self.loss_function  # a module: torch refuses to set a function in its place
        self.loss_function = self._of_logarithms

    def _of_logarithms(self, scores: Tensor, of_teacher: Tensor) -> Tensor:
        """Returns the loss of what PyLate passes on: the logarithms of both softmaxes, scores less a constant in each row."""
        return self.contrastive_loss.from_scores(scores, targets=soft_targets(of_teacher, self.teacher_temperature))


def main(words: Sequence[str]) -> list[dict[str, float]]:
    """Trains, saves the model and returns the logs."""
    parser = HfArgumentParser((TemperatureArguments, SentenceTransformerTrainingArguments, ExampleArguments))
    temperature, training, arguments = parser.parse_args_into_dataclasses(list(words))
    set_seed(training.seed)
    model = models.ColBERT(arguments.model, document_length=arguments.document_length, device=str(training.device))
    data = load_dataset("json", data_files=arguments.triplets, split="train")
    taught = "scores" in data.column_names
    made = temperature.create_loss("cross-view" if taught else "masks", gather=False, temperatures=around(1.0))
    loss = (
        TemperatureDistillation(model, made, arguments.teacher_temperature) if taught else TemperatureContrastive(model, made)
    )
    trainer = SentenceTransformerTrainer(
        model,
        training,
        train_dataset=data,
        loss=loss,
        data_collator=utils.ColBERTCollator(model.tokenize),
        callbacks=[TemperatureCallback(loss.contrastive_loss)],
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    for log in main(sys.argv[1:]):
        print(f"epoch {log['epoch']:.2f}  loss {log['loss']:.6f}")
