"""`train`: trains an encoder from a method, a recipe, data and temperature flags, and writes it with its metrics to a folder.

``metrics.json`` has the same schema for every method. A killed run resumes to bitwise equal weights. `MethodArguments` are
`transformers.TrainingArguments` with the settings of a recipe, and defaults that suit all methods.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from accelerate import PartialState
from torch import distributed
from transformers import TrainerCallback, TrainingArguments, __version__ as version, set_seed
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from tempplug import ContrastiveLoss
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, DataError, TempplugError
from tempplug.processor import describe_machine
from tempplug_adapters.announcement import layout_of
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.huggingface.callback import epochs_of, set_training_length
from tempplug_adapters.modes import Progress, silent
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.storage.fingerprint import Fingerprint, Sources
from tempplug_adapters.storage.tensors import why_refused
from tempplug_adapters.training.checkpoints import (
    AUTO,
    SETTINGS_FILE,
    asked_for,
    batch_of_process,
    check_data,
    check_settings,
    check_start,
    going_on,
    output_folder,
    resume_point,
)
from tempplug_adapters.training.method import Method, R, Run
from tempplug_adapters.training.recipe import Recipe
from tempplug_adapters.training.termination import first_process
from tempplug_adapters.training.trained import METRICS_FILE, describe_folder
from tempplug_adapters.training.trainer import MethodTrainer, batch_order
from tempplug_adapters.training.watchdog import Watchdog


@dataclass
class MethodArguments(TrainingArguments):
    """TrainingArguments with the commands' defaults: one log per epoch and ten checkpoints per training.

    Args:
        early_stopping_patience: number of evaluations without an improvement of ``metric_for_best_model`` after which training
            stops, at least 1; None disables early stopping.
        rank_timeout: seconds without a sign of life, at least 10, after which a process is given up by the others.
        contrastive_mini_batch_size: the most rows to embed at once, of methods that embed them separately; gradients are those
            of the whole batch, see `tempplug.cached_backward`. None embeds whole batches.

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

    rank_timeout: float = field(
        default=300.0, metadata={"help": "Seconds without a sign of life after which a process is given up."}
    )
    contrastive_mini_batch_size: int | None = field(
        default=None, metadata={"help": "Rows to embed at once (simcse, retrieval, clip); the loss is of the whole batch."}
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
        if not self.rank_timeout >= 10:
            raise ConfigError(f"rank_timeout={self.rank_timeout} must be at least 10 seconds.")
        if self.eval_strategy == "no":
            # without evaluation there is neither a best checkpoint nor early stopping
            self.load_best_model_at_end = False
            self.early_stopping_patience = None
        if self.use_cpu and int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_initialized():
            # transformers passes its ddp_timeout on for GPUs alone
            PartialState(cpu=True, backend=self.ddp_backend, timeout=timedelta(seconds=self.ddp_timeout))
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


def running_arguments(recipe: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `TrainingArguments`: those given and, for others, the recipe's defaults where both fit.

    A recipe that keeps the best model chooses it among the checkpoints, so evaluations and checkpoints must be at the same
    steps: where the defaults do not fit, what is given for one of the two applies to both. Without checkpoints, the last
    weights are kept, of which a warning tells.
    """
    merged = {"save_strategy": "steps", "save_steps": MethodArguments.save_steps, **recipe.running, **given}
    if not merged.get("load_best_model_at_end") or "load_best_model_at_end" in given or merged["eval_strategy"] == "no":
        return {**recipe.running, **given}
    if merged["save_strategy"] == "no":
        if first_process():
            warnings.warn("save_strategy=no: the weights after the last step are kept, not the best ones.", stacklevel=2)
        return {**recipe.running, **given, "load_best_model_at_end": False}
    merged.setdefault("eval_steps", merged["save_steps"])
    strategies_fit = merged["save_strategy"] in ("best", merged["eval_strategy"])
    if not strategies_fit or not _is_multiple(merged["save_steps"], merged["eval_steps"]):
        for kind in ("strategy", "steps"):
            names = f"save_{kind}", f"eval_{kind}"
            values = [given[name] for name in names if name in given]
            merged |= dict.fromkeys(names, values[0]) if len(values) == 1 else {}
    return merged


def _is_multiple(steps: float, of: float) -> bool:
    return (steps < 1) == (of < 1) and round(steps * 10**6) % round(of * 10**6) == 0


DECISIVE = ("max_steps", "gradient_accumulation_steps")
"""`TrainingArguments` that determine the steps of a training, and are therefore among its settings."""


def train(
    method: Method[R, Any],
    recipe: R,
    data: Any,
    temperature: TemperatureArguments,
    output_dir: str | Path,
    *,
    dataset: str = "",
    files: Callable[[], Sources] | None = None,
    resume_from_checkpoint: str | None = None,
    resume_on_changed_data: bool = False,
    evaluate: bool = True,
    training: Mapping[str, Any] | None = None,
    begin: Callable[[dict[str, str | None]], None] = lambda specs: None,
    callbacks: Sequence[TrainerCallback] = (),
    evaluation_progress: Progress = silent,
) -> dict[str, Any]:
    """Trains, evaluates, and writes the encoder and the metrics; resumes from a checkpoint if requested.

    Args:
        method: the method.
        recipe: its settings.
        data: result of `Method.load`, or similar data.
        temperature: strategy, objective, terms on negatives, and the numbers of a log.
        output_dir: folder for checkpoints, encoder and metrics.
        dataset: name of the data.
        files: returns what the data were read from, as `Method.files`; compared when a run resumes. None: nothing is compared.
        resume_from_checkpoint: ``auto`` resumes from the newest checkpoint, if any; or the folder of a checkpoint.
        resume_on_changed_data: whether a run may resume although ``files`` have other contents than before.
        evaluate: whether to evaluate at the end.
        training: further `TrainingArguments`, by name.
        begin: called before the training with the resolved specs of `Method.specs`, and the layout.
        callbacks: further callbacks of the Trainer.
        evaluation_progress: called with the completed fraction of an evaluation.

    Returns:
        The contents of ``metrics.json``: ``method``, ``dataset``, ``items``, ``machine`` (on which rounding depends),
        ``processes``, ``effective_batch_size`` (items of all processes per optimizer step), ``strategy`` and ``objective``
        (resolved specs, None for a method without them), ``negatives`` (likewise, where there are terms), ``recipe`` (all
        settings), the `DECISIVE` arguments, the entries of `Method.origin`, ``steps`` and ``epochs`` done, ``loss`` (the last
        one logged), ``temperature`` (``first``, ``last``, ``mean``, ``min`` and ``max`` of the training, see
        `TemperatureStatistics`), ``course`` (lists of its measurements by name), ``seconds_per_epoch`` (of this call; None if
        no step was left), ``evaluation`` (metrics by name), ``history`` (all logs: loss, temperature, …).

    Raises:
        ConfigError: options do not fit, the folder contains checkpoints of another run, another run is writing to it, or the
            data have changed since the checkpoint.
        DataError: data or a checkpoint are invalid, or a file cannot be written.
        NonFiniteError: the training diverged.
        ProcessLost: another process of the training failed.
        Terminated: SIGTERM or SIGHUP ended the training, which has saved a checkpoint.
        UnknownNameError: a strategy or an objective is unknown.
    """
    given = dict(training or {})
    with output_folder(output_dir) as output, going_on(output), Watchdog(output) as watchdog:
        check_start(output, resume_from_checkpoint)
        checkpoint = resume_point(output, resume_from_checkpoint)
        recipe = method.recipe_of(recipe, parse_spec(temperature.temperature_strategy or recipe.loss.strategy)[0], dataset)
        args = training_arguments(recipe, str(output), **running_arguments(recipe, given))
        fingerprint = None if files is None else Fingerprint(files)
        compared: frozenset[str] = frozenset()
        if fingerprint is not None and checkpoint is not None:
            compared = _compare_data(checkpoint, fingerprint, args, changed_allowed=resume_on_changed_data)
        elif fingerprint is not None and args.should_save:
            fingerprint.start()
        if checkpoint is not None:
            size = recipe.per_device_train_batch_size
            size = batch_of_process(checkpoint, args.world_size, size, len(data), drop_last=args.dataloader_drop_last)
            if size != recipe.per_device_train_batch_size:
                recipe = recipe.changed(per_device_train_batch_size=size)
                args = training_arguments(recipe, str(output), **running_arguments(recipe, given))
        watchdog.start(args.process_index, args.world_size, args.rank_timeout)
        set_seed(recipe.seed)
        loss = method.create_loss(recipe, data, temperature, gather=args.world_size > 1)
        module = method.build(recipe, data, loss)
        if args.max_steps > 0:  # otherwise the method has already passed the recipe's epochs
            set_training_length(module, epochs_of(args, batch_order(method, recipe, data, args)), log=False)
        own_rate, size = temperature.temperature_learning_rate, args.contrastive_mini_batch_size
        specs = method.specs(module)
        settings = {
            "method": method.info.name,
            "dataset": dataset,
            "items": len(data),
            "machine": describe_machine() | {"torch": torch.__version__},
            "processes": args.world_size,
            "effective_batch_size": _step_size(recipe, args, len(data)),
            **specs,
            **method.origin(recipe, data),
            **{name: getattr(args, name) for name in DECISIVE},
            **({} if own_rate is None else {"temperature_learning_rate": own_rate}),
            **({} if size is None else {"contrastive_mini_batch_size": size}),
            "recipe": recipe.values(),
        }
        if checkpoint is not None:
            check_settings(checkpoint, settings, compared)
        contrastive = [each for each in module.modules() if isinstance(each, ContrastiveLoss)]
        begin({**specs, **({"layout": layout_of(contrastive[0])} if contrastive else {})})
        resumes = None if asked_for(resume_from_checkpoint) is None else AUTO
        evaluation = Run(output, True, evaluation_progress, given, resumes, resume_on_changed_data)
        trainer = MethodTrainer(
            method, recipe, module, data, args, settings, list(callbacks), evaluation, watchdog, temperature.log_record
        )
        trainer.fingerprint = fingerprint
        first = trainer.is_world_process_zero()
        if first:
            write_json(output / SETTINGS_FILE, settings)
        if checkpoint is None:
            method.prepare(recipe, module, data, evaluation)
        seconds = _train(trainer, checkpoint)
        trainer.check_weights()
        figures = trainer.evaluate(final=True) if evaluate else {}
        state = trainer.state
        losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
        results = {
            **settings,
            "steps": state.global_step,
            "epochs": state.epoch or 0.0,
            "loss": losses[-1] if losses else None,
            "temperature": trainer.temperatures.seen,
            "course": trainer.temperatures.course,
            "seconds_per_epoch": seconds,
            "evaluation": {name.removeprefix("eval_"): value for name, value in figures.items()},
            # sorted as in a checkpoint, so that resumed and uninterrupted runs write equal files
            "history": [dict(sorted(entry.items())) for entry in state.log_history if "train_runtime" not in entry],
        }
        if first:
            method.save(recipe, module, data, output)
            if method.opens:
                describe_folder(method, recipe, module, data, results, output, fingerprint)
            write_json(output / METRICS_FILE, results)
        return results


def _compare_data(
    checkpoint: Path, fingerprint: Fingerprint, args: MethodArguments, *, changed_allowed: bool
) -> frozenset[str]:
    """Returns the result of `check_data`, which one process of each machine computes and all of them raise."""
    outcome: Any = None
    if args.local_process_index == 0:
        try:
            outcome = check_data(checkpoint, fingerprint, changed_allowed=changed_allowed)
        except TempplugError as error:
            outcome = error
    outcomes = [outcome]
    if args.world_size > 1:
        outcomes *= args.world_size
        distributed.all_gather_object(outcomes, outcome)
    for outcome in outcomes:
        if isinstance(outcome, TempplugError):
            raise outcome
    compared: frozenset[str] = outcomes[0]
    return compared


def _step_size(recipe: Recipe, args: MethodArguments, items: int) -> int:
    whole = recipe.per_device_train_batch_size is None
    batch = items if whole else args.per_device_train_batch_size * args.world_size
    return batch * args.gradient_accumulation_steps


def _train(trainer: MethodTrainer, checkpoint: Path | None) -> float | None:
    """Executes the remaining steps and returns the seconds per epoch."""
    if trainer.args.num_train_epochs == 0 and trainer.args.max_steps <= 0:
        return None
    done = 0.0
    if checkpoint is not None:
        if trainer.load_finished(checkpoint):
            return None
        done = float(trainer.state.epoch or 0)
        trainer.args.eval_on_start = False  # it is already in the history
    try:
        output = trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except UnpicklingError as error:  # the Trainer itself reads parts of a checkpoint
        raise DataError(f"{checkpoint} cannot be read: {why_refused(error) or 'it is damaged'}.") from error
    trained = float(trainer.state.epoch or 0) - done
    return (output.metrics["train_runtime"] - trainer.untrained_seconds) / trained if trained else None
