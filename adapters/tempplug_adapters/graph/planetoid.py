"""Cora, CiteSeer and PubMed as Planetoid published them (Yang et al. 2016): eight files each, most of them pickles of arrays.

PyTorch Geometric's own reader returns the same graph, but runs code from the pickles and does not check their indices.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, index_to_mask, remove_self_loops

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import read_whole
from tempplug_adapters.data_files.downloads import check, download
from tempplug_adapters.data_files.pickled_arrays import SparseRows, load_pickled
from tempplug_adapters.data_files.sparse_rows import checked_rows

_URL: Final = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/{file}"
_PARTS: Final = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
# Of the files in the order of `_PARTS`.
_SUMS: Final[dict[str, list[str]]] = json.loads(Path(__file__).with_name("planetoid_checksums.json").read_text("utf-8"))
_VALIDATION: Final = 500
_MOST_BYTES: Final = 2**30


def load_planetoid(name: str, raw: Path | None, cache_dir: Path) -> Data:
    """Returns a graph, after the checksums of its files were compared.

    Args:
        name: ``Cora``, ``CiteSeer`` or ``PubMed``.
        raw: folder with the files; None downloads them.
        cache_dir: folder for downloads.

    Raises:
        DataError: files are missing, damaged or not the published ones.
    """
    files = [f"ind.{name.lower()}.{part}" for part in _PARTS]
    if raw is None:
        raw = cache_dir / "planetoid" / name / "raw"
        for file, checksum in zip(files, _SUMS[name], strict=True):
            download(_URL.format(file=file), raw / file, checksum)
    else:
        missing = [file for file in files if not (raw / file).is_file()]
        if missing:
            raise DataError(f"{name} needs {', '.join(missing)}, not found in {raw}.")
        for file, checksum in zip(files, _SUMS[name], strict=True):
            check(raw / file, checksum)
    return read_planetoid(name, raw)


def read_planetoid(name: str, raw: Path) -> Data:
    """Returns the graph of the files ``raw/ind.NAME.x`` and so on, without comparing checksums.

    Raises:
        DataError: a file is missing or damaged, or does not match the others; the message names it.
    """
    paths = {part: raw / f"ind.{name.lower()}.{part}" for part in _PARTS}
    x, y, tx, ty, allx, ally = (_matrix(paths[part]) for part in _PARTS[:6])
    test = _test_nodes(paths["test.index"])
    for part, rows, wanted in (("y", y, len(x)), ("tx", tx, len(test)), ("ty", ty, len(test)), ("ally", ally, len(allx))):
        if len(rows) != wanted:
            raise DataError(f"{paths[part]} has {len(rows)} rows where the other files have {wanted}.")
    for part, matrix, like in (("tx", tx, allx), ("x", x, allx), ("ty", ty, ally), ("y", y, ally)):
        if matrix.shape[1] != like.shape[1]:
            raise DataError(f"{paths[part]} has {matrix.shape[1]} columns where the others have {like.shape[1]}.")
    edges = _edges(paths["graph"])
    nodes = int(test.max()) + 1
    if test.min() != len(allx) or len(torch.unique(test)) != len(test) or nodes > 2 * (len(allx) + len(tx)):
        raise DataError(f"{paths['test.index']} must number test nodes from {len(allx)} on, each once.")
    if edges.numel() and int(edges.max()) >= nodes:
        raise DataError(f"{paths['graph']} names node {int(edges.max())}, but there are {nodes} nodes, counted from 0.")
    if nodes < len(y) + _VALIDATION or not ally.shape[1]:
        raise DataError(f"{paths['y']} leaves no {_VALIDATION} of {nodes} nodes for validation.")
    # Test nodes without data, as in CiteSeer, get features of 0 and the first class.
    features = torch.cat([allx, allx.new_zeros(nodes - len(allx), allx.shape[1])])
    classes = torch.cat([ally, ally.new_zeros(nodes - len(ally), ally.shape[1])])
    features[test], classes[test] = tx, ty
    edges, _ = remove_self_loops(edges)
    graph = Data(x=features, edge_index=coalesce(edges, num_nodes=nodes, sort_by_row=False), y=classes.max(dim=1)[1])
    graph.train_mask = index_to_mask(torch.arange(len(y)), size=nodes)
    graph.val_mask = index_to_mask(torch.arange(len(y), len(y) + _VALIDATION), size=nodes)
    graph.test_mask = index_to_mask(test, size=nodes)
    return graph


def _pickled(path: Path) -> Any:
    content = read_whole(path)
    try:
        found = load_pickled(content)
        return checked_rows(found, _MOST_BYTES).toarray() if isinstance(found, SparseRows) else found
    except DataError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _matrix(path: Path) -> Tensor:
    matrix = _pickled(path)
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or not len(matrix) or not np.isfinite(matrix).all():
        raise DataError(f"{path} must hold a matrix of finite numbers.")
    return torch.from_numpy(matrix.astype(np.float32))


def _test_nodes(path: Path) -> Tensor:
    try:
        numbers = [int(line) for line in read_whole(path).decode("ascii").split()]
        found = torch.tensor(numbers, dtype=torch.int64)
    except (ValueError, RuntimeError, OverflowError) as error:
        raise DataError(f"{path} must hold a whole number a line.") from error
    if not numbers:
        raise DataError(f"{path} is empty.")
    return found


def _edges(path: Path) -> Tensor:
    """Returns the edges [2, E] in the order of the file."""
    found = _pickled(path)
    lists = found.values() if isinstance(found, dict) else [None]
    # a pickle can refer to one list many times, at about a byte each
    if not all(isinstance(each, list) for each in lists) or sum(map(len, lists)) > path.stat().st_size:
        raise DataError(f"{path} must hold a dictionary from nodes to lists of nodes.")
    rows = [node for node, others in found.items() for _ in others]
    columns = [other for others in found.values() for other in others]
    if not all(type(node) is int and 0 <= node < 2**31 for node in (*rows, *columns)):
        raise DataError(f"{path} must hold nodes, whole numbers from 0.")
    return torch.tensor([rows, columns], dtype=torch.int64).reshape(2, -1)
