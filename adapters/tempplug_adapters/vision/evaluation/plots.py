"""Plots of representations: a two-dimensional embedding coloured by class, and a histogram of similarities.

The embedding shows neighbourhoods only; its distances are no measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tempplug.errors import ConfigError, ShapeError
from tempplug.options import Choice, Number
from tempplug_adapters.figures import COLOURS, check_format, new_figure, save_figure
from tempplug_adapters.images.representations import check_labels, check_representations, unit_rows
from tempplug_adapters.vision.evaluation.settings import PLOT_METHODS

PERPLEXITY = 30.0
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MOST_CLASSES = len(COLOURS) * len(_MARKERS)
"""Most classes of one plot: the numbers of colours and markers have no common factor, so each pair occurs once."""
KINDS = (
    ("two views of one image", "solid"),
    ("two images of one class (false negatives)", "dashed"),
    ("images of two classes (true negatives)", "dashdot"),
)
"""Kinds of pairs, with their line styles."""
_PAIRS = 2**21


def embed_in_plane(representations: Tensor, *, method: str = "tsne") -> Tensor:
    """Returns one point of the plane for each representation, [N, 2] float32, on the CPU; nothing is random.

    Args:
        representations: [N, F] raw, N at least 4, F at least 2; rows are scaled to unit length.
        method: ``tsne``: scikit-learn's, from the principal components, with perplexity 30 or a quarter of N if that is
            less; ``pca``: the first two principal components, each with its largest loading positive.

    Raises:
        ShapeError: fewer rows or columns.
        ConfigError: the method is not known.
        NonFiniteError: NaN or infinite representations.

    Source: van der Maaten & Hinton 2008 (t-SNE); Kobak & Linderman 2021 for the start.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    Choice(PLOT_METHODS).check(f"method={method} of a plot", method)
    check_representations(representations, "representations")
    if len(representations) < 4 or representations.shape[1] < 2:
        shape = list(representations.shape)
        raise ShapeError(f"representations of shape {shape} must be [N, F] with N at least 4 and F at least 2 for a plot.")
    rows = unit_rows(representations).cpu().double().numpy()
    if (rows == rows[0]).all():
        return torch.zeros(len(rows), 2)  # both methods divide by the spread, which is zero
    if method == "pca":
        machine = PCA(2, svd_solver="covariance_eigh")
    else:
        machine = TSNE(init="pca", perplexity=min(PERPLEXITY, len(rows) / 4), random_state=0)
    # The order of summation varies between threads, and t-SNE amplifies differences in the last bit.
    with threadpool_limits(1):
        return torch.from_numpy(machine.fit_transform(rows)).float()


def draw_embedding_plot(
    points: Tensor, labels: Tensor, classes: Sequence[str], path: Path, title: str = "Representations"
) -> None:
    """Writes a plot of points, with a colour and marker for each class that has points, and a legend.

    Args:
        points: [N, 2].
        labels: [N] position of each point's class in ``classes``.
        classes: names of the classes.
        path: file that ends in .png, .svg or .pdf; missing folders are created.
        title: above the drawing.

    Raises:
        ShapeError: points or labels have another shape.
        ConfigError: another suffix, a label without a name, or too many classes.
    """
    check_format(path)
    check_representations(points, "points")
    if points.shape[1] != 2:
        raise ShapeError(f"points of shape {list(points.shape)} must be [N, 2].")
    check_labels(labels, points, "labels", len(classes))
    points, labels = points.detach().cpu(), labels.cpu()
    present = torch.unique(labels).tolist()
    if len(present) > MOST_CLASSES:
        raise ConfigError(f"labels of {len(present)} classes cannot be distinguished in a plot: pass at most {MOST_CLASSES}.")
    columns = 1 + (len(present) - 1) // 20
    figure, panel = new_figure(6.4 + 1.8 * columns, 6.4)
    size = max(6.0, min(28.0, 40000 / len(points)))
    for position, code in enumerate(present):
        x, y = points[labels == code].T.numpy()
        colour, marker = COLOURS[position % len(COLOURS)], _MARKERS[position % len(_MARKERS)]
        panel.scatter(x, y, s=size, color=colour, marker=marker, alpha=0.75, linewidths=0, label=classes[code])
    panel.set_title(title, loc="left", fontsize=12, fontweight="bold")
    # Axes have equal scales and no unit.
    panel.set(xticks=[], yticks=[], aspect="equal")
    legend = figure.legend(loc="outside right upper", ncols=columns, frameon=False, fontsize=10, markerscale=(36 / size) ** 0.5)
    for handle in filter(None, legend.legend_handles):
        handle.set_alpha(1)
    save_figure(figure, path, title)


