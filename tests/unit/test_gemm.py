"""The products of the tiled engine equal plain ones in every shape, by either routine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
import torch
from covering import every_pair
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.engine import gemm
from tempplug.processor import product_route

SIZES = [(1, 1, 1), (3, 5, 2), (127, 129, 3), (130, 257, 65), (300, 200, 130)]


@pytest.fixture(params=["mm", "onednn"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each routine in turn, whatever the processor."""
    if request.param == "onednn" and not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(gemm, "product_route", lambda: request.param)
    monkeypatch.setattr(gemm, "SMALL", 1)
    return str(request.param)


def matrix(rows: int, columns: int, dtype: torch.dtype = torch.float32, strided: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(rows * 1000 + columns)
    if strided:
        return torch.randn(columns + 1, rows + 3, generator=generator, dtype=dtype).t()[3:, 1:]
    return torch.randn(rows, columns, generator=generator, dtype=dtype)


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize(("size", "dtype", "strided"), every_pair(SIZES, [torch.float32, torch.float64], [False, True]))
def test_products_equal_plain_ones(size: tuple[int, int, int], dtype: torch.dtype, strided: bool) -> None:
    rows, columns, depth = size
    a, b, tile = matrix(rows, depth, dtype, strided), matrix(columns, depth, dtype, strided), matrix(rows, columns, dtype)
    found = gemm.outer(a, b), gemm.outer_in_short_chains(a, b), gemm.times(tile, b), gemm.times_transposed(tile, a)
    expected = *[a.double() @ b.double().t()] * 2, tile.double() @ b.double(), tile.double().t() @ a.double()
    for ours, exact in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        assert ours.shape == exact.shape
        rounding = torch.finfo(dtype).eps * 4 * max(rows, columns, depth) ** 0.5
        torch.testing.assert_close(ours.double(), exact, rtol=rounding, atol=rounding * (7 + exact.abs().max().item()))


def test_large_float32_products_alone_take_the_other_routine(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[torch.Size] = []

    def watched(a: Tensor, b: Tensor) -> Tensor:
        taken.append(a.shape)
        return a @ b.t()

    monkeypatch.setattr(gemm, "onednn_product", watched)
    side = round(gemm.SMALL ** (1 / 3)) + 1
    for route, dtype, rows, expected in (
        ("onednn", torch.float32, side, 3),
        ("onednn", torch.float64, side, 0),
        ("onednn", torch.float32, side // 2, 0),
        ("mm", torch.float32, side, 0),
    ):
        taken.clear()
        monkeypatch.setattr(gemm, "product_route", lambda route=route: route)
        a, b, tile = matrix(rows, side, dtype), matrix(side, side, dtype), matrix(rows, side, dtype)
        gemm.outer(a, b), gemm.times(tile, b), gemm.times_transposed(tile, a)
        assert len(taken) == expected, f"{route}, {dtype}, {rows} rows"


@pytest.mark.usefixtures("route")
def test_a_tile_may_be_columns_of_another() -> None:
    """Of which oneDNN needs a copy."""
    tile, b, a = matrix(130, 90)[:, 20:], matrix(70, 33), matrix(130, 33)
    for product, second, exact in ((gemm.times, b, tile @ b), (gemm.times_transposed, a, tile.t() @ a)):
        torch.testing.assert_close(product(tile, second), exact, rtol=1e-4, atol=1e-4)


def loss_and_gradient() -> str:
    """A digest of the exact loss and gradient of a call that multiplies large tiles."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(1100, 40, generator=generator).requires_grad_() for _ in range(2))
    loss = ContrastiveLoss()(a, b)
    numbers = torch.cat([loss.detach().reshape(1), *(each.flatten() for each in torch.autograd.grad(loss, [a, b]))])
    return hashlib.sha256(numbers.numpy().tobytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("asked", ["", "mm", "onednn"])
def test_processes_give_the_same_digits_while_others_are_busy(asked: str) -> None:
    """In processes of their own, which run this very file, three of them at once on however many cores there are."""
    environment = os.environ | {"TEMPPLUG_GEMM": asked, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [os.environ["PYTHON_EXEC"], __file__]
    started = [subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = [process.communicate()[0].split() for process in started]
    assert len(found[0]) == 2
    assert all(each == found[0] for each in found)
    assert found[0][0] == (asked or product_route())


if __name__ == "__main__":
    torch.set_num_threads(2)
    print(product_route(), loss_and_gradient())


@pytest.mark.parametrize("dimension", [3, 128, 768])
def test_split_rows_have_the_product_of_float32_rows(dimension: int) -> None:
    rows = tuple(torch.nn.functional.normalize(matrix(count, dimension)) for count in (70, 50))
    first, second = gemm.split(rows)
    assert first.dtype == second.dtype == torch.bfloat16
    found, exact = first.double() @ second.double().t(), rows[0].double() @ rows[1].double().t()
    assert (found - exact).abs().max() < 2**-16
    assert (rows[0].bfloat16().double() @ rows[1].bfloat16().double().t() - exact).abs().max() > 2**-14


@pytest.mark.parametrize("strategy", ["fixed:temperature=0.05", "dystress", "learnable", "amcl:dimension=64"])
@pytest.mark.parametrize("layout", ["two-view", "cross-view", "labels"])
def test_bfloat16_products_change_gradients_by_less_than_bfloat16_does(
    strategy: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a CUDA device, whose products of bfloat16 factors a CPU can make in float32."""
    taken: list[torch.dtype] = []

    def widened(a: Tensor, b: Tensor) -> Tensor:
        taken.append(a.dtype)
        return a.float() @ b.to(a.dtype).float()

    a, b = matrix(300, 64).bfloat16().requires_grad_(), (matrix(300, 64) + matrix(64, 300).t()).bfloat16().requires_grad_()
    inputs = {"labels": torch.arange(300) % 100} if layout == "labels" else {}
    found = []
    for narrow in (False, True):
        torch.manual_seed(0)
        loss_fn = ContrastiveLoss(strategy, layout=layout, engine="tiled")
        if narrow:
            monkeypatch.setattr(gemm, "in_bfloat16", lambda anchors, precision: precision is torch.bfloat16)
            monkeypatch.setattr(gemm, "_product", widened)
        loss = loss_fn(a, b, **inputs)
        found.append((loss, torch.autograd.grad(loss, [a, b, *loss_fn.parameters()])))
    (exact, gradients), (loss, others) = found
    assert torch.bfloat16 in taken
    assert loss.item() == pytest.approx(exact.item(), abs=2e-5 * max(1, exact.item()))
    for ours, theirs in zip(others, gradients, strict=True):
        assert (ours.float() - theirs.float()).norm() < 4e-3 * theirs.float().norm()
