"""A run that this process alone is at work on, from its lock to its file. It must not know where the run is executed."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.files import remove_leftovers
from tempplug_adapters.storage.lock import locked
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import Failure, Result, difference_from, read_result, write


@dataclass(frozen=True, eq=False)
class Claim:
    """A run that no other process takes until it is released.

    Attributes:
        run: what is to be executed.
        output: folder of results.
    """

    run: Run
    output: Path
    _lock: ExitStack = field(repr=False)

    @property
    def work_dir(self) -> Path:
        """The folder for checkpoints; after a failure it stays."""
        return self.run.work_dir(self.output)

    def settle(self, record: Result | Failure) -> None:
        """Writes what came of the run, and releases it."""
        write(self.run, self.output, record)
        if isinstance(record, Result):
            shutil.rmtree(self.work_dir, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Leaves the run to whoever takes it."""
        self._lock.close()


def claim(run: Run, output: Path) -> Claim | Result | None:
    """Takes a run, so that other processes leave it alone.

    Args:
        run: to be executed.
        output: folder of results.

    Returns:
        The claim; the result where another process has finished it meanwhile; None where one is at work on it.
    """
    work_dir = run.work_dir(output)
    work_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as lock:
        try:
            lock.enter_context(locked(work_dir))
        except (ConfigError, FileNotFoundError):  # in work, or removed after it in this very moment
            return None
        if (finished := _finished(run, output)) is not None:
            shutil.rmtree(work_dir, ignore_errors=True)
            return finished
        remove_leftovers(run.path(output).parent)
        run.path(output).unlink(missing_ok=True)  # corrupt or of another experiment, or it would not be run
        return Claim(run, output, lock.pop_all())


def _finished(run: Run, output: Path) -> Result | None:
    """Returns the result of this very experiment where it is on disk, whole."""
    try:
        result = read_result(run.path(output)) if run.path(output).exists() else None
    except DataError:
        return None
    return None if result is None or difference_from(run, result) else result
