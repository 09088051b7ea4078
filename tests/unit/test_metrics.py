"""Alignment, uniformity, tolerance, inter-class uniformity and gradient scale on numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tempplug import metrics
from tempplug.errors import ConfigError, ShapeError

EAST, NORTH, WEST = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]


def embeddings(rows: int = 9, dimension: int = 4, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(rows, dimension, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def test_alignment_is_the_mean_squared_distance_of_unit_rows() -> None:
    a = torch.tensor([EAST, EAST, EAST])
    b = torch.tensor([EAST, NORTH, WEST]) * torch.tensor([[1.0], [5.0], [0.1]])
    assert metrics.alignment(a, b).item() == pytest.approx((0 + 2 + 4) / 3)


def test_uniformity_counts_pairs_of_different_rows_only() -> None:
    rows = torch.tensor([EAST, NORTH, WEST])
    # squared distances 2, 2 and 4, each met in both orders; three self pairs at distance 0 would raise the mean
    expected = math.log((2 * math.exp(-2 * 2) + math.exp(-2 * 4)) / 3)
    assert metrics.uniformity(rows).item() == pytest.approx(expected, rel=1e-6)
    sharper = math.log((2 * math.exp(-5 * 2) + math.exp(-5 * 4)) / 3)
    assert metrics.uniformity(rows, t=5).item() == pytest.approx(sharper, rel=1e-6)


def test_uniformity_of_opposite_and_of_identical_rows() -> None:
    """The potential of the first underflows."""
    assert metrics.uniformity(torch.tensor([EAST, WEST]), t=1000.0).item() == pytest.approx(-4000)
    assert metrics.uniformity(torch.ones(5, 3)).item() == pytest.approx(0, abs=1e-6)


def test_tolerance_is_the_mean_similarity_within_classes() -> None:
    rows = torch.tensor([EAST, NORTH, WEST, EAST, [3.0, 4.0]])
    labels = torch.tensor([7, 7, 7, -2, -2])
    # class 7: 0, -1 and 0; class -2: 0.6; a class of one row is left out
    assert metrics.tolerance(rows, labels).item() == pytest.approx((0 - 1 + 0 + 0.6) / 4)
    assert metrics.tolerance(rows[3:], torch.tensor([0, 0])).item() == pytest.approx(0.6)
    assert metrics.tolerance(rows[[0, 4, 1]], torch.tensor([0, 0, 1])).item() == pytest.approx(0.6)


def test_interclass_uniformity_takes_means_of_unit_rows_as_they_are() -> None:
    rows, labels = torch.tensor([EAST, [0.0, 9.0], [-3.0, 0.0]]), torch.tensor([4, 4, 1])
    # centroids (1/2, 1/2), not normalised again, and (-1, 0): squared distance 2.5
    assert metrics.interclass_uniformity(rows, labels).item() == pytest.approx(-2 * 2.5)
    assert metrics.interclass_uniformity(rows, labels, t=1.0).item() == pytest.approx(-2.5)


def test_gradient_scale_is_the_probability_of_the_negatives() -> None:
    positive = torch.tensor([0.0, 100.0, -100.0, 1.0])
    negative = torch.tensor([math.log(3.0), 0.0, 0.0, 1.0])
    assert metrics.gradient_scale(positive, negative).item() == pytest.approx((0.75 + 0 + 1 + 0.5) / 4)


@pytest.mark.parametrize("rows_at_once", [1, 4, 9, 100])
def test_block_size_changes_nothing(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = embeddings(), torch.arange(9) % 4
    expected = torch.exp(-2 * torch.pdist(rows / rows.norm(dim=1, keepdim=True)).square()).mean().log()
    between = metrics.interclass_uniformity(rows, labels)
    monkeypatch.setattr(metrics, "ROWS_AT_ONCE", rows_at_once)
    measured = metrics.uniformity(rows), metrics.interclass_uniformity(rows, labels)
    torch.testing.assert_close(measured, (expected, between), rtol=1e-13, atol=1e-13)


EVERY: dict[str, Callable[[Tensor], Tensor]] = {
    "alignment": lambda rows: metrics.alignment(rows, rows.flip(0)),
    "uniformity": metrics.uniformity,
    "tolerance": lambda rows: metrics.tolerance(rows, torch.arange(len(rows)) % 2),
    "interclass_uniformity": lambda rows: metrics.interclass_uniformity(rows, torch.arange(len(rows)) % 3),
    "gradient_scale": lambda rows: metrics.gradient_scale(rows[:, 0], rows[:, 1]),
}


@pytest.mark.parametrize("metric", EVERY.values(), ids=EVERY.keys())
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_results_are_detached_scalars_of_at_least_float32(metric: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    rows = embeddings(dtype=dtype).requires_grad_()
    result = metric(rows)
    assert result.shape == ()
    assert not result.requires_grad
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert result.item() == pytest.approx(metric(rows.detach().double()).item(), rel=1e-5)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "gradient_scale"])
def test_length_of_the_embeddings_does_not_matter_and_they_must_be_a_matrix_of_rows(name: str) -> None:
    rows = embeddings()
    scaled = rows * torch.linspace(0.1, 30, len(rows), dtype=rows.dtype)[:, None]
    assert EVERY[name](scaled).item() == pytest.approx(EVERY[name](rows).item(), rel=1e-12)
    for bad in (torch.zeros(3), torch.zeros(2, 3, 4), torch.zeros(0, 4)):
        with pytest.raises(ShapeError, match=r"(embeddings|view_a) of shape .* must be \[N, D\]"):
            EVERY[name](bad)


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    *((lambda call=call: call(torch.ones(4, 3).long()), ConfigError, "must be floating point") for call in EVERY.values()),
    *(
        (lambda name=name: EVERY[name](torch.ones(1, 3)), ShapeError, "N at least 2")
        for name in ("uniformity", "tolerance", "interclass_uniformity")
    ),
    *(
        (lambda call=call, bad=bad: call(torch.ones(4, 2), bad), ShapeError, r"labels of shape .* must be \[4\]")
        for call in (metrics.tolerance, metrics.interclass_uniformity)
        for bad in (torch.zeros(3), torch.zeros(4, 1))
    ),
    *(
        (lambda t=t, call=call: call(torch.eye(3), t), ConfigError, r"t=.* must be finite and greater than 0")
        for t in (0.0, -1.0, math.nan, math.inf)
        for call in (metrics.uniformity, lambda rows, t: metrics.interclass_uniformity(rows, torch.arange(3), t))
    ),
    (
        lambda: metrics.alignment(torch.ones(4, 2), torch.ones(3, 2)),
        ShapeError,
        r"view_b of shape \[3, 2\] must have the shape of view_a, \[4, 2\]",
    ),
    (lambda: metrics.gradient_scale(torch.ones(3), torch.ones(4)), ShapeError, r"must both be \[N\]"),
    (lambda: metrics.tolerance(torch.eye(3), torch.arange(3)), ConfigError, "tolerance needs two rows of one class"),
    (lambda: metrics.interclass_uniformity(torch.eye(3), torch.zeros(3)), ConfigError, "1 class: inter-class uniformity needs"),
    (lambda: metrics.effective_negatives(torch.zeros(3)), ShapeError, r"log_weights of shape \[3\] must be \[N, M\]"),
    (lambda: metrics.effective_negatives(torch.zeros(2, 3).long()), ConfigError, r"log_weights of dtype torch.int64"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_cannot_be_measured_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_effective_negatives_is_the_exponential_of_the_entropy() -> None:
    logs = embeddings(3, 7) * 4
    logs[0, :3] = -torch.inf
    expected = []
    for row in logs:
        weights = [math.exp(each) for each in row if each > -math.inf]
        shares = [weight / sum(weights) for weight in weights]
        expected.append(math.exp(-sum(share * math.log(share) for share in shares)))
    assert metrics.effective_negatives(logs).item() == pytest.approx(sum(expected) / 3)
    without = torch.cat([logs, torch.full((1, 7), -torch.inf)])
    assert metrics.effective_negatives(without + 1e4).item() == pytest.approx(sum(expected) / 3)
    assert math.isnan(metrics.effective_negatives(torch.full((2, 3), -torch.inf)).item())
