"""The geometry of representations in four numbers: alignment, uniformity, tolerance, inter-class uniformity.

The numbers themselves are `tempplug.metrics`; this module says which representations go where, and must not know images or
models.
"""

from __future__ import annotations

from torch import Tensor

from tempplug import metrics
from tempplug_adapters.images.representations import check_labels, check_representations


def representation_report(
    representations_a: Tensor, representations_b: Tensor | None, labels: Tensor, *, t: float = 2.0
) -> dict[str, float]:
    """Returns ``alignment`` (of two views, lower is closer), ``uniformity``, ``tolerance`` and ``interclass_uniformity``.

    All but the alignment are those of ``representations_a``. Rows are brought to unit length; no image is paired with itself.

    Args:
        representations_a: [N, F] of the images, or of a first view of each.
        representations_b: [N, F] of a second view of the same images; None leaves the alignment out.
        labels: [N] classes of the images, from 0, at least two, one of them with two images.
        t: sharpness of both uniformities, greater than 0.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: ``t`` or the labels are out of range.
        NonFiniteError: NaN or infinite representations.

    Source: Wang & Isola 2020; Wang & Liu 2021; DySTreSS, eq. 16 to 19, Table 12, with the readings of `tempplug.metrics`. Its
    code divides the tolerance by N²/10 for every data set and counts self pairs.

    >>> import torch
    >>> rows = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    >>> report = representation_report(rows, rows.flip(1), torch.tensor([0, 0, 1]))
    >>> {name: round(value, 4) for name, value in report.items()}
    {'alignment': 1.36, 'uniformity': -1.4998, 'tolerance': 0.6, 'interclass_uniformity': -2.0}
    """
    check_representations(representations_a, "representations_a")
    check_labels(labels, representations_a, "labels")
    found = {}
    if representations_b is not None:
        check_representations(representations_b, "representations_b")
        found["alignment"] = metrics.alignment(representations_a, representations_b)
    found["uniformity"] = metrics.uniformity(representations_a, t)
    found["tolerance"] = metrics.tolerance(representations_a, labels)
    found["interclass_uniformity"] = metrics.interclass_uniformity(representations_a, labels, t)
    return {name: value.item() for name, value in found.items()}
