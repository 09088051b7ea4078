"""Reads a graph from tables of edges, features and labels, whose columns get roles by name. Nodes have ids or row numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from tempplug.errors import ConfigError, DataError, quoted
from tempplug_adapters.data_files.roles import CATEGORY, INTEGER, MISSING, NUMBER, UNNAMED, Assigned, assign
from tempplug_adapters.data_files.tables import Table
from tempplug_adapters.data_files.text_streams import file_kind
from tempplug_adapters.graph.classes import class_numbers
from tempplug_adapters.graph.node_columns import (
    FEATURE,
    LABEL,
    MATRICES,
    NODE,
    SOURCE,
    SPLIT,
    TARGET,
    WEIGHT,
    check_lines,
    check_once,
    counts_rows,
    counts_up,
    given_for,
    has_header_line,
    ids_of,
    is_number,
    numbers_of,
    open_columns,
    with_node,
)

_EDGES: Final = (SOURCE, TARGET, WEIGHT)
NODES: Final = (NODE, LABEL, SPLIT, FEATURE)
_ROLES: Final = ("source", "target", "weight", "node", "feature", "label")


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

    def identified(self) -> str:
        """Returns what the nodes are named by, for messages."""
        if self.ids is None:
            return "nodes are the rows of the features, counted from 0"
        return f"nodes are named by column {quoted(self.tables[1].column('node'))} of the features"


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
    if unknown := [word for word in columns if "=" not in word or word.partition("=")[0] not in _ROLES]:
        raise ConfigError(
            f"columns={' '.join(columns)}: {quoted(unknown[0])} must be ROLE=COLUMN, ROLE one of {', '.join(_ROLES)}."
        )
    nodes, ids = _read_nodes(features, labels, columns)
    links, index = _read_edges(edges, nodes, ids, columns)
    graph = Data(x=_features(nodes), edge_index=index)
    if "weight" in links:
        graph.edge_weight = torch.from_numpy(numbers_of(links.table, links.column("weight")).astype(np.float32))
    classes = nodes if labels is None else _read_labels(labels, nodes, ids, columns)
    if "label" in classes:
        graph.y = _labels(classes, nodes, ids)
    tables = (links, nodes) if labels is None else (links, nodes, classes)
    return NodeTables(graph, tables, ids if "node" in nodes else None)


def _read_nodes(path: Path, labels: Path | None, columns: Sequence[str]) -> tuple[Assigned, list[str]]:
    """Returns the table of the features, and the ids of the nodes."""

    def has_header(fields: Sequence[str]) -> bool:
        has = has_header_line(fields, NODES)
        if not has and counts_up([field for field in fields if is_number(field)]):
            raise DataError(
                f"{path}: its first line, {quoted(','.join(fields)[:60])}, can be numbers of columns, as pandas writes them, "
                "or the features of a node: write names above the columns, df.add_prefix('x').to_csv(FILE)."
            )
        return has

    table = open_columns(path, has_header)
    roles = [role for role in NODES if role is not LABEL or labels is None]
    assigned = with_node(assign(table, NODES, given_for(columns, roles, table, labels is not None)))
    rest = [name for name in assigned.unused if not UNNAMED.fullmatch(name) and not NODE.is_usual(name)]
    if "feature" not in assigned:
        if counting := [name for name in rest if counts_rows(table, name)]:
            raise ConfigError(
                f"{path}: column {quoted(counting[0])} counts the rows. If it is the id of a node, name it: "
                f"{NODE.option(counting[0])}; else name all features, --columns feature=A,B. It has: {table.described()}."
            )
        assigned = assigned.having(feature=rest)
    if labels is not None:
        assigned = assigned.having(label=())
    if "node" not in assigned:
        check_lines(table)
        return assigned.of(_ROLES), [str(row) for row in range(len(table))]
    ids = ids_of(table, assigned.column("node")).to_pylist()
    check_once(table, ids)
    return assigned.of(_ROLES), ids


def _features(nodes: Assigned) -> Tensor:
    """Returns the features [N, F], int64 if all are whole numbers, else float32."""
    table = nodes.table
    columns = [numbers_of(table, name).reshape(len(table), -1) for name in nodes.columns.get("feature", ())]
    matrix = torch.from_numpy(np.concatenate([np.zeros((len(table), 0), np.int64), *columns], 1))
    return matrix.float() if matrix.is_floating_point() else matrix


def _rows_of(table: Table, name: str, ids: Sequence[str], nodes: Assigned, remedy: str) -> NDArray[np.int64]:
    """Returns the row of each node that a column names; raises `DataError` if one has none."""
    values = ids_of(table, name)
    rows = pc.index_in(values, value_set=pa.array(ids, pa.string()))
    if rows.null_count:
        first = int(pc.index(rows.is_null(), True).as_py())
        counted = f", whose {len(ids)} rows are counted from 0: give them a column id with the ids of the nodes"
        raise DataError(
            f"{table.place(first)}: node {quoted(values[first].as_py())} has no row in {nodes.table.path}"
            f"{f': {remedy}' if 'node' in nodes else counted}."
        )
    found: NDArray[np.int64] = rows.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _read_edges(path: Path, nodes: Assigned, ids: Sequence[str], columns: Sequence[str]) -> tuple[Assigned, Tensor]:
    """Returns the table of the edges, and their nodes [2, E]."""
    known = set(ids)

    def has_header(fields: Sequence[str]) -> bool:
        if not all(map(is_number, fields)):
            return sum(field in known for field in fields) < 2
        if file_kind(path) == ".csv" and fields[0] == "0" and fields[0] in known and counts_up(fields):
            warnings.warn(
                f"{path}: its first line, {','.join(fields)}, is read as an edge; if it is the header that pandas writes, name "
                "the columns source and target.",
                stacklevel=2,
            )
        return False

    table = open_columns(path, has_header, across=True)
    given = given_for(columns, _EDGES, table, False)
    if not given and table.names in (("1", "2"), ("1", "2", "3")):
        given = [f"{role.name}={name}" for role, name in zip(_EDGES, table.names, strict=False)]
    edges = assign(table, _EDGES, given)
    remedy = "add its features, or leave the edge out"
    index = np.stack([_rows_of(table, edges.column(role), ids, nodes, remedy) for role in ("source", "target")])
    if "node" not in nodes and index.size and index.min() == 1:
        raise ConfigError(
            f"{path} has edges of nodes 1 to {index.max()} and none of node 0, and the rows of {nodes.table.path} are counted "
            "from 0: give them a column id with the ids of the nodes."
        )
    return edges, torch.from_numpy(index)


def _read_labels(path: Path, nodes: Assigned, ids: Sequence[str], columns: Sequence[str]) -> Assigned:
    """Returns the table of the labels. Without ids, the number of its rows says whether the first line is a header."""
    known, roles = set(ids), (NODE, LABEL)

    def read(other: bool) -> Assigned:
        table = open_columns(path, lambda fields: has_header_line(fields, roles, known) != other)
        elsewhere = any(f"{NODE.name}={name}" in columns for name in nodes.table.names)
        labels = with_node(assign(table, roles, given_for(columns, roles, table, elsewhere)), known)
        others = [name for name in labels.unused if not UNNAMED.fullmatch(name)]
        return labels.having(label=labels.columns.get("label", others))

    labels = read(False)
    if "node" in labels:
        return labels
    extra = len(labels.table) - len(ids)
    first = [next(labels.table.values(name)) for name in labels.table.names]
    bare = path.suffix not in MATRICES and labels.table.names[0] == "1"
    if extra == 1 and bare and counts_up(list(map(str, first))):
        labels = read(True)
    elif extra == -1 and labels.table.delimited and not bare and len(labels.table.names) == 1:
        values = list((without := read(True)).table.values("1"))
        labels = without if values[0] in values[1:] else labels
    if len(labels.table) != len(ids):
        raise DataError(
            f"{path} has labels of {len(labels.table)} nodes, but {nodes.table.path} features of {len(ids)}: give a row for "
            "each, or a column id with the ids of the nodes."
        )
    check_lines(labels.table)
    return labels


def _labels(labels: Assigned, nodes: Assigned, ids: Sequence[str]) -> Tensor:
    """Returns the labels of all nodes, [N, 1] or [N, C] float64; NaN where there is none."""
    table, columns = labels.table, labels.columns["label"]
    if len(columns) == 1 and table.kind(columns[0]) not in (INTEGER, NUMBER, CATEGORY, MISSING):
        words = [None if value is None else str(value) for value in table.values(columns[0])]
        values = class_numbers(words, table.path).numpy()[:, None]
    else:
        values = np.stack([table.numbers(name).astype(np.float64) for name in columns], 1)
        if len(columns) > 1 and not np.isin(np.nan_to_num(values), (-1, 0, 1)).all():
            raise ConfigError(
                f"{table.path}: {' and '.join(map(quoted, columns))} could each be the label, which several are if they hold 0 "
                f"and 1. Choose one: {LABEL.option(columns[0])}. It has: {table.described()}."
            )
    if labels is nodes or "node" not in labels:
        return torch.from_numpy(values)
    rows = _rows_of(table, labels.column("node"), ids, nodes, "leave it out")
    check_once(table, [ids[row] for row in rows])
    found = np.full((len(ids), values.shape[1]), np.nan)
    found[rows] = values
    return torch.from_numpy(found)
