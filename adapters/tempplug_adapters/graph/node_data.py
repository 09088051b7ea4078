"""Graphs for node classification: public ones by name, saved ones, and tables, checked before any training.

Public ones are read from the folders of PyTorch Geometric's classes: Planetoid, CitationFull, Coauthor and Amazon; and OGB's.
"""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.io import parse_npz, read_planetoid_data
from torch_geometric.transforms import NormalizeFeatures

from tempplug.errors import DataError, UnknownNameError, listed, nearest
from tempplug_adapters.data_files.archives import check, download, read_arrays
from tempplug_adapters.data_files.text_streams import file_kind
from tempplug_adapters.graph.classes import class_numbers, signed_classes
from tempplug_adapters.graph.graph_files import load_ogb, ogb_files, place_of, read_graphs

_PLANETOID = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/{}"
_FULL = "https://raw.githubusercontent.com/abojchevski/graph2gauss/240248289d38c22ba28ea8e56b7d6873e291499b/data/{}"
_SHCHUR = "https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz/{}"
# Folder and file by class and name.
_CITATIONS = ("Cora", "Cora_ML", "CiteSeer", "DBLP", "PubMed")
_ARCHIVES = {
    **{f"CitationFull/{name}": (name.lower(), f"{name.lower()}.npz") for name in _CITATIONS},
    "Coauthor/CS": ("CS", "ms_academic_cs.npz"),
    "Coauthor/Physics": ("Physics", "ms_academic_phy.npz"),
    "Amazon/Computers": ("Computers", "amazon_electronics_computers.npz"),
    "Amazon/Photo": ("Photo", "amazon_electronics_photo.npz"),
}
_FOLDERS = {"Planetoid": "planetoid", "CitationFull": "citation_full", "Coauthor": "coauthor", "Amazon": "amazon"}
_SUMS = {"dblp.npz": "git:3e179a9ebf2968d9ad67544c8978bf4759e489d8"}
_NAMES = ("Planetoid/Cora", "Planetoid/CiteSeer", "Planetoid/PubMed", *_ARCHIVES)
_ARRAYS = tuple(f"{of}_{part}" for of in ("attr", "adj") for part in ("data", "indices", "indptr", "shape"))
_MOST_BYTES = 2**31


def load_graph(dataset: str, data_dir: str | Path | None, cache_dir: str | Path, normalize: bool = True) -> Data:
    """Returns a graph, checked (see `check_graph`).

    Args:
        dataset: a public graph by name, with its class where two have the name: ``Cora`` is ``Planetoid/Cora``; one of OGB's,
            ``ogbn-arxiv``; or a file ``*.pt`` (see `read_graphs`), whose graphs are joined.
        data_dir: folder that holds ``graph/planetoid/Cora/raw`` and the like, ``planetoid/Cora/raw``, or ``Cora/raw``, as the
            class leaves it; read and never written to. None downloads.
        cache_dir: folder for downloads.
        normalize: whether the features of each node are scaled to the sum 1 (PyTorch Geometric's ``NormalizeFeatures``).

    Raises:
        UnknownNameError: no data set of that name.
        DataError: files are missing or damaged, or the graph cannot be used for training.
    """
    if dataset.endswith(".pt"):
        graphs = read_graphs(Path(dataset))
        graph = graphs[0] if len(graphs) == 1 else Batch.from_data_list(graphs)
    else:
        graph = _load_public(dataset, None if data_dir is None else Path(data_dir), Path(cache_dir))
    return checked_graph(graph, dataset, normalize)


def is_table(dataset: str) -> bool:
    """Returns whether the name of a data set is that of a table of edges, since it ends like a file, and not in ``.pt``."""
    return file_kind(Path(dataset)) not in ("", ".pt")


def checked_graph(graph: Data, name: str, normalize: bool) -> Data:
    """Returns a graph after `check_graph`; with features of each node that sum to 1 if they are to be normalized."""
    check_graph(graph, name)
    return scaled_features(graph) if normalize else graph


def scaled_features(graph: Data) -> Data:
    """Returns a copy of a graph in which the features of each node are scaled to the sum 1."""
    graph = copy.copy(graph)
    graph.x = plain_features(graph.x).float()  # whole numbers cannot be scaled in place
    scaled: Data = NormalizeFeatures()(graph)
    return scaled


