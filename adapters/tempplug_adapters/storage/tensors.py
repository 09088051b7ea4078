"""Files of tensors: written whole, and read without running code and only where every byte is as it was written."""

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

import torch

from tempplug.errors import DataError
from tempplug_adapters.storage.files import one_line, write_file

PLAIN = "tensors, numbers, words, and lists and dictionaries of them"
"""What a file may hold that is read without running code."""
_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # a variable that PyTorch reads at every load
_CHUNK = 2**20  # bytes
_FOLDER = 0x10  # an attribute of a part, for which PyTorch reads nothing


def write_tensors(path: str | Path, content: Any) -> None:
    """Writes tensors, numbers, words, and lists and dictionaries of them with `torch.save`; raises as `write_file` does."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as stream:  # given a path, PyTorch would write its name into the file
            torch.save(content, stream)

    write_file(path, write)


def read_tensors(path: str | Path, classes: Iterable[Any] = (), wanted: str = PLAIN) -> Any:
    """Returns what `torch.save` wrote to a file, on the CPU: tensors, numbers, words, and lists and dictionaries of them.

    PyTorch does not look at the checksums that its archives have; they are checked here.

    Args:
        path: file to read.
        classes: objects of these are read too; or a pair of a class and the name that a file has for it. Making and filling an
            object must run no code that the file names.
        wanted: what the file may hold, in words, for the message.

    Raises:
        DataError: it cannot be read; the message is the reason alone, so that the caller says which file of what it is.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for part in archive.infolist():
                    _read_through(archive, part)
        with _allowing(list(classes)), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of TorchScript, which is refused
            return torch.load(path, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except EOFError as error:
        raise DataError("it is empty or cut off.") from error
    except pickle.UnpicklingError as error:
        raise DataError(f"{why_refused(error, wanted) or 'it is no file of PyTorch'}.") from error
    except OSError as error:
        raise DataError(f"{error.strerror or error}.") from error
    except (RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{(why_refused(error, wanted) or one_line(error)).rstrip('.')}.") from error
    # Bytes that are no pickle break its reader in many ways.
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError("it is no file of PyTorch.") from error


def why_refused(error: Exception, wanted: str = PLAIN) -> str | None:
    """Returns why `torch.load` refused a file, with the remedy, as a clause; None where the error is no refusal."""
    text = str(error)
    if named := re.search(r"GLOBAL (\S{1,200})", text):
        return f"it holds {named[1]}, and reading that could run code: save the file anew with {wanted} alone"
    if "TorchScript" in text or "legacy .tar" in text:
        return f"it is of a form whose reading could run code: save {wanted} in its place, by torch.save"
    return "it is no file of PyTorch" if "weights_only" in text else None


@contextmanager
def tensors_alone() -> Iterator[None]:
    """Keeps every `torch.load` from running code while the block runs, also where a library asks it to, as timm does."""
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
    """Lets PyTorch read objects of these classes; its own context manager forgets at its end what had been allowed before."""
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
    ) as stream:  # by its place: `testzip` looks parts up by names, of which a damaged one may be another's
        while stream.read(_CHUNK):
            pass
