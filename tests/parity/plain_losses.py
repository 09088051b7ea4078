"""Losses as users write them by hand in plain PyTorch, in the dtype of their inputs, and ours of the same call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, normalize

from tempplug import ContrastiveLoss

Map = Callable[[Tensor], Tensor]


def simclr(logit: Map, a: Tensor, b: Tensor) -> Tensor:
    both = normalize(torch.cat([a, b]))
    own = torch.eye(len(both), dtype=torch.bool)
    return cross_entropy(logit(both @ both.T).masked_fill(own, -torch.inf), torch.arange(len(both)).roll(len(a)))


def simcse(logit: Map, a: Tensor, b: Tensor, *hard: Tensor) -> Tensor:
    return cross_entropy(logit(normalize(a) @ normalize(torch.cat([b, *hard])).T), torch.arange(len(a)))


def clip(logit: Map, a: Tensor, b: Tensor) -> Tensor:
    logits, own = logit(normalize(a) @ normalize(b).T), torch.arange(len(a))
    return (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2


def moco(logit: Map, query: Tensor, key: Tensor, queue: Tensor) -> Tensor:
    query, key, queue = normalize(query), normalize(key), normalize(queue)
    logits = logit(torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], dim=1))
    return cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


def supcon(logit: Map, *views: Tensor) -> Tensor:
    """L_out; an anchor that is alone in its class leaves the mean."""
    unit, classes = normalize(torch.cat(views)), labels_of(len(views[0])).repeat(len(views))
    own = torch.eye(len(unit), dtype=torch.bool)
    positive = (classes[:, None] == classes) & ~own
    likely = log_softmax(logit(unit @ unit.T).masked_fill(own, -1e9), 1)
    kept = positive.any(1)
    return -((likely * positive).sum(1)[kept] / positive.sum(1)[kept]).mean()


def pygcl(logit: Map, anchors: Tensor, candidates: Tensor) -> Tensor:
    """InfoNCE over boolean masks, with pairs that play no part."""
    positive, negative = masks_of(len(anchors)).values()
    similarity = logit(normalize(anchors) @ normalize(candidates).T)
    likely = similarity - (similarity.exp() * (positive | negative)).sum(1, keepdim=True).log()
    return -((likely * positive).sum(1) / positive.sum(1)).mean()


def one_positive(logit: Map, anchors: Tensor, candidates: Tensor) -> Tensor:
    return simcse(logit, anchors, candidates)


def graphcl(logit: Map, a: Tensor, b: Tensor) -> Tensor:
    similarity = torch.exp(logit(normalize(a) @ normalize(b).T))
    positive = similarity.diagonal()
    return -torch.log(positive / (similarity.sum(1) - positive)).mean()


def labels_of(rows: int) -> Tensor:
    labels = torch.arange(rows) * 7 % 10
    labels[2] = 99  # no other row has it
    return labels


def masks_of(rows: int, one: bool = False) -> dict[str, Tensor]:
    own = torch.eye(rows, dtype=torch.bool)
    positive = own if one else own | own.roll(3, 1)
    return {"positive_mask": positive, "negative_mask": ~positive & (one | ~own.roll(9, 1))}


PLAIN: dict[str, Callable[..., Tensor]] = {
    "two-view": simclr,
    "cross-view": simcse,
    "cross-view+hard": simcse,
    "symmetric": clip,
    "queue": moco,
    "labels": supcon,
    "labels+one view": supcon,
    "masks": pygcl,
    "masks+one positive": one_positive,
    "cross-view+dcl": graphcl,
}


def ours(name: str, strategy: str, engine: Any = "auto", objective: str = "infonce", **options: Any) -> Callable[..., Tensor]:
    """The loss of the same name, of the same tensors."""
    layout, _, more = name.partition("+")
    layout, symmetric = ("cross-view", True) if layout == "symmetric" else (layout, False)
    objective = "dcl" if more == "dcl" else objective
    loss_fn = ContrastiveLoss(strategy, objective, layout, symmetric=symmetric, engine=engine, **options)  # type: ignore[arg-type]

    def call(*leaves: Tensor) -> Tensor:
        rows, given = len(leaves[0]), dict[str, Tensor]()
        if layout == "labels":
            given["labels"] = labels_of(rows)
        if layout == "masks":
            given = masks_of(rows, bool(more))
        if len(leaves) > 2:
            given["queue" if layout == "queue" else "hard_negatives"] = leaves[2]
        return loss_fn(*leaves[:2], **given)

    return call


def leaves_of(name: str, rows: int, dimension: int, seed: int = 0, noise: float = 2.0) -> list[Tensor]:
    """Embeddings in float32: two views that are alike, and hard negatives or a queue where the loss takes them."""
    generator = torch.Generator().manual_seed(rows + dimension + seed)
    a, other, extra = (torch.randn(rows, dimension, generator=generator) for _ in range(3))
    if name == "labels+one view":
        return [a]
    return [a, a + noise * other, *([extra] if name in ("queue", "cross-view+hard") else [])]


def value_and_gradient(loss_fn: Callable[..., Tensor], leaves: list[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The loss [], and the gradients of all leaves one behind the other, in float64."""
    own = [each.to(dtype, copy=True).requires_grad_() for each in leaves]
    loss = loss_fn(*own)
    return loss.detach().double(), torch.cat(torch.autograd.grad(loss, own)).double()
