"""Representations as points of the plane, coloured by class: t-SNE or principal components.

Nothing is random: t-SNE starts from the principal components, so the same representations give the same points. Points show
neighbourhoods; they are for looking at, and no number is read off them. This module must not know images or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tempplug.errors import ConfigError, MissingDependencyError, ShapeError
from tempplug.options import Choice
from tempplug_adapters.images.representations import check_labels, check_representations, unit_rows
from tempplug_adapters.vision.evaluation.figures import COLOURS, check_format, new_figure, save_figure
from tempplug_adapters.vision.evaluation.settings import PLOT_METHODS

PERPLEXITY = 30.0
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MOST_CLASSES = len(COLOURS) * len(_MARKERS)
"""Classes that one drawing tells apart: the numbers of colours and markers have no common factor, so each pair occurs once."""


def embed_in_plane(representations: Tensor, *, method: str = "tsne") -> Tensor:
    """Returns one point of the plane for each representation, [N, 2] float32, on the CPU.

    Args:
        representations: [N, F] raw, N at least 4, F at least 2; rows are brought to unit length.
        method: ``tsne``: scikit-learn's, from the principal components, of perplexity 30 or a quarter of N where that is
            less; ``pca``: the first two principal components, each with its largest loading positive.

    Raises:
        ShapeError: fewer rows or columns.
        ConfigError: the method is not known.
        NonFiniteError: NaN or infinite representations.
        MissingDependencyError: scikit-learn is not installed.

    Source: van der Maaten & Hinton 2008 (t-SNE); Kobak & Linderman 2021 for the start, which a seed would only make worse.
    """
    Choice(PLOT_METHODS).check(f"method={method} of a plot", method)
    check_representations(representations, "representations")
    if len(representations) < 4 or representations.shape[1] < 2:
        shape = list(representations.shape)
        raise ShapeError(f"representations of shape {shape} must be [N, F] with N at least 4 and F at least 2 for a plot.")
    try:
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(f"a plot needs scikit-learn: pip install scikit-learn ({error}).") from error
    rows = unit_rows(representations).cpu().double().numpy()
    if (rows == rows[0]).all():
        return torch.zeros(len(rows), 2)  # both methods divide by the spread, and t-SNE then crashes
    if method == "pca":
        machine = PCA(2, svd_solver="covariance_eigh")
    else:
        machine = TSNE(init="pca", perplexity=min(PERPLEXITY, len(rows) / 4), random_state=0)
    # Threads add up in any order, and t-SNE makes a different picture of another last bit.
    with threadpool_limits(1):
        return torch.from_numpy(machine.fit_transform(rows)).float()


def draw_embedding_plot(
    points: Tensor, labels: Tensor, classes: Sequence[str], path: Path, title: str = "Representations"
) -> None:
    """Writes a drawing of points, one colour and one marker for each class that has one, with a legend.

    Args:
        points: [N, 2].
        labels: [N] position of each point's class in ``classes``.
        classes: names of the classes.
        path: file that ends in .png, .svg or .pdf; missing folders are made.
        title: above the drawing.

    Raises:
        ShapeError: points or labels have another shape.
        ConfigError: another ending, a label without a name, or more classes than a drawing tells apart.
        MissingDependencyError: matplotlib is not installed.
    """
    check_format(path)
    check_representations(points, "points")
    if points.shape[1] != 2:
        raise ShapeError(f"points of shape {list(points.shape)} must be [N, 2].")
    check_labels(labels, points, "labels", len(classes))
    points, labels = points.detach().cpu(), labels.cpu()
    present = torch.unique(labels).tolist()
    if len(present) > MOST_CLASSES:
        raise ConfigError(
            f"labels of {len(present)} classes cannot be told apart in a plot: pass those of {MOST_CLASSES} at most."
        )
    columns = 1 + (len(present) - 1) // 20
    figure, panel = new_figure(6.4 + 1.8 * columns, 6.4)
    size = max(6.0, min(28.0, 40000 / len(points)))
    for position, code in enumerate(present):
        x, y = points[labels == code].T.numpy()
        colour, marker = COLOURS[position % len(COLOURS)], _MARKERS[position % len(_MARKERS)]
        panel.scatter(x, y, s=size, color=colour, marker=marker, alpha=0.75, linewidths=0, label=classes[code])
    panel.set_title(title, loc="left", fontsize=12, fontweight="bold")
    # Only nearness means something here: the axes have no unit, and both the same scale.
    panel.set(xticks=[], yticks=[], aspect="equal")
    panel.spines[:].set_color("#c9ced8")
    legend = figure.legend(loc="outside right upper", ncols=columns, frameon=False, fontsize=10, markerscale=(36 / size) ** 0.5)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    save_figure(figure, path, title)


def embedding_plot(
    representations: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    path: Path,
    *,
    method: str = "tsne",
    title: str = "Representations",
) -> Tensor:
    """Writes a drawing of representations in the plane and returns its points, [N, 2].

    Args:
        representations: as in `embed_in_plane`.
        labels: as in `draw_embedding_plot`.
        classes: likewise.
        path: likewise.
        method: as in `embed_in_plane`.
        title: above the drawing.

    Raises:
        TempplugError: as in the two.
    """
    check_format(path)
    points = embed_in_plane(representations, method=method)
    draw_embedding_plot(points, labels, classes, path, title)
    return points
