"""Files of tensors: written whole, and read without running code and only where every byte is as it was written."""

from __future__ import annotations

import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from tempplug.errors import DataError
from tempplug_adapters.storage.files import one_line, write_file

_CHUNK = 2**20  # bytes
_FOLDER = 0x10  # an attribute of a part, for which PyTorch reads nothing


def write_tensors(path: str | Path, content: Any) -> None:
    """Writes tensors, numbers, words, and lists and dictionaries of them with `torch.save`; raises as `write_file` does."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as stream:  # given a path, PyTorch would write its name into the file
            torch.save(content, stream)

    write_file(path, write)


def read_tensors(path: str | Path) -> Any:
    """Returns what `torch.save` wrote to a file, on the CPU: tensors, numbers, words, and lists and dictionaries of them.

    PyTorch does not look at the checksums that its archives have; they are checked here.

    Args:
        path: file to read.

    Raises:
        DataError: it cannot be read; the message is the reason alone, so that the caller says which file of what it is.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for part in archive.infolist():
                    _read_through(archive, part)
        return torch.load(path, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except EOFError as error:
        raise DataError("it is empty or cut off.") from error
    except pickle.UnpicklingError as error:
        # What PyTorch says is a page of advice to read such files by running their code.
        if "Unsupported global" in str(error):
            raise DataError("it holds other things than tensors, which could run code and are not read.") from error
        raise DataError("it is no file of PyTorch.") from error
    except OSError as error:
        raise DataError(f"{error.strerror or error}.") from error
    except (RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{one_line(error).rstrip('.')}.") from error
    # Bytes that are no pickle break its reader in many ways.
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError("it is no file of PyTorch.") from error


def _read_through(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    if part.external_attr & _FOLDER:
        raise DataError(f"its part {part.filename} is damaged.")
    with archive.open(
        part
    ) as stream:  # by its place: `testzip` looks parts up by names, of which a damaged one may be another's
        while stream.read(_CHUNK):
            pass
