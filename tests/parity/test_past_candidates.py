"""A queue of past candidates beside the batch, in layout `cross-view`: the oracle's loss and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor
from torch.nn import functional as F

from tempplug import ContrastiveLoss
from tempplug.arguments import parse_spec
from tempplug.errors import ShapeError
from tempplug.testing import oracle_loss

B, K, D = 6, 7, 5
DIRECTIONS = ["directions=ab", "directions=ab+ba,softmax=separate", "directions=ab+aa+ba+bb", "directions=ab+bb,hard=ab"]
STRATEGIES = ["fixed:temperature=0.1", "macl:alpha=1,threshold=0.2", "temperature-free"]
TERMS = ["", "same-key", "false-negatives:margin=-0.2", "hardness:strength=2+same-key"]


def leaves(dtype: torch.dtype) -> dict[str, Tensor]:
    numbers = torch.randn(4 * B + K + B, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    a, b, queue, owned = numbers.split([B, B, K, 3 * B])
    found = {"view_a": a, "view_b": a + b, "queue": queue, "hard_negatives": owned[: 2 * B].unflatten(0, (B, 2))}
    return {name: tensor.detach().clone().requires_grad_() for name, tensor in found.items()}


@pytest.mark.parametrize(
    ("directions", "strategy", "negatives", "hard", "engine"),
    every_pair(DIRECTIONS, STRATEGIES, TERMS, ["none", "owned", "shared"], ["tiled", "dense"]),
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_loss_and_gradients_are_the_oracles(
    directions: str, strategy: str, negatives: str, hard: str, engine: Any, dtype: torch.dtype
) -> None:
    given, tolerance = leaves(dtype), 1e-10 if dtype == torch.float64 else 1e-6
    if hard == "none":
        del given["hard_negatives"]
    elif hard == "shared":
        given["hard_negatives"] = given["hard_negatives"].detach().flatten(0, 1)[:5].requires_grad_()
    keys = {"view_a": torch.arange(B) // 2, "view_b": torch.arange(B) // 2, "queue": torch.tensor([0, 9, 9, 1, 2, 0, 8])}
    if "hard_negatives" in given:
        keys["hard_negatives"] = torch.arange(given["hard_negatives"].shape[:-1].numel()).view(
            given["hard_negatives"].shape[:-1]
        )
    of_rows = {"keys": keys} if "same-key" in negatives else {}
    loss_fn = ContrastiveLoss(strategy, layout=f"cross-view:{directions}", negatives=negatives or None, engine=engine)
    found = loss_fn(**given, **of_rows)
    name, options = parse_spec(strategy)
    expected = oracle_loss(
        **given,
        **of_rows,
        layout="cross-view",
        layout_options=parse_spec(f"cross-view:{directions}")[1],
        strategy=name,
        strategy_options=options,
        negatives={term: own for term, own in map(parse_spec, filter(None, negatives.split("+")))},
    )
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    ours, theirs = (torch.autograd.grad(loss, list(given.values())) for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=10 * tolerance, atol=10 * tolerance)


def test_it_is_cross_entropy_over_the_batch_and_the_queue_without_stale_copies() -> None:
    given = leaves(torch.float64)
    keys = torch.tensor([1, 2, 3, 4, 5, 6])
    past = torch.tensor([9, 3, 9, 6, 8, 8, 3])
    loss_fn = ContrastiveLoss("fixed:temperature=0.1", layout="cross-view", negatives="same-key")
    found = loss_fn(
        given["view_a"], given["view_b"], queue=given["queue"], keys={"view_a": keys, "view_b": keys, "queue": past}
    )
    a, b, queue = (F.normalize(given[name]) for name in ("view_a", "view_b", "queue"))
    logits = a @ torch.cat([b, queue]).T / 0.1
    logits = logits.masked_fill(F.pad(keys[:, None] == past, (B, 0)), -torch.inf)
    torch.testing.assert_close(found, F.cross_entropy(logits, torch.arange(B)), rtol=1e-10, atol=1e-10)


def test_without_other_rows_a_queue_is_refused() -> None:
    given = leaves(torch.float64)
    with pytest.raises(ShapeError, match="in_batch=false of layout 'cross-view' takes no queue=: layout 'queue' does"):
        ContrastiveLoss(layout="cross-view:in_batch=false")(**given)
