"""`ContrastiveLoss` at its door: what it refuses and how it says so, reductions, heads, the record, and its state."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
from covering import every_pair
from torch import Tensor

import tempplug
from tempplug import ContrastiveLoss, distributed, metrics
from tempplug.create import load_class
from tempplug.embeddings import unit_rows
from tempplug.engine import gemm
from tempplug.errors import ConfigError, UnknownNameError
from tempplug.layouts import LAYOUTS, create_layout
from tempplug.types import LayoutName, ObjectiveName


def views(rows: int = 5, dimension: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, dimension, generator=generator), torch.randn(rows, dimension, generator=generator)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"layout": "crossview"}, UnknownNameError, "unknown layout 'crossview'. Did you mean 'cross-view'?"),
        ({"layout": "two-view", "symmetric": True}, ConfigError, "symmetric=True belongs to layout 'cross-view'"),
        ({"reduction": "median"}, ConfigError, "reduction='median' must be one of mean, sum, none."),
        ({"reduction": ["mean"]}, ConfigError, "reduction=['mean'] must be one of mean, sum, none."),
        ({"gather": "yes"}, ConfigError, "gather='yes' must be True, False or 'ring'."),
        ({"layout": "cross-view", "symmetric": 1}, ConfigError, "symmetric=1 must be True or False."),
        ({"layout": ["two-view"]}, ConfigError, "layout=['two-view'] must be the name of a layout"),
        ({"engine": ["auto"]}, ConfigError, "engine=['auto'] is not available: choose one of auto, dense, tiled, triton"),
        ({"engine": "tiles"}, ConfigError, "engine='tiles' is not available: choose one of auto, dense, tiled, triton"),
        ({"layout": "masks", "gather": True}, ConfigError, "gather=True has no meaning for layout 'masks'"),
        ({"temperature": 0.05}, ConfigError, "write ContrastiveLoss(0.05) for a fixed temperature"),
        ({"scale": 20.0}, ConfigError, "write ContrastiveLoss(0.05) for a fixed temperature"),
        ({"alpha": 2}, ConfigError, "alpha= is no argument of ContrastiveLoss. Options of a strategy belong to its class."),
        ({"strategy": "fixed(0.05)"}, ConfigError, "is not a spec string: write fixed:key=value"),
        ({"strategy": True}, ConfigError, "strategy=True must be a spec string such as"),
        ({"strategy": -0.1}, ConfigError, "temperature=-0.1 of strategy 'fixed' must be"),
    ],
)
def test_construction_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        ContrastiveLoss(**arguments)
    assert message in str(caught.value)


A, B = views()


def test_a_number_is_a_fixed_temperature_and_classes_are_at_the_top() -> None:
    assert torch.equal(ContrastiveLoss(0.3)(A, B), ContrastiveLoss(tempplug.Fixed(temperature=0.3))(A, B))
    classes = {id(getattr(tempplug, name)) for name in tempplug.__all__}
    for info in (*tempplug.strategies(), *tempplug.objectives(), *tempplug.negatives()):
        assert id(load_class(info)) in classes, f"{info.name} is not at the top level"
    assert {id(each) for each in LAYOUTS.values()} <= classes
    assert set(get_args(ObjectiveName)) == {info.name for info in tempplug.objectives()}
    assert set(get_args(LayoutName)) == set(LAYOUTS)


def test_the_record_describes_the_call() -> None:
    loss_fn = ContrastiveLoss("fixed:temperature=0.2", "reweighted", "cross-view")
    with pytest.raises(ConfigError, match="record is empty: call the loss first"):
        _ = loss_fn.record
    loss = loss_fn(A, B)
    a, b = torch.nn.functional.normalize(A), torch.nn.functional.normalize(B)
    probability = torch.softmax(a @ b.T / 0.2, 1).diagonal()
    record = loss_fn.record
    assert torch.allclose(record.loss, loss)
    assert torch.allclose(record.infonce, -probability.log().mean())
    assert torch.allclose(record.positive_probability, probability.mean(), rtol=1e-5)
    assert torch.allclose(record.gradient_scale, 1 - probability.mean(), rtol=1e-5)
    assert torch.allclose(record.positive_similarity, (a * b).sum(1).mean())
    off = ~torch.eye(5, dtype=torch.bool)
    assert torch.allclose(record.negative_similarity, (a @ b.T)[off].mean(), atol=1e-6)
    assert record.temperature_min.item() == record.temperature_max.item() == pytest.approx(0.2)
    assert record.engine == "tiled"
    assert set(record.to_dict()) > {"loss", "infonce", "temperature_mean", "floor_hits", "engine"}
    assert not any(value.requires_grad for value in (record.loss, record.infonce, record.temperature_mean))


def test_the_sampled_temperatures_cover_a_large_batch() -> None:
    a, b = views(rows=300, dimension=3)
    loss_fn = ContrastiveLoss("dystress:temperature_min=0.1,temperature_max=0.9", layout="two-view")
    loss_fn(a, b)
    assert 0.1 <= loss_fn.record.temperature_min.item() < 0.11
    assert 0.85 < loss_fn.record.temperature_max.item() <= 0.9
    everyone = torch.nn.functional.normalize(torch.cat([a, b]))
    exact = (everyone @ everyone.T).fill_diagonal_(0).sum() / (600 * 599)
    assert loss_fn.record.negative_similarity.item() == pytest.approx(exact.item(), abs=0.04)


def test_observe_runs_in_training_only() -> None:
    seen: list[int] = []
    loss_fn = ContrastiveLoss("fixed")
    loss_fn.strategy.observe = lambda batch, statistics: seen.append(len(statistics.negative_lse))  # type: ignore[method-assign]
    loss_fn(A, B)
    loss_fn.eval()(A, B)
    assert seen == [10]


def test_record_has_alignment_uniformity_and_the_negatives_that_count() -> None:
    view_a, view_b = views(9, 5)
    loss_fn = ContrastiveLoss("temperature-free", layout="cross-view")
    loss_fn(view_a, view_b)
    record = loss_fn.record
    assert record.alignment.item() == pytest.approx(metrics.alignment(view_a, view_b).item(), rel=1e-5)
    a, b = (torch.nn.functional.normalize(each.double(), dim=1) for each in (view_a, view_b))
    potentials, effective = [], []
    for i in range(9):
        others = [j for j in range(9) if j != i]
        potentials += [math.exp(-2 * float((a[i] - b[j]).square().sum())) for j in others]
        # exp(2·atanh(s))·2/(1 - s²)
        pushes = [(1 + s) / (1 - s) * 2 / (1 - s * s) for s in (float(a[i] @ b[j]) for j in others)]
        shares = [push / sum(pushes) for push in pushes]
        effective.append(math.exp(-sum(share * math.log(share) for share in shares)))
    assert record.uniformity.item() == pytest.approx(math.log(sum(potentials) / len(potentials)), rel=1e-5)
    assert record.effective_negatives.item() == pytest.approx(sum(effective) / 9, rel=1e-5)


def test_record_of_two_heads_and_of_large_batches_looks_at_some_anchors() -> None:
    both = [*views(400, 6), *views(400, 6, seed=1)]
    heads = ContrastiveLoss("fixed:temperature=1000")
    with pytest.warns(RuntimeWarning, match="a scale of 1000"):
        heads(both[:2], both[2:])
    assert heads.record.effective_negatives.item() == pytest.approx(798, rel=1e-4)


def test_layout_gather_and_engine_are_read_in_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where one process alone computes a loss that was made for all."""
    asked: list[bool] = []

    def active() -> bool:
        asked.append(True)
        return False

    monkeypatch.setattr(distributed, "active", active)
    a, b = (each.clone().requires_grad_() for each in torch.randn(2, 4, 3, dtype=torch.float64))
    loss_fn = ContrastiveLoss(gather=True, layout="cross-view")
    loss_fn(a, b)
    assert asked == [True]
    loss_fn.gather = False
    loss_fn.engine = "dense"
    (gradient,) = torch.autograd.grad(loss_fn(a, b), a, create_graph=True)
    assert gradient.square().sum().requires_grad
    assert asked == [True]
    loss_fn.layout = create_layout("two-view")
    assert loss_fn(a, b).item() == pytest.approx(ContrastiveLoss()(a, b).item())
    masks = {"positive_mask": torch.eye(4, dtype=torch.bool), "negative_mask": ~torch.eye(4, dtype=torch.bool)}
    loss_fn.layout = create_layout("masks")
    loss_fn(a, b, **masks)
    loss_fn.layout = create_layout("cross-view")
    with pytest.raises(ConfigError, match="positive_mask"):
        loss_fn(a, b, **masks)


