"""Molecules as tensors: atoms and bonds of many SMILES in one packed set, batches of them, and random views.

The features are the four of Hu et al.: element and chirality of an atom, type and direction of a bond.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rdkit import Chem, rdBase
from torch import Tensor

from tempplug.errors import DataError
from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet, rank, starts

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
    grown = torch.rand(batch.num_graphs) < 0.5
    # The atoms with the lowest values in a molecule are kept.
    order = torch.where(grown[batch.batch], _arrival(batch), torch.rand(len(batch.batch)))
    counts = torch.bincount(batch.batch, minlength=batch.num_graphs)
    lost = (counts * ratio).floor().long()
    stays = (rank(batch.batch, order.argsort()) < (counts - lost)[batch.batch]) & order.isfinite()
    return batch.kept(stays)


def _arrival(batch: GraphBatch) -> Tensor:
    """Returns when a growing part of each molecule reaches each atom [A], infinite for never; see `augmentation._subgraph`."""
    counts = torch.bincount(batch.batch, minlength=batch.num_graphs)
    roots = counts.cumsum(0) - counts + (torch.rand(batch.num_graphs) * counts).long().clamp(max=counts - 1)
    waiting = torch.empty(len(batch.batch)).exponential_()
    arrival = torch.full_like(waiting, torch.inf)
    arrival[roots] = 0.0
    source, target = batch.edge_index
    while True:
        beside = torch.full_like(arrival, torch.inf).scatter_reduce_(0, target, arrival[source], "amin")
        sooner = torch.minimum(arrival, beside + waiting)
        if torch.equal(sooner, arrival):
            return arrival
        arrival = sooner
