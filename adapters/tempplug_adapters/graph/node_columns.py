"""Columns of the tables of a graph: their roles, whether a text has a header, and the ids of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from tempplug.errors import ConfigError, DataError, quoted
from tempplug_adapters.data_files.delimited_text import LINE
from tempplug_adapters.data_files.roles import ANY, CATEGORY, INTEGER, NUMBER, TEXT, UNNAMED, VECTOR, Assigned, Role
from tempplug_adapters.data_files.tables import Table, numbered, open_table
from tempplug_adapters.data_files.text_streams import naming, read_head
from tempplug_adapters.storage.tensors import read_matrix

SOURCE: Final = Role(
    "source",
    ANY,
    ("source", "src", "from", "u", "node1", "head", "start", "source_id", "src_id", "from_node_id", "citing", ":START_ID"),
)
TARGET: Final = Role(
    "target",
    ANY,
    ("target", "dst", "to", "v", "node2", "tail", "end", "target_id", "dst_id", "to_node_id", "cited", ":END_ID"),
)
WEIGHT: Final = Role("weight", (NUMBER, INTEGER), ("weight", "edge_weight", "weights", "w"), required=False)
NODE: Final = Role(
    "node", ANY, ("node", "id", "node_id", "name", "index", "idx", "vertex", "vertex_id", "paper_id", ":ID"), required=False
)
LABEL: Final = Role(
    "label",
    ANY,
    ("label", "labels", "class", "classes", "y", "target", "category", "subject", "community", "node_label", "ground_truth"),
    many=True,
    required=False,
)
SPLIT: Final = Role("split", ANY, ("split", "fold", "train_mask", "val_mask", "test_mask"), many=True, required=False)
"""Which part of the data a node belongs to: no feature."""
FEATURE: Final = Role("feature", (NUMBER, INTEGER, CATEGORY, VECTOR), (), many=True, required=False)
MATRICES: Final = (".npy", ".pt")
"""Endings of files without names of columns, see `read_matrix`."""


def open_columns(path: Path, has_header: Callable[[Sequence[str]], bool], across: bool = False) -> Table:
    """Returns the table of a file; columns of a matrix, and of a text without a header, are called 1, 2 and so on.

    Args:
        path: see `read_matrix` and `open_table`.
        has_header: from the fields of the first line of a text to whether they are names of columns.
        across: whether a matrix of two rows may be the columns.
    """
    if path.suffix in MATRICES:
        matrix = read_matrix(path).numpy()
        matrix = matrix if across and matrix.shape[0] == 2 and matrix.shape[1] not in (2, 3) else matrix.T
        return Table(str(path), numbered(pa.table({str(place): each for place, each in enumerate(matrix, start=1)})))
    if path.is_file():
        with naming(path):
            commented = read_head(path).startswith((b"#", b"%"))
        if commented:
            raise DataError(f"{path} begins with a comment; leave such lines out: grep -v '^[#%]' {path.name} > NEW.")
    return open_table(path, header=lambda rows: bool(rows) and has_header(rows[0]), blanks=True)


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def counts_up(numbers: Sequence[str]) -> bool:
    """Returns whether texts are whole numbers one after the other, as pandas names columns without names; one alone: 0."""
    first = int(numbers[0]) if numbers and numbers[0].isdigit() else -1
    counted = [str(first + place) for place in range(len(numbers))]
    return list(numbers) == counted and (first == 0 or (first > 0 and len(numbers) > 1))


def has_header_line(fields: Sequence[str], roles: Sequence[Role], ids: Collection[str] = ()) -> bool:
    """Returns whether the first line of a text has names of columns: usual ones, words alone, or numbers from 0, 1, 2."""
    numbers = [field for field in fields if is_number(field)]
    words = [field for field in fields if not is_number(field)]
    if any(word in ids for word in words):
        return False
    if not fields[0] or not numbers or any(role.is_usual(word) for role in roles for word in words):
        return True
    return len(numbers) > 2 and numbers[0] == "0" and counts_up(numbers)


def given_for(columns: Sequence[str], roles: Sequence[Role], table: Table, elsewhere: bool) -> list[str]:
    """Returns the words of ``--columns`` on roles of a table; without that on nodes if only another table has the column."""
    named = [(word, *word.partition("=")[::2]) for word in columns]
    return [
        word
        for word, role, name in named
        if role in {each.name for each in roles} and (role != "node" or name in table.names or not elsewhere)
    ]


def with_node(assigned: Assigned, ids: Collection[str] = ()) -> Assigned:
    """Returns a table with the column of its nodes, if one is clear by name, or by what it holds.

    Of several with usual names, else of pandas' index and columns of words, it is the only one in which no value is missing or
    there twice. In a table of labels each value must be one of ``ids``, and another column must be left for the labels.
    """
    table, others = assigned.table, assigned.unused
    if "node" in assigned:
        return assigned
    usual = [name for name in others if NODE.is_usual(name)]
    unnamed = [name for name in others if UNNAMED.fullmatch(name)]
    more = others if "label" in assigned or len(others) > len(unnamed) + 1 else ()
    words = [name for name in more if table.kind(name) == TEXT and not re.fullmatch(r"-?\d+,\d+", str(table.first(name)))]
    clear = [name for name in usual or dict.fromkeys((*unnamed, *(more if ids else words))) if _are_ids(table, name, ids)]
    clear = [name for name in clear if name in unnamed] or clear
    if len(clear) > 1 or (usual and not clear):
        raise ConfigError(
            f"{table.path}: {' and '.join(map(quoted, clear or usual))} could be the node. Name it: "
            f"{NODE.option((clear or usual)[0])}. It has: {table.described()}."
        )
    return assigned.having(node=clear)


def _are_ids(table: Table, name: str, ids: Collection[str]) -> bool:
    """Returns whether no value of a column is missing or there twice, and each is one of the ids, if there are some."""
    if table.kind(name) not in ANY or table.missing(name):
        return False
    values = set(ids_of(table, name).to_pylist())
    return len(values) == len(table) and (not ids or values <= set(ids))


def ids_of(table: Table, name: str) -> Any:
    """Returns ids of nodes as Arrow's texts, as written but for blanks around them and ``.0`` behind whole numbers."""
    if (missing := table.is_missing(name)).any():
        raise DataError(f"{table.place(missing.argmax())}: column {quoted(name)} is empty; it must be the id of a node.")
    if table.kind(name) == NUMBER and not (np.mod(numbers := table.numbers(name), 1)).any():
        return pa.array(numbers.astype(np.int64)).cast(pa.string())
    return pc.utf8_trim_whitespace(table.column(name).cast(pa.string())).combine_chunks()


