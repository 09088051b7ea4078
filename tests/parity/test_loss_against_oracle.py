"""The loss against the float64 oracle: strategies × objectives × layouts × dtypes × odd shapes, value and gradient.

Every strategy meets every layout; objectives, dtypes and shapes rotate so that every pair of choices occurs. Row losses are
compared one by one; gradients are those of a randomly weighted sum of the rows, so that errors of two rows cannot cancel.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tempplug import ContrastiveLoss
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError
from tempplug.testing import oracle_loss, oracle_row_losses

pytestmark = pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning")

EPOCH = 137.5
COUNTS = "/".join(str(count) for count in (7, 90, 7, 40, 3, 60, 11, 25, 2, 50) * 7)
DYSTRESS = ["cosine", "cosine,detach=false", "linear,detach=false", "exponential,rate=2.5", "monotonic,detach=false"]
STRATEGIES = [
    "fixed:temperature=0.07",
    "learnable",
    "learnable:initial_temperature=0.2,max_scale=8",
    "macl",
    "macl:base_temperature=0.05,alpha=2,threshold=0.8",
    *[f"dystress:profile={profile}" for profile in DYSTRESS],
    "dystress:profile=shifted,shift=-0.4,detach=false",
    "dystress:profile=shifted,shift=0.3,temperature_min=0.05",
    "temperature-free",
    "temperature-free:eps=0.2",
    "schedule",
    "schedule:shape=triangle,temperature_min=0.05",
    "schedule:shape=step,period=100",
    f"head-tail:class_counts={COUNTS}",
    f"head-tail:class_counts={COUNTS},head_classes=1/2/5,temperature_head=0.3",
    "uncertainty",
]
OBJECTIVES = ["infonce", "dcl", "dclw", "flatnce", "reweighted", "dual-temperature:second_temperature=1.5"]
ONE_POSITIVE = ["two-view", "two-view+hard", "cross-view", "symmetric", "symmetric+hard", "queue", "queue+hard"]
LAYOUTS = [*ONE_POSITIVE, "labels", "labels-one-view", "labels-pairs+hard", "masks", "masks-one"]
HALF = [torch.bfloat16, torch.float16]
REDUCED = [torch.float32, *HALF]
SIZES = [(2, 16), (3, 3), (17, 1), (33, 16), (3, 16), (17, 3), (2, 3), (33, 3)]


@dataclass
class Call:
    """One call: the layout's name, its inputs, and the leaves whose gradients are compared."""

    layout: str
    symmetric: bool
    views: list[Tensor]
    inputs: dict[str, Any] = field(default_factory=dict)

    def leaves(self) -> list[Tensor]:
        given = [*self.views, self.inputs.get("queue"), self.inputs.get("hard_negatives")]
        uncertainty = self.inputs.get("uncertainty", ())
        given += uncertainty if isinstance(uncertainty, tuple) else [uncertainty]
        return [each for each in given if each is not None]


