"""The TU collection (Morris et al. 2020): data sets of many graphs, read from the texts of their archives.

The result is that of PyTorch Geometric's ``TUDataset``, whose reader needs unpacked files and does not check their numbers.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import download, read_archived_texts
from tempplug_adapters.graph.graph_data import GraphSet, starts
from tempplug_adapters.graph.ogb_files import place_of

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
    if data_dir is None:
        archive = download(_URL.format(name=name), cache_dir / f"{name}.zip", None)
    else:
        packed = [data_dir / "graph" / "tu" / f"{name}{ending}" for ending in (".tar.xz", ".zip")]
        found = [each for each in packed if each.is_file()]
        found += [each for each in [place_of(data_dir, "tu", name, "raw")] if each is not None and each.is_dir()]
        if not found:
            raise DataError(f"{packed[0]} does not exist: the data folder must hold the TU data set '{name}' there.")
        archive = found[0]
    *needed, labels = parts.values()
    texts = read_archived_texts(archive, needed, [labels])
    try:
        return _graphs({part: _numbers(texts[file], file) for part, file in parts.items() if file in texts})
    except DataError as error:
        raise DataError(f"the TU data set '{name}' cannot be read from {archive}: {error}") from error


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