def _load_public(dataset: str, data_dir: Path | None, cache_dir: Path) -> Data:
    if dataset.lower().startswith("ogbn-"):
        return load_ogb(dataset, data_dir)[0]
    kind, name = _public_name(dataset)
    files, sums = _published(kind, name, data_dir, cache_dir), _planetoid_sums(name) if kind == "Planetoid" else _SUMS
    address = {"Planetoid": _PLANETOID, "CitationFull": _FULL}.get(kind, _SHCHUR)
    first = next(iter(files.values()))
    if data_dir is None:
        for file, path in files.items():
            download(address.format(file), path, sums.get(file))
    elif missing := [file for file, path in files.items() if not path.is_file()]:
        raise DataError(f"{kind}/{name} needs {', '.join(missing)}, not found in {first.parent}.")
    if kind != "Planetoid":
        return _read_archive(first)
    for file, path in files.items():  # most are pickles, which PyTorch Geometric reads if they are the published ones
        check(path, sums[file])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy and SciPy about their old pickles
        return read_planetoid_data(str(first.parent), name)


def files_of(dataset: str, data_dir: Path | None, cache_dir: Path) -> dict[str, Path]:
    """Returns the files that `load_graph` has read, without those of features and labels; arguments as of `load_graph`."""
    if dataset.endswith(".pt") or is_table(dataset):
        return {"": Path(dataset)}
    if dataset.lower().startswith("ogbn-"):
        return ogb_files(dataset, data_dir)
    files = _published(*_public_name(dataset), data_dir, cache_dir)
    return files if len(files) > 1 else {"": next(iter(files.values()))}


def _public_name(dataset: str) -> tuple[str, str]:
    """Returns the class and the name of a public graph; raises UnknownNameError."""
    # a name of two classes is that of the first
    known = {short.lower(): name for name in reversed(_NAMES) for short in (name, name.partition("/")[2])}
    if dataset.lower() not in known:
        short = list(dict.fromkeys(name.partition("/")[2] for name in _NAMES))
        names = f"{listed(short, 60)}, OGB's such as ogbn-arxiv, files that end in .pt, and tables of edges"
        raise UnknownNameError(f"no data set '{dataset}'.{nearest(dataset, [*short, *_NAMES])} Known: {names}.")
    kind, _, name = known[dataset.lower()].partition("/")
    return kind, name


def _published(kind: str, name: str, data_dir: Path | None, cache_dir: Path) -> dict[str, Path]:
    """Returns the files of a public graph by name, in the folder of downloads without a folder of data."""
    planetoid = kind == "Planetoid"
    folder, *files = (name, *_planetoid_sums(name)) if planetoid else _ARCHIVES[f"{kind}/{name}"]
    cached = cache_dir / _FOLDERS[kind] / (f"{name}/raw" if planetoid else "")
    place = place_of(data_dir, _FOLDERS[kind], folder, "raw") or cached
    return {file: place / file for file in files}


def _planetoid_sums(name: str) -> dict[str, str]:
    sums: dict[str, str] = json.loads(Path(__file__).with_name("planetoid_checksums.json").read_text("utf-8"))[name]
    return sums


def _read_archive(file: Path) -> Data:
    """Returns the graph that PyTorch Geometric's ``read_npz`` returns, after checking the arrays."""
    arrays = read_arrays(file, (*_ARRAYS, "labels"))
    if missing := {*_ARRAYS, "labels"} - arrays.keys():
        raise DataError(f"{file} lacks {', '.join(sorted(missing))}.")
    labels = arrays["labels"]
    try:
        (nodes, width), shape = (_checked_shape(*(arrays[name] for name in names)) for names in (_ARRAYS[:4], _ARRAYS[4:]))
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{file} cannot be read: its matrix is damaged: {error}.") from error
    if nodes * width * arrays["attr_data"].itemsize > _MOST_BYTES:
        raise DataError(f"{file} has features of {nodes} x {width}, which would take more than {_MOST_BYTES >> 20} MiB.")
    if shape != (nodes, nodes) or labels.shape != (nodes,) or labels.dtype.kind not in "iu":
        raise DataError(f"{file} must have links between its {nodes} nodes, and a class, an integer, of each.")
    return parse_npz(arrays)


