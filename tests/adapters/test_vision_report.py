"""The geometry of representations against its definitions, pair by pair in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.vision.evaluation.report import representation_report


def rows(seed: int) -> Tensor:
    return torch.randn(40, 6, generator=torch.Generator().manual_seed(seed)) * 3 + 1


def unit(values: Tensor) -> np.ndarray:
    found = values.double().numpy()
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def spread(points: np.ndarray, t: float) -> float:
    pairs = [np.exp(-t * ((x - y) ** 2).sum()) for i, x in enumerate(points) for j, y in enumerate(points) if i != j]
    return float(np.log(np.mean(pairs)))


@pytest.mark.parametrize("t", [2.0, 0.5])
def test_the_numbers_are_their_definitions(t: float) -> None:
    first, second, labels = rows(0), rows(1), torch.arange(40) % 3
    a, b, y = unit(first), unit(second), labels.numpy()
    found = representation_report(first, second, labels, t=t)
    same = [a[i] @ a[j] for i in range(40) for j in range(40) if i != j and y[i] == y[j]]
    assert found == pytest.approx(
        {
            "alignment": ((a - b) ** 2).sum(axis=1).mean(),
            "uniformity": spread(a, t),
            "tolerance": np.mean(same),
            "interclass_uniformity": spread(np.stack([a[y == code].mean(axis=0) for code in range(3)]), t),
        },
        rel=1e-5,
    )


def test_without_a_second_view_there_is_no_alignment() -> None:
    labels = torch.arange(40) % 3
    both, one = representation_report(rows(0), rows(1), labels), representation_report(rows(0), None, labels)
    assert one == {name: value for name, value in both.items() if name != "alignment"}
    assert list(one) == ["uniformity", "tolerance", "interclass_uniformity"]


def test_faults_are_named() -> None:
    labels = torch.arange(40) % 3
    with pytest.raises(ShapeError, match=r"labels of shape \[39\] must be \[40\]"):
        representation_report(rows(0), None, labels[1:])
    with pytest.raises(ShapeError, match=r"view_b of shape \[39, 6\]"):
        representation_report(rows(0), rows(1)[1:], labels)
    with pytest.raises(NonFiniteError, match="representations_b hold NaN"):
        representation_report(rows(0), rows(1) / 0, labels)
    with pytest.raises(NonFiniteError, match="representations_a hold NaN"):
        representation_report(rows(0) / 0, None, labels)
    with pytest.raises(ConfigError, match="labels with 1 class"):
        representation_report(rows(0), None, torch.zeros(40, dtype=torch.long))
    with pytest.raises(ConfigError, match="t=0 must be finite and greater than 0"):
        representation_report(rows(0), None, labels, t=0)
