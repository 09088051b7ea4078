"""Plots of representations: the plane, the histogram of similarities, drawings that tell classes apart, and faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.image import imread
from torch import Tensor
from torch.nn.functional import normalize

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.vision.evaluation import plots
from tempplug_adapters.vision.evaluation.plots import (
    MOST_CLASSES,
    draw_embedding_plot,
    draw_similarity_histogram,
    embed_in_plane,
    similarity_histogram,
)

NAMES = ("cat", "dog", "bird")


def clusters(count: int = 60, classes: int = 3, width: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    return torch.randn(count, width, generator=generator) * 0.3 + 2 * torch.eye(width)[labels], labels


def views(count: int = 45) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (count,), generator=generator)
    middle = torch.randn(count, 5, generator=generator) + 2 * torch.eye(5)[labels]
    noise = torch.randn(2, count, 5, generator=generator) * 0.3
    return middle + noise[0], 7 * (middle + noise[1]), labels


def unit(rows: Tensor) -> np.ndarray:
    return np.asarray(normalize(rows.double(), dim=1))


def test_principal_components_are_the_singular_value_decomposition() -> None:
    rows, _ = clusters()
    x = unit(rows)
    x -= x.mean(axis=0)
    left, size, right = np.linalg.svd(x, full_matrices=False)
    signs = np.sign([each[np.abs(each).argmax()] for each in right[:2]])
    found = embed_in_plane(8 * rows, method="pca")
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), left[:, :2] * size[:2] * signs, atol=1e-5)


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_neighbours_stay_neighbours_and_nothing_is_random(method: str) -> None:
    rows, labels = clusters()
    points = embed_in_plane(rows, method=method)
    distance = torch.cdist(points, points).fill_diagonal_(torch.inf)
    assert (labels[distance.argmin(dim=1)] == labels).double().mean() > 0.9
    state = torch.get_rng_state(), np.random.get_state()[1].tolist()
    assert torch.equal(embed_in_plane(4 * rows, method=method), points), "again, and whatever the length of rows"
    assert torch.equal(torch.get_rng_state(), state[0])
    assert np.random.get_state()[1].tolist() == state[1]
    assert embed_in_plane(torch.eye(4), method=method).shape == (4, 2)
    assert torch.isfinite(embed_in_plane(torch.ones(20, 3) + 1e-3 * torch.eye(20)[:, :3], method=method)).all()
    assert torch.equal(embed_in_plane(torch.ones(20, 3), method=method), torch.zeros(20, 2)), "all of them in one place"


def draw_plane(file: Path) -> None:
    rows, labels = clusters()
    draw_embedding_plot(embed_in_plane(rows, method="pca"), labels, NAMES, file, "Toys in the plane")


def draw_pairs(file: Path) -> None:
    draw_similarity_histogram(similarity_histogram(*views()), file, "Pairs of toys")


@pytest.mark.parametrize("draw", [draw_plane, draw_pairs])
def test_a_drawing_is_whole_and_the_same_each_time(tmp_path: Path, draw: Callable[[Path], None]) -> None:
    files = [tmp_path / "new" / name for name in ("a.svg", "b.svg", "a.png")]
    for file in files:
        draw(file)
    assert files[0].read_bytes() == files[1].read_bytes()
    picture, text = imread(files[2]), files[0].read_text()
    assert picture.shape[1] > 1000
    assert 0.005 < float((picture[..., :3].min(axis=2) < 0.9).mean()) < 0.5, "neither blank nor black"
    mean = float((similarity_histogram(*views())[0] * torch.arange(-0.99, 1, 0.02)).sum()) / 45
    words = ("Pairs of toys", f"two views of one image: 45 pairs, mean {mean:.2f}", "(false negatives)", "cosine similarity")
    assert all(word in text for word in (words if draw is draw_pairs else [f">{name}</text>" for name in NAMES]))
    assert f"<dc:title>{'Pairs of toys' if draw is draw_pairs else 'Toys in the plane'}</dc:title>" in text
    assert 'href="http' not in text, "nothing is fetched"


def test_no_two_classes_look_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[str, str, str, int]] = []
    scatter = Axes.scatter

    def watch(self: Axes, x: np.ndarray, *args: object, **options: object) -> object:
        looks.append((str(options["color"]), str(options["marker"]), str(options["label"]), len(x)))
        return scatter(self, x, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Axes, "scatter", watch)
    monkeypatch.setattr(plots, "save_figure", lambda *given: None)
    names = [f"class {code}" for code in range(70)]
    labels = torch.arange(3 * MOST_CLASSES) % MOST_CLASSES + 5
    points = torch.randn(len(labels), 2, generator=torch.Generator().manual_seed(0))
    draw_embedding_plot(points, labels, names, tmp_path / "many.png")
    assert len({look[:2] for look in looks}) == MOST_CLASSES == 56
    assert [look[2:] for look in looks] == [(f"class {code + 5}", 3) for code in range(MOST_CLASSES)]
    with pytest.raises(ConfigError, match="labels of 57 classes cannot be distinguished in a plot: pass at most 56"):
        draw_embedding_plot(points, labels - torch.eye(len(labels))[0].long(), names, tmp_path / "more.png")


def counted(a: Tensor, b: Tensor, labels: Tensor, bins: int) -> list[list[int]]:
    """Counts of the three kinds in float64; no similarity is so close to an edge that float32 could carry it over."""
    similarity, kinds = unit(a) @ unit(b).T, np.where(labels[:, None] == labels, 1, 2)
    np.fill_diagonal(kinds, 0)
    edges = np.linspace(-1, 1, bins + 1)
    assert np.abs(similarity[..., None] - edges[1:-1]).min(initial=1) > 1e-6
    return [np.histogram(similarity[kinds == kind], edges)[0].tolist() for kind in range(3)]


@pytest.mark.parametrize("bins", [1, 2, 7, 40])
def test_counts_are_those_of_all_pairs(bins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, labels = views()
    expected = counted(a, b, labels, bins)
    for pairs in (2**21, 7 * 45):
        monkeypatch.setattr(plots, "_PAIRS", pairs)
        assert similarity_histogram(a, b, labels, bins=bins).tolist() == expected
    with torch.autocast("cpu", torch.bfloat16):
        assert similarity_histogram(a.requires_grad_(), b.double(), labels.int(), bins=bins).tolist() == expected


def test_the_ends_of_the_range_have_their_bins_and_a_kind_without_a_pair_is_left_out(tmp_path: Path) -> None:
    rows = torch.tensor([[0.1, 0.1, 0.1], [-0.3, -0.3, -0.3], [0.0, 0.0, 0.0]])
    found = similarity_histogram(rows, rows, torch.tensor([0, 1, 1]), bins=4)
    assert found.tolist() == [[0, 0, 1, 2], [0, 0, 2, 0], [2, 0, 2, 0]], "a row of zeros is at similarity 0 with itself"
    draw_similarity_histogram(similarity_histogram(rows, rows, torch.zeros(3, dtype=torch.long)), tmp_path / "one.svg")
    assert "true negatives" not in (tmp_path / "one.svg").read_text()


def test_faults_are_named(tmp_path: Path) -> None:
    (rows, labels), (a, b, classes) = clusters(), views()
    plane, file = rows[:, :2], tmp_path / "plot.png"
    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: embed_in_plane(rows, method="umap"), ConfigError, "method=umap of a plot must be one of tsne, pca"),
        (lambda: embed_in_plane(rows[:3]), ShapeError, "N at least 4 and F at least 2"),
        (lambda: embed_in_plane(rows / 0), NonFiniteError, "representations hold NaN"),
        (lambda: draw_plane(tmp_path / "a.gif"), ConfigError, r"must end in \.png, \.svg, \.pdf"),
        (lambda: draw_embedding_plot(plane, labels, NAMES[:2], file), ConfigError, "labels 0 to 2 must be in 0 to 1: there"),
        (lambda: draw_embedding_plot(rows, labels, NAMES, file), ShapeError, r"points of shape \[60, 8\] must be \[N, 2\]"),
        (lambda: similarity_histogram(a, b, classes, bins=0), ConfigError, "bins=0 must be an integer, at least 1"),
        (lambda: similarity_histogram(a, b[1:], classes), ShapeError, r"view_b of shape \[44, 5\] must have the shape of"),
        (lambda: similarity_histogram(a, b / 0, classes), NonFiniteError, "view_b hold NaN"),
        (lambda: draw_pairs(tmp_path / "pairs.txt"), ConfigError, r"pairs\.txt of a drawing must end in \.png, \.svg, \.pdf"),
    ]
    for call, error, message in calls:
        with pytest.raises(error, match=message):
            call()
    assert list(tmp_path.iterdir()) == []
