"""Every layout, strategy and engine inside what a training does around the loss, against the float64 oracle."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from contexts import CONTEXTS, FAKE
from oracle_cases import LAYOUTS, OBJECTIVES, STRATEGIES, build, compare, make_call
from torch._subclasses.fake_tensor import FakeTensorMode

from tempplug import ContrastiveLoss, create_strategy
from tempplug.errors import TensorError

pytestmark = pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning")

# One spec of each strategy.
EACH = list({spec.partition(":")[0]: spec for spec in reversed(STRATEGIES)}.values())
ENGINES = ["auto", "dense", "tiled"]
ROWS = [5, 17, 70]


@pytest.mark.slow
@pytest.mark.parametrize("case", LAYOUTS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_context_changes_no_number(context: str, case: str) -> None:
    for turn, (strategy, engine) in enumerate(itertools.product(EACH, ENGINES)):
        dtype = [torch.float32, torch.float64][turn % 2]
        # Log-odds divide by 1 - |s|, of which the float32 rounding of s alone is 1e-3.
        tolerance = 1e-10 if dtype == torch.float64 else 2e-3 if strategy.startswith("temperature-free") else 1e-5
        call = make_call(case, strategy, ROWS[turn % 3], 6, dtype)
        try:
            compare(strategy, OBJECTIVES[turn % len(OBJECTIVES)], call, tolerance, engine, CONTEXTS[context])
        except AssertionError as error:
            raise AssertionError(f"{strategy} {engine} {OBJECTIVES[turn % len(OBJECTIVES)]} {dtype}: {error}") from error


@pytest.mark.parametrize("case", LAYOUTS)
@pytest.mark.parametrize("strategy", EACH)
def test_tensors_without_values_are_refused_and_leave_nothing_behind(strategy: str, case: str) -> None:
    """Also those of a mode: what a call keeps for later calls must be real."""
    call = make_call(case, strategy, 13, 6, torch.float32)
    loss_fn = build(strategy, "infonce", call, "mean")
    with pytest.raises(TensorError, match="FakeTensorMode is active: the loss needs tensors with values"):
        FAKE.call(loss_fn, *call.views, **call.inputs)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(view) for view in call.views]
    with pytest.raises(TensorError, match="FakeTensorMode is active: the loss needs tensors with values"):
        loss_fn(*fake, **call.inputs)
    assert type(loss_fn(*call.views, **call.inputs)) is torch.Tensor


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strategy", [spec.replace("=D", "=6") for spec in EACH if "uncertainty" not in spec])
def test_another_default_type_changes_no_digit_and_no_type(strategy: str, engine: str, transposed: bool) -> None:
    call = make_call("cross-view", strategy, 33, 6, torch.float32)
    views = [view.detach().t().contiguous().t().requires_grad_() if transposed else view for view in call.views]
    found = []
    for context in ("plain", "float64 by default"):
        loss_fn = build(strategy, "dcl", call, "mean", engine)
        loss = CONTEXTS[context].call(loss_fn, *views, **call.inputs)
        found.append([loss.detach(), *CONTEXTS[context].gradients(loss, views)])
    for plain, other in zip(*found, strict=True):
        assert plain is not None
        assert other is not None
        assert plain.dtype == other.dtype
        assert torch.equal(plain, other)


def test_deterministic_algorithms_change_no_digit() -> None:
    """At sizes of one tile, of several tiles, and of many positives."""
    for layout, rows in itertools.product(("two-view", "labels", "queue"), (30, 300, 1100)):
        call = make_call(layout, "fixed", rows, 8, torch.float32)
        found = []
        for context in ("plain", "deterministic algorithms"):
            loss = CONTEXTS[context].call(ContrastiveLoss(layout=layout), *call.views, **call.inputs)  # type: ignore[arg-type]
            found.append([loss.detach(), *CONTEXTS[context].gradients(loss, call.leaves())])
        assert all(torch.equal(plain, other) for plain, other in zip(*found, strict=True)), f"{layout}, {rows} rows"


def test_every_strategy_is_among_them() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {create_strategy(spec.replace("=D", "=6")).name for spec in EACH}
    import tempplug

    assert names == {info.name for info in tempplug.strategies()} - {"individual"}
