"""Checkpoints of a training loop: everything that the next epoch depends on, in one file that is always whole.

Random states belong to it: a resumed run draws what the killed one would have drawn, so both end with the same weights, bit
for bit. This module must not know any model.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError, TempplugError
from tempplug_adapters.training.files import make_folder, one_line, read_tensors, write_file

CHECKPOINT = "checkpoint.pt"
"""Name of the checkpoint in the output folder of a training command."""

_EPOCH = "epoch"
_RANDOM = "random_states"


class Settings:
    """What a checkpoint was trained with; given to both functions, it keeps a run from going on with other settings.

    Name it first: a wrong setting is then reported before the weights that it made unfit.

    Args:
        values: numbers, words, true, false or None by name.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)

    def state_dict(self) -> dict[str, Any]:
        """Returns the settings."""
        return self.values

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Makes sure that they are those of the checkpoint.

        Raises:
            ConfigError: one differs; the message names it with both values.
        """
        for name in (*self.values, *(state_dict.keys() - self.values.keys())):
            ours, theirs = self.values.get(name), state_dict.get(name)
            if ours != theirs:
                raise ConfigError(
                    f"{name}={ours} differs from the checkpoint's {theirs}: pass the settings that it was trained with, "
                    "or choose another output folder."
                )


def resume_point(output_dir: str | Path, asked: str | None) -> Path:
    """Returns the checkpoint to load; where it does not exist, the run starts from the beginning.

    To be asked before any work: the output folder is made, so that a run does not end where it should be written.

    Args:
        output_dir: of the run.
        asked: ``--resume-from-checkpoint``: a checkpoint file, ``auto`` for that of the output folder where it has one, None
            for a new run.

    Raises:
        ConfigError: a new run, but the folder holds the checkpoint of an earlier one.
        DataError: the file asked for does not exist, or the folder cannot be written.
    """
    make_folder(output_dir)
    own = Path(output_dir) / CHECKPOINT
    if asked is None and own.exists():
        raise ConfigError(
            f"output_dir='{output_dir}' holds the checkpoint of an earlier run: pass --resume-from-checkpoint auto to go on "
            "with it, or choose another folder."
        )
    if asked is None or asked == "auto":
        return own
    if not Path(asked).is_file():
        raise DataError(f"resume_from_checkpoint='{asked}' does not exist or is not a file.")
    return Path(asked)


def save_checkpoint(path: str | Path, epoch: int, **stateful: Any) -> None:
    """Writes the epoch, the states of ``stateful`` and the random states of PyTorch, NumPy and Python.

    The file is replaced only when the new one is complete: a run killed at any moment leaves the old or the new checkpoint.

    Args:
        path: file to write; its folder is made where it lacks.
        epoch: epochs done: the number of the epoch to continue with, counted from 0.
        **stateful: by name, whatever has ``state_dict`` and ``load_state_dict`` (modules, optimizers, `Settings`), and
            generators (`torch.Generator`).

    Raises:
        DataError: it cannot be written; the old checkpoint stays.
    """
    states = {name: _state(item) for name, item in stateful.items()}
    content = {_EPOCH: epoch, _RANDOM: _random_states(), **states}
    write_file(path, lambda temporary: torch.save(content, temporary))


def load_checkpoint(path: str | Path, **stateful: Any) -> int:
    """Restores what `save_checkpoint` wrote and returns the number of epochs that were done, 0 where there is no file.

    Args:
        path: file to read.
        **stateful: the same names as at saving; each is restored in place, in this order. Tensors are read to the CPU, from
            where ``load_state_dict`` takes them to the device of their module.

    Raises:
        DataError: the file is damaged, or holds the state of something else; the message names it.
        ConfigError: it was trained with other `Settings`.
    """
    file = Path(path)
    if not file.exists():
        return 0
    try:
        checkpoint = read_tensors(file)
    except DataError as error:
        raise DataError(_damaged(file, str(error))) from error
    try:
        expected = {_EPOCH, _RANDOM, *stateful}
        if not isinstance(checkpoint, dict) or set(checkpoint) != expected:
            raise DataError(f"{file} is no checkpoint of this training: it must hold {', '.join(sorted(expected))}.")
        for name, item in stateful.items():
            _restore(item, checkpoint[name])
        _set_random_states(checkpoint[_RANDOM])
        return int(checkpoint[_EPOCH])
    except TempplugError:
        raise
    # What the receivers raise where the state is of another model.
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise DataError(_damaged(file, one_line(error, lines=2))) from error


def weights_checksum(state: Mapping[str, Tensor]) -> str:
    """Returns a word that is another one where a name, a shape, a type or a bit of the weights is: 16 hexadecimal digits.

    Args:
        state: of a module, ``state_dict()``; on which device it is does not matter.
    """
    found = hashlib.sha256()
    for name, values in state.items():
        plain = values.detach().cpu().contiguous()
        found.update(f"{name} {plain.dtype} {tuple(plain.shape)} ".encode())
        found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def _damaged(file: Path, reason: str) -> str:
    return (
        f"{file} is damaged or no checkpoint of this training; delete it to start from the beginning. Reading it said: {reason}"
    )


def _state(item: Any) -> Any:
    return item.get_state() if isinstance(item, torch.Generator) else item.state_dict()


def _restore(item: Any, state: Any) -> None:
    if isinstance(item, torch.Generator):
        item.set_state(state)
    else:
        item.load_state_dict(state)


def _random_states() -> dict[str, Any]:
    # Only types that `weights_only` loading knows: NumPy's array of keys becomes a tensor.
    numpy = dict(np.random.get_state(legacy=False))
    inner = numpy.pop("state")
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": {**numpy, "key": torch.from_numpy(inner["key"].astype(np.int64)), "pos": inner["pos"]},
        "python": random.getstate(),
    }


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available():
        # the machine may have had more of them, or fewer
        for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
            torch.cuda.set_rng_state(state, device)
    numpy = dict(states["numpy"])
    inner = {"key": numpy.pop("key").numpy().astype(np.uint32), "pos": numpy.pop("pos")}
    np.random.set_state({**numpy, "state": inner})
    random.setstate(states["python"])
