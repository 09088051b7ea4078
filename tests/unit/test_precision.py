"""``precision="bf16-backward"``: products of the gradient alone are asked to round, one at a time, and only where it pays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tempplug import ContrastiveLoss
from tempplug.engine import gemm
from tempplug.engine import tiled as tiled_engine
from tempplug.errors import ConfigError

PRODUCTS = {"aten::mm", "aten::addmm_", "mkldnn::_linear_pointwise"}
SETTINGS = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
# One of each closed form: strategy, objective, layout, rows, and what else the call takes.
FORMS: dict[str, tuple[str, str, str, int]] = {
    "one tile, two views": ("fixed", "infonce", "two-view", 64),
    "one tile, one direction": ("dystress", "infonce", "cross-view", 64),
    "tiles, two views": ("fixed", "infonce", "two-view", 1100),
    "tiles, one direction": ("temperature-free", "infonce", "cross-view", 2100),
    "labels, one tile": ("fixed", "infonce", "labels", 64),
    "labels, tiles": ("fixed", "infonce", "labels", 1100),
    "pair temperatures": ("amcl:dimension=16", "dcl", "two-view", 300),
}


class Watch(TorchDispatchMode):
    """Notes under which setting each product runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function._schema.name in PRODUCTS:
            self.seen.append(SETTINGS.fp32_precision)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def pays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a processor with AMX."""
    for module in (gemm, tiled_engine.gemm):
        monkeypatch.setattr(module, "rounding_pays", lambda: True)
    monkeypatch.setattr("tempplug.engine.dispatch.rounding_pays", lambda: True)
    before = SETTINGS.fp32_precision
    yield
    assert SETTINGS.fp32_precision == before


def call(form: str, precision: Any) -> tuple[ContrastiveLoss, Tensor, Tensor, dict[str, Tensor]]:
    strategy, objective, layout, rows = FORMS[form]
    torch.manual_seed(0)
    loss_fn = ContrastiveLoss(strategy, objective, layout, precision=precision)  # type: ignore[arg-type]
    shared = torch.randn(rows, 16)
    views = [(shared + torch.randn(rows, 16)).requires_grad_() for _ in range(2)]
    more = {"labels": torch.arange(rows) % 10} if layout == "labels" else {}
    return loss_fn, views[0], views[1], more


@pytest.mark.usefixtures("pays")
@pytest.mark.parametrize("form", FORMS)
def test_products_of_the_gradient_round_and_those_of_similarities_do_not(form: str) -> None:
    loss_fn, view_a, view_b, more = call(form, "bf16-backward")
    with Watch() as forward:
        loss = loss_fn(view_a, view_b, **more)
    assert forward.seen
    assert set(forward.seen) == {"none"}
    with Watch() as backward:
        loss.backward()  # type: ignore[no-untyped-call]
    assert loss_fn.record.engine == "tiled"
    assert "bf16" in backward.seen
    # A large block computes its similarities again, and a projection has a gradient of its own.
    assert set(backward.seen) <= ({"bf16"} if "one tile" in form else {"bf16", "none"})


@pytest.mark.usefixtures("pays")
def test_similarities_that_are_computed_again_are_not_rounded() -> None:
    loss_fn, view_a, view_b, _ = call("one tile, two views", "bf16-backward")
    loss = loss_fn(view_a, view_b)
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with Watch() as again:
        loss.backward()  # type: ignore[no-untyped-call]
    assert again.seen == ["none", "bf16"]


@pytest.mark.parametrize("form", FORMS)
def test_full_precision_rounds_nothing(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # other threads are not watched
    loss_fn, view_a, view_b, more = call(form, "full")
    with Watch() as watch:
        loss_fn(view_a, view_b, **more).backward()  # type: ignore[no-untyped-call]
    assert set(watch.seen) == {"none"}


@pytest.mark.usefixtures("pays")
@pytest.mark.parametrize("form", FORMS)
def test_operands_of_eight_bits_change_the_gradient_by_little(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = []
    for precision in ("full", "bf16-backward"):
        if precision != "full":  # what AMX does: operands rounded, sums in float32
            for name, product in (("_rounded_times", gemm.times), ("_rounded_turned", gemm.turned)):

                def rounding(tile: Tensor, other: Tensor, *others: Any, product: Any = product) -> Tensor:
                    exact: Tensor = product(tile.bfloat16().float(), other.bfloat16().float(), *others)
                    return exact

                monkeypatch.setattr(gemm, name, rounding)
        loss_fn, view_a, view_b, more = call(form, precision)
        loss_fn(view_a, view_b, **more).backward()  # type: ignore[no-untyped-call]
        assert view_a.grad is not None
        gradients.append(view_a.grad)
    exact, rounded = gradients
    error = ((rounded - exact).abs().max() / exact.abs().max()).item()
    assert 1e-7 < error < 4e-3


@pytest.mark.usefixtures("pays")
def test_rounding_keeps_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    whole = gemm._rounded_times

    def watched(*arguments: Any) -> Tensor:
        threads.add(threading.get_ident())
        return whole(*arguments)

    monkeypatch.setattr(gemm, "_rounded_times", watched)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    loss_fn, view_a, view_b, _ = call("tiles, two views", "bf16-backward")
    loss_fn(view_a, view_b).backward()  # type: ignore[no-untyped-call]
    assert threads == {threading.get_ident()}


@pytest.mark.usefixtures("pays")
def test_a_product_that_fails_leaves_no_setting_behind() -> None:
    times, _ = gemm.of_gradients(rounded=True)
    with pytest.raises(RuntimeError):
        times(torch.ones(2, 3), torch.ones(2, 3))


def test_without_amx_it_warns_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "rounding_pays", lambda: False)
    monkeypatch.setattr("tempplug.engine.dispatch.rounding_pays", lambda: False)
    with pytest.warns(RuntimeWarning, match=r"precision='bf16-backward' changes nothing on this processor, which has no AMX"):
        loss_fn = ContrastiveLoss(precision="bf16-backward")
    view_a, view_b = torch.randn(2, 64, 16).unbind()
    view_a.requires_grad_()
    with Watch() as watch:
        loss_fn(view_a, view_b).backward()  # type: ignore[no-untyped-call]
    assert set(watch.seen) == {"none"}


def test_a_wrong_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"precision='half' must be one of full, bf16-backward"):
        ContrastiveLoss(precision="half")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"precision='bf16-backward' is of engine='tiled' or 'auto'; engine='dense' has no"):
        ContrastiveLoss(precision="bf16-backward", engine="dense")
