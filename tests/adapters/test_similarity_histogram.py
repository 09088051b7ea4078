"""Histograms of similarity: every pair counted once, in its kind and its bin, and drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from torch import Tensor

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.vision.evaluation import plots
from tempplug_adapters.vision.evaluation.plots import draw_similarity_histogram, similarity_histogram


def views(count: int = 45, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    middle = torch.randn(count, 5, generator=generator) + 2 * torch.eye(5)[labels]
    noise = torch.randn(2, count, 5, generator=generator) * 0.3
    return middle + noise[0], 7 * (middle + noise[1]), labels


def counted(a: Tensor, b: Tensor, labels: Tensor, bins: int) -> tuple[list[list[int]], float]:
    """Counts of the three kinds in float64, and how close the closest similarity comes to an edge."""
    x, y = (each.double().numpy() for each in (a, b))
    x, y = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (x, y))
    kinds: list[list[float]] = [[], [], []]
    for i in range(len(x)):
        for j in range(len(y)):
            kinds[0 if i == j else 1 if labels[i] == labels[j] else 2].append(float(x[i] @ y[j]))
    edges = np.linspace(-1, 1, bins + 1)
    closest = min(float(np.abs(np.array(kind)[:, None] - edges[1:-1]).min(initial=1)) for kind in kinds)
    return [np.histogram(kind, edges)[0].tolist() for kind in kinds], closest


@pytest.mark.parametrize("bins", [1, 2, 7, 40])
def test_counts_are_those_of_all_pairs(bins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, labels = views()
    expected, closest = counted(a, b, labels, bins)
    assert closest > 1e-6, "no similarity is so close to an edge that float32 could carry it over"
    for pairs in (2**21, 7 * 45):
        monkeypatch.setattr(plots, "_PAIRS", pairs)
        assert similarity_histogram(a, b, labels, bins=bins).tolist() == expected
    with torch.autocast("cpu", torch.bfloat16):
        again = similarity_histogram(a.requires_grad_(), b.double(), labels.int(), bins=bins)
    assert again.tolist() == expected


def test_the_ends_of_the_range_have_their_bins() -> None:
    rows = torch.tensor([[0.1, 0.1, 0.1], [-0.3, -0.3, -0.3], [0.0, 0.0, 0.0]])
    found = similarity_histogram(rows, rows, torch.tensor([0, 1, 1]), bins=4)
    assert found[0].tolist() == [0, 0, 1, 2], "a row of zeros is at similarity 0 with itself"
    assert found[1:].tolist() == [[0, 0, 2, 0], [2, 0, 2, 0]]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_it_is_drawn(tmp_path: Path, suffix: str) -> None:
    histogram = similarity_histogram(*views())
    files = [tmp_path / "new" / f"{name}.{suffix}" for name in "ab"]
    for file in files:
        draw_similarity_histogram(histogram, file, "Pairs of toys")
    assert files[0].read_bytes() == files[1].read_bytes()
    if suffix == "png":
        picture = imread(files[0])
        assert picture.shape[1] > 1000
        assert 0.01 < float((picture[..., :3].min(axis=2) < 0.9).mean()) < 0.5, "neither blank nor black"
    else:
        text = files[0].read_text()
        mean = float((histogram[0] * torch.arange(-0.99, 1, 0.02)).sum()) / 45
        for words in (
            "Pairs of toys",
            f"two views of one image: 45 pairs, mean {mean:.2f}",
            "(false negatives)",
            "cosine similarity",
        ):
            assert words in text


def test_a_kind_without_a_pair_is_left_out(tmp_path: Path) -> None:
    a, b, _ = views()
    draw_similarity_histogram(similarity_histogram(a, b, torch.zeros(45, dtype=torch.long)), tmp_path / "one.svg")
    assert "true negatives" not in (tmp_path / "one.svg").read_text()


def test_faults_are_named(tmp_path: Path) -> None:
    a, b, labels = views()
    with pytest.raises(ConfigError, match="bins=0 must be an integer, at least 1"):
        similarity_histogram(a, b, labels, bins=0)
    with pytest.raises(ShapeError, match=r"view_b of shape \[44, 5\] must have the shape of view_a, \[45, 5\]"):
        similarity_histogram(a, b[1:], labels)
    with pytest.raises(ShapeError, match=r"labels of shape \[44\] must be \[45\]"):
        similarity_histogram(a, b, labels[1:])
    with pytest.raises(NonFiniteError, match="view_b hold NaN"):
        similarity_histogram(a, b / 0, labels)
    with pytest.raises(ConfigError, match=r"pairs\.txt of a drawing must end in \.png, \.svg, \.pdf"):
        draw_similarity_histogram(similarity_histogram(a, b, labels), tmp_path / "pairs.txt")
