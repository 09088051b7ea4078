"""Writes the logs of a running training to ``log.jsonl`` in its folder, which ``tempplug watch`` reads.

The first line has the number of steps, every further line is one log, and the last line marks the end of the training. A
resumed run rewrites the logs of its checkpoint.
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
        """Starts the file with the logs from before an interruption."""
        if state.is_world_process_zero:
            lines = [{"max_steps": state.max_steps}, *state.log_history]
            write_text(Path(args.output_dir, LOG_FILE), "".join(f"{json.dumps(each)}\n" for each in lines))

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Appends the newest log."""
        self._add(args, state, state.log_history[-1] if state.log_history else {})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Appends the mark of the end."""
        self._add(args, state, {"step": state.global_step, "ended": True})

    @staticmethod
    def _add(args: Any, state: Any, entry: dict[str, Any]) -> None:
        file = Path(args.output_dir, LOG_FILE)
        # logs outside of a training, such as those of a separate evaluation, do not start a file
        if state.is_world_process_zero and file.is_file():
            with explained(file), file.open("a", encoding="utf-8") as lines:
                lines.write(f"{json.dumps(entry)}\n")
