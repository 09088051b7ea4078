"""Files fetched from the web, whose checksums are known and compared."""

from __future__ import annotations

import hashlib
import urllib.request
import warnings
from pathlib import Path

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import MOST_BYTES, read_whole
from tempplug_adapters.storage.files import write_file

_TIMEOUT = 60.0


def download(url: str, file: Path, checksum: str | None) -> Path:
    """Fetches a file where it is not there yet, and makes sure that it is the one that is known; returns ``file``.

    Args:
        url: where it is.
        file: where to keep it; it is written whole or not at all.
        checksum: see `check`. None where the publisher gives none and none is known: a warning tells the SHA-256 of what
            came.

    Raises:
        DataError: it cannot be fetched or kept, or is not the file that is known.
    """
    if file.is_file():
        if checksum is not None:
            check(file, checksum)
        return file
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as stream:
            content: bytes = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise DataError(f"{url} cannot be downloaded: {error}. With --data-dir, data are read from a folder.") from error
    if len(content) > MOST_BYTES:
        raise DataError(f"{url} is larger than {MOST_BYTES >> 30} GiB, which is more than tempplug reads at once.")
    if checksum is None:
        found = hashlib.sha256(content).hexdigest()
        warnings.warn(f"no checksum of {url} is known to compare with; what came has the SHA-256 {found}.", stacklevel=2)
    else:
        _compare(url, content, checksum)
    write_file(file, lambda temporary: temporary.write_bytes(content))
    return file


def check(file: Path, checksum: str) -> None:
    """Raises `DataError` unless a file has a checksum, ``sha256:`` and digits or ``git:`` and git's name of the content."""
    _compare(str(file), read_whole(file), checksum)


def _compare(where: str, content: bytes, checksum: str) -> None:
    kind, _, wanted = checksum.partition(":")
    if kind == "git":
        found = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    else:
        found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise DataError(f"{where} is damaged or not the published file: its checksum is {kind}:{found}, not {checksum}.")
