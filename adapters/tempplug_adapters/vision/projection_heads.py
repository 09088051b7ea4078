"""Projection heads: the layers between representations and embeddings, as defined by each method.

A linear layer before batch normalisation has no bias, which the normalisation would remove. The code of some papers has one,
without effect on outputs or training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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
        bias: whether the last linear layer has a bias; None: only without ``last_batch_norm``. The others have one only
            without ``batch_norm``.

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
            raise ConfigError("last_affine=False needs last_batch_norm=True: without normalisation it has no meaning.")
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


@dataclass(frozen=True)
class HeadDesign:
    """The design of a method's head in its paper; a call creates a head.

    Attributes:
        out_dimension: of the embeddings; None: that of the input.
        inside: width of the hidden layers, by the dimensions of input and output.
        options: of `ProjectionHead`.

    >>> simclr_projection_head(2048).out_dimension
    128
    """

    out_dimension: int | None
    inside: Callable[[int, int], int]
    options: Mapping[str, Any]

    def __call__(
        self, dimension: int, *, hidden_dimension: int | None = None, out_dimension: int | None = None, **options: Any
    ) -> ProjectionHead:
        """Returns a head with random weights; None and missing options are the paper's."""
        out = next(each for each in (out_dimension, self.out_dimension, dimension) if each is not None)
        hidden = self.inside(dimension, out) if hidden_dimension is None else hidden_dimension
        return ProjectionHead(dimension, hidden, out, **{**self.options, **options})


# Chen et al. 2020, and google-research/simclr, whose last normalisation learns a scale but no shift; mmselfsup (MACL), lightly
# (DySTreSS) and SDCLR (TS) learn both, as here. AMCL has 2 or 3 layers.
simclr_projection_head = HeadDesign(128, lambda width, out: width, {"last_batch_norm": True})
# Chen et al. 2020 (MoCo v2); one layer in MoCo v1 and TS
moco_projection_head = HeadDesign(128, lambda width, out: width, {"batch_norm": False})
# Dwibedi et al. 2021 (NNCLR), section 4.1; the support set holds the embeddings
nnclr_projection_head = HeadDesign(256, lambda width, out: 2048, {"layers": 3, "last_batch_norm": True})
nnclr_prediction_head = HeadDesign(None, lambda width, out: 4096, {})
# Chen and He 2021 (SimSiam), section 3 and appendix D, with 2 layers on CIFAR; facebookresearch/simsiam for the last layer. The
# official code has hidden layers as wide as the representations, which is the same for ResNet-50.
simsiam_projection_head = HeadDesign(2048, lambda width, out: out, {"layers": 3, "last_batch_norm": True, "last_affine": False})
simsiam_prediction_head = HeadDesign(None, lambda width, out: max(1, width // 4), {})
# Zbontar et al. 2021, with 2048 on CIFAR; facebookresearch/barlowtwins for the bias. The loss normalises the embeddings itself.
barlow_twins_projection_head = HeadDesign(8192, lambda width, out: out, {"layers": 3, "bias": False})
