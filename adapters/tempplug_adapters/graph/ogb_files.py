"""Data sets of the Open Graph Benchmark (Hu et al. 2020) in the files of the package ``ogb``: packed tables and splits.

The package's own readers load pickles and write to the folder.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask

from tempplug.errors import DataError
from tempplug_adapters.data_files.tables import read_matrix

# The other data sets list each undirected edge once.
_DIRECTED = ("ogbn-arxiv", "ogbg-code2")


def place_of(data_dir: Path | None, kind: str, name: str, last: str) -> Path | None:
    """Returns the first existing folder among those of a data set, or the first of them."""
    if data_dir is None:
        return None
    places = [data_dir / "graph" / kind / name / last, data_dir / kind / name / last, data_dir / name / last]
    return next((place for place in places if place.is_dir()), places[0])


def load_ogb(name: str, data_dir: Path | None) -> list[Data]:
    """Returns the graphs of a data set such as ``ogbn-arxiv`` below ogb's root; see `read_ogb`."""
    place = place_of(data_dir, "ogb", name.lower().replace("-", "_"), "")
    if place is None:
        raise DataError(f"{name} is not downloaded here: let the package ogb do it, and pass its root as --data-dir.")
    return read_ogb(place, name.lower())


def read_ogb(folder: Path, name: str) -> list[Data]:
    """Returns the graphs: one with masks of the published split, or many.

    Args:
        folder: ``ROOT/ogbn_arxiv``, for example.
        name: of the data set; those of ``ogbn`` have classes of nodes, those of ``ogbg`` classes of graphs.

    Raises:
        DataError: a file is missing or damaged, or the files do not match.
    """
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
    graphs = [
        Data(edge_index=links.T.contiguous(), num_nodes=size)
        for links, size in zip(torch.split(pairs, edges), nodes, strict=True)
    ]
    sizes = {"x": (x, nodes), "edge_attr": (edge_attr, edges), "y": (y, nodes if of_nodes else [1] * len(nodes))}
    for attribute, (table, counts) in sizes.items():
        for graph, own in zip(graphs, () if table is None else torch.split(table, counts), strict=table is not None):
            graph[attribute] = own
    if of_nodes and len(graphs) == 1:
        _add_masks(graphs[0], folder / "split")
    return graphs


def _table(raw: Path, part: str) -> Tensor:
    return read_matrix(raw / f"{part}.csv.gz")


def _add_masks(graph: Data, split: Path) -> None:
    """Adds the first published split, if there is one."""
    for place in sorted(split.glob("*/train.csv.gz"))[:1]:
        for part, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
            numbers, nodes = read_matrix(place.with_name(f"{part}.csv.gz"))[:, 0], int(graph.num_nodes or 0)
            if numbers.is_floating_point() or (len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < nodes):
                raise DataError(f"{place.with_name(part)}.csv.gz must hold nodes, from 0 to {nodes - 1}.")
            graph[mask] = index_to_mask(numbers, nodes)