@torch.no_grad()
def similarity_histogram(view_a: Tensor, view_b: Tensor, labels: Tensor, *, bins: int = 100) -> Tensor:
    """Returns how many pairs (row of view_a, row of view_b) lie in each bin of cosine similarity, [3, bins] int64.

    All three `KINDS` of pairs are counted between the two views, so that they differ only in the images. Counts are exact.

    Args:
        view_a: [N, F] raw embeddings or representations of a first view of the images.
        view_b: [N, F] of a second view of the same images, on the same device.
        labels: [N] classes of the images, from 0.
        bins: of equal width over [-1, 1], at least 1; a bin contains its lower edge, the last bin both edges.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: ``bins`` or the labels are out of range.
        NonFiniteError: NaN or infinite values.

    >>> rows = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, -1.0]])
    >>> similarity_histogram(rows, rows, torch.tensor([0, 0, 1]), bins=4).tolist()
    [[0, 0, 0, 3], [0, 0, 0, 2], [2, 0, 2, 0]]
    """
    Number(at_least=1, integer=True).check(f"bins={bins}", bins)
    check_representations(view_a, "view_a")
    check_representations(view_b, "view_b")
    if view_a.shape != view_b.shape:
        raise ShapeError(f"view_b of shape {list(view_b.shape)} must have the shape of view_a, {list(view_a.shape)}.")
    check_labels(labels, view_a, "labels")
    a, classes = unit_rows(view_a), labels.to(view_a.device)
    b = unit_rows(view_b).to(a.dtype)
    counts = torch.zeros(3 * bins, dtype=torch.long, device=a.device)
    images = torch.arange(len(a), device=a.device)
    with torch.autocast(a.device.type, enabled=False):
        for rows in torch.split(images, max(1, _PAIRS // len(a))):
            kind = torch.where(classes[rows, None] == classes, 1, 2)
            kind[rows[:, None] == images] = 0
            # Rounding may carry a similarity a little past 1 or -1.
            place = ((a[rows] @ b.T + 1) * (bins / 2)).long().clamp_(0, bins - 1)
            counts += torch.bincount((kind * bins + place).flatten(), minlength=3 * bins)
    return counts.cpu().view(3, bins)


def draw_similarity_histogram(histogram: Tensor, path: Path, title: str = "Similarity of pairs") -> None:
    """Writes a plot of the three kinds of pairs, each as its share of pairs by bin.

    Args:
        histogram: of `similarity_histogram`; a kind without a pair is left out.
        path: file that ends in .png, .svg or .pdf; missing folders are created.
        title: above the drawing.

    Raises:
        ConfigError: the file has another suffix.
    """
    check_format(path)
    figure, panel = new_figure(8, 4.8)
    edges = torch.linspace(-1, 1, histogram.shape[1] + 1, dtype=torch.float64)
    for (name, line), counts, colour in zip(KINDS, histogram, COLOURS, strict=False):
        if pairs := int(counts.sum()):
            share = 100 * counts.double() / pairs
            mean = float((share * (edges[:-1] + edges[1:]) / 2).sum()) / 100
            label = f"{name}: {pairs:,} pairs, mean {mean:.2f}"
            panel.stairs(share.numpy(), edges.numpy(), color=colour, fill=True, alpha=0.12)
            panel.stairs(share.numpy(), edges.numpy(), color=colour, linestyle=line, linewidth=1.8, label=label)
    panel.set_title(title, loc="left", fontsize=12, fontweight="bold")
    panel.set(xlabel="cosine similarity", ylabel="share of the pairs of that kind, % per bin", xlim=(-1, 1))
    panel.set_ylim(bottom=0)
    panel.grid(color="#e3e6ec", linewidth=0.8)
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", frameon=False, fontsize=10, handlelength=3.4)
    save_figure(figure, path, title)
