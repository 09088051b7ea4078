"""Representations in the plane: principal components, t-SNE, and a drawing that tells classes apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.image import imread
from torch import Tensor

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.vision.evaluation.plots import MOST_CLASSES, draw_embedding_plot, embed_in_plane

NAMES = ("cat", "dog", "bird")


def clusters(count: int = 60, classes: int = 3, width: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    return torch.randn(count, width, generator=generator) * 0.3 + 2 * torch.eye(width)[labels], labels


def unit(rows: Tensor) -> np.ndarray:
    values = rows.double().numpy()
    return values / np.linalg.norm(values, axis=1, keepdims=True)


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
def test_neighbours_stay_neighbours(method: str) -> None:
    rows, labels = clusters()
    points = embed_in_plane(rows, method=method)
    assert points.shape == (60, 2)
    distance = torch.cdist(points, points).fill_diagonal_(torch.inf)
    assert (labels[distance.argmin(dim=1)] == labels).double().mean() > 0.9
    state = torch.get_rng_state(), np.random.get_state()[1].tolist()
    assert torch.equal(embed_in_plane(4 * rows, method=method), points), "again, and whatever the length of rows"
    assert torch.equal(torch.get_rng_state(), state[0])
    assert np.random.get_state()[1].tolist() == state[1], "nobody's generator is touched"


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_a_handful_of_points_and_collapsed_ones_are_placed(method: str) -> None:
    assert embed_in_plane(torch.eye(4), method=method).shape == (4, 2)
    assert torch.isfinite(embed_in_plane(torch.ones(20, 3) + 1e-3 * torch.eye(20)[:, :3], method=method)).all()
    assert torch.equal(embed_in_plane(torch.ones(20, 3), method=method), torch.zeros(20, 2)), "all of them in one place"


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_drawing_is_whole_and_the_same_each_time(tmp_path: Path, suffix: str) -> None:
    rows, labels = clusters()
    files = [tmp_path / "new" / f"{name}.{suffix}" for name in "ab"]
    for file in files:
        draw_embedding_plot(embed_in_plane(rows, method="pca"), labels, NAMES, file, "Toys in the plane")
    assert files[0].read_bytes() == files[1].read_bytes()
    if suffix == "png":
        picture = imread(files[0])
        assert picture.shape[1] > 1000
        assert 0.005 < float((picture[..., :3].min(axis=2) < 0.9).mean()) < 0.5, "neither blank nor black"
    elif suffix == "svg":
        text = files[0].read_text()
        assert all(f">{name}</text>" in text for name in (*NAMES, "Toys in the plane"))
        assert "<dc:title>Toys in the plane</dc:title>" in text
        assert 'href="http' not in text, "nothing is fetched"


def test_no_two_classes_look_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[str, str, str, int]] = []
    scatter = Axes.scatter

    def watch(self: Axes, x: np.ndarray, *args: object, **options: object) -> object:
        looks.append((str(options["color"]), str(options["marker"]), str(options["label"]), len(x)))
        return scatter(self, x, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Axes, "scatter", watch)
    names = [f"class {code}" for code in range(70)]
    labels = torch.arange(3 * MOST_CLASSES) % MOST_CLASSES + 5
    points = torch.randn(len(labels), 2, generator=torch.Generator().manual_seed(0))
    draw_embedding_plot(points, labels, names, tmp_path / "many.png")
    assert MOST_CLASSES == 56
    assert len({look[:2] for look in looks}) == MOST_CLASSES
    assert [look[2:] for look in looks] == [(f"class {code + 5}", 3) for code in range(MOST_CLASSES)]
    with pytest.raises(ConfigError, match="labels of 57 classes cannot be told apart in a plot: pass those of 56 at most"):
        draw_embedding_plot(points, labels - torch.eye(len(labels))[0].long(), names, tmp_path / "more.png")


def test_faults_are_named(tmp_path: Path) -> None:
    rows, labels = clusters()
    with pytest.raises(ConfigError, match="method=umap of a plot must be one of tsne, pca"):
        embed_in_plane(rows, method="umap")
    for bad in (rows[:3], rows[:, :1]):
        with pytest.raises(ShapeError, match="N at least 4 and F at least 2"):
            embed_in_plane(bad)
    with pytest.raises(NonFiniteError, match="representations hold NaN"):
        embed_in_plane(rows / 0)
    with pytest.raises(ConfigError, match=r"plot\.gif of a drawing must end in \.png, \.svg, \.pdf"):
        draw_embedding_plot(rows[:, :2], labels, NAMES, tmp_path / "plot.gif")
    with pytest.raises(ConfigError, match="labels 0 to 2 must be in 0 to 1: there are 2 classes"):
        draw_embedding_plot(rows[:, :2], labels, NAMES[:2], tmp_path / "plot.png")
    with pytest.raises(ShapeError, match=r"points of shape \[60, 8\] must be \[N, 2\]"):
        draw_embedding_plot(rows, labels, NAMES, tmp_path / "plot.png")
    assert list(tmp_path.iterdir()) == []
