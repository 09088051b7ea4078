"""The manifest of a folder, with the length and the SHA-256 checksum of each file; and the lock of a folder for one process.

The manifest is written last. A folder with a manifest is therefore complete, and it is unchanged if all files match it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.files import explained, inside, to_disk, write_json

MANIFEST = "manifest.json"


def seal(folder: str | Path) -> None:
    """Writes the manifest of all files in a folder and below it, and flushes them to disk; raises `DataError` if it cannot."""
    root = Path(folder)
    with explained(root):
        (root / MANIFEST).unlink(missing_ok=True)
        inside = sorted(root.rglob("*"))
        for each in inside:
            to_disk(each)
        files = {
            each.relative_to(root).as_posix(): {"bytes": each.stat().st_size, "sha256": checksum(each)}
            for each in inside
            if each.is_file()
        }
    write_json(root / MANIFEST, {"files": files, "sha256": _of_listing(files)})


def verify(folder: str | Path, wanted: Collection[str] = (), *, thoroughly: bool = True) -> None:
    """Checks that a folder matches its manifest; files added later are ignored.

    Args:
        folder: a folder sealed by `seal`.
        wanted: names of files that the manifest must list.
        thoroughly: compare checksums; otherwise only lengths.

    Raises:
        DataError: it does not match; the message only gives the reason, to which the caller adds the folder.
    """
    root = Path(folder)
    try:
        content = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        files = content["files"]
        whole = content["sha256"] == _of_listing(files)
    except FileNotFoundError as error:
        raise DataError(f"it is incomplete: it has no {MANIFEST}.") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"its {MANIFEST} is damaged.") from error
    if not whole:
        raise DataError(f"its {MANIFEST} is damaged.")
    for name in dict.fromkeys((*wanted, *files)):
        file = inside(root, name, f"its {MANIFEST}")
        try:
            length = file.stat().st_size if file.is_file() and name in files else None
            damaged = thoroughly and length is not None and checksum(file) != files[name]["sha256"]
        except OSError as error:
            raise DataError(f"its {name} cannot be read: {error.strerror}.") from error
        if length is None:
            raise DataError(f"its {name} is missing.")
        if length != files[name]["bytes"]:
            raise DataError(f"its {name} has {length} bytes instead of {files[name]['bytes']}.")
        if damaged:
            raise DataError(f"its {name} is damaged: it is not as it was written.")


def checksum(file: Path) -> str:
    """Returns the SHA-256 checksum of a file, 64 hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _of_listing(files: Any) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


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
