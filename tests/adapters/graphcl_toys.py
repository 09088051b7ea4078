"""Small graphs: as PyTorch Geometric has them, as a batch, and as files of the TU collection and of OGB."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r".*torch\.jit", category=DeprecationWarning)
    from torch_geometric.data import Data

Edges = Sequence[tuple[int, int]]


def graph(nodes: int, edges: Edges, label: int = 0, width: int | None = 2) -> Any:
    """A graph with both directions of each edge; feature 0 is the number of the node."""
    both = [pair for low, high in edges for pair in ((low, high), (high, low))]
    edge_index = torch.tensor(both, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    x = None if width is None else torch.arange(nodes * width).reshape(width, nodes).T.float()
    return Data(x=x, edge_index=edge_index, y=torch.tensor([label]), num_nodes=nodes)


def ring(size: int) -> list[tuple[int, int]]:
    return [(node, (node + 1) % size) for node in range(size)]


def batch_of(*graphs: Any) -> GraphBatch:
    return GraphSet.from_graphs(graphs).batch(torch.arange(len(graphs)))


def toy_set(count: int = 40, seed: int = 0, width: int | None = 2) -> GraphSet:
    """Rings (class 0) and random trees (class 1), of 6 to 14 nodes."""
    chance = random.Random(seed)
    graphs = []
    for position in range(count):
        size = chance.randint(6, 14)
        tree = [(chance.randrange(node), node) for node in range(1, size)]
        graphs.append(graph(size, tree if position % 2 else ring(size), position % 2, width))
    return GraphSet.from_graphs(graphs)


def grown(edges: Edges, nodes: int, size: int) -> dict[frozenset[int], float]:
    """The chance of each node set, where a random node is followed by random ones that an edge leads to."""
    near = {node: {target for source, target in edges if source == node} for node in range(nodes)}
    chances = {frozenset([node]): 1 / nodes for node in range(nodes)}
    for _ in range(size - 1):
        following: dict[frozenset[int], float] = {}
        for part, chance in chances.items():
            frontier = set().union(*(near[node] for node in part)) - part
            for key in [part | {node} for node in frontier] or [part]:
                following[key] = following.get(key, 0.0) + chance / max(1, len(frontier))
        chances = following
    return chances


def write_tu(folder: Path, name: str, graphs: GraphSet, kinds: int | None = 3) -> Path:
    """Writes an archive as the TU collection has it, nodes counted from 1; without node labels where ``kinds`` is None."""
    of_node = torch.arange(len(graphs)).repeat_interleave(graphs.node_start.diff())
    first = graphs.node_start[:-1].repeat_interleave(graphs.edge_start.diff())
    lines = {
        "A": [f"{source + 1}, {target + 1}" for source, target in (graphs.edge_index + first).T.tolist()],
        "graph_indicator": [str(each + 1) for each in of_node.tolist()],
        "graph_labels": [str(each) for each in graphs.labels.tolist()],  # type: ignore[union-attr]
    }
    if kinds:
        lines["node_labels"] = [str(node % kinds) for node in range(len(of_node))]
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{name}.tar.xz"
    with tarfile.open(archive, "w:xz") as stream:
        for part, text in lines.items():
            content = ("\n".join(text) + "\n").encode()
            entry = tarfile.TarInfo(f"{name}/raw/{name}_{part}.txt")
            entry.size = len(content)
            stream.addfile(entry, io.BytesIO(content))
    return archive


def packed(folder: Path, **tables: Any) -> None:
    """Writes packed tables in the layout of ogb."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        (folder / f"{name.replace('_', '-')}.csv.gz").write_bytes(gzip.compress(text.encode()))


OWN = """
from torch_geometric.utils import dropout_edge

def fewer_edges(data):
    data.edge_index, _ = dropout_edge(data.edge_index, p=0.4)
    return data
"""


class Embedded(torch.nn.Module):
    """A user's encoder of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(99, 8)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.table(x).sum(1)
        return found
