"""The products of the tiled engine equal plain ones in every shape, and are plain ones where the fast routine fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.engine import gemm


@pytest.fixture
def probe_again() -> Iterator[None]:
    """Forgets what the probes found, before and after."""
    gemm.accelerated.cache_clear()
    gemm._choices.clear()
    yield
    gemm.accelerated.cache_clear()
    gemm._choices.clear()


def matrix(rows: int, columns: int, dtype: torch.dtype = torch.float32, strided: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(rows * 1000 + columns)
    if strided:
        return torch.randn(columns + 1, rows + 3, generator=generator, dtype=dtype).t()[3:, 1:]
    return torch.randn(rows, columns, generator=generator, dtype=dtype)


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 1), (3, 5, 2), (127, 129, 3), (130, 257, 65), (300, 200, 130)])
def test_products_equal_plain_ones(rows: int, columns: int, depth: int, dtype: torch.dtype, strided: bool) -> None:
    a, b, tile = matrix(rows, depth, dtype, strided), matrix(columns, depth, dtype, strided), matrix(rows, columns, dtype)
    found = gemm.outer(a, b), gemm.times(tile, b), gemm.turned(tile, a)
    expected = a.double() @ b.double().t(), tile.double() @ b.double(), tile.double().t() @ a.double()
    for ours, exact in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        assert ours.shape == exact.shape
        rounding = torch.finfo(dtype).eps * 4 * max(rows, columns, depth) ** 0.5
        torch.testing.assert_close(ours.double(), exact, rtol=rounding, atol=rounding * exact.abs().max().item())


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 1), (3, 5, 2), (127, 129, 3), (130, 257, 65), (300, 200, 130)])
def test_products_in_short_chains_equal_whole_ones(rows: int, columns: int, depth: int, dtype: torch.dtype, same: bool) -> None:
    a = matrix(rows, depth, dtype)
    b = a if same else matrix(columns, depth, dtype)
    tile = matrix(rows, len(b), dtype)
    found = gemm.outer_in_short_chains(a, b), gemm.times_in_short_chains(tile, b)
    expected = a.double() @ b.double().t(), tile.double() @ b.double()
    for ours, exact in zip(found, expected, strict=True):
        rounding = torch.finfo(dtype).eps * 4 * max(rows, len(b), depth) ** 0.5
        torch.testing.assert_close(ours.double(), exact, rtol=rounding, atol=rounding * exact.abs().max().item())


@pytest.mark.parametrize("product", ["outer", "times"])
def test_products_in_short_chains_err_less(product: str) -> None:
    a, b = matrix(128, 128), matrix(127, 128)
    exact = a.double() @ b.double().t()
    whole = torch.mm(a, b.t())
    halves = gemm.outer_in_short_chains(a, b) if product == "outer" else gemm.times_in_short_chains(a, b.t().contiguous())
    assert a.shape[1] <= gemm.CHAIN
    errors = [(each - exact).square().mean().sqrt().item() for each in (halves, whole)]
    assert 0 < errors[0] < 0.85 * errors[1]


@pytest.mark.usefixtures("probe_again")
def test_large_float32_products_alone_take_the_fast_routine(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[torch.Size] = []

    def watched(a: Tensor, b: Tensor) -> Tensor:
        taken.append(a.shape)
        return a @ b.t()

    monkeypatch.setattr(gemm, "_linear", watched)
    monkeypatch.setattr(gemm, "accelerated", lambda: True)
    monkeypatch.setattr(gemm, "_probed", lambda *shape: 1)
    side = round(gemm.SMALL ** (1 / 3)) + 1
    for dtype, rows, expected in ((torch.float32, side, 3), (torch.float64, side, 0), (torch.float32, side // 2, 0)):
        taken.clear()
        a, b, tile = matrix(rows, side, dtype), matrix(side, side, dtype), matrix(rows, side, dtype)
        gemm.outer(a, b), gemm.times(tile, b), gemm.turned(tile, a)
        assert len(taken) == expected, f"{dtype}, {rows} rows"


@pytest.mark.usefixtures("probe_again")
@pytest.mark.parametrize("fault", [RuntimeError("no such kernel"), AttributeError("no such operator"), None])
def test_a_routine_that_fails_or_errs_is_left_alone(fault: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(a: Tensor, b: Tensor) -> Tensor:
        if fault is not None:
            raise fault
        return a @ b.t() + 0.01

    monkeypatch.setattr(gemm, "_linear", broken)
    assert not gemm.accelerated()
    a, b = matrix(130, 130), matrix(130, 130)
    assert torch.equal(gemm.outer(a, b), a @ b.t())


@pytest.mark.usefixtures("probe_again")
def test_a_routine_that_is_right_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPPLUG_GEMM", raising=False)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(gemm, "_linear", lambda a, b: a @ b.t())
    assert gemm.accelerated()


@pytest.mark.usefixtures("probe_again")
@pytest.mark.parametrize("way", [0, 1, 2])
@pytest.mark.parametrize("kind", ["times", "turned"])
def test_products_add_to_what_is_there_or_overwrite_it(kind: str, way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if way >= len(gemm._WAYS[kind]) or (way and not gemm.accelerated()):
        return
    monkeypatch.setattr(gemm, "_way", lambda *shape: way)
    tile, b, a = matrix(130, 70), matrix(70, 33), matrix(130, 33)
    product, exact = (gemm.times, tile @ b) if kind == "times" else (gemm.turned, tile.t() @ a)
    second = b if kind == "times" else a
    into = torch.ones(len(exact) + 2, 33)[1:-1]
    product(tile, second, into)
    torch.testing.assert_close(into, exact + 1, rtol=1e-4, atol=1e-4)
    product(tile[:, :], second, into, fresh=True)
    torch.testing.assert_close(into, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("probe_again")
@pytest.mark.parametrize(("slow", "expected"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("kind", ["outer", "times"])
def test_the_probe_takes_the_way_that_is_clearly_faster(
    kind: str, slow: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each class of shapes: timed on numbers of its own."""
    seconds = [1.0, 1.0]
    seconds[slow] = 1.2
    timed: list[int] = []

    def once(way: object, *arguments: object) -> float:
        timed.append(gemm._WAYS[kind].index(way))  # type: ignore[arg-type]
        return seconds[timed[-1]]

    monkeypatch.setattr(gemm, "_once", once)
    monkeypatch.setattr(gemm, "accelerated", lambda: True)
    monkeypatch.delenv("TEMPPLUG_GEMM", raising=False)
    assert gemm._way(kind, 200, 300, 100, torch.zeros(1)) == expected
    assert sorted(set(timed)) == [0, 1]
    timed.clear()
    assert gemm._way(kind, 201, 299, 101, torch.zeros(1)) == expected
    assert timed == []


