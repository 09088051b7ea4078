"""Unit rows: raw rows over their norms, with the gradient of that, and where a graph of them is made."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss
from tempplug.embeddings import Division, RowOrder, UnitRows, unit_groups

SIZES = (3, 2, 4)


def raw_rows(seed: int = 0, **options: Any) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(size, 5, generator=generator, dtype=torch.float64).to(**options) for size in SIZES]
    return [each.requires_grad_() for each in rows]


def ends_of(sizes: tuple[int, ...]) -> list[int]:
    return [sum(sizes[:number]) for number in range(len(sizes) + 1)]


@pytest.mark.parametrize("needed", list(product([True, False], repeat=3)), ids=str)
@pytest.mark.parametrize(
    "spans", [[(0, 9)], [(0, 3), (3, 9)], [(3, 9), (0, 3)], [(0, 5), (3, 9)], [(3, 5)], [(0, 3), (5, 9)], []], ids=str
)
def test_gradients_of_raw_rows_are_those_of_the_formula(spans: list[tuple[int, int]], needed: tuple[bool, ...]) -> None:
    """Whatever rows have gradients, once, twice or not at all, and whichever raw rows want one."""
    raw = raw_rows()
    weights = [torch.randn(stop - start, 5, dtype=torch.float64) for start, stop in spans]
    unit = normalize(torch.cat(raw))
    value = sum(
        ((unit[start:stop] * weight).sum() for (start, stop), weight in zip(spans, weights, strict=True)), unit.sum() * 0
    )
    expected = torch.autograd.grad(value, raw)
    pieces = [(start, weight) for (start, _), weight in zip(spans, weights, strict=True)]
    found = Division(raw, ends_of(SIZES)).gradients(pieces, needed)
    for gradient, wanted, formula in zip(found, needed, expected, strict=True):
        if gradient is not None:
            assert wanted
            torch.testing.assert_close(gradient, formula, rtol=1e-12, atol=1e-13)
        else:
            assert not wanted or not formula.any()


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1.0, 1e9, 1e200])
def test_rows_of_any_length_have_one_direction(scale: float) -> None:
    raw = raw_rows()
    division = Division([each.detach() * scale for each in raw], ends_of(SIZES))
    if scale < 1e-12:
        assert division.without is not None
        assert division.without.all()
        assert not division.unit.any()
    else:
        torch.testing.assert_close(division.unit, normalize(torch.cat(raw)).detach())


def test_a_group_is_one_tensor_and_rows_across_groups_are_joined() -> None:
    raw = raw_rows()
    order = RowOrder([("view_a", "view_b"), ("queue",)], dict(zip(("view_a", "view_b", "queue"), SIZES, strict=True)))
    assert order.spans["view_a", "view_b"] == (0, 5)
    assert order.spans["view_b", "queue"] == (3, 9)
    with pytest.raises(KeyError):
        order.spans["hard_negatives"]
    plain, ours = (unit_groups(order, raw, plain) for plain in (True, False))
    for start, stop in [(0, 5), (0, 3), (3, 5), (5, 9), (3, 9), (0, 9)]:
        torch.testing.assert_close(ours.rows(start, stop), plain.rows(start, stop))
        both = [
            torch.autograd.grad(units.rows(start, stop).sin().sum(), raw, allow_unused=True, retain_graph=True)
            for units in (ours, plain)
        ]
        for gradient, expected in zip(*both, strict=True):
            gradient, expected = (torch.zeros(()) if each is None else each for each in (gradient, expected))
            torch.testing.assert_close(gradient + expected * 0, expected + gradient * 0)
    assert list(ours.by_name()) == order.names
    for (start, stop), rows in zip(pairwise(order.ends), ours.by_name().values(), strict=True):
        torch.testing.assert_close(rows, plain.rows(start, stop))


def custom_functions(loss: Tensor) -> list[str]:
    """Names of the autograd functions of ours that a loss was computed by."""
    names, waiting, seen = [], [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            names.append(type(node).__name__)
        waiting += [following for following, _ in node.next_functions]
    return names


@pytest.mark.parametrize(
    ("options", "functions"),
    [
        ({}, ["TiledStatisticsBackward"]),
        ({"strategy": "macl", "layout": "cross-view"}, ["TiledStatisticsBackward"]),
        ({"strategy": "learnable", "layout": "cross-view", "symmetric": True}, ["TiledStatisticsBackward"]),
        ({"layout": "labels"}, ["TiledStatisticsBackward"]),
        (
            {"layout": "cross-view:directions=ab+aa"},
            ["TiledStatisticsBackward", "TiledStatisticsBackward", "_WithGraphBackward"],
        ),
        ({"strategy": "amcl:dimension=5"}, ["TiledStatisticsBackward", "_WithGraphBackward"]),
        ({"engine": "dense"}, []),
    ],
    ids=str,
)
def test_one_function_leads_from_raw_rows_to_the_statistics_of_a_lone_block(options: Any, functions: list[str]) -> None:
    """Where several blocks or a strategy read the rows, these have a graph, and their gradients are added up in it."""
    view_a, view_b = torch.randn(6, 5, requires_grad=True), torch.randn(6, 5, requires_grad=True)
    labels = {"labels": torch.arange(6) // 2} if options.get("layout") == "labels" else {}
    loss_fn = ContrastiveLoss(**options)
    for _ in range(2):  # planned, and as planned
        assert sorted(custom_functions(loss_fn(view_a, view_b, **labels))) == functions


def test_what_a_call_keeps_holds_no_graph() -> None:
    encoder = torch.nn.Linear(5, 5)
    loss_fn = ContrastiveLoss("amcl:dimension=5", layout="cross-view:directions=ab+aa")
    loss_fn(encoder(torch.randn(6, 5)), encoder(torch.randn(6, 5)))
    step = loss_fn.memory.step
    assert step is not None
    assert len(step.blocks) == 2
    for block in step.blocks:
        tensors = [block.anchors, block.candidates, block.positive_similarity, *block.logit_map.products[0]]
        assert not any(tensor.requires_grad for tensor in tensors)
        assert block.of_anchors.units is None
        assert block.batch is None


def test_rows_without_a_division_are_taken_as_they_are() -> None:
    rows = {"view_a": torch.randn(2, 3, requires_grad=True) * 2, "view_b": torch.randn(2, 3)}
    units = UnitRows.of_tensors(rows)
    assert units.rows(0, 2) is rows["view_a"]
    assert units.rows(2, 4) is rows["view_b"]
    assert units.rows(4, 4).shape == (0, 3)
