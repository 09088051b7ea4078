"""The encoder of molecules: a graph isomorphism network with embeddings of bonds, mean-pooled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Batch, Data

from tempplug.errors import DataError
from tempplug_adapters.encoder_checks import load_state
from tempplug_adapters.graph.graph_data import GraphBatch
from tempplug_adapters.graph.molecule_data import BOND_DIRECTIONS, BOND_TYPES, CHIRALITIES, ELEMENTS, MoleculeSet
from tempplug_adapters.graph.user_modules import UserGraphEncoder, create_encoder
from tempplug_adapters.own_modules import find
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.storage.tensors import read_tensors, write_tensors

_SELF = BOND_TYPES  # the type of the bond of an atom to itself


class MoleculeEncoder(nn.Module):
    """Encodes a batch of molecules to representations [B, D].

    Args:
        layers: at least 1.
        width: D, at least 1.

    Attributes:
        dropout: probability in [0, 1) after every layer in training; initially 0.

    Source: Hu et al. 2020 (Strategies for Pre-training Graph Neural Networks), section 5.1 and its code: each layer sums over
    the atom itself and its neighbours, the embeddings of the bonds between them included, then a two-layer perceptron and
    batch normalisation; 5 layers, 300 wide.
    """

    def __init__(self, layers: int = 5, width: int = 300) -> None:
        super().__init__()
        self.width = width
        self.dropout = 0.0
        self.element = nn.Embedding(ELEMENTS, width)
        self.chirality = nn.Embedding(CHIRALITIES, width)
        self.layers = nn.ModuleList(MoleculeLayer(width) for _ in range(layers))
        for table in (self.element, self.chirality):
            nn.init.xavier_uniform_(table.weight)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Returns the mean over the atoms of each molecule, [B, D]."""
        atoms = self.element(batch.x[:, 0]) + self.chirality(batch.x[:, 1])
        source, target = batch.edge_index
        # Edges are sorted by target: atom i sums the atoms source[starts[i]:starts[i + 1]].
        degrees = torch.bincount(target, minlength=len(atoms))
        starts = degrees.cumsum(0) - degrees
        types, directions = _bond_counts(batch, len(atoms), atoms.dtype)
        for depth, layer in enumerate(self.layers, 1):
            atoms = layer(atoms, source, starts, types, directions)
            if depth < len(self.layers):
                atoms = functional.relu(atoms)
            atoms = functional.dropout(atoms, self.dropout, self.training)
        atoms = atoms.to(self.element.weight.dtype)  # a mean in half precision would lose small differences
        pooled: Tensor = atoms.new_zeros(batch.num_graphs, self.width).index_add(0, batch.batch, atoms)
        return pooled / torch.bincount(batch.batch, minlength=batch.num_graphs)[:, None]

    def save(self, path: Path) -> None:
        """Writes shape and weights to a file atomically."""
        write_tensors(path, {"layers": len(self.layers), "width": self.width, "weights": self.state_dict()})

    @classmethod
    def load(cls, path: Path) -> MoleculeEncoder:
        """Returns the encoder of a file that `save` wrote.

        Raises:
            DataError: there is no such file, or it holds something else.
        """
        if not path.is_file():
            raise DataError(f"{path} does not exist or is not a file: give the encoder.pt of an earlier run.")
        try:
            saved = read_tensors(path)
            if "own" in saved:
                raise DataError("it has the weights of a MODULE:NAME encoder: fine-tune it in the run that pre-trains it.")
            encoder = cls(saved["layers"], saved["width"])
            load_state(encoder, saved["weights"])
        except (DataError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is damaged or no encoder of molecules: {one_line(error, lines=2)}") from error
        return encoder


class OwnMoleculeEncoder(nn.Module):
    """An encoder of the user, called with molecules as graphs of PyTorch Geometric.

    Args:
        name: ``MODULE:NAME`` of a module, or of what makes one, see `create_encoder`. An atom has 2 integers as features
            (element, chirality), a bond 2 as ``edge_attr`` (type, direction).
        layers: of the recipe, which the class may take.
        width: likewise.
        known: of `UserGraphEncoder`; None: by a trial call.

    Attributes:
        width: of the representations.
        dropout: not used; a module of the user has its own.
    """

    def __init__(self, name: str, layers: int, width: int, known: list[Any] | None = None) -> None:
        super().__init__()
        module = create_encoder(find(name, "encoder"), 2, width, layers)
        self.own = UserGraphEncoder(
            module, Data(**_graph(MoleculeSet(["CO"]).batch(torch.tensor([0])))) if known is None else known
        )
        self.width, self.dropout = self.own.width, 0.0

    def forward(self, batch: GraphBatch) -> Tensor:
        """Returns the representations of molecules, [B, D]."""
        sizes = torch.bincount(batch.batch, minlength=batch.num_graphs)
        graphs = Batch(**_graph(batch), batch=batch.batch, ptr=functional.pad(sizes.cumsum(0), (1, 0)))
        found: Tensor = self.own(graphs)
        return found

    def save(self, path: Path) -> None:
        """Writes the weights to a file atomically."""
        write_tensors(path, {"own": self.own.known, "weights": self.state_dict()})

    @classmethod
    def load(cls, path: Path, name: str, layers: int, width: int) -> OwnMoleculeEncoder:
        """Returns the encoder of a file that `save` wrote; raises `DataError` for other files."""
        try:
            saved = read_tensors(path)
            encoder = cls(name, layers, width, saved["own"])
            load_state(encoder, saved["weights"])
        except (DataError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} does not fit the encoder '{name}': {one_line(error, lines=2)}") from error
        return encoder


def _graph(batch: GraphBatch) -> dict[str, Any]:
    return {"x": batch.x, "edge_index": batch.edge_index, "edge_attr": batch.edge_attr}


class MoleculeLayer(nn.Module):
    """One round of messages between atoms [A, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bond_type = nn.Embedding(BOND_TYPES + 1, width)
        self.bond_direction = nn.Embedding(BOND_DIRECTIONS, width)
        self.update = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.BatchNorm1d(width)
        for table in (self.bond_type, self.bond_direction):
            nn.init.xavier_uniform_(table.weight)

    def forward(self, atoms: Tensor, source: Tensor, starts: Tensor, types: Tensor, directions: Tensor) -> Tensor:
        """Returns the atoms [A, D] after a round, from the sources [E] of each (from ``starts`` [A]) and its bonds."""
        neighbours = functional.embedding_bag(source, atoms, starts, mode="sum")
        # A sum over bonds of their embeddings is a sum over kinds of bonds: two small products in place of E rows.
        bonds = types @ self.bond_type.weight + directions @ self.bond_direction.weight
        updated: Tensor = self.norm(self.update(atoms + neighbours + bonds))
        return updated


def _bond_counts(batch: GraphBatch, atoms: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns the numbers of bonds of each type and of each direction of an atom, including the one to itself."""
    target = batch.edge_index[1]
    bonds: Any = batch.edge_attr
    types = torch.bincount(target * (BOND_TYPES + 1) + bonds[:, 0], minlength=atoms * (BOND_TYPES + 1))
    directions = torch.bincount(target * BOND_DIRECTIONS + bonds[:, 1], minlength=atoms * BOND_DIRECTIONS)
    types, directions = types.view(atoms, -1).to(dtype), directions.view(atoms, -1).to(dtype)
    types[:, _SELF] += 1
    directions[:, 0] += 1
    return types, directions
