"""Reads NumPy archives, tar and zip archives of texts, and texts compressed with gzip; downloads files and checks them.

A small file can unpack to more than the memory of a machine, so reading is limited to `MOST_BYTES`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import re
import tarfile
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Final

from tempplug.errors import DataError
from tempplug_adapters.storage.files import write_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BYTES: Final = 2**31
"""Largest size of a file of data after decompression."""

# NumPy's own reader would parse the header as a Python literal, which can exhaust the stack.
_HEAD: Final = re.compile(
    r"\{'descr': '(?P<kind>[<>|=]?[biufU]\d{1,9})', 'fortran_order': (?P<by_columns>True|False), "
    r"'shape': \((?P<shape>(\d{1,18}, ?)*(\d{1,18})?)\),? ?\}"
)
_FAULTS: Final = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def read_whole(path: Path) -> bytes:
    """Returns the bytes of a file, decompressed if its name ends in ``.gz``; raises `DataError` if damaged or too large."""
    opened: Any = gzip.open if path.suffix == ".gz" else Path.open
    with _reading(path), opened(path, "rb") as stream:
        return _limited(stream, path)


def read_text(path: Path) -> str:
    """Returns the UTF-8 text of a file, decompressed if its name ends in ``.gz``; raises like `read_whole`."""
    return _decoded(read_whole(path), path)


def read_archived_texts(path: Path, wanted: Collection[str], optional: Collection[str] = ()) -> dict[str, str]:
    """Returns texts of a tar or zip archive, or of a folder, by name.

    Args:
        path: path of the archive.
        wanted: last parts of the names of the files.
        optional: likewise, of files that may be missing.

    Raises:
        DataError: it cannot be read, is damaged, lacks a file, or contains more than `MOST_BYTES`.
    """
    found: dict[str, str] = {}
    with _reading(path):
        for name, size, stream in _members(path):
            name = PurePosixPath(name).name
            if name in (*wanted, *optional) and name not in found:
                if size > MOST_BYTES - sum(map(len, found.values())):
                    raise _too_large(path)
                with stream:
                    found[name] = _decoded(_limited(stream, path), path)
    if missing := [name for name in wanted if name not in found]:
        raise DataError(f"{path} must hold {', '.join(missing)}.")
    return found


def read_arrays(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Returns arrays of numbers or words of a NumPy archive (``.npz``) by name, without those that are missing.

    Args:
        path: path of the archive.
        names: names of the arrays.

    Raises:
        DataError: it cannot be read, is damaged, has an array of Python objects, or contains more than `MOST_BYTES`.
    """
    with _reading(path, "is not a readable NumPy archive"), zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        wanted = {name: members[name] for name in names if name in members}
        # zipfile reads at most the size that the archive states
        if sum(info.file_size for info in wanted.values()) > MOST_BYTES:
            raise _too_large(path)
        return {name: _array(archive.read(info), name) for name, info in wanted.items()}


def _array(content: bytes, name: str) -> NDArray[Any]:
    import numpy as np  # for the names of the tasks, this module is read without it

    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    length = int.from_bytes(stream.read(2 if version == (1, 0) else 4), "little")
    head = _HEAD.fullmatch(stream.read(length).decode("latin-1").strip())
    if head is None:
        raise ValueError(f"'{name}' is damaged, or holds other things than numbers and words")
    kind, by_columns = np.dtype(head["kind"]), head["by_columns"] == "True"
    shape = tuple(int(size) for size in head["shape"].split(",") if size.strip())
    block = np.frombuffer(bytearray(content), kind, offset=stream.tell())  # a writable copy, for PyTorch
    return block.reshape(shape, order="F" if by_columns else "C")  # raises ValueError unless the bytes fit the shape


def _members(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    if path.is_dir():
        for each in filter(Path.is_file, path.iterdir()):
            with each.open("rb") as opened:
                yield each.name, each.stat().st_size, opened
        return
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            for info in packed.infolist():
                if not info.is_dir():
                    yield info.filename, info.file_size, packed.open(info)
        return
    passed = 0
    with tarfile.open(path) as archive:
        for member in archive:
            # reading a file also unpacks everything before it
            passed += member.size
            if passed > MOST_BYTES:
                raise _too_large(path)
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member.name, member.size, stream


def _limited(stream: IO[bytes], path: Path) -> bytes:
    content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise _too_large(path)
    return content


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}.") from error


@contextmanager
def _reading(path: Path, fault: str = "cannot be read") -> Iterator[None]:
    """Turns errors of reading a file into `DataError` with its name."""
    try:
        yield
    except DataError:
        raise
    except _FAULTS as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, tarfile.ReadError):
            reason = "it is not an archive, or is damaged"  # Python's message lists the errors of all formats
        raise DataError(f"{path} {fault}: {reason[:200] or type(error).__name__}.") from error


def _too_large(path: Path) -> DataError:
    return DataError(f"{path} holds more than {MOST_BYTES >> 30} GiB, unpacked, which is more than tempplug reads at once.")


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