def check_once(table: Table, ids: Sequence[str]) -> None:
    """Raises `DataError` if two rows of a table are those of one node."""
    last = {name: row for row, name in enumerate(ids)}
    if len(last) < len(ids):
        row = next(last[name] for row, name in enumerate(ids) if last[name] != row)
        raise DataError(f"{table.place(row)}: node {quoted(ids[row])} has two rows: leave one.")


def counts_rows(table: Table, name: str) -> bool:
    """Returns whether a column holds 0, 1, 2 and so on, or 1, 2, 3."""
    if table.kind(name) not in (INTEGER, NUMBER) or table.missing(name) or len(table) < 3:
        return False
    numbers = table.numbers(name)
    return numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())


def check_lines(table: Table) -> None:
    """Raises `DataError` if a blank line could be a row of a table whose rows are counted."""
    lines = table.column(LINE).to_numpy()
    if len(gaps := np.flatnonzero(np.diff(lines) != 1)):
        raise DataError(
            f"{table.path}, line {lines[gaps[0]] + 1} is blank, and rows are counted as nodes: take it out, or write what is "
            'missing as "".'
        )


def numbers_of(table: Table, name: str) -> NDArray[Any]:
    """Returns a column of numbers [N], or of lists of numbers [N, D]; raises `DataError` if one is missing or is none."""
    try:
        found = np.array(list(table.values(name))) if table.kind(name) == VECTOR else table.numbers(name)
    except DataError as error:
        raise DataError(
            f"{error} Words become columns of 0 and 1 by pandas.get_dummies, decimal commas points; ids are named by "
            f"{NODE.option(name)}."
        ) from error
    except ValueError as error:
        raise DataError(f"{table.path}: column {quoted(name)} must hold lists of numbers of one length.") from error
    if (missing := table.is_missing(name)).any():
        raise DataError(
            f"{table.place(missing.argmax())}: column {quoted(name)} is empty; it must be a number, such as the mean of the "
            "column."
        )
    return found
