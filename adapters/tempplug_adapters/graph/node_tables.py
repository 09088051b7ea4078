"""A graph from tables of edges, features and labels, whose nodes are numbered or have names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from tempplug.errors import ConfigError, DataError, quoted
from tempplug_adapters.data_files.matrices import read_matrix
from tempplug_adapters.data_files.tables import read_rows

_ID = re.compile(r"|index|name|node(_?id)?|id|\w+_id", re.IGNORECASE)
"""Headers of a first column with the names of nodes; pandas writes an index without a header."""
_ENDS = (("source", "src", "from", "u"), ("target", "dst", "to", "v"), ("weight", "edge_weight"))
_INDEX = ("", "index", "id")
"""Headers of a column of edges that numbers them."""
_WORDS = {"true": 1.0, "false": 0.0, "": math.nan}
Rows = Sequence[tuple[int, Sequence[str]]]


def read_tables(edges: Path, features: Path | None, labels: Path | None) -> Data:
    """Returns the graph of files: numbers in text, NumPy arrays or tensors (see `read_matrix`), or tables with names of nodes.

    Names are the first column of features and labels, with a header such as ``id`` or ``node``, or without one where they are
    no numbers. The graph has its nodes in the order of the features, and the edges of the table without their reverses.

    Args:
        edges: [E, 2] source and target, nodes counted from 0 or by name; [E, 3] with a weight; or [2, E]. A header may name the
            columns in another order: ``source``, ``target``, ``weight``.
        features: [N, F] numbers, or true and false.
        labels: [N, 1] a class a node, a number or a word; or [N, C] 0 and 1. -1 or nothing where a label is missing. With names,
            in any order, and some nodes may be missing.

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


def _head(path: Path) -> list[list[str]]:
    """Returns the fields of the first two lines of a text, none of other files."""
    return [] if path.suffix in (".npy", ".pt") else [fields for _, fields in read_rows(path, 2)]


def _number(word: str) -> float | None:
    try:
        return _WORDS[word.lower()] if word.lower() in _WORDS else float(word)
    except ValueError:
        return None


def _has_header(fields: Sequence[str]) -> bool:
    return any(not word or _number(word) is None for word in fields)


def _of_words(head: list[list[str]]) -> bool:
    """Returns whether a text must be read word by word: it has words or missing values, not plain numbers alone."""
    return bool(head) and any(_number(word) is None or word.lower() in _WORDS for word in head[-1])


def _of_names(head: list[list[str]]) -> bool:
    """Returns whether features or labels must be read word by word, also because their first column has names by its header."""
    return _of_words(head) or (bool(head) and _has_header(head[0]) and bool(_ID.fullmatch(head[0][0])))


def _rows(path: Path) -> Rows:
    """Returns the rows of features or labels, without an index of pandas beside names of nodes."""
    rows = read_rows(path)
    indexed = len(rows[0][1]) > 2 and not rows[0][1][0] and rows[0][1][1] and _ID.fullmatch(rows[0][1][1])
    return [(line, fields[1:]) for line, fields in rows] if indexed else rows


def _named(rows: Rows) -> bool:
    """Returns whether the first column has names of nodes."""
    return bool(_ID.fullmatch(rows[0][1][0])) or _number(rows[-1][1][0]) is None


def _features(path: Path) -> tuple[dict[str, int], Tensor]:
    """Returns the row of each name, if the file has names, and the features [N, F]."""
    if not _of_names(_head(path)):
        return {}, read_matrix(path)
    rows = _rows(path)
    named = _named(rows)
    header = rows[0][1] if _has_header(rows[0][1][named:]) else None
    rows = rows if header is None else rows[1:]
    nodes: dict[str, int] = {}
    for line, fields in rows if named else ():
        if nodes.setdefault(fields[0], len(nodes)) != len(nodes) - 1:
            raise DataError(f"{path}, line {line}: node {quoted(fields[0])} has two rows: leave one.")
    return nodes, torch.from_numpy(_numbers(path, header, rows, int(named)).astype(np.float32))


def _numbers(path: Path, header: Sequence[str] | None, rows: Rows, first: int) -> np.ndarray:
    found = np.array([[_number(word) for word in fields[first:]] for _, fields in rows], dtype=object)
    for row, column in zip(*np.nonzero(found == None), strict=True):  # noqa: E711 (of each element)
        line, fields = rows[row]
        place = first + int(column)
        name = quoted(header[place]) if header else str(place + 1)
        raise DataError(
            f"{path}, line {line}: column {name} is {quoted(fields[place])}; it must be a number. Words become columns of 0 and 1 "
            "by pandas.get_dummies; names of nodes belong in the first column."
        )
    return found.reshape(len(rows), -1).astype(np.float64)


