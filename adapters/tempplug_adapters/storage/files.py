"""Atomic writes: a file is either complete or absent, even after a crash.

Data are written to a temporary file in the same folder, flushed to disk, and renamed. Temporary names contain the process id,
so that files of killed processes can be removed. This module loads no framework.
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
from pathlib import Path, PureWindowsPath
from typing import Any

from tempplug.errors import ConfigError, DataError, TempplugError, quoted

_TEMPORARY = re.compile(r".*\.(\d+)\.tmp")


class Folder(argparse.Action):
    """Stores a folder given by a flag; an empty name, such as that of an unset shell variable, is an error."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        """Stores the folder; raises ConfigError if the name is empty."""
        if not values:
            raise ConfigError(f"{self.dest}='' must name a folder: {option_string} . means this one.")
        setattr(namespace, self.dest, Path(values))


def make_folder(folder: str | Path, name: str = "output_dir") -> Path:
    """Creates a folder if it is missing, and checks that it is writable before other work starts.

    Args:
        folder: the folder.
        name: name of the argument, for the message.

    Raises:
        DataError: it cannot be written.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0")  # a full disk still accepts empty files
            probe.flush()
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{name}='{folder}' cannot be written: it, or a folder above it, is a file.") from error
    except OSError as error:
        raise DataError(f"{name}='{folder}' cannot be written: {error.strerror or error}.") from error
    return Path(folder)


def write_file(path: str | Path, write: Callable[[Path], Any]) -> None:
    """Writes a file atomically and durably; missing folders are created.

    Args:
        path: the file to write.
        write: writes to a given temporary path, which has another file extension.

    Raises:
        NotWrittenError: it cannot be written; an existing file is unchanged.
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
    """Writes UTF-8 text atomically; raises like `write_file`."""
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Writes JSON atomically; raises like `write_file`."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_into(folder: str | Path, write: Callable[[Path], Any]) -> None:
    """Writes files into a folder, replacing existing ones only after all are complete; for writers that choose file names.

    Args:
        folder: the folder, created if missing; other files in it are kept.
        write: writes files to a given folder or its subfolders.

    Raises:
        NotWrittenError: they cannot be written.
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


def inside(folder: str | Path, name: Any, source: str) -> Path:
    """Returns the path of a file or folder that a file of a folder names.

    Args:
        folder: the folder.
        name: the name, relative to the folder.
        source: where the name is written, for the message.

    Raises:
        DataError: it lies outside of the folder: it is absolute, leads upwards, in the notation of any system, or by a link.
    """
    root = Path(folder).resolve()
    # in the cache of the Hugging Face hub, the files of a snapshot are links to a folder beside it
    own = root.parent.parent if root.parent.name == "snapshots" else root
    parts = PureWindowsPath(name) if isinstance(name, str) else None  # it knows the separators of all systems
    if parts is None or "\0" in name or parts.anchor or ".." in parts.parts or not (root / name).resolve().is_relative_to(own):
        raise DataError(f"{source} names {quoted(str(name))}, which must be a path inside of '{folder}'.")
    return Path(folder) / str(name)


def temporary_name(path: Path) -> Path:
    """Returns the hidden temporary path that this process uses for writing a path."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_leftovers(folder: str | Path) -> None:
    """Removes temporary files of ended processes from a folder without its subfolders; call it before writing to the folder."""
    for each in list(Path(folder).glob(".*.tmp")):
        named = _TEMPORARY.fullmatch(each.name)
        if named is None or not _gone(int(named[1])):
            continue
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)


def _gone(process: int) -> bool:
    if process == os.getpid():  # left by an earlier process with the same id, since this one has not written yet
        return True
    if sys.platform == "win32":  # on which probing a process would kill it
        return False
    try:
        os.kill(process, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, ProcessLookupError)
    return False


def to_disk(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to disk."""
    if sys.platform == "win32":  # which supports this only for files open for writing
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class NotWrittenError(DataError):
    """A file cannot be written, for example because the disk is full; the message names it."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Converts errors of writing a path to a `NotWrittenError`."""
    try:
        yield
    except TempplugError:
        raise
    except Exception as error:
        if (reason := _reason(error)) is None:
            raise
        raise NotWrittenError(f"{path} cannot be written: {reason}.") from error


_FULL = "the disk is full, or a limit on its use is reached"
_CODE = re.compile(r"\(os error (\d+)\)|\[errno (\d+)\]")
"""The number of the system's error in messages of safetensors, tokenizers and pyarrow."""


def is_short_write(error: Exception) -> bool:
    """Returns whether PyTorch or NumPy found that fewer bytes were written than intended; they do not say why."""
    text = str(error)
    return "inline_container" in text or "iostream" in text or " requested and " in text


def _reason(error: Exception) -> str | None:
    """Returns the reason of a failed write as text, or None for other errors."""
    text = str(error)
    if code := _CODE.search(text):
        return os.strerror(int(code[1] or code[2]))
    if "No space left" in text:
        return "No space left on device"
    if is_short_write(error):
        return _FULL
    if isinstance(error, OSError | RuntimeError):
        return getattr(error, "strerror", None) or one_line(error)
    return None


def one_line(error: Exception, lines: int = 1) -> str:
    r"""Returns the first ``lines`` of an error's message as one line, or the name of its class if it has no message."""
    told = [line.strip() for line in str(error).strip().splitlines()[:lines]]
    return " ".join(told) or type(error).__name__