@pytest.mark.parametrize(
    ("scale", "layout"), [*every_pair([1e-10, 1e18, 3e38], ["two-view", "cross-view", "queue"]), (0.0, "cross-view")]
)
def test_the_length_of_a_row_changes_its_own_gradient_alone_and_rows_of_zeros_are_counted(scale: float, layout: Any) -> None:
    a, loss_fn = A.clamp(-1, 1).requires_grad_(), ContrastiveLoss("temperature-free", layout=layout, reduction="none")
    rows, other = a.detach().clone(), B.clone().requires_grad_()
    rows[2] *= scale
    rows.requires_grad_()
    given = {"queue": A.flip(1)} if layout == "queue" else {}
    found, expected = loss_fn(rows, other, **given), loss_fn(a, other, **given)
    assert loss_fn.record.zero_norm_rows.item() == 0
    (of_rows, of_other), (of_a, of_b) = (
        torch.autograd.grad(each.sum(), leaves) for each, leaves in ((found, (rows, other)), (expected, (a, other)))
    )
    assert of_rows.isfinite().all()
    if scale:
        torch.testing.assert_close((found, of_other), (expected, of_b), rtol=1e-5, atol=1e-5)
        of_rows[2] *= scale
        torch.testing.assert_close(of_rows, of_a, rtol=1e-4, atol=1e-5)
        assert (a * of_a).sum(1).abs().max() < 1e-5, "moving along the embedding itself changes nothing"
    else:
        loss_fn(rows, other)
        assert loss_fn.record.zero_norm_rows.item() == 1
        assert not of_rows[2].any()
        torch.testing.assert_close(found[2].item(), math.log(5))  # similar to nothing


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("other", [1.0, 1e-9])
def test_whether_a_row_has_a_direction_depends_on_its_own_norm_alone(dtype: torch.dtype, other: float) -> None:
    """Of float16 from the smallest number with all its digits on: gradients of shorter rows would be infinite."""
    directions = torch.nn.functional.normalize(torch.randn(5, 8, generator=torch.Generator().manual_seed(0)))
    lengths = torch.tensor([2e-5, 5e-5, 7e-5, 1e-3, other])
    rows = (directions * lengths[:, None]).to(dtype).requires_grad_()
    smallest = 2**-14 if dtype == torch.float16 else 1e-12
    expected = (rows.detach().double().norm(dim=1) < smallest).tolist()
    units, without = unit_rows(rows)
    assert (~units.any(1)).tolist() == expected
    assert expected == ([False] * 5 if without is None else without.tolist())
    assert torch.func.vmap(lambda each: unit_rows(each)[1])(rows.detach()[None]).tolist() == [expected]
    assert expected == [dtype == torch.float16] * 2 + [False] * 2 + [dtype == torch.float16 and other < 1]
    loss = ContrastiveLoss("macl", "dcl")(rows[::2], rows[2:])  # the third and the last of these lie in both views
    (gradient,) = torch.autograd.grad(loss, rows)
    assert not gradient.isnan().any()
    assert (~gradient.any(1))[:2].tolist() == [expected[0], True]


