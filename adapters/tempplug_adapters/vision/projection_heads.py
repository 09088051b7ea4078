"""Projection heads: the layers between representations and the embeddings that a loss receives, as each method has them.

A linear layer before a batch normalisation has no bias here: the normalisation would take it away again. Where a paper's code
keeps one, outputs and training are the same. It must not know backbones or losses.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

from tempplug.errors import ConfigError, ShapeError


class ProjectionHead(nn.Module):
    """Turns representations [N, in_dimension] into embeddings [N, out_dimension]: linear layers with ReLU between them.

    Args:
        in_dimension: of the representations.
        hidden_dimension: of every layer but the last; unused with one layer.
        out_dimension: of the embeddings.
        layers: linear layers, at least 1.
        batch_norm: normalise after every linear layer but the last.
        last_batch_norm: normalise after the last one.
        last_affine: with ``last_batch_norm``, learn its scale and shift.
        bias: whether the last linear layer has a bias; None: where no normalisation follows. The others have one where no
            normalisation follows.

    Attributes:
        in_dimension: as given.
        out_dimension: as given.

    Raises:
        ConfigError: a size is less than 1, or ``last_affine=False`` without ``last_batch_norm``.

    >>> [type(layer).__name__ for layer in ProjectionHead(512, 512, 128).layers]
    ['Linear', 'BatchNorm1d', 'ReLU', 'Linear']
    """

    def __init__(
        self,
        in_dimension: int,
        hidden_dimension: int,
        out_dimension: int,
        layers: int = 2,
        batch_norm: bool = True,
        last_batch_norm: bool = False,
        last_affine: bool = True,
        bias: bool | None = None,
    ) -> None:
        super().__init__()
        sizes = {"in_dimension": in_dimension, "hidden_dimension": hidden_dimension, "out_dimension": out_dimension}
        for name, value in {**sizes, "layers": layers}.items():
            if value < 1:
                raise ConfigError(f"{name}={value} of a projection head must be at least 1.")
        if not (last_affine or last_batch_norm):
            raise ConfigError("last_affine=False needs last_batch_norm=True: there is no normalisation to leave it out of.")
        self.in_dimension = in_dimension
        self.out_dimension = out_dimension
        widths = [in_dimension, *[hidden_dimension] * (layers - 1)]
        modules: list[nn.Module] = []
        for before, after in pairwise(widths):
            modules.append(nn.Linear(before, after, bias=not batch_norm))
            if batch_norm:
                modules.append(nn.BatchNorm1d(after))
            modules.append(nn.ReLU())
        modules.append(nn.Linear(widths[-1], out_dimension, bias=not last_batch_norm if bias is None else bias))
        if last_batch_norm:
            modules.append(nn.BatchNorm1d(out_dimension, affine=last_affine))
        self.layers = nn.Sequential(*modules)

    def forward(self, representations: Tensor) -> Tensor:
        """Returns the embeddings, [N, out_dimension].

        Args:
            representations: [N, in_dimension].

        Raises:
            ShapeError: they have another shape.
        """
        if representations.ndim != 2 or representations.shape[1] != self.in_dimension:
            raise ShapeError(
                f"representations has shape {tuple(representations.shape)}, but the projection head takes "
                f"[N, {self.in_dimension}]."
            )
        embeddings: Tensor = self.layers(representations)
        return embeddings


def projection_heads(count: int, make: Callable[[], nn.Module]) -> nn.ModuleList:
    """Returns independent heads, each with its own random weights, as AMCL trains them.

    Args:
        count: at least 1.
        make: makes one head, such as ``lambda: simclr_projection_head(512)``.

    Raises:
        ConfigError: the count is less than 1.

    >>> len(projection_heads(3, lambda: simclr_projection_head(64)))
    3
    """
    if count < 1:
        raise ConfigError(f"count={count} of projection heads must be at least 1.")
    return nn.ModuleList(make() for _ in range(count))


def simclr_projection_head(
    dimension: int, *, hidden_dimension: int | None = None, out_dimension: int = 128, layers: int = 2
) -> ProjectionHead:
    """Returns SimCLR's head: normalised after every layer, the last included.

    Args:
        dimension: of the representations.
        hidden_dimension: None: that of the representations, 2048 for ResNet-50 and 512 for ResNet-18.
        out_dimension: of the embeddings.
        layers: 2 in SimCLR; AMCL has 2 or 3.

    Source: Chen et al. 2020, and google-research/simclr, whose last normalisation learns a scale but no shift; mmselfsup
    (MACL), lightly (DySTreSS) and SDCLR (TS) learn both, and so does this.

    >>> simclr_projection_head(2048).out_dimension
    128
    """
    hidden = dimension if hidden_dimension is None else hidden_dimension
    return ProjectionHead(dimension, hidden, out_dimension, layers, last_batch_norm=True)


def moco_projection_head(
    dimension: int, *, hidden_dimension: int | None = None, out_dimension: int = 128, layers: int = 2
) -> ProjectionHead:
    """Returns MoCo v2's head, which normalises nothing.

    Args:
        dimension: of the representations.
        hidden_dimension: None: that of the representations.
        out_dimension: of the embeddings.
        layers: 2 in MoCo v2; 1 in MoCo v1 and TS.

    Source: Chen et al. 2020 (MoCo v2).
    """
    hidden = dimension if hidden_dimension is None else hidden_dimension
    return ProjectionHead(dimension, hidden, out_dimension, layers, batch_norm=False)


def nnclr_projection_head(dimension: int, *, hidden_dimension: int = 2048, out_dimension: int = 256) -> ProjectionHead:
    """Returns NNCLR's projector: three layers, each normalised.

    Args:
        dimension: of the representations.
        hidden_dimension: of the first two layers.
        out_dimension: of the embeddings, which the support set holds.

    Source: Dwibedi et al. 2021 (NNCLR), section 4.1.
    """
    return ProjectionHead(dimension, hidden_dimension, out_dimension, layers=3, last_batch_norm=True)


def nnclr_prediction_head(dimension: int = 256, *, hidden_dimension: int = 4096) -> ProjectionHead:
    """Returns NNCLR's predictor: from embeddings to embeddings of the same dimension, its last layer not normalised.

    Args:
        dimension: of the embeddings.
        hidden_dimension: between the two layers.

    Source: Dwibedi et al. 2021 (NNCLR), section 4.1.
    """
    return ProjectionHead(dimension, hidden_dimension, dimension)


def simsiam_projection_head(
    dimension: int, *, hidden_dimension: int | None = None, out_dimension: int = 2048, layers: int = 3
) -> ProjectionHead:
    """Returns SimSiam's projector: every layer normalised, the last without scale and shift.

    Args:
        dimension: of the representations.
        hidden_dimension: None: ``out_dimension``, as in the paper; the official code has that of the representations, which
            is the same for ResNet-50.
        out_dimension: of the embeddings.
        layers: 3; 2 in the paper's experiments with CIFAR.

    Source: Chen and He 2021 (SimSiam), section 3 and appendix D; facebookresearch/simsiam for the last layer.
    """
    hidden = out_dimension if hidden_dimension is None else hidden_dimension
    return ProjectionHead(dimension, hidden, out_dimension, layers, last_batch_norm=True, last_affine=False)


def simsiam_prediction_head(dimension: int = 2048, *, hidden_dimension: int | None = None) -> ProjectionHead:
    """Returns SimSiam's predictor: a bottleneck, its last layer not normalised.

    Args:
        dimension: of the embeddings.
        hidden_dimension: None: a quarter of it, 512 for 2048.

    Source: Chen and He 2021 (SimSiam), section 3.
    """
    hidden = max(1, dimension // 4) if hidden_dimension is None else hidden_dimension
    return ProjectionHead(dimension, hidden, dimension)


def barlow_twins_projection_head(dimension: int, *, out_dimension: int = 8192) -> ProjectionHead:
    """Returns the head of Barlow Twins: three layers of one width, the last neither normalised nor with a bias.

    The loss normalises the embeddings itself.

    Args:
        dimension: of the representations.
        out_dimension: of every layer; 2048 on CIFAR.

    Source: Zbontar et al. 2021; facebookresearch/barlowtwins for the bias.
    """
    return ProjectionHead(dimension, out_dimension, out_dimension, layers=3, bias=False)
