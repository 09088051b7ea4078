"""The flags of ``tempplug train simcse`` beside those of the temperature, with SimCSE's recipe as their defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy

from tempplug.errors import ConfigError
from tempplug_adapters.simcse.model import POOLERS

METRIC = "eval_stsb_spearman"


@dataclass
class ModelArguments:
    """Which encoder is trained, and how its token vectors become a sentence embedding.

    Args:
        model_name_or_path: BERT- or RoBERTa-family encoder, a folder or a name on the Hugging Face hub.
        pooler: ``cls_mlp`` ([CLS] through an MLP that is left out of evaluation), ``cls``, ``avg`` or ``avg_first_last``.
        dropout: of hidden states and attention, in [0, 1); by default the model's own. It makes the views differ.
        max_length: tokens of a sentence, at least 3; longer ones are cut.
        mlm_weight: weight of an additional masked-language-model loss, at least 0; 0 leaves it out (SimCSE uses 0.1).
        mlm_probability: fraction of the tokens that it predicts, in (0, 1).

    Raises:
        ConfigError: an option is out of range.
    """

    model_name_or_path: str = field(metadata={"help": "Encoder: a folder or a name on the Hugging Face hub."})
    pooler: str = field(default="cls_mlp", metadata={"help": f"Sentence embedding: {', '.join(POOLERS)}."})
    dropout: float | None = field(default=None, metadata={"help": "Dropout rate; by default the model's own."})
    max_length: int = field(default=32, metadata={"help": "Longest sentence in tokens; the rest is cut."})
    mlm_weight: float = field(default=0.0, metadata={"help": "Weight of an additional masked-language-model loss."})
    mlm_probability: float = field(default=0.15, metadata={"help": "Fraction of the tokens that it predicts."})

    def __post_init__(self) -> None:
        if self.pooler not in POOLERS:
            raise ConfigError(f"pooler='{self.pooler}' must be one of {', '.join(POOLERS)}.")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout} must be at least 0 and less than 1.")
        if self.max_length < 3:
            raise ConfigError(f"max_length={self.max_length} must be at least 3: [CLS], a token and [SEP].")
        if self.mlm_weight < 0:
            raise ConfigError(f"mlm_weight={self.mlm_weight} must be at least 0.")
        if not 0 < self.mlm_probability < 1:
            raise ConfigError(f"mlm_probability={self.mlm_probability} must be greater than 0 and less than 1.")


@dataclass
class DataArguments:
    """What is trained on and what is evaluated on.

    Args:
        train_file: ``.txt`` (one sentence a line: two dropout views of each), or ``.tsv``, ``.csv`` or ``.jsonl`` (pairs,
            or triplets whose third sentence is a hard negative); each also as ``.gz``.
        columns: two or three column names of a table; by default all columns of a table that has two or three.
        where: conditions ``column=value`` that a row of a table must meet.
        max_train_samples: use the first so many only, at least 2.
        sts_dir: folder with the STS data, for the choice of the checkpoint and the final test; by default the folder that
            TEMPPLUG_DATA names, else the Hugging Face hub.
        sts_test: whether to evaluate the final encoder on the seven STS tasks.

    Raises:
        ConfigError: an option is out of range.
    """

    train_file: str = field(metadata={"help": "Sentences (.txt) or pairs or triplets (.tsv, .csv, .jsonl), .gz too."})
    columns: list[str] = field(
        default_factory=list, metadata={"help": "Column names of view a, view b and, where there is one, the hard negative."}
    )
    where: list[str] = field(
        default_factory=list, metadata={"help": "Keep the rows where column=value.", "metavar": "COLUMN=VALUE"}
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Use only the first so many samples."})
    sts_dir: str | None = field(default=None, metadata={"help": "Folder of STS data; by default TEMPPLUG_DATA, else the hub."})
    sts_test: bool = field(default=True, metadata={"help": "Evaluate the final encoder on the seven STS tasks."})

    def __post_init__(self) -> None:
        if self.columns and len(self.columns) not in (2, 3):
            raise ConfigError(f"columns names {len(self.columns)} columns, but must name two (a pair) or three (a triplet).")
        if self.max_train_samples is not None and self.max_train_samples < 2:
            raise ConfigError(f"max_train_samples={self.max_train_samples} must be at least 2.")
        if self.sts_dir is None:
            self.sts_dir = os.environ.get("TEMPPLUG_DATA")


@dataclass
class SimCSETrainingArguments(TrainingArguments):
    """TrainingArguments with SimCSE's recipe for BERT-base as defaults: the best checkpoint on STS-B dev is kept.

    Source: Gao et al. 2021, appendix A: one epoch, batch 64, learning rate 3e-5, linear decay without warm-up, no weight
    decay, evaluation every 125 steps.

    Raises:
        ConfigError: fp16 without a GPU.
    """

    learning_rate: float = field(default=3e-5, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=64, metadata={"help": "Sentences (or pairs) a step and process."})
    num_train_epochs: float = field(default=1.0, metadata={"help": "Epochs, fractions allowed."})
    eval_strategy: IntervalStrategy | str = field(default="steps", metadata={"help": "When STS-B dev is evaluated."})
    eval_steps: float | None = field(default=125, metadata={"help": "Steps between two evaluations."})
    save_strategy: IntervalStrategy | str = field(default="steps", metadata={"help": "When a checkpoint is written."})
    save_steps: float = field(default=125, metadata={"help": "Steps between two checkpoints."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints kept, the best one always."})
    logging_steps: float = field(default=25, metadata={"help": "Steps between two lines of the log."})
    load_best_model_at_end: bool = field(default=True, metadata={"help": "Keep the best encoder on STS-B dev."})
    metric_for_best_model: str | None = field(default=METRIC, metadata={"help": "What the best encoder is best at."})
    greater_is_better: bool | None = field(default=True, metadata={"help": "Whether more of it is better."})
    dataloader_drop_last: bool = field(default=True, metadata={"help": "Leave out an incomplete last batch."})
    remove_unused_columns: bool = field(default=False, metadata={"help": "Must stay false: the collator reads all."})

    dataloader_pin_memory: bool = field(
        default_factory=torch.cuda.is_available,
        metadata={"help": "Pin batches; by default where there is a GPU."},
    )

    def __post_init__(self) -> None:
        # bf16 without a GPU is refused unless the CPU was asked for, which then goes without saying
        self.use_cpu = self.use_cpu or not torch.accelerator.is_available()
        if self.fp16 and self.use_cpu:
            raise ConfigError("fp16=true needs a GPU: use bf16=true on a CPU.")
        if self.eval_strategy == "no":
            # without evaluation there is no best checkpoint to go back to
            self.load_best_model_at_end = False
        super().__post_init__()  # type: ignore[no-untyped-call]
