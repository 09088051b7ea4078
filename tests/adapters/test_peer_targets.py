"""Targets and keys beside other libraries' losses: equal in value and in gradient where they are the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss
from sentence_transformers import util
from sentence_transformers.multi_vector_encoder.losses import MultiVectorDistillKLDivLoss
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss
from torch import Tensor, nn
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss
from tempplug.targets import soft_assignments, soft_targets

SIZE, WAYS, WIDTH = 7, 4, 6
STUDENT, TEACHER = 0.3, 2.0
DTYPES = pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-6)])


def rows(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The same numbers in each type."""
    numbers = torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers.to(dtype).requires_grad_()


def agree(ours: Tensor, theirs: Tensor, leaves: list[Tensor], bound: float) -> None:
    torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound)
    gradients = [torch.autograd.grad(loss, leaves) for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=bound, atol=bound)


def entropy(targets: Tensor) -> Tensor:
    return -torch.special.xlogy(targets, targets).sum(1).mean()


@DTYPES
@pytest.mark.parametrize("similarity", [util.pairwise_dot_score, util.pairwise_cos_sim])
def test_a_teachers_scores_give_the_loss_of_distill_kl_div_up_to_its_entropy(
    similarity: Any, dtype: torch.dtype, bound: float
) -> None:
    columns = [rows(SIZE, seed=seed, dtype=dtype) for seed in range(1 + WAYS)]
    teacher = rows(SIZE, seed=9, dtype=dtype).detach()[:, :WAYS]
    peer = DistillKLDivLoss(
        nn.Identity(),  # type: ignore[arg-type]
        similarity_fct=similarity,
        student_temperature=STUDENT,
        teacher_temperature=TEACHER,
    )
    theirs = peer.compute_loss_from_embeddings(columns, teacher)
    scores = torch.stack([similarity(columns[0], column) for column in columns[1:]], 1)
    targets = soft_targets(teacher, TEACHER)
    loss_fn = ContrastiveLoss(STUDENT, layout="cross-view")
    ours = (loss_fn.from_scores(scores, targets=targets) - entropy(targets)) * STUDENT**2
    agree(ours, theirs, columns, bound)


class Tokens(nn.Module):
    """A model that returns its inputs as token embeddings."""

    def forward(self, features: dict[str, Tensor], **of_the_task: object) -> dict[str, Tensor]:
        return {"token_embeddings": features["tokens"], "attention_mask": torch.ones(features["tokens"].shape[:2])}


def max_sim(queries: Tensor, documents: Tensor, queries_mask: Tensor, documents_mask: Tensor) -> Tensor:
    return (queries[:, None] @ documents.mT).masked_fill(~documents_mask[:, :, None].bool(), -torch.inf).amax(3).sum(2)


@DTYPES
def test_late_interaction_has_the_loss_of_multi_vector_distill_kl_div(dtype: torch.dtype, bound: float) -> None:
    columns = [rows(SIZE, 3 + seed % 2, seed=seed, dtype=dtype) for seed in range(1 + WAYS)]
    teacher = rows(SIZE, seed=9, dtype=dtype).detach()[:, :WAYS]
    peer = MultiVectorDistillKLDivLoss(
        Tokens(),  # type: ignore[arg-type]
        similarity_fct=None if dtype == torch.float32 else max_sim,  # the library's own computes in float32
        student_temperature=STUDENT,
        teacher_temperature=TEACHER,
    )
    theirs = peer([{"tokens": column} for column in columns], teacher)
    scores = torch.stack([(columns[0] @ column.mT).amax(2).sum(1) for column in columns[1:]], 1)
    targets = soft_targets(teacher, TEACHER)
    loss_fn = ContrastiveLoss(STUDENT, layout="cross-view")
    ours = (loss_fn.from_scores(scores, targets=targets) - entropy(targets)) * STUDENT**2
    agree(ours, theirs, columns, bound)


@DTYPES
@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_keys_have_the_loss_of_supervised_contrastive_learning(engine: Any, dtype: torch.dtype, bound: float) -> None:
    keys, views = torch.tensor([3, 1, 3, 7, 1, 3, -2]), [rows(SIZE, seed=seed, dtype=dtype) for seed in (1, 2)]
    theirs = SupConLoss(temperature=0.2)(views[0], keys, ref_emb=views[1], ref_labels=keys.clone())  # not one square
    ours = ContrastiveLoss(0.2, layout="cross-view:positives=keys", engine=engine)(*views, keys=keys)
    agree(ours, theirs, views, bound)


@DTYPES
@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_soft_assignments_have_the_loss_of_softclt(engine: Any, dtype: torch.dtype, bound: float) -> None:
    """Lee et al. 2024, eq. 1 and 2: 2N instances, each against all others, their assignments not divided by their sum."""
    views = [rows(SIZE, seed=seed, dtype=dtype) for seed in (1, 2)]
    data = rows(SIZE, seed=3, dtype=dtype).detach()
    distances = torch.cdist(data, data)
    assignments = (2 * 0.5 * torch.sigmoid(-3 * distances)).double().fill_diagonal_(1.0)
    z = normalize(torch.cat(views).double())
    itself = torch.eye(2 * SIZE, dtype=torch.bool)
    probabilities = (z @ z.T / 0.2).masked_fill(itself, -torch.inf).softmax(1)
    weights = assignments.repeat(2, 2).masked_fill(itself, 0.0)
    theirs = -torch.special.xlogy(weights, probabilities.masked_fill(itself, 1.0)).sum(1)
    # Row i goes with row i of the other view, and its own place among the candidates is left out by its key.
    joined, numbers = torch.cat(views), torch.arange(2 * SIZE)
    targets = soft_assignments(distances, sharpness=3).repeat(2, 2)
    targets = targets.masked_fill(itself, 0.0).roll(SIZE, 1)
    loss_fn = ContrastiveLoss(0.2, layout="cross-view", negatives="same-key", engine=engine, reduction="none")
    ours = loss_fn(
        joined,
        joined.roll(SIZE, 0),
        targets=targets / targets.sum(1, keepdim=True),
        keys={"view_a": numbers, "view_b": numbers.roll(SIZE)},
    )
    agree((ours * weights.sum(1).to(dtype)).mean(), theirs.mean().to(dtype), views, bound)
