"""The matrix of logits itself, for losses of other libraries that need it."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.embeddings import unit_rows
from tempplug.errors import ShapeError
from tempplug.inputs import check_embeddings, check_finite, check_integers, check_read, check_uncertainty, common_type
from tempplug.strategies.base import Strategy
from tempplug.transforms import refuse_fake
from tempplug.types import Batch


def dense_logits(
    strategy: Strategy, view_a: Tensor, view_b: Tensor, labels: Tensor | None, index: Tensor | None, uncertainty: Tensor | None
) -> Tensor:
    """Returns the logits of view_a's rows against view_b's, [B, M]; see `tempplug.ContrastiveLoss.logits`."""
    refuse_fake(view_a, view_b)
    device = view_a.device if isinstance(view_a, Tensor) else torch.device("cpu")
    given = {"labels": labels, "index": index, "uncertainty": uncertainty}
    check_read(given, strategy)
    size, dimension = check_embeddings("view_a", view_a, device).shape
    check_embeddings("view_b", view_b, device, dimension)
    check_finite("view_a", view_a)
    check_finite("view_b", view_b)
    checked = check_uncertainty(uncertainty, device, size)
    if isinstance(checked, tuple):
        raise ShapeError("uncertainty is a pair; wanted one tensor [B], of view_a.")
    with torch.autocast(device.type, enabled=False):
        anchors, candidates = (unit_rows(each)[0] for each in common_type(view_a, view_b)[1] if each is not None)
        paired = min(len(anchors), len(candidates))
        batch = Batch(
            positive_similarity=(anchors[:paired] * candidates[:paired]).sum(1).detach(),
            anchors=anchors,
            candidates=candidates,
            labels=check_integers("labels", labels, device, size),
            index=check_integers("index", index, device, size),
            uncertainty=checked,
        )
        bound = strategy.prepare(batch).at(slice(None), slice(None))
        return bound.logit(anchors @ candidates.T)
