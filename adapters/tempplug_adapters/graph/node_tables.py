"""Reads a graph from tables of edges, features and labels. Columns have roles by name; nodes have ids or row numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from tempplug.errors import ConfigError, DataError, quoted
from tempplug_adapters.data_files.delimited_text import LINE
from tempplug_adapters.data_files.roles import ANY, CATEGORY, INTEGER, NUMBER, TEXT, UNNAMED, VECTOR, Assigned, Role, assign
from tempplug_adapters.data_files.tables import Table, numbered, open_table
from tempplug_adapters.data_files.text_streams import file_kind
from tempplug_adapters.graph.classes import class_numbers
from tempplug_adapters.storage.tensors import read_matrix

_SOURCES = (
    "source",
    "src",
    "from",
    "u",
    "node1",
    "head",
    "start",
    "source_id",
    "src_id",
    "from_node_id",
    "citing",
    ":START_ID",
)
_TARGETS = ("target", "dst", "to", "v", "node2", "tail", "end", "target_id", "dst_id", "to_node_id", "cited", ":END_ID")
_WEIGHT: Final = Role("weight", (NUMBER, INTEGER), ("weight", "edge_weight", "weights", "w"), required=False)
_EDGES: Final = (Role("source", ANY, _SOURCES), Role("target", ANY, _TARGETS), _WEIGHT)
_IDS: Final = ("node", "id", "node_id", "name", "index", "idx", "vertex", "vertex_id", "paper_id", ":ID")
_NODE: Final = Role("node", ANY, _IDS, required=False)
_LABELS = (
    "label",
    "labels",
    "class",
    "classes",
    "y",
    "target",
    "category",
    "subject",
    "community",
    "node_label",
    "ground_truth",
)
_LABEL: Final = Role("label", ANY, _LABELS, many=True, required=False)
_SPLIT: Final = Role("split", ANY, ("split", "fold", "train_mask", "val_mask", "test_mask"), many=True, required=False)
"""Which part of the data a node belongs to: no feature."""
_FEATURE: Final = Role("feature", (NUMBER, INTEGER, CATEGORY, VECTOR), (), many=True, required=False)
_NODES: Final = (_NODE, _LABEL, _SPLIT, _FEATURE)
_MATRICES: Final = (".npy", ".pt")
_NAMES: Final = ("source", "target", "weight", "node", "feature", "label")
"""Roles that ``--columns`` can give."""
_COUNTED: Final = "counted from 0: give them a column id with the ids of the nodes"
"""Of rows of nodes without ids, in messages."""


@dataclass(frozen=True)
class NodeTables:
    """A graph that was read from tables.

    Attributes:
        graph: with ``x``, ``edge_index``, and ``edge_weight`` and ``y`` where there are some.
        tables: those of edges, of features and, where there is one, of labels.
        ids: of the nodes, [N]; None where they are the numbers of the rows.
    """

    graph: Data
    tables: tuple[Assigned, ...]
    ids: Sequence[str] | None


def read_tables(edges: Path, features: Path | None, labels: Path | None, columns: Sequence[str] = ()) -> NodeTables:
    """Returns the graph of tables (see `open_table`), with or without names of columns, or of matrices (see `read_matrix`).

    Nodes have the order of the features. A column ``node`` (``id``, ``name`` …), pandas' index or the only column of words has
    their ids; without one, their ids are the numbers of the rows, from 0.

    Args:
        edges: a row an edge, without its reverse: ``source``, ``target`` and, if edges have weights, ``weight``; in this order
            where two or three columns have no names. Or a matrix [2, E].
        features: a row a node. All columns are features but ids, labels and splits.
        labels: the class of each node, a number or a word, or a column of 0 and 1 for each of several classes; in any order and
            of some nodes if they have ids. None: the column ``label`` of the features, if there is one.
        columns: ``role=column`` each, the role one of source, target, weight, node, feature, label.

    Raises:
        ConfigError: there are no features, or it is not clear which column is what.
        DataError: a file cannot be read, or they do not fit each other.
    """
    if features is None:
        raise ConfigError(f"a table of edges such as {edges} needs --node-features, a table with a row a node.")
    for word in columns:
        if "=" not in word or word.partition("=")[0] not in _NAMES:
            wanted = f"ROLE=COLUMN, ROLE one of {', '.join(_NAMES)}"
            raise ConfigError(f"columns={' '.join(columns)}: {quoted(word)} must be {wanted}.")
    nodes = _read_nodes(features, labels, columns)
    ids = list(map(str, range(len(nodes.table))))
    if "node" in nodes:
        _check_once(nodes.table, ids := _ids(nodes.table, nodes.column("node")).to_pylist())
    links, index = _read_edges(edges, nodes, ids, columns)
    parts = [_numbers(nodes.table, name).reshape(len(ids), -1) for name in nodes.columns.get("feature", ())]
    x = torch.from_numpy(np.concatenate([np.zeros((len(ids), 0), np.int64), *parts], 1))
    graph = Data(x=x.float() if x.is_floating_point() else x, edge_index=index)
    if "weight" in links:
        graph.edge_weight = torch.from_numpy(_numbers(links.table, links.column("weight"))).float()
    classes = nodes if labels is None else _read_labels(labels, nodes, ids, columns)
    if "label" in classes:
        graph.y = _labels(classes, nodes, ids)
    tables = (links, nodes) if labels is None else (links, nodes, classes)
    return NodeTables(graph, tables, ids if "node" in nodes else None)


def _open(path: Path, roles: Sequence[Role], ids: Collection[str] = ()) -> Table:
    """Returns the table of a file; columns of a matrix, and of a text without a header, are called 1, 2 and so on."""
    if path.suffix not in _MATRICES:
        return open_table(path, header=lambda rows: bool(rows) and _has_header(path, rows[0], roles, ids), blanks=True)
    matrix = read_matrix(path).numpy()
    across = roles is _EDGES and matrix.shape[0] == 2 and matrix.shape[1] not in (2, 3)
    columns = enumerate(matrix if across else matrix.T, start=1)
    return Table(str(path), numbered(pa.table({str(place): column for place, column in columns})))


def _has_header(path: Path, fields: Sequence[str], roles: Sequence[Role], ids: Collection[str]) -> bool:
    """Returns whether the first line of a text has names of columns: a usual one, words alone, pandas' index, or 0, 1, 2 …."""
    if fields[0].startswith(("#", "%")):
        raise DataError(f"{path} begins with a comment; leave such lines out: grep -v '^[#%]' {path.name} > NEW.")
    words, numbers = ([field for field in fields if _is_number(field) == kind] for kind in (False, True))
    if any(word in ids for word in words):
        return False
    if not fields[0] or not numbers or any(role.is_usual(word) for role in roles for word in words):
        return True
    first = int(numbers[0]) if numbers[0].isdigit() else -1
    counted = first >= 0 and numbers == [str(first + place) for place in range(len(numbers))]
    if roles is _EDGES and counted and "0" in ids and not (first or words) and file_kind(path) == ".csv":
        remedy = "if it is the header that pandas writes, name the columns source and target"
        warnings.warn(f"{path}: its first line, {','.join(fields)}, is read as an edge; {remedy}.", stacklevel=2)
    if roles is _NODES and counted and (len(numbers) == 2 or (len(numbers) == 1) > first):
        either = "can be numbers of columns, as pandas writes them, or the features of a node"
        remedy = "write names above the columns, df.add_prefix('x').to_csv(FILE)"
        raise DataError(f"{path}: its first line, {quoted(','.join(fields))}, {either}: {remedy}.")
    return roles is _NODES and counted and len(numbers) > 2


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _assigned(table: Table, roles: Sequence[Role], columns: Sequence[str], elsewhere: bool = False) -> Assigned:
    """Returns the columns of nodes or labels by role, with that of the nodes if one is clear by name or by what it holds.

    Args:
        table: of nodes or labels.
        roles: its own.
        columns: those of ``--columns``, also on other roles.
        elsewhere: whether the column of the nodes may be one of another table.

    Raises:
        ConfigError: several columns could be the nodes, or as `assign`.
    """
    given = [(word, *word.partition("=")[::2]) for word in columns]
    names = {role.name for role in roles}
    own = [word for word, role, name in given if role in names and (role != "node" or name in table.names or not elsewhere)]
    assigned = assign(table, roles, own)
    others = assigned.unused
    usual = [name for name in others if _NODE.is_usual(name)]
    words = [name for name in others if table.kind(name) == TEXT and not re.fullmatch(r"-?\d+,\d+", str(table.first(name)))]
    if "node" in assigned:
        return assigned
    unnamed = [name for name in others if UNNAMED.fullmatch(name)]
    alike = usual or unnamed or (words if len(others) > ("label" not in assigned) else [])
    clear = [name for name in alike if table.kind(name) in ANY and len({*table.values(name)} - {None}) == len(table)]
    if len(clear) > 1 or (usual and not clear):
        either, remedy = " and ".join(map(quoted, clear or usual)), _NODE.option((clear or usual)[0])
        raise ConfigError(f"{table.path}: {either} could be the node. Name it: {remedy}. It has: {table.described()}.")
    if not clear:
        _check_lines(table)
    return assigned.having(node=clear)


