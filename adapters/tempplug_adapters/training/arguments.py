"""`transformers.TrainingArguments` as the commands have them: a recipe's settings, and defaults that suit all methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from tempplug.errors import ConfigError
from tempplug_adapters.training.recipe import Recipe


@dataclass
class MethodArguments(TrainingArguments):
    """TrainingArguments that log and save as the training commands do: a line an epoch, ten checkpoints a training.

    Args:
        early_stopping_patience: evaluations without a better ``metric_for_best_model`` after which training ends, at least 1;
            None never ends it early.

    Raises:
        ConfigError: fp16 without a GPU, or an option is out of range.
    """

    logging_strategy: IntervalStrategy | str = field(default="epoch", metadata={"help": "When a line is logged."})
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "Hide losses that are not finite."})
    save_strategy: SaveStrategy | str = field(default="steps", metadata={"help": "When a checkpoint is written."})
    save_steps: float = field(default=0.1, metadata={"help": "Steps between two checkpoints; below 1 a share of the training."})
    save_total_limit: int | None = field(
        default=2, metadata={"help": "Checkpoints kept, the best one always; at least 2, as one may be damaged."}
    )
    report_to: str | list[str] = field(default="none", metadata={"help": "Where logs go too: tensorboard, wandb, ..."})
    remove_unused_columns: bool = field(default=False, metadata={"help": "Must stay false: methods make their own batches."})
    ddp_broadcast_buffers: bool | None = field(
        default=False,
        metadata={"help": "Send buffers around: queues and temperatures are equal on all processes by themselves."},
    )
    dataloader_pin_memory: bool = field(
        default_factory=torch.cuda.is_available, metadata={"help": "Pin batches; by default where there is a GPU."}
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Evaluations without a better metric_for_best_model after which training ends."}
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
            # without evaluation there is no best checkpoint to go back to, and nothing to end early for
            self.load_best_model_at_end = False
            self.early_stopping_patience = None
        super().__post_init__()  # type: ignore[no-untyped-call]


def training_arguments(recipe: Recipe, output_dir: str, **given: Any) -> MethodArguments:
    """Returns the arguments of a training; ``logging_steps`` without ``logging_strategy`` logs by steps.

    Args:
        recipe: gives the settings of these names.
        output_dir: of the run.
        **given: further arguments; they must not be among the recipe's settings.

    Raises:
        ConfigError: the Trainer refuses a value, or two of them together.
    """
    by_steps = {"logging_strategy": "steps"} if "logging_steps" in given else {}
    try:
        return MethodArguments(output_dir=output_dir, **{**recipe.training(), **by_steps, **given})
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"transformers refuses the training arguments: {error}") from error
