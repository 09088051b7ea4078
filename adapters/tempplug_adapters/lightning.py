"""Lightning: a callback that passes the progress to losses and logs their records; `optimizer_groups` for the optimizer.

A LightningModule has its `tempplug.ContrastiveLoss` as a submodule. The callback works with ``lightning`` and
``pytorch_lightning``: with those that are imported, otherwise with the first that is installed.
"""

from __future__ import annotations

import importlib
import logging
import math
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import nn

import tempplug
from tempplug.errors import ConfigError, MissingDependencyError, install_command
from tempplug.plugins import registry
from tempplug.strategies.schedule import Schedule
from tempplug_adapters.announcement import announce
from tempplug_adapters.data_parallel import use_mesh
from tempplug_adapters.measurements import check_record, logged, numbers_of
from tempplug_adapters.parameter_groups import optimizer_groups

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from lightning.pytorch import Callback as _Callback
else:
    _SPELLINGS = ("lightning.pytorch", "pytorch_lightning")

    def _callbacks() -> tuple[type, ...]:
        loaded = [name for name in _SPELLINGS if name in sys.modules]
        installed = [name for name in _SPELLINGS if loaded or find_spec(name.partition(".")[0])]
        if not installed:
            raise MissingDependencyError(f"Lightning is not installed: {install_command('lightning')}.")
        return tuple(importlib.import_module(name).Callback for name in loaded or installed[:1])

    # if both packages are imported, the callback has both bases: a Trainer accepts only callbacks of its own package
    _Callback = type("_Callback", _callbacks(), {})


class TemperatureCallback(_Callback):
    """Passes the training progress to every loss in a LightningModule, and logs statistics of the last batch.

    Progress is the number of epochs done, fractional, set once per optimizer step, so that accumulated micro-batches share it.
    Numbers of `tempplug.StepRecord`, with ``temperature_mean`` as ``temperature``, are logged at the Trainer's
    ``log_every_n_steps`` and after the last batch of an epoch, prefixed with the name of the loss if there are several; logging
    synchronises with the device. The records are also passed to the ``tempplug_log`` plugins.

    Args:
        log_record: ``brief``: temperature, similarities, gradient scale, and what terms on negatives leave out; ``full``: all
            that is not constant.

    Raises:
        UnknownNameError: ``log_record`` is neither.
    """

    def __init__(self, log_record: str = "brief") -> None:
        super().__init__()
        self.log_record = check_record(log_record)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Sets the initial progress, which Lightning's sanity check needs, and the group of a ModelParallelStrategy."""
        use_mesh(pl_module, getattr(trainer.strategy, "device_mesh", None), "data_parallel")
        _tell(pl_module, trainer, 0)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Sets the length of the training in schedules, warns of longer schedules, and prints each loss's configuration."""
        (epochs, steps), losses = _length(trainer), losses_of(pl_module)
        for name, loss in losses:
            loss.set_length(epochs)
            announce(loss, name if len(losses) > 1 else "")
            missed = loss.strategy.missed(epochs, steps) if isinstance(loss.strategy, Schedule) else ""
            if missed and trainer.is_global_zero:
                logger.warning(missed)
        _tell(pl_module, trainer, 0)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Updates the progress."""
        _tell(pl_module, trainer, batch_idx)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Logs the records if a log is due."""
        # a manual optimisation with several optimizers counts each of their steps
        step, every = trainer.global_step // max(1, len(trainer.optimizers)), trainer.log_every_n_steps
        stepped = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if not (stepped and every and step % every == 0) and not trainer.is_last_batch:
            return
        losses = losses_of(pl_module)
        for name, loss in losses:
            try:
                record = loss.record
            except ConfigError:  # not every step need call every loss
                continue
            if trainer.is_global_zero:
                registry().log(record)
            numbers = logged(numbers_of(record), self.log_record)
            prefix = f"{name}/" if len(losses) > 1 else ""
            pl_module.log_dict({f"{prefix}{key}": value for key, value in numbers.items()}, on_step=True, on_epoch=False)


def losses_of(module: nn.Module) -> list[tuple[str, tempplug.ContrastiveLoss]]:
    """Returns the losses in a module with their names; raises ConfigError if there is none."""
    found = [(name, each) for name, each in module.named_modules() if isinstance(each, tempplug.ContrastiveLoss)]
    if not found:
        raise ConfigError(
            f"{type(module).__name__} holds no tempplug.ContrastiveLoss: make it an attribute of the module, "
            "self.loss_fn = tempplug.ContrastiveLoss(...)."
        )
    return found


def _tell(module: nn.Module, trainer: Any, batch: int) -> None:
    batches = trainer.num_training_batches  # infinite while they are not counted yet, or cannot be
    done = batch - batch % trainer.accumulate_grad_batches
    epoch = trainer.current_epoch + (done / batches if batches else 0)
    for _, loss in losses_of(module):
        loss.set_progress(epoch=epoch, step=trainer.global_step)


def _length(trainer: Any) -> tuple[float, int]:
    """Returns the epochs and optimizer steps of a training, 0 if unlimited; a stream of unknown length is one epoch."""
    batches = trainer.num_training_batches
    counted = math.isfinite(batches)
    inside = max(1, math.ceil(batches / trainer.accumulate_grad_batches) if counted else trainer.max_steps)
    epochs = [float(trainer.max_epochs)] if (trainer.max_epochs or 0) > 0 else []
    if trainer.max_steps > 0:
        epochs.append(trainer.max_steps / inside)
    length = min(epochs, default=0.0)
    return length, round(length * inside) if counted or trainer.max_steps > 0 else 0


__all__ = ["TemperatureCallback", "losses_of", "optimizer_groups"]
