"""Closed forms for labels and masks: every built-in map and objective against the float64 oracle, tiles, exactness, memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from oracle_cases import COUNTS, OBJECTIVES, build, compare, make_call
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from tempplug import ContrastiveLoss, small
from tempplug.engine import gemm, several, several_positives
from tempplug.engine.tiles import Plan, Shape, make_plan
from tempplug.errors import ConfigError
from tempplug.objectives.infonce import InfoNCE
from tempplug.types import Auxiliary, RowStatistics

pytestmark = pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning")

STRATEGIES = [
    "fixed:temperature=0.07",
    "learnable:initial_temperature=0.2,max_scale=8",
    "macl",
    "dystress",
    "dystress:profile=linear,detach=false",
    "dystress:profile=exponential",
    "dystress:profile=monotonic,detach=false",
    "dystress:profile=shifted,shift=-0.4,detach=false",
    "temperature-free",
    "schedule",
    f"head-tail:class_counts={COUNTS},temperature_tail=0.2",
    "uncertainty",
]
LAYOUTS = ["labels-one-view", "labels", "labels-pairs+hard", "masks", "masks-one"]
MANY_ROWS = [
    ("learnable", "labels", torch.float64),
    ("dystress", "labels-one-view", torch.float64),
    ("uncertainty", "labels-pairs+hard", torch.float64),
    ("learnable", "masks", torch.float64),
    ("temperature-free", "masks-one", torch.float64),
]
# Log-odds and their slope divide by 1 - |s|, down to 1e-4, of which the float32 rounding of s alone is 1e-3.
TOLERANCE = {"temperature-free": 2e-3}


pytestmark = pytest.mark.usefixtures("closed_forms_alone")


def kept_by_none(shape: Shape, triangle: bool) -> Plan:
    """The plan of a block that is too large for its tiles to be kept."""
    return replace(make_plan(shape, triangle), keep=False)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_map_and_objective_is_the_oracle_s(strategy: str, layout: str, objective: str) -> None:
    compare(strategy, objective, make_call(layout, strategy, 26, 7, torch.float64), 1e-10, "tiled")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_single_and_half_precision_are_those_of_the_oracle(strategy: str, layout: str, dtype: torch.dtype) -> None:
    compare(strategy, "infonce", make_call(layout, strategy, 40, 7, dtype), TOLERANCE.get(strategy, 1e-5))


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "computed again"])
@pytest.mark.parametrize("case", MANY_ROWS, ids=lambda case: "-".join(map(str, case)))
def test_many_tiles_add_up(case: tuple[str, str, torch.dtype], keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, layout, dtype = case
    monkeypatch.setattr(several, "make_plan", make_plan if keep else kept_by_none)
    call = make_call(layout, strategy, 300 if layout == "labels" else 530, 3, dtype)
    compare(strategy, "infonce", call, 1e-10, "tiled")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("layout", [*LAYOUTS, "labels+hard", "labels-one-view+hard"])
@pytest.mark.parametrize("strategy", ["learnable", "dystress", "temperature-free", "uncertainty"])
def test_both_ways_have_one_loss_gradient_and_record(
    strategy: str, layout: str, reduction: str, short: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for largest in (small.LARGEST, 0):
        monkeypatch.setattr(small, "LARGEST", largest)
        call = make_call(layout, strategy, 33, 5, torch.float64)
        if layout.startswith("labels-one-view"):
            call.inputs["labels"][:2] = torch.tensor([100, 10**9])  # two anchors without a positive
        loss_fn = build(strategy, "infonce", call, reduction)
        value = loss_fn(*call.views, **call.inputs)
        weights = torch.linspace(1, 2, value.numel(), dtype=torch.float64).view(value.shape)
        leaves = [*call.leaves(), *loss_fn.parameters()]
        gradients = torch.autograd.grad((value * weights).sum(), leaves, retain_graph=True)
        again = torch.autograd.grad((value * weights).sum(), leaves)
        torch.testing.assert_close(again, gradients, rtol=1e-12, atol=1e-14)
        of_first = torch.autograd.grad((loss_fn(*call.views, **call.inputs) * weights).sum(), call.views[0])
        found.append(([value, *gradients, *of_first], loss_fn.record.numbers()))
    assert short == [True, True, False, False]
    (numbers, record), (others, of_other) = found
    for ours, long in zip(numbers, others, strict=True):
        torch.testing.assert_close(ours, long, rtol=1e-11, atol=1e-13)
    assert record == pytest.approx(of_other, rel=1e-10)


def test_only_anchors_may_learn(short: list[bool]) -> None:
    gradients = []
    for learning in (True, False):
        call = make_call("masks", "fixed", 12, 5, torch.float64)
        a, b = call.views[0], call.views[1].detach().requires_grad_(learning)
        value = ContrastiveLoss(layout="masks")(a, b, **call.inputs)
        gradients.append(torch.autograd.grad(value, a)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-15)
    assert short == [True, True]


class Halved(InfoNCE):
    """Another loss than its base's, whose closed form is no longer true."""

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return super().row_loss(statistics, auxiliary) / 2


