"""`transformers.TrainingArguments` of the commands: the settings of a recipe, and defaults that suit all methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import TrainingArguments, __version__ as version
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from tempplug.errors import ConfigError
from tempplug_adapters.training.recipe import Recipe


@dataclass
class MethodArguments(TrainingArguments):
    """TrainingArguments with the commands' defaults: one log per epoch and ten checkpoints per training.

    Args:
        early_stopping_patience: number of evaluations without an improvement of ``metric_for_best_model`` after which training
            stops, at least 1; None disables early stopping.

    Raises:
        ConfigError: fp16 without a GPU, or an option is out of range.
    """

    logging_strategy: IntervalStrategy | str = field(default="epoch", metadata={"help": "When a line is logged."})
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "Filter losses that are not finite."})
    save_strategy: SaveStrategy | str = field(default="steps", metadata={"help": "When a checkpoint is written."})
    save_steps: float = field(default=0.1, metadata={"help": "Steps between checkpoints; below 1: a fraction of all."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints to keep, at least 2, with the best."})
    report_to: str | list[str] = field(default="none", metadata={"help": "Further places of the logs: tensorboard, wandb, ..."})
    remove_unused_columns: bool = field(default=False, metadata={"help": "Must be false: methods create the batches."})
    ddp_broadcast_buffers: bool | None = field(default=False, metadata={"help": "Broadcast buffers, which are equal."})
    dataloader_pin_memory: bool = field(
        default_factory=torch.cuda.is_available, metadata={"help": "Use page-locked memory; default: if there is a GPU."}
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Evaluations without a better metric to stop after."}
    )

    def __post_init__(self) -> None:
        # transformers refuses bf16 without a GPU unless use_cpu is set
        self.use_cpu = self.use_cpu or not torch.accelerator.is_available()
        if self.fp16 and self.use_cpu:
            raise ConfigError("fp16=true needs a GPU: use bf16=true on a CPU.")
        if self.save_total_limit is not None:
            self.save_total_limit = max(2, self.save_total_limit)
        if self.early_stopping_patience is not None and self.early_stopping_patience < 1:
            raise ConfigError(f"early_stopping_patience={self.early_stopping_patience} must be at least 1.")
        if self.eval_strategy == "no":
            # without evaluation there is neither a best checkpoint nor early stopping
            self.load_best_model_at_end = False
            self.early_stopping_patience = None
        super().__post_init__()  # type: ignore[no-untyped-call]


def training_arguments(recipe: Recipe, output_dir: str, **given: Any) -> MethodArguments:
    """Returns the arguments of a training; ``logging_steps`` without ``logging_strategy`` implies logging by steps.

    Args:
        recipe: supplies the settings that it shares with TrainingArguments.
        output_dir: output folder.
        **given: further arguments; they must not be settings of the recipe.

    Raises:
        ConfigError: the Trainer rejects a value or a combination of values.
    """
    by_steps = {"logging_strategy": "steps"} if "logging_steps" in given else {}
    try:
        return MethodArguments(output_dir=output_dir, **{**recipe.training(), **by_steps, **given})
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        old = "" if int(version.partition(".")[0]) >= 5 else f" Training commands need transformers 5, and this is {version}."
        raise ConfigError(f"transformers refuses the training arguments: {error}{old}") from error
