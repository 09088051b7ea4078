"""Molecules as tensors: atoms and bonds of many SMILES in one packed set, batches of them, and random views.

The features are the four of Hu et al.: element and chirality of an atom, type and direction of a bond.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from rdkit import Chem, rdBase
from torch import Tensor

from tempplug.errors import DataError
from tempplug_adapters.graph.graph_data import ranges, rank

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


@dataclass(frozen=True, slots=True)
class MoleculeBatch:
    """Several molecules as one graph.

    Attributes:
        atoms: [A, 2] element and chirality of each atom, sorted by molecule.
        edges: [2, E] source and target atom, both directions of each bond, sorted by target.
        bonds: [E, 2] type and direction of the bond.
        molecule: [A] which molecule an atom belongs to, ascending.
        size: number of molecules.
    """

    atoms: Tensor
    edges: Tensor
    bonds: Tensor
    molecule: Tensor
    size: int

    def kept(self, atoms: Tensor) -> MoleculeBatch:
        """Returns the molecules with only the ``atoms`` [A] that are true and the bonds between them."""
        number = atoms.cumsum(0) - 1
        edges = atoms[self.edges].all(0)
        return replace(
            self,
            atoms=self.atoms[atoms],
            edges=number[self.edges[:, edges]],
            bonds=self.bonds[edges],
            molecule=self.molecule[atoms],
        )

    def to(self, device: torch.device) -> MoleculeBatch:
        """Returns the batch on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("atoms", "edges", "bonds", "molecule")}
        return replace(self, **moved)


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
    >>> len(ethanol), ethanol.unreadable, ethanol.batch(torch.tensor([0])).atoms[:, 0]
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
        self._atoms = torch.from_numpy(np.array(atoms)).view(-1, 2)
        self._edges = torch.from_numpy(np.array(edges)).view(-1, 2).T.contiguous()
        self._bonds = torch.from_numpy(np.array(bonds)).view(-1, 2)
        self._atom_counts = torch.from_numpy(np.array(atom_counts))
        self._edge_counts = torch.from_numpy(np.array(edge_counts))
        self._atom_starts = self._atom_counts.cumsum(0) - self._atom_counts
        self._edge_starts = self._edge_counts.cumsum(0) - self._edge_counts
        self.smiles = tuple(smiles[position] for position in read)
        self.labels = None if labels is None else labels[torch.from_numpy(np.array(read))]
        self.unreadable = len(smiles) - len(read)

    def __len__(self) -> int:
        """Returns the number of molecules."""
        return len(self.smiles)

    def batch(self, rows: Tensor) -> MoleculeBatch:
        """Returns the molecules at positions [B] as one graph."""
        atom_counts, edge_counts = self._atom_counts[rows], self._edge_counts[rows]
        edges = ranges(self._edge_starts[rows], edge_counts)
        first = atom_counts.cumsum(0) - atom_counts
        return MoleculeBatch(
            atoms=self._atoms[ranges(self._atom_starts[rows], atom_counts)].long(),
            edges=self._edges[:, edges] + first.repeat_interleave(edge_counts),
            bonds=self._bonds[edges].long(),
            molecule=torch.arange(len(rows)).repeat_interleave(atom_counts),
            size=len(rows),
        )


def _directed_bonds(molecule: Chem.Mol) -> list[tuple[int, int, int, int]]:
    """Returns (source, target, type, direction) of every bond both ways, by ascending target."""
    found = []
    for bond in molecule.GetBonds():
        start, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        features = _BOND_TYPES.get(bond.GetBondType(), BOND_TYPES - 1), _BOND_DIRECTIONS.get(bond.GetBondDir(), 0)
        found += [(start, end, *features), (end, start, *features)]
    return sorted(found, key=lambda each: each[1])


def random_view(batch: MoleculeBatch, ratio: float) -> MoleculeBatch:
    """Returns a view of each molecule of a batch on the CPU, without ⌊ratio · atoms⌋ of its atoms, ratio in [0, 1).

    With equal probability, random atoms are dropped, or a connected part is kept that grows from a random atom by one random
    neighbour at a time, as in You et al. 2020 (table 1, section 4).
    """
    grown = torch.rand(batch.size) < 0.5
    # The atoms with the lowest values in a molecule are kept.
    order = torch.where(grown[batch.molecule], _arrival(batch), torch.rand(len(batch.molecule)))
    counts = torch.bincount(batch.molecule, minlength=batch.size)
    lost = (counts * ratio).floor().long()
    stays = (rank(batch.molecule, order.argsort()) < (counts - lost)[batch.molecule]) & order.isfinite()
    return batch.kept(stays)


def _arrival(batch: MoleculeBatch) -> Tensor:
    """Returns when a growing part of each molecule reaches each atom [A], infinite for never; see `augmentation._subgraph`."""
    counts = torch.bincount(batch.molecule, minlength=batch.size)
    roots = counts.cumsum(0) - counts + (torch.rand(batch.size) * counts).long().clamp(max=counts - 1)
    waiting = torch.empty(len(batch.molecule)).exponential_()
    arrival = torch.full_like(waiting, torch.inf)
    arrival[roots] = 0.0
    source, target = batch.edges
    while True:
        beside = torch.full_like(arrival, torch.inf).scatter_reduce_(0, target, arrival[source], "amin")
        sooner = torch.minimum(arrival, beside + waiting)
        if torch.equal(sooner, arrival):
            return arrival
        arrival = sooner
