"""Downloads files and verifies their checksums."""

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
    """Downloads a file if it is missing, verifies its checksum, and returns ``file``.

    Args:
        url: address of the file.
        file: where to store it, atomically.
        checksum: see `check`; if it is None, a warning reports the SHA-256 of the downloaded file.

    Raises:
        DataError: it cannot be downloaded or stored, or its checksum differs.
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
        warnings.warn(f"the checksum of {url} is unknown; the downloaded file has the SHA-256 {found}.", stacklevel=2)
    else:
        _compare(url, content, checksum)
    write_file(file, lambda temporary: temporary.write_bytes(content))
    return file


def check(file: Path, checksum: str) -> None:
    """Raises `DataError` unless a file has a checksum: ``sha256:`` and digits, or ``git:`` and git's object name."""
    _compare(str(file), read_whole(file), checksum)


def _compare(where: str, content: bytes, checksum: str) -> None:
    kind, _, wanted = checksum.partition(":")
    if kind == "git":
        found = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    else:
        found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise DataError(f"{where} is damaged or not the published file: its checksum is {kind}:{found}, not {checksum}.")
