"""Checkpoints with the state of a loss that lives outside the model, and with checksums: how they are written and read.

Shared by the Trainer mixin and by what takes charge of losses in Trainers of sentence-transformers. It must not know what a
loss computes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

import tempplug
from tempplug.errors import DataError
from tempplug_adapters.storage.manifest import MANIFEST, seal, verify
from tempplug_adapters.storage.tensors import read_tensors, write_tensors

# to a type checker the mixin is a Trainer; at run time it stands before one
if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object

LOSS_FILE = "contrastive_loss.pt"


def write_loss(loss: nn.Module, folder: str | Path) -> None:
    """Writes the state of a loss into a folder, which is made where it lacks.

    Raises:
        DataError: it cannot be written.
    """
    write_tensors(Path(folder) / LOSS_FILE, loss.state_dict())


def read_loss(loss: nn.Module, folder: str | Path) -> None:
    """Gives a loss the state that a folder has of it; without a file, a loss that has no state stays as it is.

    Raises:
        DataError: the file lacks, is damaged, or has the state of another strategy or objective.
    """
    path = Path(folder) / LOSS_FILE
    if not path.is_file():
        if not loss.state_dict():
            return
        raise DataError(
            f"{path} does not exist: the checkpoint was not saved by a training that looked after the loss, "
            "so its state is unknown."
        )
    try:
        content = read_tensors(path)
    except DataError as error:
        raise DataError(f"{path} is damaged: {error}") from error
    try:
        loss.load_state_dict(content)
    except (RuntimeError, TypeError) as error:
        parts = [each for each in loss.modules() if isinstance(each, tempplug.Strategy | tempplug.Objective)]
        names = ", ".join(dict.fromkeys(f"{each.kind} '{each.name}'" for each in parts))
        raise DataError(f"{path} does not fit {names}, so it was saved with others: resume with those of that run.") from error


def verify_checkpoint(checkpoint: str | Path) -> None:
    """Makes sure that a checkpoint is as it was written, where it is one with a loss.

    Raises:
        DataError: it is not.
    """
    folder = Path(checkpoint)
    if not (folder / MANIFEST).is_file() and not (folder / LOSS_FILE).is_file():
        return  # of a Trainer that knows no such loss
    try:
        verify(folder)
    except DataError as error:
        raise DataError(f"checkpoint '{checkpoint}' is damaged: {error} Resume from the one before it.") from error


class LossFilesMixin(_Base):
    """Saves the state of ``contrastive_loss`` beside each model that a Trainer saves, and brings it back with the model.

    Checkpoints end with the checksums of their files, which are compared before one is loaded.
    """

    contrastive_loss: nn.Module

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model, and beside it the state of the loss."""
        if self.args.should_save:
            # before the model, because saving that may upload the folder
            write_loss(self.contrastive_loss, output_dir or str(self.args.output_dir))
        super().save_model(output_dir, _internal_call)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Writes a checkpoint, and last of all the checksums of its files."""
        folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if self.args.should_save:
            (folder / MANIFEST).unlink(missing_ok=True)
        super()._save_checkpoint(model, trial)
        if not self.args.push_to_hub:
            self._seal(folder)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        self._seal(checkpoint_folder)
        super()._push_from_checkpoint(checkpoint_folder)

    def _seal(self, folder: str | Path) -> None:
        self.accelerator.wait_for_everyone()  # the random states of other processes are part of it
        if self.args.should_save:
            seal(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any) -> None:
        verify_checkpoint(resume_from_checkpoint)
        super()._load_from_checkpoint(resume_from_checkpoint, *args)
        read_loss(self.contrastive_loss, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        verify_checkpoint(str(self.state.best_model_checkpoint))
        super()._load_best_model()
        read_loss(self.contrastive_loss, str(self.state.best_model_checkpoint))
