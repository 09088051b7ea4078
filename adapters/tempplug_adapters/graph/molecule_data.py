"""Molecules: files of SMILES and labels, packed sets of their atoms and bonds, batches of these, and random views.

The features are the four of Hu et al.: element and chirality of an atom, type and direction of a bond. PyTorch Geometric's
``MoleculeNet`` has others, and caches its results as pickles.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from pyarrow import csv
from rdkit import Chem, rdBase
from torch import Tensor

from tempplug.errors import ConfigError, DataError, UnknownNameError, listed, nearest, quoted
from tempplug_adapters.data_files.archives import download, read_archived_texts
from tempplug_adapters.data_files.delimited_text import LINE, column_names
from tempplug_adapters.data_files.roles import ANY, CATEGORY, INTEGER, MISSING, NUMBER, TEXT, UNNAMED, Assigned, Role, assign
from tempplug_adapters.data_files.tables import Table, open_table
from tempplug_adapters.data_files.text_streams import file_kind, read_lines
from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet, arrival, rank, starts
from tempplug_adapters.graph.recipes import DATASETS
from tempplug_adapters.storage.files import one_line

# The row of an embedding for each of RDKit's values; other values have the last row.
_BOND_TYPES = {Chem.BondType.SINGLE: 0, Chem.BondType.DOUBLE: 1, Chem.BondType.TRIPLE: 2, Chem.BondType.AROMATIC: 3}
_BOND_DIRECTIONS = {Chem.BondDir.ENDUPRIGHT: 1, Chem.BondDir.ENDDOWNRIGHT: 2}
_TAG = Chem.ChiralType
_CHIRALITIES = {_TAG.CHI_UNSPECIFIED: 0, _TAG.CHI_TETRAHEDRAL_CW: 1, _TAG.CHI_TETRAHEDRAL_CCW: 2}

ELEMENTS = 119
"""Atomic numbers 0 (a wildcard) to 118."""
CHIRALITIES = 4
BOND_TYPES = 5
BOND_DIRECTIONS = 3


class MoleculeSet:
    """Many molecules in packed arrays, with one byte a feature, so that millions fit in memory.

    Args:
        smiles: of the molecules; SMILES that RDKit cannot read, or without atoms, are left out.
        labels: [len(smiles), T] 0, 1 or NaN (not measured) of T tasks; None where there are none.

    Attributes:
        smiles: of the molecules in the set.
        rows: [n] positions of these among the given ones.
        labels: [n, T], or None.
        unreadable: number of SMILES left out.

    Raises:
        DataError: no molecule is left.

    >>> ethanol = MoleculeSet(["CCO", "no molecule"])
    >>> len(ethanol), ethanol.unreadable, ethanol.batch(torch.tensor([0])).x[:, 0]
    (1, 1, tensor([6, 6, 8]))
    """

    def __init__(self, smiles: Sequence[str], labels: Tensor | None = None) -> None:
        # Flat arrays of numbers: lists of tuples would take fifty times the memory.
        atoms, edges, bonds = bytearray(), array("h"), bytearray()
        atom_counts, edge_counts, read = array("q"), array("q"), array("q")
        with rdBase.BlockLogs():  # RDKit prints a message for each molecule that it cannot read
            for position, text in enumerate(smiles):
                molecule = Chem.MolFromSmiles(text)
                if molecule is None or molecule.GetNumAtoms() == 0:
                    continue
                read.append(position)
                for atom in molecule.GetAtoms():
                    atoms += bytes((atom.GetAtomicNum(), _CHIRALITIES.get(atom.GetChiralTag(), CHIRALITIES - 1)))
                directed = _directed_bonds(molecule)
                for source, target, kind, direction in directed:
                    edges.extend((source, target))
                    bonds += bytes((kind, direction))
                atom_counts.append(molecule.GetNumAtoms())
                edge_counts.append(len(directed))
        if not read:
            raise DataError(f"none of {len(smiles)} SMILES can be read as a molecule; the first is {next(iter(smiles), '')!r}.")
        x, pairs, edge_attr = (torch.from_numpy(np.array(each)).view(-1, 2) for each in (atoms, edges, bonds))
        node_start, edge_start = (starts(torch.from_numpy(np.array(each))) for each in (atom_counts, edge_counts))
        self.smiles = tuple(smiles[position] for position in read)
        self.rows = torch.from_numpy(np.array(read))
        self.labels = None if labels is None else labels[self.rows]
        self.unreadable = len(smiles) - len(read)
        self._graphs = GraphSet(x, pairs.T.contiguous(), node_start, edge_start, self.labels, edge_attr)

    def __len__(self) -> int:
        """Returns the number of molecules."""
        return len(self.smiles)

    def batch(self, rows: Tensor) -> GraphBatch:
        """Returns the molecules at positions [B].

        ``x`` [A, 2] are element and chirality of each atom, ``edge_attr`` [E, 2] type and direction of the bond. There is an
        edge for both directions of a bond, sorted by target.
        """
        batch = self._graphs.batch(rows)
        bonds: Any = batch.edge_attr
        return replace(batch, x=batch.x.long(), edge_attr=bonds.long())


def _directed_bonds(molecule: Chem.Mol) -> list[tuple[int, int, int, int]]:
    """Returns (source, target, type, direction) of every bond both ways, by ascending target."""
    found = []
    for bond in molecule.GetBonds():
        start, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        features = _BOND_TYPES.get(bond.GetBondType(), BOND_TYPES - 1), _BOND_DIRECTIONS.get(bond.GetBondDir(), 0)
        found += [(start, end, *features), (end, start, *features)]
    return sorted(found, key=lambda each: each[1])


def random_view(batch: GraphBatch, ratio: float) -> GraphBatch:
    """Returns a view of each molecule of a batch on the CPU, without ⌊ratio · atoms⌋ of its atoms, ratio in [0, 1).

    With equal probability, random atoms are dropped, or a connected part is kept that grows from a random atom by one random
    neighbour at a time, as in You et al. 2020 (table 1, section 4).
    """
    counts = torch.bincount(batch.batch, minlength=batch.num_graphs)
    grown = torch.rand(batch.num_graphs) < 0.5
    roots = counts.cumsum(0) - counts + (torch.rand(batch.num_graphs) * counts).long().clamp(max=counts - 1)
    reached = arrival(batch, roots, torch.empty(len(batch.batch)).exponential_())
    # The atoms with the lowest values in a molecule are kept.
    order = torch.where(grown[batch.batch], reached, torch.rand(len(batch.batch)))
    lost = (counts * ratio).floor().long()
    stays = (rank(batch.batch, order.argsort()) < (counts - lost)[batch.batch]) & order.isfinite()
    return batch.kept(stays)


@dataclass(frozen=True)
class _Table:
    """One data set of MoleculeNet: its file, the columns of the SMILES and of the tasks, and the suffix of the download."""

    file: str
    smiles: int
    tasks: slice
    packed: str = ""


_URL = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/{name}"
_TABLES = {
    "BBBP": _Table("BBBP.csv", -1, slice(-2, -1)),
    "BACE": _Table("bace.csv", 0, slice(2, 3)),
    "ClinTox": _Table("clintox.csv", 0, slice(1, 3), ".gz"),
    "SIDER": _Table("sider.csv", 0, slice(1, 28), ".gz"),
    "Tox21": _Table("tox21.csv", -1, slice(0, 12), ".gz"),
    "ToxCast": _Table("toxcast_data.csv", 0, slice(1, 618), ".gz"),
    "MUV": _Table("muv.csv", -1, slice(0, 17), ".gz"),
    "HIV": _Table("HIV.csv", 0, slice(-1, None)),
}


_SMILES: Final = Role("smiles", (TEXT,), ("smiles", "canonical_smiles", "isomeric_smiles", "mol", "molecule", "drug", "smi"))
_LABEL: Final = Role("label", (INTEGER, NUMBER, CATEGORY, MISSING), (), many=True, required=False)
_IDS = ("id", "mol_id", "molecule_id", "chembl_id", "drug_id", "cid", "num", "idx", "index", "name", "inchi", "inchikey", "cas")
_ROLES: Final = (_SMILES, _LABEL, Role("id", ANY, _IDS, many=True, required=False))
LINES: Final = ("", ".smi", ".smiles", ".ism", ".can", ".txt")
"""Endings of files without columns."""


@dataclass(frozen=True)
class MoleculeTable:
    """What a file of molecules holds.

    Attributes:
        smiles: a text a row, empty where it is missing.
        labels: [rows, T] 0, 1 or NaN of T tasks; None where they are not read.
        assigned: the table with its columns by role; None for lines of SMILES.
    """

    smiles: Sequence[str]
    labels: Tensor | None = None
    assigned: Assigned | None = None


def read_smiles(path: Path, limit: int | None = None, columns: Sequence[str] = ()) -> MoleculeTable:
    """Returns the SMILES of a file, of the first ``limit`` rows.

    Args:
        path: a table (see `open_table`) with a column ``smiles``. Files that end in one of `LINES` have a SMILES as the first
            word of each line that is not blank.
        limit: None for all.
        columns: ``role=column`` each, where names do not say which column is what.

    Raises:
        ConfigError: it is not clear which column has the SMILES.
        DataError: the file cannot be read, or is empty.
    """
    if file_kind(path) in LINES:
        words = (line.split(maxsplit=1)[0] for _, line in read_lines(path) if line.strip())
        return MoleculeTable(list(islice(words, limit)))
    given = [word for word in columns if not word.startswith("label=")]
    assigned = assign(open_table(path), _ROLES, given).of(("smiles", "id"))
    return MoleculeTable(_smiles(assigned, columns)[:limit], None, assigned)


def read_labelled(dataset: str, data_dir: Path | None, cache_dir: Path, columns: Sequence[str] = ()) -> MoleculeTable:
    """Returns the SMILES of a data set and their labels: 0, 1, or NaN where a task was not measured.

    Args:
        dataset: one of `DATASETS`, in any case; or a table with a column ``smiles`` and a column of 0, 1 or nothing for each
            task. Words and ids are no labels.
        data_dir: folder that holds ``graph/moleculenet/bbbp.tar.xz`` and the like; None downloads.
        cache_dir: where to.
        columns: of a table, ``role=column`` each, the role one of smiles, label, id, where names do not say it.

    Raises:
        UnknownNameError: no data set of that name.
        ConfigError: it is not clear which column is what.
        DataError: a file is missing or malformed; the message names the line.
    """
    path = labelled_file(dataset, data_dir, cache_dir)
    known = None if file_kind(Path(dataset)) else _TABLES[_published_name(dataset)]
    table = open_table(path) if known is None else _published(known, path, data_dir)
    if not len(table):
        raise DataError(f"{path} holds no molecule.")
    given = columns if known is None else [table.names[known.smiles], *table.names[known.tasks]]
    assigned = assign(table, _ROLES, given)
    tasks = assigned.columns.get("label") or [name for name in assigned.unused if _is_task(table, name)]
    if not tasks:
        remedy = f"Name them: {_LABEL.option('A,B')}. It has: {table.described()}"
        raise ConfigError(f"{path}: no column is clearly a label, of 0, 1 or nothing. {remedy}.")
    assigned = assigned.having(label=tasks)
    labels = np.stack([_label(assigned.table, name) for name in assigned.columns["label"]], 1)
    return MoleculeTable(_smiles(assigned, columns), torch.from_numpy(labels), assigned)


def labelled_file(dataset: str, data_dir: Path | None, cache_dir: Path) -> Path:
    """Returns the path of the file that `read_labelled` reads; raises UnknownNameError."""
    if file_kind(Path(dataset)):
        return Path(dataset)
    table = _TABLES[_published_name(dataset)]
    if data_dir is not None:
        return data_dir / "graph" / "moleculenet" / f"{dataset.lower()}.tar.xz"
    return cache_dir / f"{table.file}{table.packed}"


def _published_name(dataset: str) -> str:
    known = {name.lower(): name for name in _TABLES}
    if dataset.lower() not in known:
        names = f"{listed(DATASETS)}, and tables such as NAME.csv"
        raise UnknownNameError(f"no data set '{dataset}'.{nearest(dataset, DATASETS)} Known: {names}.")
    return known[dataset.lower()]


def _published(known: _Table, path: Path, data_dir: Path | None) -> Table:
    if data_dir is None:
        return open_table(download(_URL.format(name=path.name), path, None))
    if not path.is_file():
        raise DataError(f"the data folder {data_dir} lacks graph/moleculenet/{path.name}.")
    content = read_archived_texts(path, [known.file])[known.file].encode()
    try:
        rows = csv.read_csv(pa.py_buffer(content))
    except pa.ArrowException as error:
        raise DataError(f"{known.file} of {path} cannot be read: {one_line(error)}") from error
    column_names(path, rows.column_names)
    return Table(str(path), rows.append_column(LINE, pa.array(range(2, len(rows) + 2), pa.int64())))


def _smiles(assigned: Assigned, columns: Sequence[str]) -> list[str]:
    """Returns the SMILES of each row, empty where it is missing; raises `DataError` if the header seems to be one, too."""
    name = assigned.column("smiles")
    with rdBase.BlockLogs():
        if not columns and not _SMILES.is_usual(name) and Chem.MolFromSmiles(name) is not None:
            raise DataError(f"{assigned.table.path}: its first line, {quoted(name)} …, is a molecule: write a header above it.")
    return [(text or "").strip() for text in assigned.table.values(name)]


def _is_task(table: Table, name: str) -> bool:
    """Returns whether a column that has no other role holds numbers, or begins with 0 or 1."""
    holds = table.kind(name) in _LABEL.kinds[:-1] or str(table.first(name)) in ("0", "1")
    return holds and not UNNAMED.fullmatch(name)


def _label(table: Table, name: str) -> NDArray[np.float32]:
    numbers = table.numbers(name).astype(np.float32)
    if (wrong := ~np.isin(np.nan_to_num(numbers), (0, 1))).any():
        row, remedy = int(wrong.argmax()), f"Name the columns of labels: {_LABEL.option('A,B')}"
        cell = f"{table.place(row)}: column {quoted(name)} is {numbers[row]:g}"
        raise DataError(f"{cell}; a label must be 0, 1 or nothing. {remedy}.")
    return numbers