def _check_lines(table: Table) -> None:
    """Raises `DataError` if a table whose rows are counted as nodes has a blank line, which could be a node."""
    lines = table.column(LINE).to_numpy()
    if len(gaps := np.flatnonzero(np.diff(lines) != 1)):
        fault = "is blank, and rows are counted as nodes"
        raise DataError(f'{table.path}, line {lines[gaps[0]] + 1} {fault}: take it out, or write what is missing as "".')


def _read_nodes(path: Path, labels: Path | None, columns: Sequence[str]) -> Assigned:
    """Returns the table of the features."""
    table = _open(path, _NODES)
    if labels is not None:
        columns = [word for word in columns if not word.startswith("label=")]
    nodes = _assigned(table, _NODES, columns, labels is not None)
    if {"x", "y"} <= {*table.names} and not any(word.startswith(("label=", "feature=")) for word in columns):
        remedy = f"name all features, --columns feature=x,y, or {_LABEL.option('y')}. It has: {table.described()}"
        raise ConfigError(f"{path}: 'x' and 'y' can be coordinates, or 'y' the label: {remedy}.")
    rest = [name for name in nodes.unused if not UNNAMED.fullmatch(name) and not _NODE.is_usual(name)]
    for name in () if "feature" in nodes or "node" in nodes else rest:
        numbers = table.numbers(name) if table.kind(name) in (INTEGER, NUMBER) else np.zeros(0)
        if len(numbers) > 2 and numbers[0] in (0, 1) and (np.diff(numbers) == 1).all():
            remedy = f"If it is the id of a node, name it: {_NODE.option(name)}; else name all features, --columns feature=A,B"
            raise ConfigError(f"{path}: column {quoted(name)} counts the rows. {remedy}. It has: {table.described()}.")
    nodes = nodes.having(feature=nodes.columns.get("feature", rest))
    return nodes.of(_NAMES if labels is None else _NAMES[:-1])


