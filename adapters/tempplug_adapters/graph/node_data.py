"""Graphs for node classification: public ones from a data folder or downloaded, or a saved ``Data``.

Nothing in them is run, and nothing is written but what is downloaded. Whatever the graph lacks is said here, before any
training. This module must not know any model.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import remove_self_loops, to_undirected

from tempplug.errors import DataError, UnknownNameError, nearest
from tempplug_adapters.data_files.archives import read_arrays
from tempplug_adapters.data_files.downloads import download
from tempplug_adapters.data_files.pickled_arrays import SparseRows
from tempplug_adapters.graph.grace_recipe import DATASETS
from tempplug_adapters.graph.planetoid import load_planetoid
from tempplug_adapters.storage.tensors import read_tensors

_DBLP_URL = "https://raw.githubusercontent.com/abojchevski/graph2gauss/240248289d38c22ba28ea8e56b7d6873e291499b/data/dblp.npz"
_DBLP_SUM = "git:3e179a9ebf2968d9ad67544c8978bf4759e489d8"
_DBLP_ARRAYS = tuple(f"{of}_{part}" for of in ("attr", "adj") for part in ("data", "indices", "indptr", "shape"))
_MOST_BYTES = 2**30


def load_graph(dataset: str, data_dir: str | Path | None, cache_dir: str | Path, normalize: bool = True) -> Data:
    """Returns a graph, checked (see `check_graph`).

    Args:
        dataset: one of `DATASETS`, or a file ``*.pt`` to which ``torch.save`` wrote a ``torch_geometric.data.Data``.
        data_dir: folder that holds ``graph/planetoid/Cora/raw`` and the like, which is read and never written to; None
            downloads.
        cache_dir: where to.
        normalize: whether every node's features are scaled to the sum 1 (PyTorch Geometric's ``NormalizeFeatures``).

    Raises:
        UnknownNameError: no data set of that name.
        DataError: files are missing or damaged, or the graph cannot be trained on.
    """
    graph = _saved_graph(Path(dataset)) if dataset.endswith(".pt") else _public_graph(dataset, data_dir, Path(cache_dir))
    check_graph(graph, dataset)
    if normalize:
        graph.x = plain_features(graph.x).float()  # whole numbers cannot be scaled in place
        graph = NormalizeFeatures()(graph)
    return graph


def check_graph(graph: Data, name: str) -> None:
    """Makes sure that nodes of a graph can be contrasted. Isolated nodes, and a graph without edges, are allowed.

    Args:
        graph: with ``x`` [N, F] and ``edge_index`` [2, E]; ``edge_weight`` [E] where edges have weights.
        name: what messages call it.

    Raises:
        DataError: it has no node features, fewer than two nodes, or shapes and numbers that do not fit.
    """
    if graph.x is None or graph.x.dim() != 2 or graph.x.shape[1] == 0:
        raise DataError(
            f"{name}: the graph must have node features x [nodes, features]; "
            "torch_geometric.transforms.LocalDegreeProfile makes some from the edges."
        )
    nodes = int(graph.x.shape[0])
    if nodes < 2:
        raise DataError(f"{name}: the graph has {nodes} node; contrastive training needs at least 2.")
    if not torch.isfinite(graph.x.to_dense() if graph.x.layout != torch.strided else graph.x).all():
        raise DataError(f"{name}: node features must be finite, but hold NaN or infinite values.")
    edges = graph.edge_index
    if edges is None or edges.dim() != 2 or edges.shape[0] != 2 or edges.is_floating_point():
        raise DataError(f"{name}: the graph must have edge_index [2, edges], integers; [2, 0] where it has no edges.")
    lowest, highest = (int(edges.min()), int(edges.max())) if edges.numel() else (0, 0)
    if lowest < 0 or highest >= nodes:
        wrong = lowest if lowest < 0 else highest
        raise DataError(f"{name}: edge_index names node {wrong}, but there are {nodes} nodes, counted from 0.")
    weight = graph.get("edge_weight")
    if weight is not None and (weight.shape != edges.shape[1:] or not bool(torch.isfinite(weight).all())):
        raise DataError(
            f"{name}: edge_weight must hold a finite number for each of {edges.shape[1]} edges, [{edges.shape[1]}]."
        )


def plain_features(x: Tensor) -> Tensor:
    """Returns features as a dense matrix [N, F]: numbers in float32, whole numbers as they are."""
    dense = x if x.layout == torch.strided else x.to_dense()
    return dense.float() if dense.is_floating_point() else dense


def labels_of(graph: Data, name: str) -> Tensor | None:
    """Returns the class of each node [N], or 0 and 1 for each class of several a node [N, C]; -1 where a label is missing.

    Args:
        graph: with ``y`` [N], [N, 1] or [N, C], or without; -1 and NaN are missing labels.
        name: what messages call it.

    Raises:
        DataError: ``y`` has another shape, or holds no classes.
    """
    if graph.y is None:
        return None
    y, nodes = graph.y, int(graph.x.shape[0])
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim not in (1, 2) or len(y) != nodes or y.is_complex():
        raise DataError(
            f"{name}: y must hold one class a node, [{nodes}], or several, [{nodes}, classes], not {list(y.shape)}."
        )
    if y.is_floating_point():
        y = torch.where(y.isnan(), -1.0, y)
        if bool((y != y.round()).any()):
            raise DataError(
                f"{name}: y must hold classes, whole numbers, to be measured by; with --no-evaluate it may be anything."
            )
    labels = y.long()
    if int(labels.min()) < -1 or (y.ndim == 2 and int(labels.max()) > 1):
        wanted = "classes from 0" if y.ndim == 1 else "0 or 1 for each class of a node"
        raise DataError(
            f"{name}: y must hold {wanted}, and -1 where a label is missing, not {int(labels.min())} to {int(labels.max())}."
        )
    return labels if bool((labels >= 0).any()) else None


def _public_graph(dataset: str, data_dir: str | Path | None, cache_dir: Path) -> Data:
    known = {name.lower(): name for name in DATASETS}
    if dataset.lower() not in known:
        raise UnknownNameError(
            f"no data set '{dataset}'.{nearest(dataset, DATASETS)} Known: {', '.join(DATASETS)}, and files that end in .pt."
        )
    name = known[dataset.lower()]
    folder = None if data_dir is None else Path(data_dir) / "graph"
    if name != "DBLP":
        return load_planetoid(name, folder and folder / "planetoid" / name / "raw", cache_dir)
    if folder is None:
        return _read_dblp(download(_DBLP_URL, cache_dir / "citation_full" / "dblp.npz", _DBLP_SUM))
    file = folder / "citation_full" / "dblp" / "raw" / "dblp.npz"
    if not file.is_file():
        raise DataError(f"{name} needs {file.name} in {file.parent}, which lacks it.")
    return _read_dblp(file)


def _read_dblp(file: Path) -> Data:
    """Returns DBLP as PyTorch Geometric's ``CitationFull`` has it: words as 0 or 1, edges in both directions."""
    arrays = read_arrays(file, (*_DBLP_ARRAYS, "labels"))
    missing = {*_DBLP_ARRAYS, "labels"} - arrays.keys()
    if missing:
        raise DataError(f"{file} lacks {', '.join(sorted(missing))}.")
    labels = arrays["labels"]
    words, links = (SparseRows(*(arrays[name] for name in names)) for names in (_DBLP_ARRAYS[:4], _DBLP_ARRAYS[4:]))
    try:
        x = torch.from_numpy(words.dense(_MOST_BYTES)).float()
        rows = links.row_of_each()
    except DataError as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    nodes = len(x)
    if tuple(map(int, links.shape)) != (nodes, nodes) or labels.shape != (nodes,) or labels.dtype.kind not in "iu":
        raise DataError(f"{file} must have links between its {nodes} nodes, and a class, an integer, of each.")
    x[x > 0] = 1
    edges, _ = remove_self_loops(torch.from_numpy(np.stack([rows, links.indices.astype(np.int64)])))
    y = torch.from_numpy(labels.astype(np.int64))
    return Data(x=x, edge_index=to_undirected(edges, num_nodes=nodes), y=y)


def _saved_graph(file: Path) -> Data:
    if not file.is_file():
        raise DataError(f"{file} does not exist or is not a file.")
    # The context manager forgets at its end whatever it was given, also what PyTorch Geometric had allowed itself before.
    allowed = torch.serialization.get_safe_globals()
    wanted = [each for each in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if each not in allowed]
    try:
        with torch.serialization.safe_globals(wanted):
            graph = read_tensors(file)
    except DataError as error:
        raise DataError(f"{file} could not be read: {error}") from error
    if not isinstance(graph, Data):
        raise DataError(f"{file} must hold a torch_geometric.data.Data, not {type(graph).__name__}.")
    return graph