@pytest.mark.usefixtures("probe_again")
@pytest.mark.parametrize(("chosen", "expected"), [("onednn", 1), ("mm", 0)])
def test_the_environment_answers_without_a_probe(chosen: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPPLUG_GEMM", chosen)
    monkeypatch.setattr(gemm, "_once", None)
    monkeypatch.setattr(gemm, "_linear", lambda a, b: a @ b.t())
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert gemm._way("outer", 200, 300, 100, torch.zeros(1)) == expected


@pytest.mark.usefixtures("probe_again")
def test_deterministic_algorithms_are_plain_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "_once", None)
    monkeypatch.setattr(gemm, "accelerated", lambda: True)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.delenv("TEMPPLUG_GEMM", raising=False)
    assert gemm._way("outer", 200, 300, 100, torch.zeros(1)) == 0


def loss_and_gradient() -> list[float]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(300, 40, generator=generator).requires_grad_() for _ in range(2))
    loss = ContrastiveLoss(engine="tiled")(a, b)
    return [loss.item(), torch.autograd.grad(loss, a)[0].norm().item()]


@pytest.mark.slow
def test_the_environment_turns_it_off() -> None:
    """In a process of its own, which runs this very file."""
    done = subprocess.run(
        [sys.executable, __file__], env=os.environ | {"TEMPPLUG_GEMM": "mm"}, capture_output=True, text=True, check=True
    )
    accelerated, *numbers = done.stdout.split()
    assert accelerated == "False"
    assert [float(each) for each in numbers] == pytest.approx(loss_and_gradient(), rel=1e-5)


if __name__ == "__main__":
    print(gemm.accelerated(), *loss_and_gradient())
