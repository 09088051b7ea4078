"""How well images find their texts and texts their images, and zero-shot classification; ties count against the model.

It works on embeddings and must not know models.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

AT = (1, 5, 10)
"""The ranks that recall is measured at."""
_CHUNK = 2**24
"""Similarities that are held at a time."""


@torch.no_grad()
def recall(anchors: Tensor, candidates: Tensor, pairs: Tensor) -> dict[int, float]:
    """Returns the percentage of anchors that find one of their own candidates among their k most similar ones, by k of `AT`.

    A rank is the number of candidates of others that are at least as similar as the best own one; so a tie is lost, and so is
    what has no number. An anchor without a candidate is left out.

    Args:
        anchors: [N, D] raw embeddings.
        candidates: [M, D] raw embeddings.
        pairs: [P, 2] int64, an anchor and one of its candidates each.

    >>> eye = torch.eye(3)
    >>> recall(eye, eye.roll(1, 0), torch.tensor([[0, 1], [1, 2], [2, 2]]))[1]
    66.66666666666667
    """
    anchors, candidates = (F.normalize(each.float(), dim=1) for each in (anchors, candidates))
    ranks = []
    for rows in torch.split(torch.arange(len(anchors)), max(1, _CHUNK // max(1, len(candidates)))):
        inside = pairs[(pairs[:, 0] >= rows[0]) & (pairs[:, 0] <= rows[-1])].to(anchors.device)
        own = torch.zeros(len(rows), len(candidates), dtype=torch.bool, device=anchors.device)
        own[inside[:, 0] - rows[0].item(), inside[:, 1]] = True
        similarity = anchors[rows[0] : rows[-1] + 1] @ candidates.T
        best = similarity.masked_fill(~own, -torch.inf).amax(1, keepdim=True)
        ranks.append(((~(similarity < best)) & ~own).sum(1)[own.any(1)])
    found = torch.cat(ranks)
    return {k: 100 * int((found < k).sum()) / max(1, len(found)) for k in AT}


@torch.no_grad()
def zero_shot(images: Tensor, labels: Tensor, texts: Tensor, prompts: tuple[tuple[int, ...], ...]) -> float:
    """Returns the percentage of images that are more similar to their class than to every other one.

    A class is the mean direction of its prompts.

    Args:
        images: [N, D] raw embeddings.
        labels: [N] class of each.
        texts: [T, D] raw embeddings.
        prompts: of each class, rows of ``texts``.

    Source: Radford et al. 2021 (CLIP), section 3.1.4.
    """
    texts = F.normalize(texts.float(), dim=1)
    classes = torch.stack([texts[list(each)].mean(0) for each in prompts])
    return recall(images, classes, torch.stack([torch.arange(len(labels)), labels.cpu()], 1))[1]
