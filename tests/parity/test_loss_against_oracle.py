"""The loss against the float64 oracle: strategies × objectives × layouts × dtypes × odd shapes, value and gradient.

Every strategy meets every layout; objectives, dtypes and shapes rotate so that every pair of choices occurs. Row losses are
compared one by one; gradients are those of a randomly weighted sum of the rows, so that errors of two rows cannot cancel.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from oracle_cases import COUNTS, HALF, LAYOUTS, OBJECTIVES, STRATEGIES, build, compare, make_call, oracle_arguments
from torch.nn.functional import cross_entropy, normalize

from tempplug import ContrastiveLoss
from tempplug.testing import oracle_loss, oracle_row_losses

pytestmark = pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning")

REDUCED = [torch.float32, *HALF]
SIZES = [(2, 16), (3, 3), (17, 1), (33, 16), (3, 16), (17, 3), (2, 3), (33, 3)]


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


@pytest.mark.slow
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
