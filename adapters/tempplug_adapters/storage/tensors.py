"""Files of tensors: written atomically, read without executing code, and verified by checksums."""

from __future__ import annotations

import os
import pickle
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tempplug.errors import DataError
from tempplug_adapters.storage.files import one_line, write_file

PLAIN = "tensors, numbers, words, and lists and dictionaries of them"
"""Contents that can be read without running code."""
_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # a variable that PyTorch reads at every load
_CHUNK = 2**20  # bytes
_FOLDER = 0x10  # an attribute bit of a zip entry, for which PyTorch returns no data


def write_tensors(path: str | Path, content: Any) -> None:
    """Writes tensors, numbers, strings, and lists and dictionaries of them with `torch.save`; raises like `write_file`."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as stream:  # given a path, PyTorch would write its name into the file
            torch.save(content, stream)

    write_file(path, write)


def read_tensors(path: str | Path, classes: Iterable[Any] = (), wanted: str = PLAIN) -> Any:
    """Reads a file of `torch.save` to the CPU: tensors, numbers, strings, and lists and dictionaries of them.

    It verifies the checksums of the archive, which PyTorch ignores.

    Args:
        path: the file.
        classes: further allowed classes; or a pair of a class and its name in the file. Creating and filling an object must
            not execute code named by the file.
        wanted: description of the allowed contents, for the message.

    Raises:
        DataError: it cannot be read; the message only gives the reason, to which the caller adds the file.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for part in archive.infolist():
                    _read_through(archive, part)
        with _allowing(list(classes)), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a warning about TorchScript files, which are rejected
            return torch.load(path, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except EOFError as error:
        raise DataError("it is empty or cut off.") from error
    except pickle.UnpicklingError as error:
        raise DataError(f"{why_refused(error, wanted) or 'it is not a PyTorch file'}.") from error
    except OSError as error:
        raise DataError(f"{error.strerror or error}.") from error
    except (RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{(why_refused(error, wanted) or one_line(error)).rstrip('.')}.") from error
    # Invalid pickles cause many kinds of exceptions.
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError("it is not a PyTorch file.") from error


def read_matrix(path: Path) -> torch.Tensor:
    """Returns a matrix [rows, columns] of ``.npy`` or ``.pt``, int64 or float32, without running code from it.

    Raises:
        DataError: the file cannot be read, or does not hold a matrix or a vector of numbers.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file.")
    try:
        found = read_tensors(path) if path.suffix == ".pt" else torch.from_numpy(np.load(path, allow_pickle=False))
    except (DataError, ValueError, TypeError, EOFError, OSError) as error:
        raise DataError(f"{path} must hold a matrix of numbers: {one_line(error)}") from error
    if not isinstance(found, torch.Tensor) or found.layout != torch.strided or found.ndim not in (1, 2) or found.is_complex():
        raise DataError(f"{path} must hold a matrix of numbers.")
    found = found[:, None] if found.ndim == 1 else found
    return found.float() if found.is_floating_point() else found.long()


def why_refused(error: Exception, wanted: str = PLAIN) -> str | None:
    """Returns the reason why `torch.load` rejected a file, with a remedy, as a clause; None for other errors."""
    text = str(error)
    if named := re.search(r"GLOBAL (\S{1,200})", text):
        return f"it holds {named[1]}, and reading that could run code: save the file anew with {wanted} alone"
    if "TorchScript" in text or "legacy .tar" in text:
        return f"reading files of this format could run code: save {wanted} instead, with torch.save"
    return "it is not a PyTorch file" if "weights_only" in text else None


@contextmanager
def tensors_alone() -> Iterator[None]:
    """Prevents every `torch.load` in the block from executing code, even if a library requests it, as timm does."""
    before = os.environ.get(_FORCE)
    os.environ[_FORCE] = "1"
    try:
        yield
    finally:
        os.environ.pop(_FORCE)
        if before is not None:
            os.environ[_FORCE] = before


@contextmanager
def _allowing(classes: list[Any]) -> Iterator[None]:
    """Allows PyTorch to load these classes; torch's own context manager would discard earlier permissions on exit."""
    before = torch.serialization.get_safe_globals()
    names = {_name(each) for each in classes}
    try:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals([*classes, *(each for each in before if _name(each) not in names)])
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _name(each: Any) -> str:
    return str(each[1]) if isinstance(each, tuple) else f"{each.__module__}.{each.__qualname__}"


def _read_through(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    if part.external_attr & _FOLDER:
        raise DataError(f"its part {part.filename} is damaged.")
    with archive.open(
        part
    ) as stream:  # by entry: `testzip` looks entries up by name, and a damaged name may equal that of another entry
        while stream.read(_CHUNK):
            pass