def _edges(path: Path, features: Path, nodes: dict[str, int], named: bool) -> tuple[Tensor, Tensor | None]:
    """Returns the edges [2, E], and their weights [E] if there are some."""
    head = _head(path)
    header = [word.strip().lower() for word in head[0]] if head and _has_header(head[0]) else []
    places = [next((header.index(word) for word in each if word in header), None) for each in _ENDS]
    known = None not in places[:2]
    more = [word for place, word in enumerate(header) if place not in places and word not in _INDEX] if known else []
    if more or (header and header[0] in _INDEX and not known):
        raise DataError(
            f"{path} has the columns {', '.join(map(quoted, header))}; wanted are source, target and, if edges have weights, weight: "
            "name them so, and leave others out."
        )
    places = places if known else [0, 1, 2]
    if named or _of_words(head) or "" in header:
        return _named_edges(path, features, nodes, places, named)
    table = read_matrix(path)
    table = table.T if table.shape[0] == 2 and table.shape[1] not in (2, 3) else table
    if table.shape[1] not in (2, 3, len(header)) or bool((table[:, places[:2]] != table[:, places[:2]].round()).any()):
        raise DataError(f"{path} must have two columns, the nodes of an edge, or three with its weight, not {table.shape[1]}.")
    weight = table[:, places[2]].float() if places[2] is not None and places[2] < table.shape[1] else None
    return table[:, places[:2]].T.long().contiguous(), weight


def _named_edges(
    path: Path, features: Path, nodes: dict[str, int], places: list[int | None], named: bool
) -> tuple[Tensor, Tensor | None]:
    if path.suffix in (".npy", ".pt"):
        raise DataError(f"{path} has numbers of nodes, but {features} names: write the edges with these names, as a table.")
    rows: Rows = read_rows(path)
    source, target, weight = places
    width = len(rows[0][1])
    if width < 2 or (width > 3 and places == [0, 1, 2]):
        raise DataError(f"{path} must have two columns, the nodes of an edge, or three with its weight, not {width}.")
    assert source is not None
    assert target is not None
    ends = [[nodes.get(fields[place]) for place in (source, target)] for _, fields in rows]
    if ends[0] == [None, None]:  # a header
        rows, ends = rows[1:], ends[1:]
    for (line, fields), found in zip(rows, ends, strict=True):
        if None in found:
            name = quoted(fields[source if found[0] is None else target])
            remedy = (
                "add its features, or leave the edge out" if named else "give the features a first column id with these names"
            )
            raise DataError(f"{path}, line {line}: node {name} has no row in {features}: {remedy}.")
    index = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    if weight is None or weight >= width:
        return index, None
    only = [(line, [fields[weight]]) for line, fields in rows]
    return index, torch.from_numpy(_numbers(path, ["weight"], only, 0)[:, 0].astype(np.float32))


def _labels(path: Path, features: Path, nodes: dict[str, int]) -> Tensor:
    """Returns the labels of all nodes, [N, 1] or [N, C]; -1 where there is none."""
    if not _of_names(_head(path)):
        y = read_matrix(path)
        if len(y) != len(nodes):
            raise DataError(f"{path} has labels of {len(y)} nodes, but {features} features of {len(nodes)}.")
        return y
    rows = _rows(path)
    named = len(rows[0][1]) > 1 and _named(rows)
    header = bool(_ID.fullmatch(rows[0][1][0])) or (rows[0][1][0] not in nodes if named else len(rows) == len(nodes) + 1)
    rows = rows[header:]
    if not named and len(rows) != len(nodes):
        raise DataError(
            f"{path} has labels of {len(rows)} nodes, but {features} features of {len(nodes)}: put the name or number of the node "
            "in a first column id."
        )
    own = [fields[named:] for _, fields in rows]
    if wide := len(own[0]) > 1 or all(_number(word) is not None for (word,) in own):
        values = _numbers(path, None, rows, int(named))
    else:
        classes = {word: number for number, word in enumerate(sorted({word for (word,) in own} - {""}))}
        values = np.array([[classes.get(word, -1)] for (word,) in own], dtype=np.float64)
    y = np.full((len(nodes), values.shape[1] if wide else 1), -1.0)
    for row, (line, fields) in enumerate(rows):
        place = nodes.get(fields[0]) if named else row
        if place is None:
            raise DataError(f"{path}, line {line}: node {quoted(fields[0])} has no row in {features}: leave it out.")
        y[place] = values[row]
    return torch.from_numpy(np.nan_to_num(y, nan=-1.0))
