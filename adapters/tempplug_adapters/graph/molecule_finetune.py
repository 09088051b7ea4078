"""Fine-tunes an encoder of molecules on labels, as a method without a contrastive loss, to evaluate the pre-training."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rdkit import Chem, rdBase
from rdkit.Chem.Scaffolds import MurckoScaffold
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional

from tempplug.errors import DataError
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.graph.graph_data import GraphBatch
from tempplug_adapters.graph.molecule_data import MoleculeSet, labelled_file, read_labelled
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder, OwnMoleculeEncoder
from tempplug_adapters.graph.recipes import FineTuneRecipe
from tempplug_adapters.training.checkpoints import weights_checksum
from tempplug_adapters.training.method import ENCODER_FILE, Method, Run, Source


def scaffold_split(smiles: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the positions of the training (80 %), validation (10 %) and test molecules, without randomness.

    Groups of one Bemis-Murcko scaffold (chirality included) are assigned by decreasing size, and equal ones by decreasing first
    position: to training if the whole group fits, else to validation, else to test.

    Args:
        smiles: of the molecules, all readable.

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
        if len(parts[0]) + len(group) <= 0.8 * len(smiles):
            parts[0].extend(group)
        elif len(parts[0]) + len(parts[1]) + len(group) <= (0.8 + 0.1) * len(smiles):
            parts[1].extend(group)
        else:
            parts[2].extend(group)
    if not all(parts):
        sizes = f"they would have {', '.join(str(len(part)) for part in parts)}"
        counts = f"{len(smiles)} molecules of {len(groups)} scaffolds"
        raise DataError(f"{counts} leave the training, validation or test set empty: {sizes}.")
    return torch.tensor(parts[0]), torch.tensor(parts[1]), torch.tensor(parts[2])


_AT_ONCE = 256  # batch size of the evaluation


@dataclass(frozen=True)
class Labelled:
    """Molecules with labels, split by scaffolds; ``len`` is the number of training molecules.

    Attributes:
        molecules: with labels [n, T]; NaN labels are left out of the loss.
        labels: those of the molecules.
        train: positions of the training molecules, likewise ``valid`` and ``test``.
        encoder: initial encoder, which is not changed. None: an untrained one of the papers' shape.
        file: from which they were read; None for others.
        table: likewise, with its columns by role.
    """

    molecules: MoleculeSet
    labels: Tensor
    train: Tensor
    valid: Tensor
    test: Tensor
    encoder: MoleculeEncoder | OwnMoleculeEncoder | None = None
    file: Path | None = None
    table: Assigned | None = None

    @classmethod
    def split(cls, molecules: MoleculeSet) -> Labelled:
        """Returns the scaffold split of molecules; raises `DataError` without labels, or without both classes in a part."""
        if molecules.labels is None:
            raise DataError("fine-tuning needs labels.")
        parts = scaffold_split(molecules.smiles)
        for part in parts[1:]:
            labels = molecules.labels[part]
            mean_roc_auc(torch.zeros_like(labels), labels)  # fail before training if the evaluation is impossible
        return cls(molecules, molecules.labels, *parts)

    def __len__(self) -> int:
        return len(self.train)


class FineTuneModule(nn.Module):
    """Maps molecules and their labels to the loss."""

    loss_fn = None

    def __init__(self, encoder: MoleculeEncoder | OwnMoleculeEncoder, tasks: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.encoder.dropout = dropout
        self.head = nn.Linear(encoder.width, tasks)

    def scores(self, molecules: GraphBatch) -> Tensor:
        """Returns the logit of every task, [B, T]."""
        scores: Tensor = self.head(self.encoder(molecules.to(self.head.weight.device)))
        return scores

    def forward(self, molecules: GraphBatch, labels: Tensor) -> Tensor:
        """Returns the loss [] in nats for labels [B, T]."""
        return masked_loss(self.scores(molecules).float(), labels)


class FineTuning(Method[FineTuneRecipe, Labelled]):
    """Trains all weights; the metrics are those after the last epoch.

    Source: Hu et al. 2020, section 5.1.
    """

    def load(self, recipe: FineTuneRecipe, source: Source) -> Labelled:
        """Returns a data set of MoleculeNet, or of a file."""
        given = source.dataset, source.data_dir, source.cache_dir
        read = read_labelled(*given, recipe.columns)
        labelled = Labelled.split(MoleculeSet(read.smiles, read.labels))
        return replace(labelled, file=labelled_file(*given), table=read.assigned)

    def tables(self, data: Labelled) -> Sequence[Assigned]:
        """Returns the table of the data set."""
        return () if data.table is None else (data.table,)

    def files(self, recipe: FineTuneRecipe, source: Source, data: Labelled) -> dict[str, Path | str]:
        """Returns the file of the data set."""
        return {} if data.file is None else {"dataset": data.file}

    def origin(self, recipe: FineTuneRecipe, data: Labelled) -> dict[str, Any]:
        """Returns a description of the molecules, and the origin of the initial weights."""
        sizes = {"valid": len(data.valid), "test": len(data.test), "tasks": data.labels.shape[1]}
        # running statistics differ between processes until they train together
        encoder = None if data.encoder is None else weights_checksum(dict(data.encoder.named_parameters()))
        return {**sizes, "unreadable": data.molecules.unreadable, "encoder": encoder}

    def create_loss(self, *args: Any, **kwargs: Any) -> None:
        """Returns None, because fine-tuning uses labels instead of a contrastive loss."""

    def build(self, recipe: FineTuneRecipe, data: Labelled, loss: Any) -> FineTuneModule:
        """Returns a copy of the encoder with a random linear head."""
        encoder = MoleculeEncoder() if data.encoder is None else deepcopy(data.encoder)
        return FineTuneModule(encoder, data.labels.shape[1], recipe.dropout)

    def collate(self, recipe: FineTuneRecipe, data: Labelled, index: Tensor) -> dict[str, Any]:
        """Returns molecules and their labels."""
        rows = data.train[index]
        return {"molecules": data.molecules.batch(rows), "labels": data.labels[rows]}

    @torch.no_grad()
    def evaluate(self, recipe: FineTuneRecipe, module: Any, data: Labelled, run: Run) -> dict[str, float]:
        """Returns ROC-AUC × 100 of the test and validation molecules, see `mean_roc_auc`."""
        found = {}
        for name, part in (("roc_auc", data.test), ("valid_roc_auc", data.valid)):
            scores = torch.cat([module.scores(data.molecules.batch(rows)).cpu() for rows in torch.split(part, _AT_ONCE)])
            found[name] = mean_roc_auc(scores, data.labels[part])
        return found

    def save(self, recipe: FineTuneRecipe, module: Any, data: Labelled, output_dir: Path) -> None:
        """Writes the fine-tuned encoder."""
        module.encoder.save(output_dir / ENCODER_FILE)


def masked_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean binary cross-entropy of logits [n, T] over labels [n, T] that are no NaN, in nats; 0 without any."""
    measured = ~labels.isnan()
    losses = functional.binary_cross_entropy_with_logits(
        scores, labels.nan_to_num(), measured.to(scores.dtype), reduction="sum"
    )
    return losses / measured.sum().clamp(min=1)


def mean_roc_auc(scores: Tensor, labels: Tensor) -> float:
    """Returns ROC-AUC × 100 of scores [n, T], averaged over the tasks with both classes among the labels [n, T] (0, 1 or NaN).

    Raises:
        DataError: there is no such task.
    """
    found = []
    for column in range(labels.shape[1]):
        measured = ~labels[:, column].isnan()
        truth = labels[measured, column]
        if 0 < truth.sum() < len(truth):
            found.append(float(roc_auc_score(truth.numpy(), scores[measured, column].numpy())))
    if not found:
        raise DataError(f"none of {labels.shape[1]} tasks has both classes among {len(labels)} molecules: no ROC-AUC.")
    return 100 * sum(found) / len(found)
