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
@pytest.mark.parametrize("asked", ["", "mm", "onednn"])
def test_processes_give_the_same_digits_while_others_are_busy(asked: str) -> None:
    """In processes of their own, which run this very file, three of them at once on however many cores there are."""
    environment = os.environ | {"TEMPPLUG_GEMM": asked, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    found = [process.communicate()[0].split() for process in started]
    assert len(found[0]) == 2
    assert all(each == found[0] for each in found)
    assert found[0][0] == (asked or product_route())


if __name__ == "__main__":
    torch.set_num_threads(2)
    print(product_route(), loss_and_gradient())
