"""Checkpoints of a Trainer that end with checksums: the Trainer writes its folder, and the manifest is written last of all."""

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
    """Seals each checkpoint when every process has written its files, before other callbacks or an upload see it.

    It is the first callback of a Trainer. ``Trainer.save_model``, which comes before any other file of a checkpoint, calls
    `begin`.
    """

    folder: Path | None = None
    """The checkpoint that is being written."""

    def begin(self, folder: str | Path, *, writes: bool) -> None:
        """Begins a checkpoint, which this process ``writes`` or not; one of that name is unfinished from now on."""
        self.folder = Path(folder)
        if writes:
            (self.folder / MANIFEST).unlink(missing_ok=True)

    def on_push_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seals what is uploaded; this is called in the first process alone, and the others wait in `on_save`."""
        self._seal(args.should_save)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seals the checkpoint; no process goes on before it is sealed."""
        self._seal(args.should_save)
        PartialState().wait_for_everyone()

    def _seal(self, writes: bool) -> None:
        if self.folder is not None:
            PartialState().wait_for_everyone()  # the random states of other processes are part of it
            if writes:
                seal(self.folder)
            self.folder = None

    @contextmanager
    def cleaning(self, *, writes: bool) -> Iterator[None]:
        """Removes a checkpoint that cannot be written to its end, and raises DataError with the reason."""
        try:
            yield
        except Exception:
            if self.folder is None:
                raise
            if writes:
                shutil.rmtree(self.folder, ignore_errors=True)
            with explained(self.folder):
                raise
