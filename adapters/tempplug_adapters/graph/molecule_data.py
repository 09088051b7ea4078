"""Molecules: files of SMILES and labels, packed sets of their atoms and bonds, batches of these, and random views.

The features are the four of Hu et al.: element and chirality of an atom, type and direction of a bond. PyTorch Geometric's
``MoleculeNet`` has others, and caches its results as pickles.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rdkit import Chem, rdBase
from torch import Tensor

from tempplug.errors import DataError, UnknownNameError, nearest
from tempplug_adapters.data_files.archives import download, read_archived_texts, read_text
from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet, arrival, rank, starts
from tempplug_adapters.graph.recipes import DATASETS

# The row of an embedding for each of RDKit's values; other values have the last row.
_BOND_TYPES = {Chem.BondType.SINGLE: 0, Chem.BondType.DOUBLE: 1, Chem.BondType.TRIPLE: 2, Chem.BondType.AROMATIC: 3}
_BOND_DIRECTIONS = {Chem.BondDir.ENDUPRIGHT: 1, Chem.BondDir.ENDDOWNRIGHT: 2}
_CHIRALITIES = {
    Chem.ChiralType.CHI_UNSPECIFIED: 0,
    Chem.ChiralType.CHI_TETRAHEDRAL_CW: 1,
    Chem.ChiralType.CHI_TETRAHEDRAL_CCW: 2,
}

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
        self.labels = None if labels is None else labels[torch.from_numpy(np.array(read))]
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


def read_smiles(path: Path, limit: int | None = None) -> list[str]:
    """Returns the first word of each line that is not empty, of the first ``limit``; raises `DataError` without any."""
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file: it must hold one SMILES a line.")
    found: list[str] = []
    for line in read_text(path).splitlines():
        if limit is not None and len(found) >= limit:
            break
        found += line.split(maxsplit=1)[:1]
    if not found:
        raise DataError(f"{path} is empty: it must hold one SMILES a line.")
    return found


def read_labelled(dataset: str, data_dir: Path | None, cache_dir: Path) -> tuple[list[str], Tensor]:
    """Returns the SMILES of a data set and their labels [n, T]: 0, 1, or NaN where a task was not measured.

    Args:
        dataset: one of `DATASETS`, in any case; or a file ``*.csv`` with a column ``smiles`` and a column of 0, 1 or nothing
            for each task.
        data_dir: folder that holds ``graph/moleculenet/bbbp.tar.xz`` and the like; None downloads.
        cache_dir: where to.

    Raises:
        UnknownNameError: no data set of that name.
        DataError: a file is missing or malformed; the message names the line.
    """
    if dataset.endswith(".csv"):
        return _read_own(Path(dataset))
    known = {name.lower(): name for name in _TABLES}
    if dataset.lower() not in known:
        raise UnknownNameError(
            f"no data set '{dataset}'.{nearest(dataset, DATASETS)} Known: {', '.join(DATASETS)}, and files that end in .csv."
        )
    table = _TABLES[known[dataset.lower()]]
    path = labelled_file(dataset, data_dir, cache_dir)
    if data_dir is None:
        download(_URL.format(name=path.name), path, None)
        text = read_text(path)
    else:
        if not path.is_file():
            raise DataError(f"the data folder {data_dir} lacks graph/moleculenet/{path.name}.")
        text = read_archived_texts(path, [table.file])[table.file]
    rows = csv.reader(io.StringIO(text))
    next(rows, None)
    return _labelled(path, ((row[table.smiles], row[table.tasks]) for row in rows if row))


def labelled_file(dataset: str, data_dir: Path | None, cache_dir: Path) -> Path:
    """Returns the path of the file that `read_labelled` reads."""
    if dataset.endswith(".csv"):
        return Path(dataset)
    if data_dir is not None:
        return data_dir / "graph" / "moleculenet" / f"{dataset.lower()}.tar.xz"
    table = next(table for name, table in _TABLES.items() if name.lower() == dataset.lower())
    return cache_dir / f"{table.file}{table.packed}"


def _read_own(path: Path) -> tuple[list[str], Tensor]:
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file.")
    rows = csv.reader(io.StringIO(read_text(path)))
    header = next(rows, [])
    if "smiles" not in header or len(header) < 2:
        raise DataError(f"{path} must have a column 'smiles' and one for each task; it has {', '.join(header) or 'none'}.")
    column = header.index("smiles")
    return _labelled(path, ((row[column], row[:column] + row[column + 1 :]) for row in rows if row))


def _labelled(where: Path, rows: Iterable[tuple[str, list[str]]]) -> tuple[list[str], Tensor]:
    smiles: list[str] = []
    labels: list[list[float]] = []
    try:
        for molecule, values in rows:
            smiles.append(molecule)
            labels.append([_label(value) for value in values])
            if len(labels[-1]) != len(labels[0]):
                raise ValueError(f"{len(labels[-1])} labels where the first molecule has {len(labels[0])}")
    except (ValueError, IndexError, csv.Error) as error:
        raise DataError(f"{where}, molecule {max(len(smiles), 1)}: {error}.") from error
    if not smiles:
        raise DataError(f"{where} holds no molecule.")
    return smiles, torch.tensor(labels)


def _label(text: str) -> float:
    if text.strip().lower() in ("", "nan"):
        return float("nan")
    value = float(text)
    if value not in (0.0, 1.0):
        raise ValueError(f"label {text[:40]!r} must be 0, 1 or nothing")
    return value
