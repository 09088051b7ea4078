"""The loss inside the transforms of torch.func: the values of autograd and of a loop, or a clear refusal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from covering import every_pair
from torch.func import functional_call, grad, hessian, jvp, vmap

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, NonFiniteError

GENERATOR = torch.Generator().manual_seed(0)
A, B = (torch.randn(3, 5, 4, generator=GENERATOR, dtype=torch.float64) for _ in range(2))
KNOWN = {
    "index": torch.arange(5),
    "labels": torch.tensor([0, 0, 1, 1, 0]),
    "uncertainty": (torch.linspace(-1, 1, 5).double(), torch.zeros(5).double()),
    "keys": torch.tensor([3, 1, 4, 1, 5]),
    "groups": torch.tensor([0, 0, 1, 1, 1]),
    "guide": {view: torch.randn(5, 3, generator=GENERATOR) for view in ("view_a", "view_b")},
    "candidate_log_q": -torch.linspace(0, 3, 5).double(),
}
TERMS = ["false-negatives:margin=-0.3+within-group", "guide+same-key", "hardness+log-q", "hardness:of=in-batch+log-q:size=9"]
SPECS = ["fixed", "learnable", "macl", "dystress", "temperature-free", "uncertainty", "amcl:dimension=4"]
SPECS += ["head-tail:class_counts=3/2", "individual:size=9"]


def make(
    spec: str, layout: Any, engine: Any = "auto", objective: str = "infonce", negatives: str | None = None
) -> tuple[ContrastiveLoss, dict[str, Any]]:
    torch.manual_seed(0)
    loss_fn = ContrastiveLoss(spec, objective, layout, engine=engine, negatives=negatives).double().eval()
    return loss_fn, loss_fn.accepted(**KNOWN)


@pytest.mark.filterwarnings("ignore:layout '.*' leaves .* without a negative:RuntimeWarning")
@pytest.mark.parametrize(
    ("spec", "layout", "engine", "negatives"),
    every_pair(SPECS, ["two-view", "labels", "cross-view:directions=ab+aa+ba+bb"], ["auto", "dense"], [None, *TERMS]),
)
def test_gradients_and_batches_are_those_of_autograd_and_a_loop(
    spec: str, layout: str, engine: str, negatives: str | None
) -> None:
    loss_fn, given = make(spec, layout, engine, negatives=negatives)
    first = A[0].clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss_fn(first, B[0], **given), first)
    torch.testing.assert_close(grad(lambda x: loss_fn(x, B[0], **given))(A[0]), expected, rtol=1e-9, atol=1e-12)
    loop = torch.stack([loss_fn(a, b, **given) for a, b in zip(A, B, strict=True)])
    torch.testing.assert_close(vmap(lambda a, b: loss_fn(a, b, **given))(A, B), loop.detach(), rtol=1e-10, atol=1e-12)
    of_each = vmap(grad(lambda a, b: loss_fn(a, b, **given)))(A, B)
    torch.testing.assert_close(of_each[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore:layout '.*':RuntimeWarning")
@pytest.mark.parametrize(
    ("layout", "objective", "engine"),
    every_pair(["labels", "two-view", "cross-view", "masks"], ["infonce", "dcl", "dclw", "flatnce"], ["auto", "dense"]),
)
@pytest.mark.parametrize("view", ["view_a", "view_b"])
def test_nan_is_not_dropped_with_the_anchors_that_have_no_negative(layout: Any, objective: str, engine: Any, view: str) -> None:
    """Where nobody looks at the values, as on CUDA, the loss says so; a loss of 0 would not."""
    loss_fn = ContrastiveLoss(objective=objective, layout=layout, engine=engine)
    one = torch.ones(1, 1, dtype=torch.bool)
    given = loss_fn.accepted(labels=torch.tensor([0]), positive_mask=one, negative_mask=~one)
    views = {"view_a": A[:2, :1], "view_b": B[:2, :1]}
    whole = vmap(lambda a, b: loss_fn(a, b, **given))(*views.values())
    assert whole.isfinite().all()
    views[view] = views[view].clone()
    views[view][1, 0, 2] = torch.nan
    found = vmap(lambda a, b: loss_fn(a, b, **given))(*views.values())
    assert found[0] == whole[0]
    assert found[1].isnan()


def test_nan_of_a_batch_without_positives_is_not_dropped() -> None:
    loss_fn, labels = ContrastiveLoss(layout="labels"), torch.tensor([0, 1])
    rows = A[:2, :2].clone()
    rows[1, 0, 0] = torch.nan
    with pytest.warns(RuntimeWarning, match="no anchor has a positive"):
        found = vmap(lambda a: loss_fn(a, labels=labels))(rows)
    assert found[0] == 0
    assert found[1].isnan()


def test_parameters_tangents_and_second_derivatives() -> None:
    loss_fn, _ = make("learnable", "two-view")
    parameters = {name: value.detach() for name, value in loss_fn.named_parameters()}
    found = grad(lambda each: functional_call(loss_fn, each, (A[0], B[0])))(parameters)
    (expected,) = torch.autograd.grad(loss_fn(A[0], B[0]), loss_fn.strategy.log_scale)
    torch.testing.assert_close(found["strategy.log_scale"], expected, rtol=1e-9, atol=1e-12)
    fixed, _ = make("fixed", "cross-view", "dense")
    _, tangent = jvp(lambda x: fixed(x, B[0]), (A[0],), (B[0],))
    torch.testing.assert_close(tangent, (grad(lambda x: fixed(x, B[0]))(A[0]) * B[0]).sum(), rtol=1e-9, atol=1e-12)
    second = hessian(lambda x: fixed(x, B[0][:2]))(A[0][:2])
    expected = torch.autograd.functional.hessian(lambda x: fixed(x, B[0][:2]), A[0][:2])
    torch.testing.assert_close(second, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.filterwarnings("ignore:layout 'two-view' leaves:RuntimeWarning")
def test_rows_of_zeros_a_batch_of_one_and_nan() -> None:
    """No gradient of the first two, and an error for the last."""
    loss_fn, rows, bad = make("fixed", "two-view", objective="dcl")[0], A[0].clone(), A[0].clone()
    rows[2], bad[1, 1] = 0, float("nan")
    found = vmap(grad(lambda x: loss_fn(x, B[0])))(rows[None])[0]
    assert found.isfinite().all()
    assert not found[2].any()
    assert not vmap(grad(lambda x, y: loss_fn(x, y)))(A[:, :1], B[:, :1]).any()
    with pytest.raises(NonFiniteError, match="view_a holds NaN"):
        grad(lambda x: loss_fn(x, B[0]))(bad)


@pytest.mark.parametrize("transform", [grad, vmap])
def test_what_cannot_be_transformed_says_so(transform: Any) -> None:
    def tried(loss_fn: ContrastiveLoss, **given: Any) -> None:
        inputs = (A, B) if transform is vmap else (A[0], B[0])
        transform(lambda a, b: loss_fn(a, b, **given))(*inputs)

    for engine in ("tiled", "triton"):
        with pytest.raises(
            ConfigError, match=rf"engine='{engine}' has no rule for the transforms of torch.func: use engine='d"
        ):
            tried(make("fixed", "two-view", engine)[0])
    loss_fn, given = make("individual:size=9", "two-view")
    with pytest.raises(ConfigError, match=r"strategy 'individual' learns from every batch, .*: call loss_fn.eval\(\)"):
        tried(loss_fn.train(), **given)


def test_values_that_vmap_hides_are_named() -> None:
    labels, _ = make("fixed", "labels")
    with pytest.raises(
        ConfigError, match=r"vmap cannot run layout 'labels' with strategy 'fixed' here, because it has to look"
    ):
        vmap(lambda a, classes: labels(a, labels=classes))(A, KNOWN["labels"].expand(3, -1))  # type: ignore[union-attr]
    strict, _ = make("macl:strict=true", "two-view")
    with pytest.raises(ConfigError, match="strict=true must not be set"):
        vmap(strict)(A, B)


def test_no_record_and_no_state_comes_out_of_a_transform() -> None:
    loss_fn, _ = make("macl:alpha=2,threshold=0.9", "two-view")
    vmap(loss_fn)(A, B)
    assert loss_fn.strategy.floor_hits.item() == 0
    with pytest.raises(ConfigError, match="record is empty: call the loss first, outside of the transforms"):
        _ = loss_fn.record
