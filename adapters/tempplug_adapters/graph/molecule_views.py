"""Random views of molecules: some atoms dropped, or a connected piece kept. It must not know any model."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug_adapters.graph.molecule_data import MoleculeBatch


def random_view(batch: MoleculeBatch, ratio: float) -> MoleculeBatch:
    """Returns a view of each molecule, without ⌊ratio · atoms⌋ of its atoms.

    Each molecule is treated in one of two ways, with equal chance: atoms are dropped at random, or a piece is kept that grows
    from a random atom to one random neighbour of the piece after the other. A molecule of several pieces (a salt) keeps no
    more than the one with that atom.

    Args:
        batch: molecules, on the CPU; the random numbers come from PyTorch's global generator.
        ratio: fraction of the atoms to lose, in [0, 1).

    Source: You et al. 2020 (GraphCL), table 1 and section 4 (molecules: node dropping and subgraphs, 20 %). A subgraph grows
    here until it has its share of the atoms, as the paper says; their code for other data sets stops at the first neighbours.
    """
    grown = torch.rand(batch.size) < 0.5
    # The atoms with the lowest numbers of a molecule stay.
    order = torch.where(grown[batch.molecule], _arrival(batch), torch.rand(len(batch.molecule)))
    counts = torch.bincount(batch.molecule, minlength=batch.size)
    lost = (counts * ratio).floor().long()
    stays = (_rank(order, batch.molecule, counts) < (counts - lost)[batch.molecule]) & order.isfinite()
    return batch.kept(stays)


def _arrival(batch: MoleculeBatch) -> Tensor:
    """Returns when a growing piece of each molecule reaches each atom, [A]; infinite where it never does.

    An atom next to the piece joins after a waiting time of its own. Exponential waiting times have no memory: at every moment
    all atoms next to the piece are equally likely to be the next, whenever they came to stand there.
    """
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


def _rank(values: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    """Returns the rank of each value within its group, from 0.

    Args:
        values: [A].
        group: [A] ascending.
        counts: sizes of the groups.
    """
    order = values.argsort()
    order = order[group[order].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[group]
    return rank
