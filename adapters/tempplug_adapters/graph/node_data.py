"""Graphs for node classification: read offline from a data folder, downloaded by PyTorch Geometric, or a saved ``Data``.

Whatever the graph lacks is said here, before any training. This module must not know any model.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.datasets import CitationFull, Planetoid
from torch_geometric.transforms import NormalizeFeatures

from tempplug.errors import DataError, UnknownNameError, nearest
from tempplug_adapters.graph.grace_recipe import DATASETS
from tempplug_adapters.storage.tensors import read_tensors

_PLANETOID = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


class _Source(NamedTuple):
    """Where a public graph lies below ``graph/`` of a data folder, in which files, and what reads them."""

    folder: str
    files: tuple[str, ...]
    reader: Any


def _planetoid(name: str) -> _Source:
    return _Source(f"planetoid/{name}", tuple(f"ind.{name.lower()}.{part}" for part in _PLANETOID), Planetoid)


_SOURCES = {
    "Cora": _planetoid("Cora"),
    "CiteSeer": _planetoid("CiteSeer"),
    "PubMed": _planetoid("PubMed"),
    "DBLP": _Source("citation_full/dblp", ("dblp.npz",), CitationFull),
}


def load_graph(dataset: str, data_dir: str | Path | None, cache_dir: str | Path, normalize: bool = True) -> Data:
    """Returns a graph, checked (see `check_graph`).

    Args:
        dataset: one of `DATASETS`, or a file ``*.pt`` to which ``torch.save`` wrote a ``torch_geometric.data.Data``.
        data_dir: folder that holds ``graph/planetoid/Cora/raw`` and the like, which is read and never written to; None lets
            PyTorch Geometric download.
        cache_dir: where it downloads to.
        normalize: whether every node's features are scaled to the sum 1 (PyTorch Geometric's ``NormalizeFeatures``).

    Raises:
        UnknownNameError: no data set of that name.
        DataError: files are missing or damaged, or the graph cannot be trained on.
    """
    graph = _saved_graph(Path(dataset)) if dataset.endswith(".pt") else _public_graph(dataset, data_dir, Path(cache_dir))
    check_graph(graph, dataset)
    if normalize:
        graph = NormalizeFeatures()(graph)
    return graph


def check_graph(graph: Data, name: str) -> None:
    """Makes sure that nodes of a graph can be contrasted. Isolated nodes, and a graph without edges, are allowed.

    Args:
        graph: with ``x`` [N, F] and ``edge_index`` [2, E]; with ``y`` [N] where nodes are to be classified.
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
    if graph.y is not None and (graph.y.shape != (nodes,) or graph.y.is_floating_point()):
        raise DataError(f"{name}: y must hold one class (an integer) a node, [{nodes}], not {list(graph.y.shape)}.")


def _public_graph(dataset: str, data_dir: str | Path | None, cache_dir: Path) -> Data:
    known = {name.lower(): name for name in DATASETS}
    if dataset.lower() not in known:
        raise UnknownNameError(
            f"no data set '{dataset}'.{nearest(dataset, DATASETS)} Known: {', '.join(DATASETS)}, and files that end in .pt."
        )
    name = known[dataset.lower()]
    source = _SOURCES[name]
    if data_dir is None:
        return _read(source.reader, name, cache_dir / source.folder.split("/")[0], says=f"{name} could not be downloaded")
    raw = Path(data_dir) / "graph" / source.folder / "raw"
    missing = [file for file in source.files if not (raw / file).is_file()]
    if missing:
        raise DataError(f"{name} needs {', '.join(missing)} in {raw}, which lacks {'them' if len(missing) > 1 else 'it'}.")
    # PyTorch Geometric writes beside what it reads, and a data folder is not ours to write to. Making it anew takes a second.
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stderr(io.StringIO()):
        shutil.copytree(raw, Path(scratch) / raw.parent.name / "raw", copy_function=shutil.copyfile)
        return _read(source.reader, name, Path(scratch), says=f"{name} could not be read from {raw}")


def _read(reader: Any, name: str, root: Path, says: str) -> Data:
    try:
        with warnings.catch_warnings():
            # The pickles of Planetoid name a module of SciPy by its old path.
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=r".*scipy\.sparse.*")
            graph: Data = reader(str(root), name)[0]
    except (OSError, ValueError, KeyError, IndexError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise DataError(f"{says}: {error}") from error
    return graph


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
