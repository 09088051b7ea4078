"""Where an interrupted run goes on: the newest checkpoint that was written to its end."""

from __future__ import annotations

from pathlib import Path

from tempplug.errors import ConfigError, DataError

# The Trainer writes these after the weights, the state last of all.
COMPLETE = ("optimizer.pt", "scheduler.pt", "trainer_state.json")


def checkpoints(output_dir: str | Path) -> list[Path]:
    """Returns the complete checkpoints of a folder, oldest first; one that was being written when a run died is left out."""
    found = [each for each in Path(output_dir).glob("checkpoint-*") if each.name.removeprefix("checkpoint-").isdigit()]
    complete = [each for each in found if all((each / name).is_file() for name in COMPLETE)]
    return sorted(complete, key=lambda each: int(each.name.removeprefix("checkpoint-")))


def resume_point(output_dir: str | Path, asked: str | None) -> str | None:
    """Returns the checkpoint to resume from, or None for a new run.

    Args:
        output_dir: of the run.
        asked: ``--resume-from-checkpoint``: a folder, ``auto`` (or ``true``) for the newest, None for a new run.

    Raises:
        ConfigError: a new run, but the folder holds the checkpoints of an earlier one.
        DataError: the folder asked for is no complete checkpoint.
    """
    present = checkpoints(output_dir)
    if asked is None or asked.lower() == "false":
        if present:
            raise ConfigError(
                f"output_dir='{output_dir}' holds {present[-1].name} of an earlier run: pass --resume-from-checkpoint auto "
                "to go on with it, or choose another folder."
            )
        return None
    if asked.lower() in ("auto", "true"):
        return str(present[-1]) if present else None
    if not all((Path(asked) / name).is_file() for name in COMPLETE):
        raise DataError(f"resume_from_checkpoint='{asked}' is not a complete checkpoint: it lacks {' or '.join(COMPLETE)}.")
    return asked
