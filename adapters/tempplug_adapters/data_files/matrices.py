"""Reads matrices of numbers, and rows of short fields, without running code. Errors name the file and the line."""

from __future__ import annotations

import csv
import io
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import read_text

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


def read_rows(path: Path, most: int | None = None) -> list[tuple[int, list[str]]]:
    """Returns the number of each line that is not empty, and its fields, separated by commas, tabs or blanks as in the first.

    Args:
        path: the file, decompressed if its name ends in ``.gz``; fields with commas or tabs may be quoted.
        most: lines to read; None: all.

    Raises:
        DataError: it cannot be read, is empty, or a row has more or fewer fields than the first.
    """
    # not by str.splitlines, which also splits at Unicode separators
    lines = list(islice(io.StringIO(read_text(path).removeprefix("\ufeff"), newline=""), most))
    separator = next((each for each in (",", "\t") if lines and each in lines[0]), None)
    if separator is None:
        rows = [(number, fields) for number, line in enumerate(lines, start=1) if (fields := line.split())]
    else:
        reader = csv.reader(lines, delimiter=separator, strict=True)
        try:
            rows = [(reader.line_num, fields) for fields in reader if fields]
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: {error}; is a quote left open?") from error
    if not rows:
        raise DataError(f"{path} is empty.")
    if wrong := [(number, len(fields)) for number, fields in rows if len(fields) != len(rows[0][1])]:
        raise DataError(f"{path}, line {wrong[0][0]}: {wrong[0][1]} fields, but line 1 has {len(rows[0][1])}.")
    return rows


def read_matrix(path: Path) -> Tensor:
    """Returns a matrix [rows, columns], int64 for integers and float32 otherwise; missing numbers are NaN.

    Args:
        path: ``.npy``; ``.pt`` with a tensor; or text, decompressed if its name ends in ``.gz``, with a row per line and
            optionally a header.

    Raises:
        DataError: the file cannot be read, or does not contain a matrix of numbers.
    """
    import numpy as np  # the tables alone are read without frameworks
    import torch

    from tempplug_adapters.storage.tensors import read_tensors

    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file.")
    try:
        if path.suffix == ".npy":
            found = torch.from_numpy(np.load(path, allow_pickle=False))
        elif path.suffix == ".pt":
            found = read_tensors(path)
        else:
            found = torch.from_numpy(_numbers(read_text(path)))
    except (DataError, ValueError, TypeError, EOFError, OSError) as error:
        raise DataError(f"{path} must hold a matrix of numbers: {str(error)[:200]}") from error
    if not isinstance(found, torch.Tensor) or found.layout != torch.strided or found.ndim not in (1, 2) or found.is_complex():
        raise DataError(f"{path} must hold a matrix of numbers.")
    found = found[:, None] if found.ndim == 1 else found
    return found.float() if found.is_floating_point() else found.long()


def _numbers(text: str) -> np.ndarray:
    import numpy as np

    text = text.removeprefix("\ufeff")
    lines = text.split("\n", 1)
    first = lines[0].strip()
    separator = "," if "," in first else "\t" if "\t" in first else None
    if separator and first.startswith((separator, f'""{separator}')):
        raise ValueError("its first column has no name, as that of pandas' row numbers: write it with index=False.")
    try:
        [float(field) if field.strip() else 0.0 for field in first.split(separator)]
    except ValueError:
        text = lines[1] if len(lines) > 1 else ""
    if not text.strip():
        raise ValueError("it is empty.")
    for kind in (np.int64, np.float32):
        try:
            return np.loadtxt(io.StringIO(text), kind, delimiter=separator, ndmin=2)
        except (ValueError, OverflowError) as error:
            fault = error
    raise ValueError(str(fault))
