"""The one writer: a file is there whole or not at all, whenever the process or the machine ends.

What is written goes to a temporary name beside its place, to the disk, and then to its own name. Temporary names carry the
number of their process, so that the leftovers of a killed one are known. This module loads no framework.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError, DataError, TempplugError

_TEMPORARY = re.compile(r".*\.(\d+)\.tmp")


class Folder(argparse.Action):
    """Stores the folder that a flag names; no name is refused: it would mean this folder where a shell's variable is empty."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        """Stores it; raises ConfigError where the name is empty."""
        if not values:
            raise ConfigError(f"{self.dest}='' must name a folder: {option_string} . means this one.")
        setattr(namespace, self.dest, Path(values))


def make_folder(folder: str | Path, name: str = "output_dir") -> Path:
    """Makes a folder where it lacks, and makes sure that it can be written before any work is done for it.

    Args:
        folder: to write to.
        name: of the argument, for the message.

    Raises:
        DataError: it cannot be written.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0")  # a full disk has room for names
            probe.flush()
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{name}='{folder}' cannot be written: it, or a folder above it, is a file.") from error
    except OSError as error:
        raise DataError(f"{name}='{folder}' cannot be written: {error.strerror or error}.") from error
    return Path(folder)


def write_file(path: str | Path, write: Callable[[Path], Any]) -> None:
    """Writes a file, which is replaced only when the new one is complete and on the disk; its folder is made where it lacks.

    Args:
        path: file to write.
        write: writes to the path that it is given, which ends otherwise than the file's.

    Raises:
        DataError: it cannot be written, because the disk is full for example; what was there before stays.
    """
    file = Path(path)
    temporary = temporary_name(file)
    with explained(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            to_disk(temporary)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
        to_disk(file.parent)


def write_text(path: str | Path, text: str) -> None:
    """Writes text as UTF-8, all of it or none; raises as `write_file` does."""
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Writes numbers and words as JSON, all of them or none; raises as `write_file` does."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_into(folder: str | Path, write: Callable[[Path], Any]) -> None:
    """Writes some files of a folder, each replaced only when all of them are complete; for writers that name their files.

    Args:
        folder: to write into, made where it lacks; what else is in it stays.
        write: writes files to the folder that it is given, or to folders in it.

    Raises:
        DataError: they cannot be written.
    """
    target = Path(folder)
    staged = temporary_name(target / "files")
    shutil.rmtree(staged, ignore_errors=True)
    with explained(target):
        staged.mkdir(parents=True)
        try:
            write(staged)
            files = sorted(each for each in staged.rglob("*") if each.is_file())
            for each in files:
                to_disk(each)
            places = {each: target / each.relative_to(staged) for each in files}
            for each, place in places.items():
                place.parent.mkdir(exist_ok=True, parents=True)
                each.replace(place)
            for parent in {target, *(place.parent for place in places.values())}:
                to_disk(parent)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def temporary_name(path: Path) -> Path:
    """Returns the name, beside a path, under which this process writes what is to be there; it is hidden from listings."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_leftovers(folder: str | Path) -> None:
    """Removes what processes that are no more were writing into a folder; to be called before this one writes into it.

    Args:
        folder: its own files and folders are removed, not those further down.
    """
    for each in list(Path(folder).glob(".*.tmp")):
        named = _TEMPORARY.fullmatch(each.name)
        if named is None or not _gone(int(named[1])):
            continue
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)


def _gone(process: int) -> bool:
    if process == os.getpid():  # of an earlier process with this one's number: this one has written nothing yet
        return True
    if sys.platform == "win32":  # where asking for a process ends it
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def to_disk(path: Path) -> None:
    """Waits until a file, or the names in a folder, would survive a loss of power."""
    if sys.platform == "win32":  # which knows this for files that are open for writing alone
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns the errors of writing into one that names what cannot be written.

    Args:
        path: that is written.
    """
    try:
        yield
    except TempplugError:
        raise
    except Exception as error:
        if (reason := _reason(error)) is None:
            raise
        raise DataError(f"{path} cannot be written: {reason}.") from error


def _reason(error: Exception) -> str | None:
    """Returns in words why something was not written; None where the error is another one."""
    text = str(error)
    if "No space left" in text:  # so the writers of safetensors and tokenizers, in errors of their own
        return "No space left on device"
    if "inline_container" in text or "iostream" in text:  # so PyTorch's, which counts what it could write
        return "the disk is full, or a limit on its use is reached"
    if isinstance(error, OSError | RuntimeError):
        return getattr(error, "strerror", None) or one_line(error)
    return None


def one_line(error: Exception, lines: int = 1) -> str:
    r"""Returns the first ``lines`` of an error's message as one line, or the error's class where it has no message.

    >>> one_line(RuntimeError("it does not fit:\n\tsize mismatch\n\tadvice"), lines=2)
    'it does not fit: size mismatch'
    """
    told = [line.strip() for line in str(error).strip().splitlines()[:lines]]
    return " ".join(told) or type(error).__name__
