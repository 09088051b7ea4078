"""Reads matrices of numbers from text with commas, tabs or blanks, NumPy arrays and tensors, without running code."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import read_text
from tempplug_adapters.storage.tensors import read_tensors


def read_matrix(path: Path) -> Tensor:
    """Returns a matrix [rows, columns], int64 for integers and float32 otherwise; missing numbers are NaN.

    Args:
        path: ``.npy``; ``.pt`` with a tensor; or text, decompressed if its name ends in ``.gz``, with a row per line and
            optionally a header.

    Raises:
        DataError: the file cannot be read, or does not contain a matrix of numbers.
    """
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
    if not isinstance(found, Tensor) or found.layout != torch.strided or found.ndim not in (1, 2) or found.is_complex():
        raise DataError(f"{path} must hold a matrix of numbers.")
    found = found[:, None] if found.ndim == 1 else found
    return found.float() if found.is_floating_point() else found.long()


def _numbers(text: str) -> np.ndarray:
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
