"""The scaffold split: molecules of one skeleton stay together, so that a test set holds skeletons never trained on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rdkit import Chem, rdBase
from rdkit.Chem.Scaffolds import MurckoScaffold
from torch import Tensor

from tempplug.errors import DataError


def scaffold_split(smiles: Sequence[str], train: float = 0.8, valid: float = 0.1) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the positions of the training, validation and test molecules; the same for the same molecules, always.

    The largest groups of one Bemis-Murcko scaffold (chirality included) come first, of equal ones the one that begins later:
    each goes to training where it fits in whole, else to validation, else to test.

    Args:
        smiles: of the molecules, all readable.
        train: share of training, in (0, 1).
        valid: share of validation; the rest is for testing.

    Raises:
        DataError: one of the three would be empty.

    Source: Hu et al. 2020, section 5.1, and its code.

    >>> [part.tolist() for part in scaffold_split(["c1ccccc1" + "C" * n for n in range(8)] + ["C1CC1", "CC"])]
    [[0, 1, 2, 3, 4, 5, 6, 7], [9], [8]]
    """
    groups: dict[str, list[int]] = {}
    with rdBase.BlockLogs():
        for position, text in enumerate(smiles):
            molecule = Chem.MolFromSmiles(text)
            scaffold = MurckoScaffold.MurckoScaffoldSmiles(mol=molecule, includeChirality=True)  # type: ignore[no-untyped-call]
            groups.setdefault(scaffold, []).append(position)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for group in sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True):
        if len(parts[0]) + len(group) <= train * len(smiles):
            parts[0].extend(group)
        elif len(parts[0]) + len(parts[1]) + len(group) <= (train + valid) * len(smiles):
            parts[1].extend(group)
        else:
            parts[2].extend(group)
    if not all(parts):
        raise DataError(
            f"{len(smiles)} molecules of {len(groups)} scaffolds leave the training, validation or test set empty: "
            f"they would have {', '.join(str(len(part)) for part in parts)}."
        )
    return torch.tensor(parts[0]), torch.tensor(parts[1]), torch.tensor(parts[2])
