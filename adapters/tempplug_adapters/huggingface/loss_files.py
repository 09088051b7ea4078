"""Writes and reads checkpoints with checksums and with the state of a loss outside the model.

The Trainer mixin and the Trainers of sentence-transformers share it. It is independent of what a loss computes.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.trainer_utils import get_last_checkpoint

import tempplug
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.huggingface.callback import Sealing
from tempplug_adapters.huggingface.parameters import (
    LossParametersCallback,
    add_parameter_groups,
    leave_out,
    sharded_by,
)
from tempplug_adapters.storage.manifest import MANIFEST, verify
from tempplug_adapters.storage.tensors import read_tensors, write_tensors

# a Trainer for type checkers; at run time, the mixin precedes one in the list of base classes
if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object

LOSS_FILE = "contrastive_loss.pt"
OPTIMIZER_FILE = "contrastive_loss_optimizer.pt"
"""State of `LossParametersCallback`, where it has an optimizer."""


def write_loss(loss: nn.Module, folder: str | Path) -> None:
    """Writes the state of a loss into a folder, created if missing; raises DataError if it cannot be written."""
    write_tensors(Path(folder) / LOSS_FILE, loss.state_dict())


def read_loss(loss: nn.Module, folder: str | Path) -> None:
    """Loads the state of a loss from a folder; a loss without state needs no file.

    Raises:
        DataError: the file is missing or damaged, or has the state of another strategy, objective or term on negatives.
    """
    path = Path(folder) / LOSS_FILE
    if not path.is_file():
        if not loss.state_dict():
            return
        raise DataError(
            f"{path} does not exist: the checkpoint was saved by a Trainer without tempplug's mixin, so it lacks the state of "
            "the loss."
        )
    try:
        content = read_tensors(path)
    except DataError as error:
        raise DataError(f"{path} is damaged: {error}") from error
    try:
        loss.load_state_dict(content)
    except (RuntimeError, TypeError) as error:
        kinds = tempplug.Strategy | tempplug.Objective | tempplug.NegativeTerm
        parts = [each for each in loss.modules() if isinstance(each, kinds)]
        names = ", ".join(dict.fromkeys(f"{each.kind} '{each.name}'" for each in parts))
        raise DataError(f"{path} does not fit {names}, so it was saved with others: resume with those of that run.") from error


def verify_checkpoint(checkpoint: str | Path) -> None:
    """Verifies the checksums of a checkpoint with a loss; raises DataError if a file differs from what was written."""
    folder = Path(checkpoint)
    if not (folder / MANIFEST).is_file() and not (folder / LOSS_FILE).is_file():
        return  # written by a Trainer without such a loss
    try:
        verify(folder)
    except DataError as error:
        raise DataError(f"checkpoint '{checkpoint}' is damaged: {error} Resume from the one before it.") from error


class LossFiles(Sealing):
    """Seals checkpoints, and restores the state of a loss together with the best model."""

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Verifies the best checkpoint before the Trainer loads it, directly after the log of the whole training."""
        if "train_runtime" in kwargs.get("logs", {}) and args.load_best_model_at_end and state.best_model_checkpoint:
            verify_checkpoint(state.best_model_checkpoint)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restores the loss from the best checkpoint if the model was restored from it."""
        if args.load_best_model_at_end and state.best_model_checkpoint:
            read_loss(self.loss, state.best_model_checkpoint)


class LossMixin(_Base):
    """Optimizes and saves the parameters of ``contrastive_loss``, which is outside the model, as a Trainer does for its model.

    Checkpoints have checksums of their files, which are verified before one is loaded.
    """

    contrastive_loss: nn.Module
    loss_files: LossFiles
    _resumed: str | None = None
    _initial_loss_state: dict[str, Any] | None = None

    def look_after(self, contrastive_loss: nn.Module, parameters: LossParametersCallback) -> None:
        """Registers the loss, and what steps its parameters; must be called at the end of the constructor."""
        self.contrastive_loss, self._parameters = contrastive_loss, parameters
        self._initial_loss_state = copy.deepcopy(contrastive_loss.state_dict())
        self.loss_files = LossFiles(contrastive_loss)
        self.callback_handler.callbacks.insert(0, self.loss_files)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model and the state of the loss in the same folder."""
        folder = output_dir or str(self.args.output_dir)
        if _internal_call:  # by the Trainer, for a checkpoint
            self.loss_files.begin(folder, writes=self.args.should_save)
        if self.args.should_save:
            # before the model, because saving it may upload the folder
            write_loss(self.contrastive_loss, folder)
            if _internal_call and (state := self._parameters.state_dict()):
                write_tensors(Path(folder) / OPTIMIZER_FILE, state)
        super().save_model(output_dir, _internal_call)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Trains as the Trainer does; raises DataError if the checkpoint is damaged or does not fit the loss."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True  # type: ignore[no-untyped-call]
        self._resumed = None if isinstance(resume_from_checkpoint, bool) else resume_from_checkpoint
        if self._resumed is not None:
            verify_checkpoint(self._resumed)
            if (state := Path(self._resumed) / OPTIMIZER_FILE).is_file():
                self._parameters.load_state_dict(read_tensors(state))
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """Returns the Trainer's optimizer, or the given one, with the parameters of the loss added.

        Raises:
            ConfigError: an optimizer was given together with a scheduler, and lacks parameters of the loss.
            DataError: the checkpoint to resume from does not fit the loss.
        """
        if self._resumed is not None:  # an error of the loss is clearer than one of the optimizer's state, read next
            read_loss(self.contrastive_loss, self._resumed)
        optimizer: torch.optim.Optimizer = super().create_optimizer(*args, **kwargs)
        if sharded_by():
            leave_out(optimizer, self.contrastive_loss)
            return optimizer
        if add_parameter_groups(optimizer, self.contrastive_loss, self.args.weight_decay) and self.lr_scheduler:
            raise ConfigError(
                "the optimizer passed with its scheduler lacks the parameters of the loss, and a scheduler cannot take them "
                "later: build the optimizer with loss.parameters() too, or pass (optimizer, None)."
            )
        return optimizer

    def call_model_init(self, trial: Any = None) -> Any:
        """Returns a new model and resets the loss, so that no trial starts with a learned temperature."""
        if self._initial_loss_state is not None:  # it is None when the Trainer's constructor calls this
            self.restart_loss(trial)
        return super().call_model_init(trial)

    def restart_loss(self, trial: Any) -> None:
        """Restores the initial state of the loss."""
        self.contrastive_loss.load_state_dict(self._initial_loss_state or {})
