"""Finds the checkpoint to resume from: the newest undamaged one of a run with the same settings.

A checkpoint is a folder with a manifest of checksums, which is written last and verified before any file is used. This module
must not depend on any method.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.files import NotWrittenError, make_folder, one_line, remove_leftovers, temporary_name
from tempplug_adapters.storage.fingerprint import Fingerprint, listed
from tempplug_adapters.storage.manifest import MANIFEST, locked, verify
from tempplug_adapters.training.batches import batches_of_epoch
from tempplug_adapters.training.termination import first_process

STATE_FILE = "pytorch_model.bin"
"""In a checkpoint: the state of the module with its loss, under the name that the Trainer expects."""
SETTINGS_FILE = "settings.json"
"""In a checkpoint and in the output folder: the settings of the run."""
DATA_FILE = "data.json"
"""In a checkpoint: the fingerprint of the data, where these were read from files."""
TRAINER_STATE = "trainer_state.json"
COMPLETE = (STATE_FILE, SETTINGS_FILE, "optimizer.pt", "scheduler.pt", TRAINER_STATE)
"""Files that are needed to resume a training."""
AUTO = "auto"
_PREFIX = "checkpoint-"


def checkpoint_folder(output_dir: str | Path, step: int) -> Path:
    """Returns the folder of the checkpoint of a step."""
    return Path(output_dir, f"{_PREFIX}{step}")


def checkpoints(output_dir: str | Path) -> list[Path]:
    """Returns the checkpoints of a folder in order of steps."""
    found = [each for each in Path(output_dir).glob(f"{_PREFIX}*") if each.name.removeprefix(_PREFIX).isdigit()]
    return sorted(found, key=lambda each: int(each.name.removeprefix(_PREFIX)))


@contextmanager
def output_folder(output_dir: str | Path) -> Iterator[Path]:
    """Creates and locks the output folder of a run during the block; removes temporary files of killed runs.

    Raises:
        ConfigError: another run is writing to it.
        DataError: it cannot be written.
    """
    folder = make_folder(output_dir)
    if not first_process():
        yield folder
        return
    with locked(folder):
        remove_leftovers(folder)
        for each in checkpoints(folder):
            if (each / SETTINGS_FILE).is_file() and not (each / MANIFEST).exists():  # the run was killed while writing it
                shutil.rmtree(each)
        yield folder


@contextmanager
def going_on(output_dir: Path) -> Iterator[None]:
    """Adds how to go on to the message of a file that cannot be written during the block."""
    try:
        yield
    except NotWrittenError as error:
        whole = [folder.name for folder in checkpoints(output_dir) if (folder / MANIFEST).exists()]
        then = f"with --resume-from-checkpoint auto goes on from {whole[-1]}" if whole else "begins anew"
        raise DataError(f"{error} When it can be written again, the same command {then}.") from error


def asked_for(resume_from_checkpoint: str | None) -> str | None:
    """Parses ``--resume-from-checkpoint``: a folder, `AUTO` (also for ``true``), or None (also for ``false``)."""
    words = {"false": None, AUTO: AUTO, "true": AUTO}
    return words.get((resume_from_checkpoint or "false").lower(), resume_from_checkpoint)


def check_start(output_dir: str | Path, resume_from_checkpoint: str | None) -> None:
    """Quickly checks that a run may start in a folder, or resume from the given checkpoint, before any other work.

    Args:
        output_dir: output folder of the run.
        resume_from_checkpoint: see `asked_for`.

    Raises:
        ConfigError: the run is new, but the folder contains checkpoints of an earlier one.
        DataError: the given checkpoint is incomplete.
    """
    asked, present = asked_for(resume_from_checkpoint), checkpoints(output_dir)
    if asked is None and present:
        raise ConfigError(
            f"output_dir='{output_dir}' holds {present[-1].name} of an earlier run: pass --resume-from-checkpoint auto "
            "to go on with it, or choose another folder."
        )
    if asked not in (None, AUTO):
        _named(asked, thoroughly=False)


def resume_point(output_dir: str | Path, resume_from_checkpoint: str | None) -> Path | None:
    """Returns the checkpoint to resume from, verified byte by byte, or None for a new run.

    Args:
        output_dir: output folder of the run.
        resume_from_checkpoint: see `asked_for`. `AUTO` selects the newest checkpoint, if any; a damaged one is renamed with a
            warning, and the previous one is tried.

    Raises:
        DataError: the given checkpoint is damaged.
    """
    asked = asked_for(resume_from_checkpoint)
    if asked != AUTO:
        return None if asked is None else _named(asked)
    damaged: dict[Path, DataError] = {}
    for each in reversed(checkpoints(output_dir)):
        try:
            _check(each)
        except DataError as error:
            damaged[each] = error
        else:
            _set_aside(damaged, f"goes on from {each.name}")
            return each
    _set_aside(damaged, "begins anew")
    return None


def _named(asked: str, *, thoroughly: bool = True) -> Path:
    try:
        _check(Path(asked), thoroughly=thoroughly)
    except DataError as error:
        raise DataError(
            f"resume_from_checkpoint='{asked}' is not a complete checkpoint: {error} With auto, a training goes on from the "
            "newest one that is whole."
        ) from error
    return Path(asked)


def _check(folder: Path, *, thoroughly: bool = True) -> None:
    verify(folder, COMPLETE, thoroughly=thoroughly)
    if not thoroughly:
        return
    try:
        best = json.loads((folder / TRAINER_STATE).read_text(encoding="utf-8"))["best_global_step"]
        _flat(json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"its {TRAINER_STATE} or {SETTINGS_FILE} is invalid: {one_line(error)}.") from error
    # the best checkpoint is loaded at the end of the training
    if best and (other := checkpoint_folder(folder.parent, best)) != folder and other.is_dir():
        try:
            verify(other, COMPLETE)
        except DataError as error:
            raise DataError(f"the best checkpoint, {other.name}, is damaged: {error}") from error


def _set_aside(damaged: Mapping[Path, DataError], then: str) -> None:
    for folder, reason in damaged.items() if first_process() else ():
        aside = folder.with_name(f"damaged-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        folder.replace(aside)
        warnings.warn(f"{folder} is damaged: {reason} It is now {aside.name}, and the training {then}.", stacklevel=4)


def remove_old(output_dir: str | Path, limit: int | None, newest: Path, best: str | None) -> None:
    """Removes the oldest checkpoints until ``limit`` are left, except the newest and the best; None removes none."""
    found = checkpoints(output_dir)
    spare = [each for each in found if each != newest and str(each) != best]
    for each in spare[: 0 if limit is None else max(0, len(found) - limit)]:
        hidden = temporary_name(each)  # first, so that a partly removed folder is not a checkpoint
        each.replace(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def find_best(state: Any, output_dir: str | Path) -> None:
    """Updates the path of the best checkpoint in a Trainer's state from its step, because the folder may have been moved."""
    if state.best_global_step:
        best = checkpoint_folder(output_dir, state.best_global_step)
        state.best_model_checkpoint = str(best) if best.is_dir() else None


