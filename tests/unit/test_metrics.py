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


def test_uniformity_survives_a_potential_that_underflows() -> None:
    assert metrics.uniformity(torch.tensor([EAST, WEST]), t=1000.0).item() == pytest.approx(-4000)


def test_identical_rows_are_not_uniform_at_all() -> None:
    assert metrics.uniformity(torch.ones(5, 3)).item() == pytest.approx(0, abs=1e-6)


def test_tolerance_is_the_mean_similarity_within_classes() -> None:
    rows = torch.tensor([EAST, NORTH, WEST, EAST, [3.0, 4.0]])
    labels = torch.tensor([7, 7, 7, -2, -2])
    # class 7: 0, -1 and 0; class -2: 0.6
    assert metrics.tolerance(rows, labels).item() == pytest.approx((0 - 1 + 0 + 0.6) / 4)


def test_tolerance_leaves_out_classes_of_one_row() -> None:
    rows, labels = torch.tensor([EAST, [3.0, 4.0], NORTH]), torch.tensor([0, 0, 1])
    assert metrics.tolerance(rows, labels).item() == pytest.approx(0.6)


def test_tolerance_agrees_with_all_pairs() -> None:
    rows, labels = embeddings(40, 5), torch.arange(40) % 7
    units = rows / rows.norm(dim=1, keepdim=True)
    same = (labels[:, None] == labels) & ~torch.eye(40, dtype=torch.bool)
    assert metrics.tolerance(rows, labels).item() == pytest.approx((units @ units.T)[same].mean().item(), rel=1e-12)


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
    expected = metrics.uniformity(rows), metrics.interclass_uniformity(rows, labels)
    monkeypatch.setattr(metrics, "ROWS_AT_ONCE", rows_at_once)
    measured = metrics.uniformity(rows), metrics.interclass_uniformity(rows, labels)
    torch.testing.assert_close(measured, expected, rtol=1e-14, atol=1e-14)


def test_more_rows_than_a_block_agree_with_all_pairs() -> None:
    rows = embeddings(metrics.ROWS_AT_ONCE + 77, 3)
    units = rows / rows.norm(dim=1, keepdim=True)
    squared = torch.pdist(units).square()
    assert metrics.uniformity(rows).item() == pytest.approx(torch.exp(-2 * squared).mean().log().item(), rel=1e-12)


EVERY: dict[str, Callable[[Tensor], Tensor]] = {
    "alignment": lambda rows: metrics.alignment(rows, rows.flip(0)),
    "uniformity": metrics.uniformity,
    "tolerance": lambda rows: metrics.tolerance(rows, torch.arange(len(rows)) % 2),
    "interclass_uniformity": lambda rows: metrics.interclass_uniformity(rows, torch.arange(len(rows)) % 3),
    "gradient_scale": lambda rows: metrics.gradient_scale(rows[:, 0], rows[:, 1]),
}
every = pytest.mark.parametrize("metric", EVERY.values(), ids=EVERY.keys())


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_results_are_detached_scalars_of_at_least_float32(metric: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    rows = embeddings(dtype=dtype).requires_grad_()
    result = metric(rows)
    assert result.shape == ()
    assert not result.requires_grad
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert result.item() == pytest.approx(metric(rows.detach().double()).item(), rel=1e-5)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "gradient_scale"])
def test_length_of_the_embeddings_does_not_matter(name: str) -> None:
    rows = embeddings()
    scaled = rows * torch.linspace(0.1, 30, len(rows), dtype=rows.dtype)[:, None]
    assert EVERY[name](scaled).item() == pytest.approx(EVERY[name](rows).item(), rel=1e-12)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "gradient_scale"])
@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(2, 3, 4), torch.zeros(0, 4)], ids=["1-d", "3-d", "empty"])
def test_embeddings_must_be_a_matrix_of_rows(name: str, bad: Tensor) -> None:
    with pytest.raises(ShapeError, match=r"(embeddings|view_a) of shape .* must be \[N, D\]"):
        EVERY[name](bad)


@pytest.mark.parametrize("name", ["uniformity", "tolerance", "interclass_uniformity"])
def test_one_row_is_not_enough(name: str) -> None:
    with pytest.raises(ShapeError, match=r"N at least 2"):
        EVERY[name](torch.ones(1, 3))


@every
def test_integers_are_refused(metric: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ConfigError, match="must be floating point"):
        metric(torch.ones(4, 3, dtype=torch.long))


def test_views_must_have_one_shape() -> None:
    with pytest.raises(ShapeError, match=r"view_b of shape \[3, 2\] must have the shape of view_a, \[4, 2\]"):
        metrics.alignment(torch.ones(4, 2), torch.ones(3, 2))
    with pytest.raises(ShapeError, match=r"must both be \[N\]"):
        metrics.gradient_scale(torch.ones(3), torch.ones(4))


@pytest.mark.parametrize("metric", [metrics.tolerance, metrics.interclass_uniformity])
@pytest.mark.parametrize("labels", [torch.zeros(3), torch.zeros(4, 1)], ids=["short", "2-d"])
def test_labels_must_be_one_per_row(metric: Callable[[Tensor, Tensor], Tensor], labels: Tensor) -> None:
    with pytest.raises(ShapeError, match=r"labels of shape .* must be \[4\]"):
        metric(torch.ones(4, 2), labels)


def test_classes_must_give_something_to_compare() -> None:
    with pytest.raises(ConfigError, match="tolerance needs two rows of one class"):
        metrics.tolerance(torch.ones(3, 2), torch.arange(3))
    with pytest.raises(ConfigError, match="1 class: inter-class uniformity needs at least 2"):
        metrics.interclass_uniformity(torch.ones(3, 2), torch.zeros(3))


@pytest.mark.parametrize("t", [0.0, -1.0, math.nan, math.inf])
def test_sharpness_must_be_positive_and_finite(t: float) -> None:
    with pytest.raises(ConfigError, match=r"t=.* must be finite and greater than 0"):
        metrics.uniformity(torch.ones(3, 2), t)
    with pytest.raises(ConfigError, match=r"t=.* must be finite and greater than 0"):
        metrics.interclass_uniformity(torch.ones(3, 2), torch.arange(3), t)


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


def test_effective_negatives_refuses_vectors_and_integers() -> None:
    with pytest.raises(ShapeError, match=r"log_weights of shape \[3\] must be \[N, M\]"):
        metrics.effective_negatives(torch.zeros(3))
    with pytest.raises(ConfigError, match=r"log_weights of dtype torch.int64"):
        metrics.effective_negatives(torch.zeros(2, 3, dtype=torch.int64))
