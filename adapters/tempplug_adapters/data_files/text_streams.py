"""Opens files of text: packed by gzip or not, in UTF-8 or with a byte order mark. Others are refused with a remedy."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import MOST_BYTES
from tempplug_adapters.storage.files import one_line

HEAD: Final = 1 << 18
"""Bytes from which encoding and delimiter are found."""
_CHARACTERS: Final = 1 << 22
"""Of a text, at least, that are read together."""
MOST_RATIO: Final = 200
"""Times that data may unpack to the size of their file, if that is more than `MOST_BYTES`."""
_PACKED: Final = {
    b"PK\x03\x04": "a zip archive or a workbook of Excel: unpack it, or save the sheet as 'CSV UTF-8'",
    b"BZh": "packed with bzip2: unpack it with bunzip2",
    b"\xfd7zXZ\0": "packed with xz: unpack it with unxz",
    b"\x28\xb5\x2f\xfd": "packed with zstd: unpack it with unzstd",
    b"\x80\x04\x95": "a pickle, which could run code: write it as parquet, table.to_parquet(FILE)",
    b"\x80\x05\x95": "a pickle, which could run code: write it as parquet, table.to_parquet(FILE)",
}
_BYTE_ORDER_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns errors of reading a file into `DataError` with its name."""
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file.")
    try:
        yield
    except UnicodeDecodeError as error:
        raise _not_text(path, error) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a complete gzip file ({error}): load or pack it again.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or one_line(error)}.") from error


def file_kind(path: Path) -> str:
    """Returns the last suffix of a name without ``.gz``, in lower case."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the number, from 1, and the text of each line of a file, without its end.

    Raises:
        DataError: the file is missing, empty, packed or not text.
    """
    with naming(path), open_text(path, read_head(path)) as stream:
        for number, line in enumerate(stream, start=1):
            yield number, line.rstrip("\r\n")


def open_bytes(path: Path) -> Any:
    """Returns the stream of a file's bytes, unpacked if it is packed by gzip, whatever its name is."""
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return _Bounded(gzip.open(path), path) if packed else path.open("rb")


class _Bounded(io.BufferedReader):
    """A stream of unpacked bytes that ends with `DataError` where they are far more than the file."""

    def __init__(self, packed: gzip.GzipFile, path: Path) -> None:
        super().__init__(packed, 1 << 20)
        self._path, self._size = path, path.stat().st_size

    def _checked(self, content: bytes) -> bytes:
        check_size(self._path, self.tell())
        return content

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns at most ``size`` bytes."""
        return self._checked(super().read(MOST_BYTES + 1 if size is None or size < 0 else size))

    def read1(self, size: int = -1, /) -> bytes:
        """Returns what one read of the file unpacks to."""
        return self._checked(super().read1(size))

    def readline(self, size: int | None = -1, /) -> bytes:
        """Returns a line."""
        return self._checked(super().readline(MOST_BYTES + 1 if size is None or size < 0 else size))


def check_size(path: Path, size: int) -> None:
    """Raises `DataError` if a file unpacks to more than `MOST_BYTES` and `MOST_RATIO` times its own size."""
    if size > max(MOST_BYTES, MOST_RATIO * path.stat().st_size):
        raise DataError(f"{path} unpacks to more than {MOST_RATIO} times its size, over {MOST_BYTES >> 30} GiB: it is refused.")


def read_head(path: Path) -> bytes:
    """Returns the first bytes of a file, unpacked; raises `DataError` if it is empty or packed otherwise."""
    with open_bytes(path) as stream:
        head: bytes = stream.read(HEAD)
    if not head.strip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"):  # a byte order mark alone is empty, too
        raise DataError(f"{path} is empty.")
    for magic, remedy in _PACKED.items():
        if head.startswith(magic):
            raise DataError(f"{path} is {remedy}.")
    return head


def encoding_of(path: Path, head: bytes) -> str:
    """Returns the encoding of a text from its first bytes: UTF-8, or what its byte order mark says; else `DataError`."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding
    if 4 * head.count(b"\0", 0, 1000) > len(head[:1000]):
        remedy = f"iconv -f UTF-16LE -t UTF-8 {path.name} > NEW"
        raise DataError(f"{path} seems to be UTF-16 without a byte order mark: convert it, {remedy} (or UTF-16BE).")
    return "utf-8"


def _not_text(path: Path, error: UnicodeDecodeError) -> DataError:
    if error.encoding.startswith("utf-8") or error.encoding == "utf8":
        with open_bytes(path) as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as bad:
                    guess = f"if it is Windows-1252 or Latin-1, convert it: iconv -f WINDOWS-1252 -t UTF-8 {path.name} > NEW"
                    return DataError(f"{path}, line {number}: not UTF-8 (byte 0x{line[bad.start]:02x}); {guess}")
    return DataError(f"{path} is not {error.encoding} ({error.reason} at byte {error.start}): save it as UTF-8.")


def open_text(path: Path, head: bytes) -> io.TextIOWrapper:
    """Returns the stream of a file's text, whose first bytes are ``head``; lines keep their ends."""
    return io.TextIOWrapper(open_bytes(path), encoding=encoding_of(path, head), newline=line_ends(head))


def line_ends(head: bytes) -> str:
    """Returns the end of a text's lines, as `io` has it: line feeds, or else carriage returns alone."""
    return "\n" if b"\n" in head else ""


def line_blocks(stream: io.TextIOWrapper) -> Iterator[str]:
    """Yields the lines of a text that are left in a stream, some MiB together."""
    while content := stream.read(_CHARACTERS):
        yield content + stream.readline()