def batch_of_process(checkpoint: Path, processes: int, size: int | None, items: int, *, drop_last: bool) -> int | None:
    """Returns how many items of a step a process gets, so that all together train on the batches of a checkpoint.

    Args:
        checkpoint: folder returned by `resume_point`.
        processes: number of processes that resume; another one than before gets larger or smaller shares.
        size: of the settings; None for methods whose batch is the whole data set.
        items: number of items of the data.
        drop_last: whether an incomplete last batch of an epoch is left out; else more processes may have to merge it.

    Raises:
        ConfigError: the batch cannot be divided among so many; the message gives the numbers that can share it.
    """
    stored = json.loads((checkpoint / SETTINGS_FILE).read_text(encoding="utf-8"))
    before, share = stored.get("processes"), stored["recipe"].get("per_device_train_batch_size")
    if size is None or share is None or before == processes:
        return size
    together = int(before * share)
    batches = partial(batches_of_epoch, items, together, drop_last=drop_last)
    numbers = [each for each in range(1, together // 2 + 1) if together % each == 0 and batches(each) == batches(before)]
    if processes not in numbers:
        fitting = ", ".join(map(str, numbers))
        raise ConfigError(
            f"processes={processes} cannot share the batches of {together} items that {checkpoint.name} was trained with: "
            f"start one of these numbers of processes: {fitting}."
        )
    if first_process():
        warnings.warn(
            f"{checkpoint.name} was written by {before} processes with {share} items each in a step. The training goes on with "
            f"{processes} and {together // processes} items each: the same batches.",
            stacklevel=3,
        )
    return together // processes


def check_data(checkpoint: Path, fingerprint: Fingerprint, *, changed_allowed: bool) -> frozenset[str]:
    """Compares the data with those that a checkpoint was trained on, and returns the names of the settings that name them.

    Args:
        checkpoint: folder returned by `resume_point`.
        fingerprint: of the data of the resuming run.
        changed_allowed: warn of changes instead of raising.

    Raises:
        ConfigError: the data have changed; the message names the files.
        DataError: the stored fingerprint is invalid.
    """
    file = checkpoint / DATA_FILE
    if not file.is_file():
        _warn(
            f"{checkpoint.name} has no fingerprint of its data, because an earlier version wrote it or they were given as "
            "objects. The training goes on without comparing them."
        )
        return frozenset()
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        changes = fingerprint.changes(stored)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{file} is invalid: {one_line(error)}.") from error
    told = f"the data have changed since {checkpoint.name} was written: {listed(changes)}."
    if changes and not changed_allowed:
        raise ConfigError(
            f"{told} Restore them, choose another output folder, or pass --resume-on-changed-data to go on with these data."
        )
    if changes:
        _warn(f"{told} The training goes on with these data.")
    return frozenset(name.partition("/")[0].partition(" ")[0] for name in stored["files"])


def _warn(message: str) -> None:
    if first_process():
        warnings.warn(message, stacklevel=3)


def check_settings(checkpoint: Path, settings: Mapping[str, Any], compared: Collection[str] = ()) -> None:
    """Checks that a checkpoint has the same settings; warns if it is from another machine, which prevents bitwise equal
    results.

    Args:
        checkpoint: folder returned by `resume_point`.
        settings: settings of the resuming run as JSON data; its ``recipe`` is a mapping by name.
        compared: settings that name files whose contents `check_data` has compared; these may have been moved.

    Raises:
        ConfigError: a setting differs; the message gives its name and both values.
    """
    stored, given = json.loads((checkpoint / SETTINGS_FILE).read_text(encoding="utf-8")), json.loads(json.dumps(settings))
    before, now = stored.pop("machine", {}), given.pop("machine", {})
    theirs, ours = _flat(stored), _flat(given)
    if theirs.pop("processes", 1) != ours.pop("processes", 1):  # see `batch_of_process`
        ours["per_device_train_batch_size"] = theirs.get("per_device_train_batch_size")
    moved = {name for name in compared if name in ours and name in theirs and Path(str(ours[name])).exists()}
    for name in (*ours, *(theirs.keys() - ours.keys())):
        if ours.get(name) != theirs.get(name) and name not in moved:
            raise ConfigError(
                f"{name}={ours.get(name)} differs from the checkpoint's {theirs.get(name)}: pass the settings that it was "
                "trained with, or choose another output folder."
            )
    changed = [name for name in now if before.get(name) != now[name]] if first_process() else []
    if changed:
        said = ", ".join(f"{name} {now[name]} (was {before.get(name)})" for name in changed)
        warnings.warn(
            f"{checkpoint.name} was written on another machine: {said}. The training goes on with other last digits.",
            stacklevel=2,
        )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    follows = ("recipe", "effective_batch_size")  # the second is raised from another error, which gives the cause
    return {**{name: value for name, value in settings.items() if name not in follows}, **settings["recipe"]}


def weights_checksum(state: Mapping[str, Tensor]) -> str:
    """Returns a checksum of 16 hexadecimal digits over the names, shapes, types and values of a module's weights."""
    found = hashlib.sha256()
    for name, values in state.items():
        plain = values.detach().cpu().contiguous()
        found.update(f"{name} {plain.dtype} {tuple(plain.shape)} ".encode())
        found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]
