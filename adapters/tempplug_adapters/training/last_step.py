"""Saves the last whole step of a training without the other processes, when one of them has failed.

The parameters, which only the optimizer changes, are those of that step until the next one's gradients are complete. What else
the next step changes, such as running statistics and queues, is kept from before it.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from tempplug.errors import ConfigError
from tempplug_adapters.storage.manifest import MANIFEST, locked, seal
from tempplug_adapters.training.checkpoints import TRAINER_STATE, checkpoint_folder, checkpoints, remove_old

if TYPE_CHECKING:
    from tempplug_adapters.training.trainer import MethodTrainer


class LastStep(TrainerCallback):
    """Keeps what is needed to save the last step; does nothing in a single process or on a GPU.

    A GPU may be behind the program, waiting for the other processes, so that the step that it has reached is not known.

    Args:
        trainer: the trainer of the training.
    """

    def __init__(self, trainer: MethodTrainer) -> None:
        self.trainer = trainer
        self._whole = True
        self._begun = -1
        self._before: tuple[list[Any], dict[str, Any]] = ([], {})

    @property
    def active(self) -> bool:
        """Whether this process can save a step by itself."""
        return self.trainer.args.world_size > 1 and self.trainer.args.device.type == "cpu"

    def begin(self) -> None:
        """Keeps the sums of the losses, and the part of the module's state that the optimizer does not change."""
        step, module = self.trainer.state.global_step, self.trainer.module
        if self.active and self._begun != step:
            trained = {name for name, each in module.named_parameters(remove_duplicate=False) if each.requires_grad}
            others = {name: each for name, each in module.state_dict().items() if name not in trained}
            self._begun, self._before = step, (list(self.trainer.losses), deepcopy(others))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """From here to the end of the step, the state is not that of a whole step."""
        self._whole = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The step is whole."""
        self._whole = True

    def save(self) -> str:
        """Saves the last whole step and returns the name of the checkpoint; returns an empty string if that is not possible.

        It is not possible if another process may be writing checkpoints, or during a log or an evaluation, which the history
        would lack. The sum of the losses for the next log is that of this process.

        Raises:
            DataError: the checkpoint cannot be written.
            NonFiniteError: the loss is not finite.
        """
        trainer = self.trainer
        step, control, sealing = trainer.state.global_step, trainer.control, trainer.sealing
        sealing.folder = None  # a checkpoint that was being written is not the cause of the failure
        if not self.active or not self._whole or control.should_log or control.should_evaluate or step == 0:
            return ""
        others: dict[str, Any] = {}
        if self._begun == step:
            trainer.losses, others = self._before
        folder = Path(str(trainer.args.output_dir))
        target = checkpoint_folder(folder, step)
        try:
            with locked(folder), sealing.cleaning(writes=True):  # the first process has the lock as long as it lives
                whole = [int(each.name.rpartition("-")[2]) for each in checkpoints(folder) if (each / MANIFEST).exists()]
                if whole and whole[-1] >= step:
                    return checkpoint_folder(folder, whole[-1]).name
                own = torch.as_tensor(trainer.losses[0], dtype=torch.float32).reshape(1)
                trainer.write_module(target, own, others, writes=True)
                parts: dict[str, Any] = {"optimizer.pt": trainer.optimizer, "scheduler.pt": trainer.lr_scheduler}
                for name, part in parts.items():
                    torch.save(part.state_dict(), target / name)
                states: Any = trainer.state.stateful_callbacks
                for each in (*trainer.callback_handler.callbacks, control):
                    if isinstance(each, ExportableState):
                        states[type(each).__name__] = each.state()
                trainer.state.save_to_json(str(target / TRAINER_STATE))
                seal(target)
                sealing.folder = None
                remove_old(folder, sealing.limit, target, trainer.state.best_model_checkpoint)
        except ConfigError:
            return ""
        return target.name
