"""What an evaluation says of pairs of views that does not depend on the temperature of the moment.

The loss of a strategy that learns, adapts or follows a schedule rises and falls with its temperature alone, and so it cannot
choose a checkpoint. It must not know the Trainer or any strategy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from tempplug_adapters.huggingface.callback import Embeddings

REFERENCE_TEMPERATURE = 0.1
"""Of the InfoNCE that is comparable across strategies and steps."""
NAMES = ("contrastive_accuracy", "infonce_loss")
"""What the columns of `of_pairs` are. By the second one, Trainers know that lower is better."""


@torch.no_grad()
def of_pairs(view_a: Embeddings, view_b: Embeddings | None) -> Tensor | None:
    """Returns what each item of view_a finds among view_b, [B, 2], float32: NaN in a batch of one, which has no other item.

    The first column is 1 where the item's own row of view_b is more similar than every other one, else 0; a tie is 0. The
    second is InfoNCE at `REFERENCE_TEMPERATURE` in nats. Both are means over the heads. Only the B rows at hand are compared:
    a larger batch is harder, several processes are not.

    Args:
        view_a: [B, D] embeddings, or one such matrix per head.
        view_b: likewise, or None.

    Returns:
        None where row i of both views is not one item: there is no second view, or it is of another shape.
    """
    heads_a, heads_b = ([each] if isinstance(each, Tensor) else list(each or ()) for each in (view_a, view_b))
    if not heads_b or any(a.shape != b.shape for a, b in zip(heads_a, heads_b, strict=True)):
        return None
    return torch.stack([_of_head(a.float(), b.float()) for a, b in zip(heads_a, heads_b, strict=True)]).mean(0)


def _of_head(view_a: Tensor, view_b: Tensor) -> Tensor:
    if len(view_a) < 2:
        return view_a.new_full((len(view_a), 2), torch.nan)
    similarity = F.normalize(view_a) @ F.normalize(view_b).T
    own = torch.arange(len(view_a), device=view_a.device)
    others = similarity.masked_fill(own[:, None] == own, -torch.inf)
    found = (similarity.diagonal() > others.amax(1)).float()
    return torch.stack([found, F.cross_entropy(similarity / REFERENCE_TEMPERATURE, own, reduction="none")], 1)


def means(rows: Sequence[Tensor]) -> dict[str, float]:
    """Returns the means over all items that have a number, by name; empty where none has.

    Args:
        rows: [B, 2] each, of `of_pairs`.
    """
    if not rows:
        return {}
    every = torch.cat(list(rows))
    every = every[~every.isnan().any(1)]
    return dict(zip(NAMES, every.double().mean(0).tolist(), strict=True)) if len(every) else {}