def test_what_has_no_closed_form_goes_the_long_way(short: list[bool]) -> None:
    """Another objective; an anchor without negatives; masks that contradict each other; no anchor with a positive."""
    a = views_of(8, 1)[0].double()
    labels = torch.arange(8) % 3
    expected = ContrastiveLoss(layout="labels")(a, labels=labels)
    halved = ContrastiveLoss(objective=Halved(), layout="labels")(a, labels=labels)
    assert halved.item() == pytest.approx(expected.item() / 2, rel=1e-12)
    everything = torch.ones(8, 8, dtype=torch.bool)
    with pytest.raises(ConfigError, match="overlap"):
        ContrastiveLoss(layout="masks")(a, a, positive_mask=everything, negative_mask=everything)
    with pytest.warns(RuntimeWarning, match="8 of 8 anchors without a negative"):
        ContrastiveLoss(layout="masks")(a, a, positive_mask=everything, negative_mask=~everything)
    with pytest.warns(RuntimeWarning, match="no anchor has a positive"):
        assert ContrastiveLoss(layout="labels")(a, labels=torch.arange(8)).item() == 0
    assert short == [True, False, False, False, False]


def supcon(view: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The loss as one writes it in plain torch, in the dtype of its inputs."""
    unit = normalize(view)
    own = torch.eye(len(unit), dtype=torch.bool)
    positive = (labels[:, None] == labels[None, :]) & ~own
    likely = torch.log_softmax((unit @ unit.T / temperature).masked_fill(own, -1e9), 1)
    return -((likely * positive).sum(1) / positive.sum(1)).mean()


def masked(view: Tensor, sample: Tensor, positive: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """PyGCL's InfoNCE, in the dtype of its inputs."""
    similarity = normalize(view) @ normalize(sample).T / temperature
    likely = similarity - (similarity.exp() * (positive | negative)).sum(1, keepdim=True).log()
    return -((likely * positive).sum(1) / positive.sum(1)).mean()


def value_and_gradient(loss_fn: Callable[..., Tensor], views: list[Tensor], dtype: torch.dtype) -> tuple[float, Tensor]:
    leaves = [each.to(dtype).requires_grad_() for each in views]
    loss = loss_fn(*leaves)
    return loss.item(), torch.cat(torch.autograd.grad(loss, leaves)).double()


def worst(gradient: Tensor, exact: Tensor) -> float:
    return ((gradient - exact).abs().max() / exact.abs().max()).item()


def overall(gradient: Tensor, exact: Tensor) -> float:
    return ((gradient - exact).norm() / exact.norm()).item()


def views_of(rows: int, count: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return [torch.randn(rows, 64, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("rows", [64, 700])
@pytest.mark.parametrize("temperature", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("layout", ["labels", "masks", "masks, one positive"])
def test_gradients_are_as_exact_as_those_of_plain_torch(
    layout: str, temperature: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the products that plain torch takes; the faster ones of some processors round a little more."""
    loss_fn = ContrastiveLoss(f"fixed:temperature={temperature}", layout="labels" if layout == "labels" else "masks")
    plain: Callable[..., Tensor]
    ours: Callable[..., Tensor]
    if layout == "labels":
        views, labels = views_of(rows, 1), torch.arange(rows) * 7 % 10
        plain, ours = (lambda a: supcon(a, labels, temperature)), (lambda a: loss_fn(a, labels=labels))
    else:
        views, own = views_of(rows), torch.eye(rows, dtype=torch.bool)
        positive = own if "one" in layout else own | own.roll(3, 1)
        negative = ~positive & ~own.roll(9, 1)
        plain = lambda a, b: masked(a, b, positive, negative, temperature)  # noqa: E731
        ours = lambda a, b: loss_fn(a, b, positive_mask=positive, negative_mask=negative)  # noqa: E731
    value, exact = value_and_gradient(plain, views, torch.float64)
    found, gradient = value_and_gradient(ours, views, torch.float32)
    assert found == pytest.approx(value, rel=1e-6)
    assert worst(gradient, exact) <= 2e-6
    monkeypatch.setattr(gemm, "outer", lambda a, b: a @ b.t())
    monkeypatch.setattr(gemm, "times", lambda a, b: a @ b)
    monkeypatch.setattr(gemm, "turned", lambda a, b: a.t() @ b)
    eager = overall(value_and_gradient(plain, views, torch.float32)[1], exact)
    assert overall(value_and_gradient(ours, views, torch.float32)[1], exact) <= 1.5 * eager


@pytest.mark.parametrize("cloud", ["duplicates", "cone"])
@pytest.mark.parametrize("strategy", ["fixed:temperature=0.0125", "fixed:temperature=0.01", "temperature-free"])
def test_upstream_gradients_of_any_size_beside_sums_far_from_1(strategy: str, cloud: str) -> None:
    """At similarity 1 and -1 sums are as far from 1 as they come, and the log-odds clamp; in a cone all are near 1."""
    a = views_of(30, 1)[0]
    a = torch.cat([a, a[:5], -a[:5]]) if cloud == "duplicates" else views_of(40, 1)[0] * 0.33 + views_of(1, 1)[0]
    labels = torch.arange(40) % 4
    results = []
    for dtype, factor in ((torch.float64, 1.0), (torch.float32, 1e8), (torch.float32, 1e-10)):
        loss_fn = ContrastiveLoss(strategy, "dcl", "labels")
        leaf = a.to(dtype, copy=True).requires_grad_()
        (loss_fn(leaf, labels=labels) * factor).backward()
        assert leaf.grad is not None
        results.append(leaf.grad.double() / factor)
    assert worst(results[1], results[0]) <= 2e-5
    assert worst(results[2], results[0]) <= 2e-5


def test_temperatures_too_small_for_plain_sums_are_left_to_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    labels, views = torch.arange(40) % 4, views_of(40, 1)
    loss_fn = ContrastiveLoss("fixed:temperature=0.002", layout="labels")
    value, exact = value_and_gradient(lambda a: supcon(a, labels, 0.002), views, torch.float64)
    found, gradient = value_and_gradient(lambda a: loss_fn(a, labels=labels), views, torch.float32)
    assert loss_fn.record.engine == "tiled"
    assert found == pytest.approx(value, rel=1e-5)
    assert worst(gradient, exact) <= 1e-4


def test_a_lone_positive_without_negatives_has_loss_0_to_the_last_digit() -> None:
    a, b = views_of(4)
    own = torch.eye(4, dtype=torch.bool)
    with pytest.warns(RuntimeWarning, match="4 of 4 anchors without a negative"):
        assert ContrastiveLoss(layout="masks")(a, b, positive_mask=own, negative_mask=own & ~own).item() == 0
    with pytest.warns(RuntimeWarning, match="2 of 2 anchors without a negative"):
        assert ContrastiveLoss(layout="labels")(a[:2], labels=torch.zeros(2).long()).item() == 0


class Largest(TorchDispatchMode):
    """Remembers the most numbers that a tensor held, and the most that all of one operation's results together held."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.untyped_storage().nbytes() // 4)
        return result


def test_labels_keep_no_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors have the size of some tiles or of the embeddings, in both passes, however many rows there are."""
    monkeypatch.setattr(several, "make_plan", kept_by_none)
    rows = 3000
    view = torch.randn(rows, 16).requires_grad_()
    loss_fn = ContrastiveLoss(layout="labels")
    with Largest() as largest:
        loss_fn(view, labels=torch.arange(rows) % 10).backward()
    assert largest.numbers < rows * rows / 2


@pytest.mark.parametrize("strategy", ["fixed", "dystress"])
def test_a_call_without_backward_pass_leaves_nothing_behind(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that its own graph held would never be freed, nor would the tiles."""
    passes: list[weakref.ref[several.Several]] = []

    class Watched(several.Several):
        def forward(self, keep: bool) -> bool:
            passes.append(weakref.ref(self))
            return super().forward(keep)

    monkeypatch.setattr(several_positives, "Several", Watched)
    loss_fn = ContrastiveLoss(strategy, layout="labels")  # whose record goes on
    loss = loss_fn(views_of(8, 1)[0].requires_grad_(), labels=torch.arange(8) % 3)
    assert passes[0]() is not None
    del loss
    gc.collect()
    assert passes[0]() is None
    assert loss_fn.record.engine == "tiled"