def _checked_shape(data: NDArray[Any], indices: NDArray[Any], starts: NDArray[Any], given: NDArray[Any]) -> tuple[int, int]:
    """Returns the shape of a matrix in compressed rows after SciPy's full check."""
    if data.dtype.kind not in "iuf" or indices.dtype.kind not in "iu" or starts.dtype.kind not in "iu":
        raise ValueError("it must have numbers as data, and integers as indices and indptr")
    rows, columns = map(int, given)
    csr_array((data, indices, starts), shape=(rows, columns)).check_format(full_check=True)
    return rows, columns


def check_graph(graph: Data, name: str) -> None:
    """Checks that the nodes of a graph can be contrasted. Isolated nodes, and a graph without edges, are allowed.

    Args:
        graph: with ``x`` [N, F] and ``edge_index`` [2, E]; ``edge_weight`` [E] where edges have weights.
        name: its name in messages.

    Raises:
        DataError: it has no node features, fewer than two nodes, or a wrong shape or value.
    """
    if graph.x is None or graph.x.dim() != 2 or graph.x.shape[1] == 0:
        remedy = "torch_geometric.transforms.LocalDegreeProfile makes some from the edges"
        raise DataError(f"{name}: the graph must have node features x [nodes, features]; {remedy}.")
    nodes = int(graph.x.shape[0])
    if nodes < 2:
        raise DataError(f"{name}: the graph has {nodes} node; contrastive training needs at least 2.")
    if not torch.isfinite(graph.x.to_dense() if graph.x.layout != torch.strided else graph.x).all():
        raise DataError(f"{name}: node features must be finite, but hold NaN or infinite values.")
    edges = graph.edge_index
    if edges is None or edges.dim() != 2 or edges.shape[0] != 2 or edges.is_floating_point():
        dense = " torch_geometric.utils.dense_to_sparse makes it from adj." if edges is None and "adj" in graph else ""
        raise DataError(f"{name}: the graph must have edge_index [2, edges], integers; [2, 0] where it has no edges.{dense}")
    lowest, highest = (int(edges.min()), int(edges.max())) if edges.numel() else (0, 0)
    if lowest < 0 or highest >= nodes:
        wrong = lowest if lowest < 0 else highest
        raise DataError(f"{name}: edge_index names node {wrong}, but there are {nodes} nodes, counted from 0.")
    weight = graph.get("edge_weight")
    if weight is not None and (weight.shape != edges.shape[1:] or not bool(torch.isfinite(weight).all())):
        raise DataError(f"{name}: edge_weight must hold a finite number for each edge, [{edges.shape[1]}].")


def plain_features(x: Tensor) -> Tensor:
    """Returns features as a dense matrix [N, F], in float32 or, if they are integers, in their dtype."""
    dense = x if x.layout == torch.strided else x.to_dense()
    return dense.float() if dense.is_floating_point() else dense


def labels_of(graph: Data, name: str) -> Tensor | None:
    """Returns the class of each node [N], or 0 and 1 for each class of several a node [N, C]; -1 where a label is missing.

    Args:
        graph: with ``y`` [N], [N, 1] or [N, C], or without; or a list of numbers or words. -1 (but not beside 1 alone), NaN,
            None and "" are missing labels.
        name: its name in messages.

    Raises:
        DataError: ``y`` has another shape or holds other numbers.
    """
    if graph.y is None:
        return None
    nodes, words = int(graph.x.shape[0]), isinstance(graph.y, list) and all(isinstance(each, str | None) for each in graph.y)
    try:
        y = class_numbers(graph.y, name) if words else torch.as_tensor(graph.y)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name}: y must hold a class of each node, all numbers or all words.") from error
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim not in (1, 2) or len(y) != nodes or y.is_complex():
        raise DataError(f"{name}: y must hold one class a node, [{nodes}], or several, [{nodes}, C], not {list(y.shape)}.")
    y = signed_classes(y.double(), name).nan_to_num(-1.0)
    if bool((y != y.round()).any()):
        raise DataError(f"{name}: y must hold classes, whole numbers, to measure by; or pass --no-evaluate.")
    labels = y.long()
    if int(labels.min()) < -1 or (y.ndim == 2 and int(labels.max()) > 1):
        wanted = "classes from 0" if y.ndim == 1 else "0 or 1 for each class of a node"
        raise DataError(f"{name}: y must hold {wanted}, -1 if missing, not {int(labels.min())} to {int(labels.max())}.")
    return labels if bool((labels >= 0).any()) else None
