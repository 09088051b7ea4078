"""Graphs in files of PyTorch, read without running code: a ``Data``, a list of them, or a data set's ``processed`` file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.separate import separate
from torch_geometric.data.storage import AttrType, GlobalStorage
from torch_geometric.utils import to_edge_index

from tempplug.errors import DataError
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.storage.tensors import read_tensors


def _plain(*factory: Any) -> dict[Any, Any]:
    """Returns a dictionary in place of a `defaultdict`, which PyTorch creates but does not fill."""
    return {}


_CLASSES = (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, AttrType, dict, (_plain, "collections.defaultdict"))
_WANTED = "a Data, or a list of them, of tensors, numbers and words"
_HETERO = "torch_geometric.data.storage.BaseStorage"
"""The first class in a file of a `HeteroData` that PyTorch does not read."""


def read_graphs(file: Path) -> list[Data]:
    """Returns the graphs of a file; an adjacency matrix ``adj_t``, as ``ToSparseTensor`` makes it, becomes ``edge_index``.

    Raises:
        DataError: it cannot be read, or has other contents.
    """
    if not file.is_file():
        raise DataError(f"{file} does not exist or is not a file.")
    try:
        found = read_tensors(file, _CLASSES, _WANTED)
    except DataError as error:
        if _HETERO in str(error):
            raise DataError(
                f"{file} holds a HeteroData, with several kinds of nodes or edges, but one kind is contrasted: save "
                "data.to_homogeneous(), which needs features of one width, or one kind, such as Data(x=data['paper'].x, "
                "edge_index=data['paper', 'cites', 'paper'].edge_index)."
            ) from error
        raise DataError(f"{file} could not be read: {error}") from error
    for graph in found if isinstance(found, list | tuple) else [found]:
        for store in graph.stores if isinstance(graph, Data) else ():
            vars(store).pop("_cached_attr", None)  # PyTorch Geometric computes it again
    if isinstance(found, tuple) and found and all(isinstance(each, Data) for each in found):
        raise DataError(f"{file} holds a tuple of {len(found)} graphs, as RandomLinkSplit returns: save the one to train on.")
    if isinstance(found, tuple) and len(found) in (2, 3) and isinstance(found[0], Data | dict):
        found = _apart(file, found[0], found[1])
    graphs = [found] if isinstance(found, Data) else found
    if not isinstance(graphs, list) or not graphs or not all(isinstance(each, Data) for each in graphs):
        raise DataError(
            f"{file} must hold a torch_geometric.data.Data, a list of them, or the (data, slices) of a data set, not "
            f"{type(found).__name__}."
        )
    for graph in graphs:
        if graph.edge_index is None and graph.get("adj_t") is not None:
            edges, weight = to_edge_index(graph.adj_t)
            graph.edge_index = edges.flip(0)
            if weight.ndim == 1 and bool((weight != 1).any()):
                graph.edge_weight = weight
            del graph.adj_t
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
