"""A lock on a folder that one process at a time writes to; it ends with its process, however that ends."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tempplug.errors import ConfigError, DataError

if sys.platform != "win32":
    import fcntl

LOCK_FILE = ".lock"
"""In the folder while it is locked: the number of the process, for the message of those that are refused."""


@contextmanager
def locked(folder: str | Path, name: str = "output_dir") -> Iterator[None]:
    """Keeps other processes from writing to a folder while the block runs; where there are no such locks, it does nothing.

    The lock is the process's own: not of those that it forks, and not a bar to its own threads.

    Args:
        folder: that is there.
        name: of the argument, for the message.

    Raises:
        ConfigError: another process, which is alive, has it.
        DataError: the disk is full.
    """
    if sys.platform == "win32":
        yield
        return
    file = Path(folder) / LOCK_FILE
    descriptor = _locked(file, f"{name}='{folder}'")
    try:
        yield
    finally:
        if descriptor is not None:
            # removed before it is released: who has opened it meanwhile sees that it is no longer the folder's
            file.unlink(missing_ok=True)
            os.close(descriptor)


def _locked(file: Path, told: str) -> int | None:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same(descriptor, file):
                os.truncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
            os.close(descriptor)
        except (BlockingIOError, PermissionError) as error:
            holder = os.read(descriptor, 20).decode(errors="replace") or "another one"
            os.close(descriptor)
            raise ConfigError(
                f"{told} is being written to by process {holder}: wait for its end, or choose another folder."
            ) from error
        except OSError as error:
            os.close(descriptor)
            if error.errno == errno.ENOSPC:
                file.unlink(missing_ok=True)
                raise DataError(f"{told} cannot be written: {error.strerror}.") from error
            warnings.warn(
                f"{told} cannot be locked ({error.strerror}): make sure that no other run writes to it.", stacklevel=4
            )
            return None


def _same(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
