"""A lock that lets only one process write to a folder; it is released when the process ends."""

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
    """Locks a folder against other processes during the block; warns if the file system does not support locks.

    The lock is reentrant within the process. Forked processes do not hold it.

    Args:
        folder: an existing folder.
        name: name of the argument, for the message.

    Raises:
        ConfigError: another running process holds the lock.
        DataError: the disk is full.
    """
    file, told = Path(folder) / LOCK_FILE, f"{name}='{folder}'"
    lock = FileLock(file, blocking=False, thread_local=False, is_singleton=True)
    try:
        lock.acquire()
        file.write_text(str(os.getpid()))
    except Timeout as error:
        holder = file.read_text(errors="replace") or "another one"
        raise ConfigError(f"{told} is being written to by process {holder}: wait for its end or use another folder.") from error
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
            file.unlink(missing_ok=True)  # before the release, so that waiting processes open a new file
        lock.release()