@pytest.mark.parametrize("layout", ["queue", "cross-view"])
def test_candidates_without_gradient_cost_no_product_and_change_no_gradient(
    layout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detached keys beside a queue, as of MoCo, or a detached view."""
    products: list[bool] = []

    def watched(*arguments: Any) -> Tensor:
        products.append(True)
        return times_transposed(*arguments)

    times_transposed = gemm.times_transposed
    monkeypatch.setattr(gemm, "times_transposed", watched)
    loss_fn, a, b = ContrastiveLoss(layout=layout, engine="tiled"), *torch.randn(2, 8, 5)
    given = {"queue": torch.randn(40, 5)} if layout == "queue" else {}
    gradients = []
    for learns in (True, False):
        view = a.clone().requires_grad_()
        loss_fn(view, b.clone().requires_grad_(learns), **given).backward()
        gradients.append(view.grad)
    assert products == [True]
    assert gradients[0] is not None
    assert gradients[1] is not None
    assert torch.equal(*gradients)


@pytest.mark.parametrize(("layout", "dtype"), every_pair(["labels", "two-view", "queue"], [torch.float64, torch.bfloat16]))
def test_how_rows_lie_in_memory_changes_nothing(layout: Any, dtype: torch.dtype) -> None:
    rows = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    loss_fn = ContrastiveLoss("fixed:temperature=0.5", layout=layout)
    found = []
    for lay in (torch.clone, lambda each: each.t().contiguous().t(), lambda each: torch.stack([each, each], 2)[..., 0]):
        leaf = rows.clone().requires_grad_()
        a = lay(leaf)
        given = {"labels": {"labels": torch.arange(6) // 2}, "queue": {"view_b": a * 2, "queue": a}}
        loss = loss_fn(a, **given.get(layout, {"view_b": a * 2}))
        loss.backward()
        found.append([loss.detach(), leaf.grad])
    for other in found[1:]:
        for ours, plain in zip(other, found[0], strict=True):
            torch.testing.assert_close(ours, plain)


def test_the_record_says_what_terms_did_to_the_negatives() -> None:
    """Of both views of three pairs: 30 pairs less the six positives, of which 8 have the key of their anchor."""
    views = torch.eye(3), torch.eye(3).roll(1, 0)
    plain = ContrastiveLoss()
    plain(*views)
    assert not {"negatives_left_out", "negative_weight"} & plain.record.numbers().keys()
    terms = ContrastiveLoss(negatives="same-key+hardness:strength=2")
    terms(*views, keys=torch.tensor([4, 4, 5]))
    found = terms.record.numbers()
    assert found["negatives_left_out"] == pytest.approx(8 / 24)
    similarity = torch.cat(views) @ torch.cat(views).T
    keys = torch.tensor([4, 4, 5, 4, 4, 5])
    kept = keys[:, None] != keys
    assert found["negative_weight"] == pytest.approx(float((2 * similarity[kept]).exp().mean()))
