"""Files of training commands, written whole or not at all and read without running code; what is wrong fits in one line.

It must not know what is in them.
"""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from tempplug.errors import DataError


def make_folder(folder: str | Path, name: str = "output_dir") -> Path:
    """Makes a folder where it lacks and makes sure that it can be written, before work is done whose result goes there.

    Args:
        folder: to write to.
        name: of the argument, for the message.

    Raises:
        DataError: it cannot be written.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{name}='{folder}' cannot be written: it, or a folder above it, is a file.") from error
    except OSError as error:
        raise DataError(f"{name}='{folder}' cannot be written: {error.strerror or error}.") from error
    return Path(folder)


def write_file(path: str | Path, write: Callable[[Path], Any]) -> None:
    """Writes a file, which is replaced only when the new one is complete; its folder is made where it lacks.

    Args:
        path: file to write.
        write: writes to the path that it is given.

    Raises:
        DataError: it cannot be written, because the disk is full for example; what was there before stays.
    """
    file = Path(path)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # PyTorch's writer raises the second where the disk is full
        raise DataError(f"{file} cannot be written: {one_line(error)}.") from error


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Writes numbers and words as JSON, all of them or none; the folder is made where it lacks.

    Raises:
        DataError: the file cannot be written.
    """
    text = json.dumps(content, indent=2) + "\n"
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_tensors(path: str | Path) -> Any:
    """Returns what `torch.save` wrote to a file, on the CPU: tensors, numbers, words, and lists and dictionaries of them.

    Args:
        path: file to read.

    Raises:
        DataError: it cannot be read; the message is the reason alone, so that the caller says which file of what it is.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except EOFError as error:
        raise DataError("it is empty or cut off.") from error
    except pickle.UnpicklingError as error:
        # What PyTorch says is a page of advice to read such files by running their code.
        if "Unsupported global" in str(error):
            raise DataError("it holds other things than tensors, which could run code and are not read.") from error
        raise DataError("it is no file of PyTorch.") from error
    except OSError as error:
        raise DataError(f"{error.strerror or error}.") from error
    except RuntimeError as error:
        raise DataError(one_line(error)) from error
    # Bytes that are no pickle break its reader in many ways.
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError("it is no file of PyTorch.") from error


def one_line(error: Exception, lines: int = 1) -> str:
    r"""Returns the beginning of an error's message as one line, or the error's kind where it says nothing.

    Args:
        error: of PyTorch, say, whose messages go on with advice or call stacks.
        lines: of it to keep; 2 for `load_state_dict`, whose first line ends before the fault.

    >>> one_line(RuntimeError("it does not fit:\n\tsize mismatch\n\tadvice"), lines=2)
    'it does not fit: size mismatch'
    """
    told = [line.strip() for line in str(error).strip().splitlines()[:lines]]
    return " ".join(told) or type(error).__name__
