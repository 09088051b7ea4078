"""How similar pairs of images are: views of one image, other images of its class, images of other classes.

In contrastive learning without labels, the second kind are negatives that should not be (false negatives). Counts are exact;
similarities are taken a tile at a time, so that memory does not grow with the images. This module must not know images or
models.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tempplug.errors import ShapeError
from tempplug.options import Number
from tempplug_adapters.images.representations import check_labels, check_representations, unit_rows
from tempplug_adapters.vision.evaluation.figures import COLOURS, check_format, new_figure, save_figure

_ROWS = 512
_COLUMNS = 4096
_TRUE_POSITIVE, _FALSE_NEGATIVE, _TRUE_NEGATIVE = range(3)


@dataclass(frozen=True, eq=False)
class SimilarityHistogram:
    """Numbers of pairs by similarity.

    Attributes:
        edges: [bins + 1] float64, from -1 to 1; a bin holds its lower edge, the last one both.
        true_positive: [bins] int64, pairs of two views of one image.
        false_negative: [bins] int64, pairs of views of two images of one class.
        true_negative: [bins] int64, pairs of views of images of two classes.
    """

    edges: Tensor
    true_positive: Tensor
    false_negative: Tensor
    true_negative: Tensor


@torch.no_grad()
def similarity_histogram(view_a: Tensor, view_b: Tensor, labels: Tensor, *, bins: int = 100) -> SimilarityHistogram:
    """Returns how many pairs (row of view_a, row of view_b) lie in each bin of cosine similarity, N² pairs in all.

    Every kind is counted between the two views, so that all three differ in the images alone.

    Args:
        view_a: [N, F] raw embeddings or representations of a first view of the images.
        view_b: [N, F] of a second view of the same images, on the same device.
        labels: [N] classes of the images, from 0.
        bins: of one width over [-1, 1], at least 1.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: ``bins`` or the labels are out of range.
        NonFiniteError: NaN or infinite values.

    >>> rows = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, -1.0]])
    >>> found = similarity_histogram(rows, rows, torch.tensor([0, 0, 1]), bins=4)
    >>> found.true_positive.tolist(), found.false_negative.tolist(), found.true_negative.tolist()
    ([0, 0, 0, 3], [0, 0, 0, 2], [2, 0, 2, 0])
    """
    Number(at_least=1, integer=True).check(f"bins={bins}", bins)
    check_representations(view_a, "view_a")
    check_representations(view_b, "view_b")
    if view_a.shape != view_b.shape:
        raise ShapeError(f"view_b of shape {list(view_b.shape)} must have the shape of view_a, {list(view_a.shape)}.")
    check_labels(labels, view_a, "labels")
    a, b, classes = unit_rows(view_a), unit_rows(view_b), labels.to(view_a.device)
    b = b.to(a.dtype)
    counts = torch.zeros(3 * bins, dtype=torch.long, device=a.device)
    images = torch.arange(len(a), device=a.device)
    for rows in torch.split(images, _ROWS):
        for columns in torch.split(images, _COLUMNS):
            with torch.autocast(a.device.type, enabled=False):
                similarity = a[rows] @ b[columns].T
            kind = torch.where(classes[rows, None] == classes[columns], _FALSE_NEGATIVE, _TRUE_NEGATIVE)
            kind[rows[:, None] == columns] = _TRUE_POSITIVE
            # Rounding may carry a similarity a little past 1 or -1.
            place = ((similarity + 1) * (bins / 2)).long().clamp_(0, bins - 1)
            counts += torch.bincount((kind * bins + place).flatten(), minlength=3 * bins)
    edges = torch.linspace(-1, 1, bins + 1, dtype=torch.float64)
    return SimilarityHistogram(edges, *counts.cpu().view(3, bins))


def draw_similarity_histogram(histogram: SimilarityHistogram, path: Path, title: str = "Similarity of pairs") -> None:
    """Writes a drawing of the three kinds of pairs, each as its share of pairs by bin.

    Args:
        histogram: of `similarity_histogram`; a kind without a pair is left out.
        path: file that ends in .png, .svg or .pdf; missing folders are made.
        title: above the drawing.

    Raises:
        ConfigError: the file has another ending.
        MissingDependencyError: matplotlib is not installed.
    """
    check_format(path)
    figure, panel = new_figure(8, 4.8)
    kinds = (
        ("two views of one image", histogram.true_positive, "solid"),
        ("two images of one class (false negatives)", histogram.false_negative, "dashed"),
        ("images of two classes (true negatives)", histogram.true_negative, "dashdot"),
    )
    edges = histogram.edges.numpy()
    middles = (histogram.edges[:-1] + histogram.edges[1:]) / 2
    for (name, counts, line), colour in zip(kinds, COLOURS, strict=False):
        pairs = int(counts.sum())
        if pairs:
            share = 100 * counts.double() / pairs
            mean = float((share * middles).sum()) / 100
            label = f"{name}: {pairs:,} pairs, mean {mean:.2f}"
            panel.stairs(share.numpy(), edges, color=colour, fill=True, alpha=0.12)
            panel.stairs(share.numpy(), edges, color=colour, linestyle=line, linewidth=1.8, label=label)
    panel.set_title(title, loc="left", fontsize=12, fontweight="bold")
    panel.set_xlabel("cosine similarity")
    panel.set_ylabel("share of the pairs of that kind, % per bin")
    panel.set_xlim(-1, 1)
    panel.set_ylim(bottom=0)
    panel.grid(color="#e3e6ec", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", frameon=False, fontsize=10, handlelength=3.4)
    save_figure(figure, path, title)
