"""Graphs in files, read without running code: saved ones, those of OGB (Hu et al. 2020) and of the TU collection.

OGB's and PyTorch Geometric's own readers load pickles, write to the folder, or do not check the numbers.
Source of the TU collection: Morris et al. 2020.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from pyarrow import csv
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.separate import separate
from torch_geometric.data.storage import AttrType, GlobalStorage
from torch_geometric.utils import index_to_mask, to_edge_index

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import download, read_archived_texts
from tempplug_adapters.data_files.tables import Table, numbered
from tempplug_adapters.data_files.text_streams import naming, open_bytes
from tempplug_adapters.graph.graph_data import GraphSet, starts
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.storage.fingerprint import files_below
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
            one = "Data(x=data['paper'].x, edge_index=data['paper', 'cites', 'paper'].edge_index)"
            remedy = f"save data.to_homogeneous(), which needs features of one width, or one kind, such as {one}"
            fault = "with several kinds of nodes or edges, but one kind is contrasted"
            raise DataError(f"{file} holds a HeteroData, {fault}: {remedy}.") from error
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
        wanted = "a torch_geometric.data.Data, a list of them, or the (data, slices) of a data set"
        raise DataError(f"{file} must hold {wanted}, not {type(found).__name__}.")
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


# The other data sets list each undirected edge once.
_DIRECTED = ("ogbn-arxiv", "ogbg-code2")


def place_of(data_dir: Path | None, kind: str, name: str, last: str) -> Path | None:
    """Returns the first existing folder among those of a data set, or the first of them."""
    if data_dir is None:
        return None
    places = [data_dir / "graph" / kind / name / last, data_dir / kind / name / last, data_dir / name / last]
    return next((place for place in places if place.is_dir()), places[0])


def load_ogb(name: str, data_dir: Path | None) -> list[Data]:
    """Returns the graphs of a data set of OGB: one with masks of the published split, or many.

    Args:
        name: of the data set; those of ``ogbn`` have classes of nodes, those of ``ogbg`` classes of graphs.
        data_dir: root of the package ogb, which has a folder such as ``ogbn_arxiv``.

    Raises:
        DataError: a file is missing or damaged, or the files do not match.
    """
    name = name.lower()
    folder = place_of(data_dir, "ogb", name.replace("-", "_"), "")
    if folder is None:
        raise DataError(f"{name} is not downloaded here: let the package ogb do it, and pass its root as --data-dir.")
    raw = folder / "raw"
    needed = [f"{part}.csv.gz" for part in ("edge", "num-node-list", "num-edge-list")]
    missing = [file for file in needed if not (raw / file).is_file()]
    if missing:
        raise DataError(f"{name} needs {', '.join(missing)}, not found in {raw}.")
    nodes, edges = (_table(raw, f"num-{each}-list")[:, 0].tolist() for each in ("node", "edge"))
    pairs, of_nodes = _table(raw, "edge"), name.startswith("ogbn")
    label = "node-label" if of_nodes else "graph-label"
    optional = ("node-feat", "edge-feat", label)
    x, edge_attr, y = (_table(raw, each) if (raw / f"{each}.csv.gz").is_file() else None for each in optional)
    wanted = {"edge": (pairs, sum(edges)), "node-feat": (x, sum(nodes)), "edge-feat": (edge_attr, sum(edges))}
    wanted[label] = (y, sum(nodes) if of_nodes else len(nodes))
    for part, (table, rows) in wanted.items():
        if table is not None and len(table) != rows:
            raise DataError(f"{raw / part}.csv.gz has {len(table)} rows where the others have {rows}.")
    if len(nodes) != len(edges) or pairs.shape[1] != 2 or pairs.is_floating_point() or min([*nodes, *edges, 0]) < 0:
        raise DataError(f"{raw} must number the nodes and edges of each graph, and an edge must be two nodes.")
    if name not in _DIRECTED:
        pairs, edges = torch.stack([pairs, pairs.flip(1)], 1).flatten(0, 1), [2 * each for each in edges]
        edge_attr = None if edge_attr is None else edge_attr.repeat_interleave(2, 0)
    links = torch.split(pairs, edges)
    graphs = [Data(edge_index=link.T.contiguous(), num_nodes=size) for link, size in zip(links, nodes, strict=True)]
    sizes = {"x": (x, nodes), "edge_attr": (edge_attr, edges), "y": (y, nodes if of_nodes else [1] * len(nodes))}
    for attribute, (table, counts) in sizes.items():
        for graph, own in zip(graphs, () if table is None else torch.split(table, counts), strict=table is not None):
            graph[attribute] = own
    if of_nodes and len(graphs) == 1:
        _add_masks(graphs[0], folder / "split")
    return graphs


def ogb_files(name: str, data_dir: Path | None) -> dict[str, Path]:
    """Returns the files of a data set that `load_ogb` reads."""
    folder = place_of(data_dir, "ogb", name.lower().replace("-", "_"), "")
    parts = () if folder is None else (folder / "raw", folder / "split")
    return {f"{part.name}/{file}": path for part in parts if part.is_dir() for file, path in files_below(part).items()}


def _table(raw: Path, part: str) -> Tensor:
    """Returns a matrix [rows, columns], int64 or float32; a missing number is NaN. pyarrow reads it, as it can be large."""
    path = raw / f"{part}.csv.gz"
    with naming(path), open_bytes(path) as stream:
        try:
            table = Table(str(path), numbered(csv.read_csv(stream, csv.ReadOptions(autogenerate_column_names=True))))
            found = torch.from_numpy(np.stack([table.numbers(name) for name in table.names], 1))
        except (pa.ArrowException, DataError) as error:
            raise DataError(f"{path} must hold a matrix of numbers: {one_line(error)}") from error
    return found.float() if found.is_floating_point() else found


def _add_masks(graph: Data, split: Path) -> None:
    """Adds the first published split, if there is one."""
    for place in sorted(split.glob("*/train.csv.gz"))[:1]:
        for part, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
            numbers, nodes = _table(place.parent, part)[:, 0], int(graph.num_nodes or 0)
            if numbers.is_floating_point() or (len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < nodes):
                raise DataError(f"{place.with_name(part)}.csv.gz must hold nodes, from 0 to {nodes - 1}.")
            graph[mask] = index_to_mask(numbers, nodes)


_URL = "https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip"
_MOST_BYTES = 2**30


def load_tu(name: str, cache_dir: Path, data_dir: Path | None = None) -> GraphSet:
    """Returns a data set of the TU collection with its node labels (not its attributes) as features, as in GraphCL's code.

    Args:
        name: name in the collection, for example ``MUTAG``.
        cache_dir: folder for downloads.
        data_dir: folder with ``graph/tu/NAME.tar.xz`` or ``NAME.zip``, or with ``NAME/raw`` of PyTorch Geometric's
            ``TUDataset``; None downloads.

    Raises:
        DataError: the archive is missing or damaged, or does not hold the data set.
    """
    parts = {part: f"{name}_{part}.txt" for part in ("A", "graph_indicator", "graph_labels", "node_labels")}
    archive = find_tu(name, cache_dir, data_dir)
    *needed, labels = parts.values()
    texts = read_archived_texts(archive, needed, [labels])
    try:
        return _graphs({part: _numbers(texts[file], file) for part, file in parts.items() if file in texts})
    except DataError as error:
        raise DataError(f"the TU data set '{name}' cannot be read from {archive}: {error}") from error


def find_tu(name: str, cache_dir: Path, data_dir: Path | None) -> Path:
    """Returns the archive or the folder that `load_tu` reads, after downloading it if necessary; raises like it."""
    if data_dir is None:
        return download(_URL.format(name=name), cache_dir / f"{name}.zip", None)
    places = [data_dir / "graph" / "tu" / f"{name}{ending}" for ending in (".tar.xz", ".zip")]
    folder = place_of(data_dir, "tu", name, "raw")
    if place := next((place for place in (*places, folder) if place is not None and place.exists()), None):
        return place
    raise DataError(f"{places[0]} does not exist: the data folder must hold the TU data set '{name}' there.")


def _numbers(text: str, file: str) -> NDArray[np.int64]:
    if not text.strip():
        raise DataError(f"{file} is empty.")
    try:
        found: NDArray[np.int64] = np.loadtxt(io.StringIO(text), np.int64, comments=None, delimiter=",", ndmin=2)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{file} must hold whole numbers: {error}.") from error
    return found


def _graphs(parts: Mapping[str, NDArray[np.int64]]) -> GraphSet:
    edges, of_node, classes = parts["A"], parts["graph_indicator"], parts["graph_labels"]
    if edges.shape[1] != 2 or of_node.shape[1] != 1 or classes.shape[1] != 1:
        raise DataError("an edge must be two numbers; a node's graph and a graph's class must be one.")
    graph = of_node[:, 0] - 1
    steps = np.diff(graph)
    if graph[0] != 0 or graph[-1] != len(classes) - 1 or bool(((steps != 0) & (steps != 1)).any()):
        raise DataError(f"nodes must be in the order of their graphs, which are numbered from 1 to {len(classes)}, none empty.")
    if int(edges.min()) < 1 or int(edges.max()) > len(graph):
        raise DataError(f"there are {len(graph)} nodes, but edges between nodes {int(edges.min())} to {int(edges.max())}.")
    source, target = torch.from_numpy(edges - 1).unbind(1)
    graph_of = torch.from_numpy(graph)
    if not torch.equal(graph_of[source], graph_of[target]):
        raise DataError("an edge leads from one graph to another.")
    # sorted, each edge once, none from a node to itself
    pairs = torch.unique((source * len(graph) + target)[source != target])
    source, target = pairs // len(graph), pairs % len(graph)
    node_start = starts(torch.bincount(graph_of, minlength=len(classes)))
    return GraphSet(
        x=_features(parts["node_labels"], len(graph)) if "node_labels" in parts else torch.ones(len(graph), 1),
        edge_index=torch.stack([source, target]) - node_start[graph_of[source]],
        node_start=node_start,
        edge_start=starts(torch.bincount(graph_of[source], minlength=len(classes))),
        labels=torch.unique(torch.from_numpy(classes[:, 0]), return_inverse=True)[1],
    )


def _features(labels: NDArray[Any], nodes: int) -> torch.Tensor:
    """Returns the one-hot labels of each node, concatenated over the columns of labels, [n, F]."""
    if len(labels) != nodes:
        raise DataError(f"there are {nodes} nodes, but labels of {len(labels)}.")
    lowest = labels.min(0)
    widths = [int(high) - int(low) + 1 for high, low in zip(labels.max(0), lowest, strict=True)]
    if nodes * sum(widths) * 4 > _MOST_BYTES:
        raise DataError(f"labels of nodes reach {max(widths)} values, which would take more than {_MOST_BYTES >> 20} MiB.")
    columns = torch.from_numpy(labels - lowest).unbind(1)
    return torch.cat([torch.nn.functional.one_hot(each, width) for each, width in zip(columns, widths, strict=True)], 1).float()
