"""Cora, CiteSeer and PubMed as Planetoid published them (Yang et al. 2016): eight files each, most of them pickles of arrays.

PyTorch Geometric's own reader gives the same graph, but runs what a pickle names, and trusts every index in it.
"""

from __future__ import annotations

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

_URL: Final = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/{file}"
_PARTS: Final = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
# Of every file in the order of `_PARTS`; git's own of the one that no snapshot at hand holds.
_SUMS: Final = {
    "Cora": (
        "sha256:23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "sha256:94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "sha256:b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "sha256:41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "sha256:9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "sha256:2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "sha256:58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "sha256:297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    ),
    "CiteSeer": (
        "sha256:d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "sha256:8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "sha256:539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "sha256:55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "sha256:2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "sha256:f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "sha256:d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "sha256:2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    ),
    "PubMed": (
        "sha256:fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "sha256:e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "sha256:4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "sha256:ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "git:3b86bccf08111c37c632a9dd8ab63db25ea76361",
        "sha256:0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "sha256:5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "sha256:b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    ),
}
_VALIDATION: Final = 500
_MOST_BYTES: Final = 2**30


def load_planetoid(name: str, raw: Path | None, cache_dir: Path) -> Data:
    """Returns a graph, after the checksums of its files were compared.

    Args:
        name: ``Cora``, ``CiteSeer`` or ``PubMed``.
        raw: folder with the files; None downloads them.
        cache_dir: where to.

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
            raise DataError(f"{name} needs {', '.join(missing)} in {raw}, which lacks {'them' if len(missing) > 1 else 'it'}.")
        for file, checksum in zip(files, _SUMS[name], strict=True):
            check(raw / file, checksum)
    return read_planetoid(name, raw)


def read_planetoid(name: str, raw: Path) -> Data:
    """Returns the graph of the files ``raw/ind.NAME.x`` and so on, whatever their checksums are.

    Raises:
        DataError: a file is missing or damaged, or does not fit the others; the message names it.
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
    # Test nodes that no file describes, as CiteSeer has them, get features of 0 and the first class.
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
        return found.dense(_MOST_BYTES) if isinstance(found, SparseRows) else found
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
    # a list may be there many times over, for little more than a byte each
    if not all(isinstance(each, list) for each in lists) or sum(map(len, lists)) > path.stat().st_size:
        raise DataError(f"{path} must hold a dictionary from nodes to lists of nodes.")
    rows = [node for node, others in found.items() for _ in others]
    columns = [other for others in found.values() for other in others]
    if not all(type(node) is int and 0 <= node < 2**31 for node in (*rows, *columns)):
        raise DataError(f"{path} must hold nodes, whole numbers from 0.")
    return torch.tensor([rows, columns], dtype=torch.int64).reshape(2, -1)
