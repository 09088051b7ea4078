"""Reads a graph from tables of edges, features and labels. Nodes have numbers or names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from tempplug.errors import ConfigError, DataError, quoted
from tempplug_adapters.data_files.matrices import read_matrix, read_rows

_NAMES = re.compile(r"|index|name|node(_?id)?|id|\w+_id", re.IGNORECASE)
"""Headers of a first column with the names of nodes; pandas writes an index without a header."""
_ENDS = (("source", "src", "from", "u"), ("target", "dst", "to", "v"), ("weight", "edge_weight"))
_NUMBERING = ("", "index", "id")
"""Headers of a column that numbers edges."""
_WORDS = {"true": 1.0, "false": 0.0, "": math.nan}
Row = tuple[int, Sequence[str]]
"""Number of a line, and its fields."""


def read_tables(edges: Path, features: Path | None, labels: Path | None) -> Data:
    """Returns the graph of files: numbers in text, NumPy arrays or tensors (see `read_matrix`), or tables with names of nodes.

    Names are the first column of features and labels, with a header such as ``id`` or ``node``, or without one where they are
    no numbers. The graph has its nodes in the order of the features, and the edges of the table without their reverses.

    Args:
        edges: [E, 2] source and target, nodes counted from 0 or by name; [E, 3] with a weight; or [2, E]. A header may name the
            columns in another order: ``source``, ``target``, ``weight``.
        features: [N, F] numbers, or true and false.
        labels: [N, 1] a class a node, a number or a word; or [N, C] 0 and 1. -1 or nothing where a label is missing. By name in
            any order, and nodes may be missing.

    Raises:
        ConfigError: there are no features.
        DataError: a file cannot be read, or they do not fit each other.
    """
    if features is None:
        raise ConfigError(f"a table of edges such as {edges} needs --node-features, a matrix with a row a node.")
    named, x = _features(features)
    nodes = named or {str(node): node for node in range(len(x))}
    index, weight = _edges(edges, features, nodes, bool(named))
    graph = Data(x=x, edge_index=index)
    if weight is not None:
        graph.edge_weight = weight
    if labels is not None:
        graph.y = _labels(labels, features, nodes)
    return graph


def _head(path: Path) -> list[Sequence[str]]:
    """Returns the fields of the first two lines of a text, none of other files."""
    return [] if path.suffix in (".npy", ".pt") else [fields for _, fields in read_rows(path, 2)]


def _number(word: str) -> float | None:
    try:
        return _WORDS[word.lower()] if word.lower() in _WORDS else float(word)
    except ValueError:
        return None


def _has_header(fields: Sequence[str]) -> bool:
    return any(not word or _number(word) is None for word in fields)


def _has_words(head: Sequence[Sequence[str]]) -> bool:
    """Returns whether a table must be read word by word, since its second line has other things than plain numbers."""
    return bool(head) and any(_number(word) is None or word.lower() in _WORDS for word in head[-1])


def _named_rows(path: Path) -> tuple[list[Row], bool] | None:
    """Returns rows, without pandas' index, and whether names come first; None if `read_matrix` reads the file faster."""
    head = _head(path)
    if not _has_words(head) and not (head and _has_header(head[0]) and _NAMES.fullmatch(head[0][0])):
        return None
    rows: list[Row] = list(read_rows(path))
    first = rows[0][1]
    if len(first) > 2 and not first[0] and first[1] and _NAMES.fullmatch(first[1]):
        rows = [(line, fields[1:]) for line, fields in rows]
    return rows, bool(_NAMES.fullmatch(rows[0][1][0])) or _number(rows[-1][1][0]) is None


def _features(path: Path) -> tuple[dict[str, int], Tensor]:
    """Returns the row of each name, none if there are no names, and the features [N, F]."""
    if (found := _named_rows(path)) is None:
        return {}, read_matrix(path)
    rows, named = found
    header = rows.pop(0)[1] if _has_header(rows[0][1][named:]) else None
    nodes: dict[str, int] = {}
    for line, fields in rows if named else ():
        if nodes.setdefault(fields[0], len(nodes)) != len(nodes) - 1:
            raise DataError(f"{path}, line {line}: node {quoted(fields[0])} has two rows: leave one.")
    return nodes, torch.from_numpy(_numbers(path, rows, range(named, len(rows[0][1])), header).astype(np.float32))


