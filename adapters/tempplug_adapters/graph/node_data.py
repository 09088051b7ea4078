"""Graphs for node classification: public ones by name, saved ones, tables; faults are raised before any training."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import NormalizeFeatures

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.matrices import read_matrix
from tempplug_adapters.graph.public_graphs import load_public
from tempplug_adapters.graph.saved_graphs import read_graphs

SUFFIXES = (".csv", ".tsv", ".txt", ".npy", ".csv.gz", ".tsv.gz", ".txt.gz")
"""How the name of a table of edges ends."""


def read_tables(edges: Path, features: Path | None, labels: Path | None) -> Data:
    """Returns the graph of files, each read by `read_matrix`; edges stay as they are, in one direction or in both.

    Args:
        edges: [E, 2] source and target, nodes counted from 0, or [E, 3] with a weight; or [2, E].
        features: [N, F], which also says how many nodes there are.
        labels: [N, 1] a class a node, or [N, C] 0 and 1; -1 where a label is missing.

    Raises:
        ConfigError: there are no features.
        DataError: a file cannot be read, or does not fit.
    """
    if features is None:
        raise ConfigError(f"a table of edges such as {edges} needs --node-features, a matrix with a row a node.")
    table = read_matrix(edges)
    table = table.T if table.shape[0] == 2 and table.shape[1] not in (2, 3) else table
    if table.shape[1] not in (2, 3) or bool((table[:, :2] != table[:, :2].round()).any()):
        raise DataError(f"{edges} must have two columns, the nodes of an edge, or three with its weight, not {table.shape[1]}.")
    graph = Data(x=read_matrix(features), edge_index=table[:, :2].T.long().contiguous())
    if table.shape[1] == 3:
        graph.edge_weight = table[:, 2].float()
    if labels is not None:
        graph.y = read_matrix(labels)
        if len(graph.y) != len(graph.x):
            raise DataError(f"{labels} has labels of {len(graph.y)} nodes, but {features} features of {len(graph.x)}.")
    return graph


def load_graph(
    dataset: str,
    data_dir: str | Path | None,
    cache_dir: str | Path,
    normalize: bool = True,
    features: str | Path | None = None,
    labels: str | Path | None = None,
) -> Data:
    """Returns a graph, checked (see `check_graph`).

    Args:
        dataset: a name that `load_public` knows; a file ``*.pt`` (see `read_graphs`), several graphs of which are put side by
            side; or a table of edges (see `read_tables`).
        data_dir: folder of real data, see `load_public`; None downloads.
        cache_dir: where to.
        normalize: whether every node's features are scaled to the sum 1 (PyTorch Geometric's ``NormalizeFeatures``).
        features: file of the features, for a table of edges.
        labels: file of the labels, likewise.

    Raises:
        ConfigError: features or labels are given with another kind of data, or lacking.
        UnknownNameError: no data set of that name.
        DataError: files are missing or damaged, or the graph cannot be trained on.
    """
    if dataset.endswith(SUFFIXES):
        files = (None if each is None else Path(each) for each in (features, labels))
        graph = read_tables(Path(dataset), *files)
    elif features is not None or labels is not None:
        raise ConfigError(f"--node-features and --node-labels belong to a table of edges, not to dataset='{dataset}'.")
    elif dataset.endswith(".pt"):
        graphs = read_graphs(Path(dataset))
        graph = graphs[0] if len(graphs) == 1 else Batch.from_data_list(graphs)
    else:
        graph = load_public(dataset, None if data_dir is None else Path(data_dir), Path(cache_dir))
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
                f"{name}: y must hold classes, whole numbers, to measure by; with --no-evaluate it may be anything."
            )
    labels = y.long()
    if int(labels.min()) < -1 or (y.ndim == 2 and int(labels.max()) > 1):
        wanted = "classes from 0" if y.ndim == 1 else "0 or 1 for each class of a node"
        raise DataError(
            f"{name}: y must hold {wanted}, and -1 where a label is missing, not {int(labels.min())} to {int(labels.max())}."
        )
    return labels if bool((labels >= 0).any()) else None