def _ids(table: Table, name: str) -> Any:
    """Returns ids of nodes as Arrow's texts, as written but for blanks around them and ``.0`` behind whole numbers."""
    if (missing := table.is_missing(name)).any():
        raise DataError(f"{table.place(int(missing.argmax()))}: column {quoted(name)} is empty; it must be the id of a node.")
    if table.kind(name) == NUMBER and not np.mod(numbers := table.numbers(name), 1).any():
        return pa.array(numbers.astype(np.int64)).cast(pa.string())
    return pc.utf8_trim_whitespace(table.column(name).cast(pa.string())).combine_chunks()


def _check_once(table: Table, ids: Sequence[str]) -> None:
    """Raises `DataError` if two rows of a table are those of one node."""
    last = {name: row for row, name in enumerate(ids)}
    if len(last) < len(ids):
        row = next(last[name] for row, name in enumerate(ids) if last[name] != row)
        raise DataError(f"{table.place(row)}: node {quoted(ids[row])} has two rows: leave one.")


def _rows_of(table: Table, name: str, ids: Sequence[str], nodes: Assigned, remedy: str) -> NDArray[np.int64]:
    """Returns the row of each node that a column names; raises `DataError` if one has none."""
    values = _ids(table, name)
    rows = pc.index_in(values, value_set=pa.array(ids, pa.string()))
    if rows.null_count:
        first = int(pc.index(rows.is_null(), True).as_py())
        counted = f", whose {len(ids)} rows are {_COUNTED}"
        told = f"{table.place(first)}: node {quoted(values[first].as_py())} has no row in {nodes.table.path}"
        raise DataError(f"{told}{f': {remedy}' if 'node' in nodes else counted}.")
    found: NDArray[np.int64] = rows.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _numbers(table: Table, name: str) -> NDArray[Any]:
    """Returns a column of numbers [N], or of lists of numbers [N, D]; raises `DataError` if one is missing or is none."""
    try:
        numbers = np.array(list(table.values(name))) if table.kind(name) == VECTOR else table.numbers(name)
    except DataError as error:
        remedy = "Words become columns of 0 and 1 by pandas.get_dummies, decimal commas points; ids are named by"
        raise DataError(f"{error} {remedy} {_NODE.option(name)}.") from error
    except ValueError as error:
        raise DataError(f"{table.path}: column {quoted(name)} must hold lists of numbers of one length.") from error
    if (missing := table.is_missing(name)).any():
        where = table.place(int(missing.argmax()))
        raise DataError(f"{where}: column {quoted(name)} is empty; it must be a number, such as the column's mean.")
    return numbers


