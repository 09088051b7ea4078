"""A lock on a folder that one process at a time writes to; it ends with its process, however that ends."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tempplug.errors import ConfigError, DataError

LOCK_FILE = ".lock"
"""In the folder while it is locked: the number of the process, for the message of those that are refused."""


@contextmanager
def locked(folder: str | Path, name: str = "output_dir") -> Iterator[None]:
    """Keeps other processes from writing to a folder while the block runs; warns where the file system has no locks.

    The process may lock the folder again. Processes that it forks do not hold the lock.

    Args:
        folder: that is there.
        name: of the argument, for the message.

    Raises:
        ConfigError: another process, which is alive, has it.
        DataError: the disk is full.
    """
    file, told = Path(folder) / LOCK_FILE, f"{name}='{folder}'"
    lock = FileLock(file, blocking=False, thread_local=False, is_singleton=True)
    try:
        lock.acquire()
        file.write_text(str(os.getpid()))
    except Timeout as error:
        holder = file.read_text(errors="replace") or "another one"
        raise ConfigError(
            f"{told} is being written to by process {holder}: wait for its end, or choose another folder."
        ) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            file.unlink(missing_ok=True)
            lock.release()
            raise DataError(f"{told} cannot be written: {error.strerror}.") from error
        warnings.warn(f"{told} cannot be locked ({error.strerror}): make sure that no other run writes to it.", stacklevel=3)
    try:
        yield
    finally:
        if lock.lock_counter == 1:
            file.unlink(missing_ok=True)  # before it is released: a process that has opened it meanwhile then opens it anew
        lock.release()
