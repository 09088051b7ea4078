"""`pretrain` and `finetune`: an encoder from unlabelled molecules, and what it is worth on labelled ones.

Both are resumable after every epoch, and start from the seed alone, so that one does not depend on whether the other ran in
the same process. This module must not know files of molecules or the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional

from tempplug import ContrastiveLoss
from tempplug.errors import DataError
from tempplug_adapters.graph.molecule_data import MoleculeSet
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder, projection_head
from tempplug_adapters.graph.molecule_recipe import MoleculeSettings
from tempplug_adapters.graph.molecule_split import scaffold_split
from tempplug_adapters.graph.molecule_views import random_view
from tempplug_adapters.training.checkpoint import Settings, load_checkpoint, save_checkpoint

Progress = Callable[[int, int, float], None]
"""Told the steps done, all steps, and the loss of the last one."""


def silent(done: int, total: int, loss: float) -> None:
    """Does nothing with progress."""


def pretrain(
    molecules: MoleculeSet,
    loss: ContrastiveLoss,
    settings: MoleculeSettings,
    checkpoint: Path,
    *,
    device: str | torch.device = "cpu",
    progress: Progress = silent,
) -> tuple[MoleculeEncoder, list[float]]:
    """Returns an encoder that tells molecules apart by two random views of each, and the mean loss of every epoch run now.

    Args:
        molecules: at least 2; labels are not looked at.
        loss: of layout ``cross-view``, from the first views to the second; what it learns is trained along.
        settings: how.
        checkpoint: written after every epoch; where the file exists, training goes on from there.
        device: where to train.
        progress: see `Progress`.

    Raises:
        DataError: there are too few molecules, or the checkpoint is damaged.
        ConfigError: the checkpoint is of other settings.
    """
    if len(molecules) < 2:
        raise DataError(f"{len(molecules)} molecule is too few to pre-train on: the others are its negatives.")
    torch.manual_seed(settings.seed)
    device = torch.device(device)
    encoder = MoleculeEncoder(settings.layers, settings.width)
    model = nn.ModuleDict({"encoder": encoder, "head": projection_head(settings.width), "loss": loss}).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.pretrain_learning_rate)
    stateful = {
        "settings": Settings({**settings.pretraining(), **_specs(loss), "molecules": len(molecules)}),
        "model": model,
        "optimizer": optimizer,
    }
    started = load_checkpoint(checkpoint, **stateful)
    history = []
    model.train()
    for epoch in range(started, settings.pretrain_epochs):
        total = 0.0
        batches = _batches(torch.randperm(len(molecules)), settings.pretrain_batch_size)
        for step, rows in enumerate(batches, 1):
            loss.set_progress(epoch + (step - 1) / len(batches))
            whole = molecules.batch(rows)
            views = [random_view(whole, settings.view_ratio).to(device) for _ in range(2)]
            with torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
                view_a, view_b = (model["head"](encoder(view)) for view in views)
            value = loss(view_a, view_b, index=rows.to(device))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            total += value.item()
            progress(epoch * len(batches) + step, settings.pretrain_epochs * len(batches), total / step)
        history.append(total / len(batches))
        save_checkpoint(checkpoint, epoch + 1, **stateful)
    return encoder, history


def finetune(
    encoder: MoleculeEncoder,
    molecules: MoleculeSet,
    settings: MoleculeSettings,
    checkpoint: Path,
    *,
    origin: Mapping[str, Any],
    device: str | torch.device = "cpu",
    progress: Progress = silent,
) -> dict[str, float]:
    """Trains a copy of an encoder, with a linear head, on the labels of a scaffold split, and returns what it is worth.

    Args:
        encoder: where to start from; it stays as it is.
        molecules: with labels; what was not measured has no part in the loss.
        settings: how; the encoder's shape is its own.
        checkpoint: as in `pretrain`.
        origin: what the encoder came from, so that a checkpoint is not taken for that of another.
        device: where to train.
        progress: see `Progress`.

    Returns:
        ``valid_roc_auc`` and ``test_roc_auc`` × 100 after the last epoch (see `mean_roc_auc`), ``train``, ``valid`` and
        ``test`` (numbers of molecules), ``tasks``.

    Raises:
        DataError: there are no labels, the split has an empty part, no task of a part has both classes, or the checkpoint
            is damaged.
        ConfigError: the checkpoint is of other settings.

    Source: Hu et al. 2020, section 5.1: all weights are trained; the paper's figure is the test set's after the last epoch.
    """
    if molecules.labels is None:
        raise DataError("fine-tuning needs labels.")
    train, valid, test = scaffold_split(molecules.smiles)
    labels = molecules.labels
    for part in (valid, test):
        mean_roc_auc(torch.zeros_like(labels[part]), labels[part])  # refuses now what has no figure in the end
    torch.manual_seed(settings.seed)
    device = torch.device(device)
    tuned = deepcopy(encoder)
    tuned.dropout = settings.dropout
    model = nn.ModuleDict({"encoder": tuned, "head": nn.Linear(tuned.width, labels.shape[1])}).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.finetune_learning_rate)
    relevant = ("finetune_epochs", "finetune_batch_size", "finetune_learning_rate", "dropout", "bf16", "seed")
    stateful = {
        "settings": Settings({**{name: getattr(settings, name) for name in relevant}, **origin, "molecules": len(molecules)}),
        "model": model,
        "optimizer": optimizer,
    }
    started = load_checkpoint(checkpoint, **stateful)
    model.train()
    for epoch in range(started, settings.finetune_epochs):
        batches = _batches(train[torch.randperm(len(train))], settings.finetune_batch_size)
        for step, rows in enumerate(batches, 1):
            with torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
                scores = model["head"](tuned(molecules.batch(rows).to(device)))
            value = masked_loss(scores.float(), labels[rows].to(device))
            optimizer.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            progress(epoch * len(batches) + step, settings.finetune_epochs * len(batches), value.item())
        save_checkpoint(checkpoint, epoch + 1, **stateful)
    found: dict[str, float] = {}
    model.eval()
    for name, part in (("valid", valid), ("test", test)):
        with torch.no_grad():
            parts = [model["head"](tuned(molecules.batch(rows).to(device))).cpu() for rows in torch.split(part, 256)]
        found[f"{name}_roc_auc"] = mean_roc_auc(torch.cat(parts), labels[part])
    return {**found, "train": len(train), "valid": len(valid), "test": len(test), "tasks": labels.shape[1]}


def masked_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean binary cross-entropy over what was measured, in nats; 0 where nothing was.

    Args:
        scores: [n, T] logits.
        labels: [n, T] 0, 1 or NaN.

    >>> masked_loss(torch.zeros(2, 1), torch.tensor([[1.0], [float("nan")]]))
    tensor(0.6931)
    """
    measured = ~labels.isnan()
    losses = functional.binary_cross_entropy_with_logits(
        scores, labels.nan_to_num(), measured.to(scores.dtype), reduction="sum"
    )
    return losses / measured.sum().clamp(min=1)


def mean_roc_auc(scores: Tensor, labels: Tensor) -> float:
    """Returns ROC-AUC × 100, averaged over the tasks of which both classes were measured.

    Args:
        scores: [n, T] higher where a 1 is likelier.
        labels: [n, T] 0, 1 or NaN.

    Raises:
        DataError: there is no such task.

    >>> nan = float("nan")
    >>> mean_roc_auc(torch.tensor([[0.1, 3], [0.2, 2], [0.3, 1]]), torch.tensor([[0, 1], [1, nan], [0, 1]]))
    50.0
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


def _specs(loss: ContrastiveLoss) -> dict[str, str]:
    return {"strategy": loss.strategy.spec(), "objective": loss.objective.spec()}


def _batches(order: Tensor, size: int) -> list[Tensor]:
    """Returns the batches of an order; a last one of a single molecule joins the one before it.

    Alone it would have no negatives, and a lone atom no batch to be normalised with.
    """
    parts = list(torch.split(order, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
