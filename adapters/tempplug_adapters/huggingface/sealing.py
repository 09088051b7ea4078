"""Writes the manifest of checksums of each checkpoint after the Trainer has written all other files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback

from tempplug_adapters.storage.files import explained
from tempplug_adapters.storage.manifest import MANIFEST, seal


class Sealing(TrainerCallback):
    """Seals each checkpoint when all processes have written their files, before other callbacks or an upload read it.

    It must be the first callback of a Trainer. ``Trainer.save_model``, which writes the first files of a checkpoint, must call
    `begin`.
    """

    folder: Path | None = None
    """The checkpoint that is being written."""

    def begin(self, folder: str | Path, *, writes: bool) -> None:
        """Begins a checkpoint, and removes an earlier manifest if this process ``writes`` files."""
        self.folder = Path(folder)
        if writes:
            (self.folder / MANIFEST).unlink(missing_ok=True)

    def on_push_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seals the checkpoint before an upload; called only in the first process, while the others wait in `on_save`."""
        self._seal(args.should_save)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seals the checkpoint; all processes wait until it is sealed."""
        self._seal(args.should_save)
        PartialState().wait_for_everyone()

    def _seal(self, writes: bool) -> None:
        if self.folder is not None:
            PartialState().wait_for_everyone()  # for the random states that other processes write
            if writes:
                seal(self.folder)
            self.folder = None

    @contextmanager
    def cleaning(self, *, writes: bool) -> Iterator[None]:
        """Removes a checkpoint that cannot be completed, and raises DataError with the reason."""
        try:
            yield
        except Exception:
            if self.folder is None:
                raise
            if writes:
                shutil.rmtree(self.folder, ignore_errors=True)
            with explained(self.folder):
                raise
