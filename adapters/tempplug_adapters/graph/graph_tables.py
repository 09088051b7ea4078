"""A graph from a table of edges, a matrix of features and perhaps one of labels. It must not know any model."""

from __future__ import annotations

from pathlib import Path

from torch_geometric.data import Data

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.matrices import read_matrix

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
