"""Graphs in files of PyTorch: a ``Data``, a list of them, or what a data set of PyTorch Geometric leaves in ``processed``.

They are read without running code. This module must not know any model.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.separate import separate
from torch_geometric.data.storage import GlobalStorage

from tempplug.errors import DataError
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.storage.tensors import read_tensors

_HELD: tuple[Any, ...] = (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, defaultdict, dict)


def read_graphs(file: Path) -> list[Data]:
    """Returns the graphs of a file.

    Raises:
        DataError: it cannot be read, or holds other things.
    """
    if not file.is_file():
        raise DataError(f"{file} does not exist or is not a file.")
    # The context manager forgets at its end whatever it was given, also what PyTorch Geometric had allowed itself before.
    allowed = torch.serialization.get_safe_globals()
    try:
        with torch.serialization.safe_globals([each for each in _HELD if each not in allowed]):
            found = read_tensors(file)
    except DataError as error:
        raise DataError(f"{file} could not be read: {error}") from error
    if isinstance(found, tuple) and len(found) in (2, 3) and isinstance(found[0], Data | dict):
        return _apart(file, found[0], found[1])
    graphs = [found] if isinstance(found, Data) else found
    if not isinstance(graphs, list) or not graphs or not all(isinstance(each, Data) for each in graphs):
        raise DataError(
            f"{file} must hold a torch_geometric.data.Data, a list of them, or the (data, slices) of a data set, not "
            f"{type(found).__name__}."
        )
    return graphs


def _apart(file: Path, whole: Any, slices: Any) -> list[Data]:
    """Returns each graph of those that a data set keeps one after the other; without slices there is one."""
    try:
        data = Data.from_dict(whole) if isinstance(whole, dict) else whole
        if not slices:
            return [data]
        count = min(len(bounds) for bounds in slices.values()) - 1
        return [separate(Data, data, idx=number, slice_dict=slices, decrement=False) for number in range(count)]
    except Exception as error:  # tables of a damaged file can be anything
        raise DataError(f"{file} holds graphs and slices that do not fit one another: {one_line(error)}") from error
