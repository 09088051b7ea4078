"""What a training logs, on the disk while it runs: ``log.jsonl`` in its folder, which ``tempplug watch`` reads.

The first line says how many steps there will be, each other line is one log, the last says that the training has ended. A run
that goes on writes anew what its checkpoint knows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tempplug_adapters.storage.files import explained, write_text

LOG_FILE = "log.jsonl"


class LogFile(TrainerCallback):
    """Writes the logs of a Trainer to its ``output_dir``, on the main process."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins the file with what the training has logged before it was interrupted."""
        if state.is_world_process_zero:
            lines = [{"max_steps": state.max_steps}, *state.log_history]
            write_text(Path(args.output_dir, LOG_FILE), "".join(f"{json.dumps(each)}\n" for each in lines))

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Adds the log that the Trainer has just noted."""
        self._add(args, state, state.log_history[-1] if state.log_history else {})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Says that no step will follow."""
        self._add(args, state, {"step": state.global_step, "ended": True})

    @staticmethod
    def _add(args: Any, state: Any, entry: dict[str, Any]) -> None:
        file = Path(args.output_dir, LOG_FILE)
        # what is logged outside of a training, as by an evaluation alone, begins no file
        if state.is_world_process_zero and file.is_file():
            with explained(file), file.open("a", encoding="utf-8") as lines:
                lines.write(f"{json.dumps(entry)}\n")
