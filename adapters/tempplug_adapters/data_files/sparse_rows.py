"""Checks matrices in compressed rows that were read from files."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from tempplug.errors import DataError
from tempplug_adapters.data_files.pickled_arrays import SparseRows


def checked_rows(given: SparseRows, most_bytes: int | None = None) -> csr_array[Any]:
    """Returns the matrix after SciPy's full check.

    Args:
        given: the unchecked matrix.
        most_bytes: largest size of the dense matrix; None for no limit.

    Raises:
        DataError: its parts do not fit together, or the dense matrix would be larger.
    """
    parts = (given.data, given.indices, given.indptr)
    if not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in parts):
        raise DataError("its matrix must have data, indices and indptr, arrays of one dimension.")
    if given.data.dtype.kind not in "iuf" or given.indices.dtype.kind not in "iu" or given.indptr.dtype.kind not in "iu":
        raise DataError("its matrix must have numbers as data, and integers as indices and indptr.")
    try:
        rows, columns = map(int, given.shape)
        matrix = csr_array(parts, shape=(rows, columns))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"its matrix is damaged: {error}.") from error
    if most_bytes is not None and rows * columns * matrix.dtype.itemsize > most_bytes:
        raise DataError(f"its matrix of {rows} x {columns} would take more than {most_bytes >> 20} MiB.")
    return matrix
