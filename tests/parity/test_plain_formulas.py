"""``fixed`` in every layout is the loss that users write by hand in plain PyTorch today, value and gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tempplug import ContrastiveLoss

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
TEMPERATURE = 0.2
ROWS, DIMENSION = 13, 5

dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])


def leaves(*shapes: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def assert_same(ours: Callable[..., Tensor], plain: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    tolerance = TOLERANCE[inputs[0].dtype]
    values = [loss(*inputs) for loss in (ours, plain)]
    gradients = [torch.autograd.grad(value, inputs) for value in values]
    assert values[0].dtype == inputs[0].dtype
    assert abs(values[0].item() - values[1].item()) <= tolerance * max(1.0, values[1].item())
    for left, right in zip(*gradients, strict=True):
        assert (left - right).abs().max().item() <= tolerance * max(1.0, right.abs().max().item())


@dtypes
def test_two_view_is_simclr_nt_xent(dtype: torch.dtype) -> None:
    def nt_xent(a: Tensor, b: Tensor) -> Tensor:
        z = normalize(torch.cat([a, b]))
        logits = (z @ z.T / TEMPERATURE).fill_diagonal_(-torch.inf)
        return cross_entropy(logits, torch.arange(2 * len(a)).roll(len(a)))

    loss_fn = ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", layout="two-view")
    assert_same(loss_fn, nt_xent, leaves((ROWS, DIMENSION), (ROWS, DIMENSION), dtype=dtype))


@dtypes
def test_cross_view_is_simcse(dtype: torch.dtype) -> None:
    def simcse(a: Tensor, b: Tensor) -> Tensor:
        return cross_entropy(normalize(a) @ normalize(b).T / TEMPERATURE, torch.arange(len(a)))

    loss_fn = ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", layout="cross-view")
    assert_same(loss_fn, simcse, leaves((ROWS, DIMENSION), (ROWS, DIMENSION), dtype=dtype))


@dtypes
def test_cross_view_with_hard_negatives_is_supervised_simcse(dtype: torch.dtype) -> None:
    def simcse(a: Tensor, b: Tensor, hard: Tensor) -> Tensor:
        logits = normalize(a) @ normalize(torch.cat([b, hard])).T / TEMPERATURE
        return cross_entropy(logits, torch.arange(len(a)))

    loss_fn = ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", layout="cross-view")
    inputs = leaves((ROWS, DIMENSION), (ROWS, DIMENSION), (ROWS, DIMENSION), dtype=dtype)
    assert_same(lambda a, b, hard: loss_fn(a, b, hard_negatives=hard), simcse, inputs)


@dtypes
def test_symmetric_cross_view_is_clip(dtype: torch.dtype) -> None:
    def clip(a: Tensor, b: Tensor) -> Tensor:
        logits, own = normalize(a) @ normalize(b).T / TEMPERATURE, torch.arange(len(a))
        return (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2

    loss_fn = ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", layout="cross-view", symmetric=True)
    assert_same(loss_fn, clip, leaves((ROWS, DIMENSION), (ROWS, DIMENSION), dtype=dtype))


@dtypes
def test_queue_is_moco(dtype: torch.dtype) -> None:
    def moco(query: Tensor, key: Tensor, queue: Tensor) -> Tensor:
        query, key, queue = normalize(query), normalize(key), normalize(queue)
        logits = torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], dim=1) / TEMPERATURE
        return cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))

    loss_fn = ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", layout="queue")
    inputs = leaves((ROWS, DIMENSION), (ROWS, DIMENSION), (29, DIMENSION), dtype=dtype)
    assert_same(lambda a, b, queue: loss_fn(a, b, queue=queue), moco, inputs)


@dtypes
@pytest.mark.parametrize("views", [1, 2])
def test_labels_are_supcon(dtype: torch.dtype, views: int) -> None:
    """SupCon's L_out, one class a single row, so that some anchors have no positive when there is one view."""
    labels = torch.tensor([0, 1, 2, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1])

    def supcon(*both: Tensor) -> Tensor:
        z, classes = normalize(torch.cat(both)), labels.repeat(views)
        others = ~torch.eye(len(z), dtype=torch.bool)
        log_probability = torch.log_softmax((z @ z.T / TEMPERATURE).masked_fill(~others, -torch.inf), dim=1)
        same = (classes[:, None] == classes) & others
        rows = [-log_probability[i][same[i]].mean() for i in range(len(z)) if same[i].any()]
        return torch.stack(rows).mean()

    loss_fn = ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", layout="labels")
    inputs = leaves(*[(ROWS, DIMENSION)] * views, dtype=dtype)
    assert_same(lambda *both: loss_fn(*both, labels=labels), supcon, inputs)


@dtypes
def test_masks_are_the_pygcl_contract(dtype: torch.dtype) -> None:
    """InfoNCE over boolean masks, with pairs that play no part."""
    generator = torch.Generator().manual_seed(7)
    roles = torch.rand(ROWS, 21, generator=generator)
    positive, negative = roles < 0.2, roles > 0.4
    positive[:, 0], negative[:, 0] = True, False

    def masked(anchors: Tensor, candidates: Tensor) -> Tensor:
        similarity = normalize(anchors) @ normalize(candidates).T / TEMPERATURE
        log_probability = torch.log_softmax(similarity.masked_fill(~(positive | negative), -torch.inf), dim=1)
        return -(log_probability.masked_fill(~positive, 0).sum(1) / positive.sum(1)).mean()

    loss_fn = ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", layout="masks")
    inputs = leaves((ROWS, DIMENSION), (21, DIMENSION), dtype=dtype)
    assert_same(lambda a, c: loss_fn(a, c, positive_mask=positive, negative_mask=negative), masked, inputs)


@dtypes
def test_dcl_is_graphcl(dtype: torch.dtype) -> None:
    def graphcl(a: Tensor, b: Tensor) -> Tensor:
        similarity = torch.exp(normalize(a) @ normalize(b).T / TEMPERATURE)
        positive = similarity.diagonal()
        return -torch.log(positive / (similarity.sum(1) - positive)).mean()

    loss_fn = ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", "dcl", "cross-view")
    assert_same(loss_fn, graphcl, leaves((ROWS, DIMENSION), (ROWS, DIMENSION), dtype=dtype))


@pytest.mark.parametrize("strategy", ["fixed:temperature=0.2", "temperature-free", "dystress"])
def test_logits_are_those_of_the_cross_view_loss(strategy: str) -> None:
    a, b = leaves((ROWS, DIMENSION), (ROWS, DIMENSION), dtype=torch.float64)
    loss_fn = ContrastiveLoss(strategy, layout="cross-view")
    logits = loss_fn.logits(a, b)
    assert logits.shape == (ROWS, ROWS)
    plain = cross_entropy(logits, torch.arange(ROWS))
    assert abs((loss_fn(a, b) - plain).item()) <= 1e-12