def _read_edges(path: Path, nodes: Assigned, ids: Sequence[str], columns: Sequence[str]) -> tuple[Assigned, Tensor]:
    """Returns the table of the edges, and their nodes [2, E]."""
    table = _open(path, _EDGES, set(ids))
    given = [word for word in columns if word.partition("=")[0] in _NAMES[:3]]
    if not given and table.names in (("1", "2"), ("1", "2", "3")):
        given = [f"{role.name}={name}" for role, name in zip(_EDGES, table.names, strict=False)]
    edges = assign(table, _EDGES, given)
    remedy = "add its features, or leave the edge out"
    index = np.stack([_rows_of(table, edges.column(role), ids, nodes, remedy) for role in ("source", "target")])
    if "node" not in nodes and index.size and index.min() == 1:
        edges_of = f"edges of nodes 1 to {index.max()} and none of node 0"
        raise ConfigError(f"{path} has {edges_of}, and the rows of {nodes.table.path} are {_COUNTED}.")
    return edges, torch.from_numpy(index)


def _read_labels(path: Path, nodes: Assigned, ids: Sequence[str], columns: Sequence[str]) -> Assigned:
    """Returns the table of the labels."""
    roles, elsewhere = (_NODE, _LABEL), any(f"node={name}" in columns for name in nodes.table.names)
    table = _open(path, roles, set(ids))
    labels = _assigned(table, roles, columns, elsewhere)
    extra = len(table) - len(ids)
    if "node" not in labels and abs(extra) == 1 and path.is_file() and path.suffix not in _MATRICES:
        # the number of rows says what the first line is: words alone can be labels, and the numbers of columns names
        table = open_table(path, header=extra == 1, blanks=True)
        first, *rest = table.values(table.names[0])
        if table.names == tuple(map(str, range(len(table.names)))) if extra == 1 else first in rest:
            labels = _assigned(table, roles, columns, elsewhere)
    if "node" not in labels and len(labels.table) != len(ids):
        counts = f"labels of {len(labels.table)} nodes, but {nodes.table.path} features of {len(ids)}"
        raise DataError(f"{path} has {counts}: give a row for each, or a column id with the ids of the nodes.")
    others = [name for name in labels.unused if not UNNAMED.fullmatch(name)]
    return labels.having(label=labels.columns.get("label", others))


def _labels(labels: Assigned, nodes: Assigned, ids: Sequence[str]) -> Tensor:
    """Returns the labels of all nodes, [N, 1] or [N, C] float64; NaN where there is none."""
    table, columns = labels.table, labels.columns["label"]
    if len(columns) == 1 and table.kind(columns[0]) not in _FEATURE.kinds:
        values = class_numbers([None if word is None else str(word) for word in table.values(columns[0])], table.path)[:, None]
    else:
        values = torch.from_numpy(np.stack([table.numbers(name).astype(np.float64) for name in columns], 1))
    if len(columns) > 1 and not np.isin(values.nan_to_num(), (-1, 0, 1)).all():
        either = f"{' and '.join(map(quoted, columns))} could each be the label, which several are if they hold 0 and 1"
        raise ConfigError(f"{table.path}: {either}. Choose one: {_LABEL.option(columns[0])}. It has: {table.described()}.")
    if labels is nodes or "node" not in labels:
        return values
    rows = _rows_of(table, labels.column("node"), ids, nodes, "leave it out")
    _check_once(table, [ids[row] for row in rows])
    found = torch.full((len(ids), len(columns)), torch.nan, dtype=torch.float64)
    found[torch.from_numpy(rows)] = values
    return found