def _numbers(path: Path, rows: Sequence[Row], columns: Sequence[int], header: Sequence[str] | None) -> NDArray[np.float64]:
    found = [[_number(fields[column]) for column in columns] for _, fields in rows]
    for (line, fields), numbers in zip(rows, found, strict=True):
        if None in numbers:
            place = columns[numbers.index(None)]
            name = quoted(header[place]) if header else place + 1
            raise DataError(
                f"{path}, line {line}: column {name} is {quoted(fields[place])}; it must be a number. Words become columns of "
                "0 and 1 by pandas.get_dummies; names of nodes belong in the first column."
            )
    return np.array(found, dtype=np.float64).reshape(len(rows), len(columns))


def _edges(path: Path, features: Path, nodes: dict[str, int], named: bool) -> tuple[Tensor, Tensor | None]:
    """Returns the edges [2, E], and their weights [E] if there are some."""
    head = _head(path)
    header = [word.strip().lower() for word in head[0]] if head and _has_header(head[0]) else []
    source, target, weight = (next((header.index(word) for word in each if word in header), None) for each in _ENDS)
    if source is None or target is None:
        more, (source, target, weight) = header[:1] if header[:1] and header[0] in _NUMBERING else [], (0, 1, 2)
    else:
        more = [word for place, word in enumerate(header) if place not in (source, target, weight) and word not in _NUMBERING]
    if more:
        raise DataError(
            f"{path} has the columns {', '.join(map(quoted, header))}; wanted are source, target and, if edges have weights, "
            "weight: name them so, and leave others out."
        )
    wrong = f"{path} must have two columns, the nodes of an edge, or three with its weight, not"
    if not (named or _has_words(head) or "" in header):
        table = read_matrix(path)
        table = table.T if table.shape[0] == 2 and table.shape[1] not in (2, 3) else table
        ends = table[:, [source, target]] if table.shape[1] in (2, 3, len(header)) else None
        if ends is None or bool((ends != ends.round()).any()):
            raise DataError(f"{wrong} {table.shape[1]}.")
        weighs = weight is not None and weight < table.shape[1]
        return ends.T.long().contiguous(), table[:, weight].float() if weighs else None
    if not head:
        raise DataError(f"{path} has numbers of nodes, but {features} names: write the edges with these names, as a table.")
    rows: list[Row] = list(read_rows(path))
    width = len(rows[0][1])
    if width not in (2, 3, len(header)):
        raise DataError(f"{wrong} {width}.")
    if not {rows[0][1][source], rows[0][1][target]} & nodes.keys():
        rows = rows[1:]
    remedy = "add its features, or leave the edge out" if named else "give the features a first column id with these names"
    for line, fields in rows:
        for name in (fields[source], fields[target]):
            if name not in nodes:
                raise DataError(f"{path}, line {line}: node {quoted(name)} has no row in {features}: {remedy}.")
    index = torch.tensor([[nodes[fields[place]] for _, fields in rows] for place in (source, target)], dtype=torch.int64)
    if weight is None or weight >= width:
        return index, None
    return index, torch.from_numpy(_numbers(path, rows, [weight], header or None)[:, 0].astype(np.float32))


def _labels(path: Path, features: Path, nodes: dict[str, int]) -> Tensor:
    """Returns the labels of all nodes, [N, 1] or [N, C]; -1 where there is none."""
    found = _named_rows(path)
    rows, named = ([], False) if found is None else (found[0], found[1] and len(found[0][0][1]) > 1)
    y = read_matrix(path) if found is None else None
    if rows and (_NAMES.fullmatch(rows[0][1][0]) or (rows[0][1][0] not in nodes if named else len(rows) == len(nodes) + 1)):
        rows = rows[1:]
    if not named and (count := len(rows) if y is None else len(y)) != len(nodes):
        raise DataError(
            f"{path} has labels of {count} nodes, but {features} features of {len(nodes)}: give a row for each, or put the "
            "name or number of the node in a first column id."
        )
    if y is not None:
        return y
    columns = range(named, len(rows[0][1]))
    words = [fields[named] for _, fields in rows]
    if len(columns) > 1 or all(_number(word) is not None for word in words):
        values = np.nan_to_num(_numbers(path, rows, columns, None), nan=-1.0)
    else:
        classes = {word: number for number, word in enumerate(sorted({*words} - {""}))}
        values = np.array([[classes.get(word, -1)] for word in words], dtype=np.float64)
    if unknown := [(line, fields[0]) for line, fields in rows if named and fields[0] not in nodes]:
        line, name = unknown[0]
        raise DataError(f"{path}, line {line}: node {quoted(name)} has no row in {features}: leave it out.")
    labels = np.full((len(nodes), len(columns)), -1.0)
    labels[[nodes[fields[0]] for _, fields in rows] if named else slice(None)] = values
    return torch.from_numpy(labels)
