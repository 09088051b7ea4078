"""Graphs in files of PyTorch, read without running code: a ``Data``, a list of them, or a data set's ``processed`` file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.separate import separate
from torch_geometric.data.storage import AttrType, GlobalStorage

from tempplug.errors import DataError
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.storage.tensors import read_tensors


def _plain(*factory: Any) -> dict[Any, Any]:
    """Returns a dictionary in place of a `defaultdict`, which PyTorch creates but does not fill."""
    return {}


_CLASSES = (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, AttrType, dict, (_plain, "collections.defaultdict"))
_WANTED = "a Data, or a list of them, of tensors, numbers and words"


def read_graphs(file: Path) -> list[Data]:
    """Returns the graphs of a file.

    Raises:
        DataError: it cannot be read, or has other contents.
    """
    if not file.is_file():
        raise DataError(f"{file} does not exist or is not a file.")
    try:
        found = read_tensors(file, _CLASSES, _WANTED)
    except DataError as error:
        raise DataError(f"{file} could not be read: {error}") from error
    for graph in found if isinstance(found, list | tuple) else [found]:
        for store in graph.stores if isinstance(graph, Data) else ():
            vars(store).pop("_cached_attr", None)  # PyTorch Geometric computes it again
    if isinstance(found, tuple) and found and all(isinstance(each, Data) for each in found):
        raise DataError(f"{file} holds a tuple of {len(found)} graphs, as RandomLinkSplit returns: save the one to train on.")
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
    """Returns the graphs of a collated data set; without slices there is one."""
    try:
        data = Data.from_dict(whole) if isinstance(whole, dict) else whole
        if not slices:
            return [data]
        count = min(len(bounds) for bounds in slices.values()) - 1
        return [separate(Data, data, idx=number, slice_dict=slices, decrement=False) for number in range(count)]
    except Exception as error:  # a damaged file can hold any values
        raise DataError(f"{file} holds graphs and slices that do not fit one another: {one_line(error)}") from error