def make_call(case: str, strategy: str, rows: int, dimension: int, dtype: torch.dtype) -> Call:
    generator = torch.Generator().manual_seed(1000 * rows + dimension)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    base, _, hard = case.partition("+")
    layout = {"symmetric": "cross-view"}.get(base, base.partition("-")[0] if base[0] in "lm" else base)
    rows = max(rows, 3) if base in ("labels-one-view", "masks") else rows
    a = leaf(rows, dimension)
    b = (a.detach() + 0.7 * leaf(rows, dimension).detach()).requires_grad_()
    call = Call(layout, base == "symmetric", [a] if base == "labels-one-view" else [a, b])
    classes = torch.arange(rows) * 7 % (max(2, rows // 3) if base in ("labels", "labels-one-view") else rows)
    if layout == "labels" or strategy.startswith("head-tail"):
        call.inputs["labels"] = classes
    if base == "queue":
        call.inputs["queue"] = leaf(11, dimension)
    if hard:
        call.inputs["hard_negatives"] = leaf(rows, 2, dimension) if rows % 2 else leaf(5, dimension)
    if strategy.startswith("uncertainty"):
        both = base in ("two-view", "symmetric", "labels", "labels-pairs")
        call.inputs["uncertainty"] = (leaf(rows), leaf(rows)) if both else leaf(rows)
    if layout == "masks":
        call.views = [a, leaf(rows + 2, dimension)]
        own = torch.eye(rows, rows + 2, dtype=torch.bool)
        other = own.roll(1, dims=1)
        positive = own if base == "masks-one" else own | (other & (torch.arange(rows) % 2 == 0)[:, None])
        call.inputs |= {"positive_mask": positive, "negative_mask": ~positive & ~own.roll(2, dims=1)}
        positive[-1] = False  # an anchor without a positive, and pairs without a role
    return call


def build(strategy: str, objective: str, call: Call, reduction: str) -> ContrastiveLoss:
    loss_fn = ContrastiveLoss(strategy, objective, call.layout, symmetric=call.symmetric, reduction=reduction)
    loss_fn.set_progress(epoch=EPOCH)
    if call.views[0].dtype == torch.float64:
        loss_fn.double()
    if "max_scale" in strategy:
        with torch.no_grad():
            next(loss_fn.parameters()).fill_(3.0)  # above the bound: the next call clamps it
    return loss_fn


def oracle_arguments(strategy: str, objective: str, call: Call, loss_fn: ContrastiveLoss) -> dict[str, Any]:
    name, options = parse_spec(strategy)
    objective_name, objective_options = parse_spec(objective)
    log_scale = [each.detach().double().requires_grad_() for each in loss_fn.parameters()]
    return {
        "strategy": name,
        "strategy_options": options,
        "objective": objective_name,
        "objective_options": objective_options,
        "layout": call.layout,
        "symmetric": call.symmetric,
        "epoch": EPOCH,
        "log_scale": log_scale[0] if log_scale else None,
        **call.inputs,
    }


def compare(strategy: str, objective: str, call: Call, tolerance: float) -> None:
    loss_fn = build(strategy, objective, call, "none")
    arguments = oracle_arguments(strategy, objective, call, loss_fn)
    try:
        expected, _ = oracle_row_losses(*call.views, **arguments)
    except ConfigError:  # an objective without a form for several positives
        with pytest.raises(ConfigError):
            loss_fn(*call.views, **call.inputs)
        return
    rows = loss_fn(*call.views, **call.inputs)
    dtype = call.views[0].dtype
    assert rows.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert rows.shape == expected.shape
    error = (rows.detach() - expected.detach()).abs() / expected.detach().abs().clamp(min=1)
    assert error.max().item() <= tolerance, f"row losses differ by {error.max().item():.2e}, row {int(error.argmax())}"

    weights = torch.rand(len(rows), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    leaves = [*call.leaves(), *loss_fn.parameters()]
    references = [*call.leaves(), *([] if arguments["log_scale"] is None else [arguments["log_scale"]])]
    ours = torch.autograd.grad((rows * weights.to(rows.dtype)).sum(), leaves)
    theirs = torch.autograd.grad((expected * weights).sum(), references)
    for position, (left, right, leaf) in enumerate(zip(ours, theirs, leaves, strict=True)):
        assert left.dtype == leaf.dtype
        right = right.double()
        bound = tolerance * right.abs().max().clamp(min=1) + torch.finfo(leaf.dtype).eps * right.abs()
        excess = ((left.double() - right).abs() - bound).max().item()
        assert excess <= 0, f"gradient of input {position} is off by {excess:.2e} beyond its bound"


Choice = tuple[str, str, str, tuple[int, int], torch.dtype]


def choices() -> list[Choice]:
    """Returns three choices for every strategy and layout, two of them in float64, each axis rotating at its own pace."""
    found: list[Choice] = []
    for (i, strategy), (j, case) in itertools.product(enumerate(STRATEGIES), enumerate(LAYOUTS)):
        size = SIZES[(i + 3 * j) % len(SIZES)]
        for turn, dtype in enumerate([torch.float64, torch.float64, REDUCED[(i + 2 * j + j // 3) % len(REDUCED)]]):
            found.append((strategy, case, OBJECTIVES[(i + j + 3 * turn + turn // 2) % len(OBJECTIVES)], size, dtype))
    return found


def test_choices_contain_every_pair() -> None:
    met = {pair for choice in choices() for pair in itertools.combinations(choice, 2)}
    axes: list[list[Any]] = [STRATEGIES, LAYOUTS, OBJECTIVES, SIZES, [torch.float64, *REDUCED]]
    wanted = {pair for first, second in itertools.combinations(axes, 2) for pair in itertools.product(first, second)}
    assert wanted <= met, f"never meet: {sorted(map(str, wanted - met))[:5]}"


@pytest.mark.parametrize("choice", choices(), ids=lambda choice: " ".join(map(str, choice)).replace(COUNTS, "…"))
def test_loss_and_gradients_are_those_of_the_oracle(choice: Choice) -> None:
    strategy, case, objective, (rows, dimension), dtype = choice
    # A row loss is a difference of logits of up to 20 nats, each rounded to float32. Log-odds and their slope divide by
    # 1 - |s|, down to 1e-4, of which the float32 rounding of s alone is 1e-3.
    reduced = 2e-3 if strategy == "temperature-free" else 1e-5
    tolerance = 1e-10 if dtype == torch.float64 else reduced
    compare(strategy, objective, make_call(case, strategy, rows, dimension, dtype), tolerance)


@pytest.mark.parametrize("case", LAYOUTS)
def test_mean_and_sum_leave_out_anchors_without_a_positive(case: str) -> None:
    call = make_call(case, "fixed", 17, 3, torch.float64)
    rows, kept = oracle_row_losses(
        *call.views, **oracle_arguments("fixed", "infonce", call, build("fixed", "infonce", call, "none"))
    )
    assert not kept.all() or not case.startswith("masks")
    mean = build("fixed", "infonce", call, "mean")(*call.views, **call.inputs)
    total = build("fixed", "infonce", call, "sum")(*call.views, **call.inputs)
    assert mean.item() == pytest.approx((rows.sum() / kept.sum()).item(), rel=1e-12)
    assert total.item() == pytest.approx(rows.sum().item(), rel=1e-12)


@pytest.mark.parametrize("strategy", ["fixed:temperature=0.07", "learnable", "macl", "schedule"])
@pytest.mark.parametrize("case", ["two-view", "symmetric", "queue"])
def test_second_temperature_defaults_to_ten_times_the_first(strategy: str, case: str) -> None:
    compare(strategy, "dual-temperature", make_call(case, strategy, 17, 3, torch.float64), 1e-10)


@pytest.mark.parametrize("strategy", ["fixed:temperature=0.07", "macl", "dystress", "temperature-free", "uncertainty"])
@pytest.mark.parametrize("case", ["two-view+hard", "cross-view", "queue", "labels"])
def test_record_is_that_of_the_oracle(strategy: str, case: str) -> None:
    call = make_call(case, strategy, 17, 3, torch.float64)
    loss_fn = build(strategy, "dcl", call, "mean")
    loss_fn(*call.views, **call.inputs)
    record = loss_fn.record.numbers()
    arguments = oracle_arguments(strategy, "infonce", call, loss_fn)
    assert record["infonce"] == pytest.approx(oracle_loss(*call.views, **arguments).item(), rel=1e-10)
    assert record["loss"] == pytest.approx(oracle_loss(*call.views, **{**arguments, "objective": "dcl"}).item(), rel=1e-10)
    if case != "labels":
        probability = torch.exp(-oracle_row_losses(*call.views, **arguments)[0]).mean().item()
        assert record["positive_probability"] == pytest.approx(probability, rel=1e-10)
        assert record["gradient_scale"] == pytest.approx(1 - probability, rel=1e-10)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", ["cross-view", "masks"])
def test_record_holds_the_mean_whatever_the_reduction(case: str, reduction: str) -> None:
    call = make_call(case, "fixed", 17, 3, torch.float64)
    loss_fn = build("fixed", "infonce", call, reduction)
    loss_fn(*call.views, **call.inputs)
    expected = oracle_loss(*call.views, **oracle_arguments("fixed", "infonce", call, loss_fn)).item()
    assert loss_fn.record.numbers()["infonce"] == pytest.approx(expected, rel=1e-10)
    assert loss_fn.record.numbers()["loss"] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("strategy", ["fixed:temperature=0.07", "macl", "dystress:detach=false", "temperature-free"])
@pytest.mark.parametrize("case", LAYOUTS)
def test_embeddings_of_zeros_are_similar_to_nothing(strategy: str, case: str) -> None:
    call = make_call(case, strategy, 17, 3, torch.float64)
    with torch.no_grad():
        for view in call.leaves():
            view.flatten(0, -2)[::4] = 0
    compare(strategy, "infonce", call, 1e-10)
    loss_fn = build(strategy, "infonce", call, "mean")
    loss_fn(*call.views, **call.inputs).backward()
    zeros = [leaf.flatten(0, -2)[::4] for leaf in call.leaves()]
    assert loss_fn.record.numbers()["zero_norm_rows"] == sum(len(each) for each in zeros)
    assert all(leaf.grad is not None and not leaf.grad.flatten(0, -2)[::4].any() for leaf in call.leaves())


def test_losses_of_several_heads_are_summed() -> None:
    calls = [make_call("cross-view", "macl", rows, 3, torch.float64) for rows in (5, 5, 5)]
    heads = [
        [call.views[0] + turn for turn, call in enumerate(calls)],
        [call.views[1] - turn for turn, call in enumerate(calls)],
    ]
    loss = ContrastiveLoss("macl", "reweighted", "cross-view")(*heads)
    arguments: dict[str, Any] = {"strategy": "macl", "objective": "reweighted", "layout": "cross-view"}
    expected = sum(oracle_loss(a, b, **arguments).item() for a, b in zip(*heads, strict=True))
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("temperature", [0.01, 0.05, 0.5])
def test_error_is_not_above_that_of_plain_torch(temperature: float, dtype: torch.dtype) -> None:
    """Both start from the same rounded embeddings; plain torch then computes in the dtype that it was given."""
    call = make_call("cross-view", "fixed", 33, 16, dtype)
    a, b = call.views
    plain = cross_entropy(normalize(a) @ normalize(b).T / temperature, torch.arange(len(a)))
    ours = ContrastiveLoss(f"fixed:temperature={temperature}", layout="cross-view")(a, b)
    exact = oracle_loss(a, b, layout="cross-view", strategy_options={"temperature": temperature})
    gradients = [torch.autograd.grad(each, a)[0].double() for each in (ours, plain, exact)]
    epsilon = torch.finfo(torch.float32).eps
    assert abs((ours - exact).item()) <= abs((plain - exact).item()) + 2 * epsilon * max(1.0, exact.item())
    largest = gradients[2].abs().max().item()
    our_error, plain_error = ((each - gradients[2]).abs().max().item() for each in gradients[:2])
    assert our_error <= plain_error + 2 * max(epsilon, torch.finfo(dtype).eps / 2) * largest
