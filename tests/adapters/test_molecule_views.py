"""Random views of molecules: how much is lost, what stays together, and with which probabilities."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import networkx as nx
import pytest
import torch
from rdkit import Chem

from tempplug_adapters.graph.molecule_data import MoleculeBatch, MoleculeSet, random_view
from tempplug_benchmarks.tasks.molecule_generated import generate


def graph_of(batch: MoleculeBatch, molecule: int) -> nx.Graph:
    atoms = (batch.molecule == molecule).nonzero().flatten().tolist()
    graph = nx.Graph()
    graph.add_nodes_from(atoms)
    graph.add_edges_from(edge for edge in batch.edges.T.tolist() if edge[0] in graph)
    return graph


@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.5])
def test_a_view_loses_its_share_of_the_atoms(ratio: float) -> None:
    torch.manual_seed(0)
    molecules = MoleculeSet(["C", "CC", "c1ccccc1", *generate(60, seed=0)])
    whole = molecules.batch(torch.arange(len(molecules)))
    view = random_view(whole, ratio)
    before, after = (torch.bincount(each.molecule, minlength=each.size) for each in (whole, view))
    assert torch.equal(after, before - (before * ratio).floor().long())
    assert view.size == whole.size
    connected = [nx.is_connected(graph_of(view, row)) for row in range(view.size)]
    assert all(connected) if ratio == 0 else 0.4 < sum(connected) / len(connected) < 1


def test_atoms_without_bonds_are_fine() -> None:
    torch.manual_seed(0)
    whole = MoleculeSet(["C", "[Na+].[Cl-]", "O"]).batch(torch.arange(3))
    found = {tuple(torch.bincount(random_view(whole, 0.2).molecule, minlength=3).tolist()) for _ in range(20)}
    assert found == {(1, 1, 1), (1, 2, 1)}, "a grown piece of the salt is one of its ions"


def test_the_global_generator_decides() -> None:
    whole = MoleculeSet(generate(20, seed=1)).batch(torch.arange(20))
    views = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        views.append(random_view(whole, 0.3).atoms)
    assert torch.equal(views[0], views[1])
    assert views[0].shape != views[2].shape or not torch.equal(views[0], views[2])


def pieces(molecule: Chem.Mol, size: int) -> dict[frozenset[int], float]:
    """The probability of each piece that grows atom by atom, every neighbour of it being equally likely to be the next."""
    atoms = range(molecule.GetNumAtoms())
    beside = {atom: {each.GetIdx() for each in molecule.GetAtomWithIdx(atom).GetNeighbors()} for atom in atoms}
    found = {frozenset({atom}): 1 / len(atoms) for atom in atoms}
    for _ in range(size - 1):
        grown: dict[frozenset[int], float] = {}
        for piece, probability in found.items():
            frontier = set().union(*(beside[atom] for atom in piece)) - piece
            for atom in frontier:
                key = piece | {atom}
                grown[key] = grown.get(key, 0) + probability / len(frontier)
        found = grown
    return found


def test_atoms_are_dropped_evenly_and_pieces_grow_evenly() -> None:
    """Every set of atoms comes up as often as enumeration says, within four standard errors."""
    torch.manual_seed(0)
    text, kept, count = "CC(N)OCS", 4, 60_000
    whole = MoleculeSet([text]).batch(torch.zeros(count, dtype=torch.int64))
    numbers = torch.arange(len(whole.atoms)) % 6  # in place of elements, so that atoms can be told apart
    view = random_view(replace(whole, atoms=torch.stack([numbers, numbers], 1)), ratio=1 / 3)
    found = Counter(map(frozenset, view.atoms[:, 0].view(count, kept).tolist()))
    subsets = [frozenset(each) for each in combinations(range(6), kept)]
    grown = pieces(Chem.MolFromSmiles(text), kept)
    assert sum(found.values()) == count
    for subset in subsets:
        expected = 0.5 / len(subsets) + 0.5 * grown.get(subset, 0)
        error = (expected * (1 - expected) / count) ** 0.5
        assert found[subset] / count == pytest.approx(expected, abs=4 * error), subset
