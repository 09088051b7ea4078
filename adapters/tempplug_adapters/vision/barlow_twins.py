"""Barlow Twins: the features of both views correlate with their counterparts and with no others; no softmax.

It must not know augmentations, optimizers or data.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug import Strategy, distributed
from tempplug.embeddings import unit_rows
from tempplug.errors import ConfigError, ShapeError
from tempplug.precision import at_least_float32
from tempplug.strategies.amcl import AMCL
from tempplug.strategies.maps import PairTemperatureMap
from tempplug.types import Batch
from tempplug_adapters.vision.step_module import StepModule
from tempplug_adapters.vision.without_softmax import amcl_or_none


class BarlowTwins(StepModule):
    """Σ_l (1 - C_ll)² + λ Σ_{l≠m} C_lm², C the correlation over the batch of feature l of view_a and feature m of view_b.

    With AMCL a pair of features has a temperature, and the loss of a head is
    Σ_l (1 - C_ll/τ_ll)² + λ Σ_{l≠m} C_lm²/τ_lm + β Σ_l Ω(τ_ll) - β Σ_{l≠m} Ω(τ_lm); several heads are summed. What φ sees are
    the values of a feature over the batch, so that the strategy's dimension is the batch size N (of all processes, with
    ``gather``), and so is the D of Ω = (D/2)·ln τ + 1/τ: it counts the dimensions of the vectors whose distance the paper's
    derivation takes as normal. Train with ``drop_last=True``. Each view goes through the backbone by itself.

    Args:
        backbone: images to representations [B, F], with attribute ``dimension``.
        projection_head: representations to embeddings [B, D], or an `nn.ModuleList` of several.
        strategy: ``amcl:dimension=N`` or an instance of it; None for Barlow Twins as it is.
        redundancy_weight: λ, at least 0.
        gather: correlate over the images of all processes, with the gradient of one process that holds them all.

    Attributes:
        strategy: AMCL, or None.
        loss_fn: None: there is no contrastive loss.

    Raises:
        ConfigError: any other strategy, since there is no softmax; the backbone does not say its dimension; λ is negative.

    Source: Zbontar et al. 2021; features are normalised over the batch with the 1e-5 of the authors' batch normalisation.
    AMCL: Wang et al. 2024, eq. 2.3, where 1/τ stands inside the square on the diagonal and outside of it elsewhere.
    """

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        strategy: str | Strategy | None = None,
        *,
        redundancy_weight: float = 5e-3,
        gather: bool = False,
    ) -> None:
        super().__init__(backbone, projection_head)
        if redundancy_weight < 0:
            raise ConfigError(f"redundancy_weight={redundancy_weight} of Barlow Twins must be at least 0.")
        self.strategy = amcl_or_none("Barlow Twins", strategy)
        self.redundancy_weight = redundancy_weight
        self.gather = gather
        self.loss_fn = None

    def forward(self, view_a: Tensor, view_b: Tensor, *, index: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Returns the loss, [].

        Args:
            view_a: [B, 3, H, W].
            view_b: [B, 3, H, W], another view of the same images.
            index: unused; every method takes it.
            labels: unused, likewise.

        Raises:
            ShapeError: a single image, or with AMCL a batch of another size than its dimension.
        """
        embeddings_a, embeddings_b = self.embed(view_a), self.embed(view_b)
        with torch.autocast(view_a.device.type, enabled=False):
            rows = distributed.share_rows(len(view_a), view_a.device, self.gather)
            if rows.total < 2:
                raise ShapeError(f"Barlow Twins correlates features over the batch, which has {rows.total} image; wanted 2.")
            losses = [
                self._head_loss(*(distributed.gather(at_least_float32(view), rows) for view in pair))
                for pair in zip(embeddings_a, embeddings_b, strict=True)
            ]
            return torch.stack(losses).sum()

    def _head_loss(self, embeddings_a: Tensor, embeddings_b: Tensor) -> Tensor:
        """Returns the loss of one head, []."""
        size = len(embeddings_a)
        features_a, features_b = (F.batch_norm(each, None, None, training=True).T for each in (embeddings_a, embeddings_b))
        correlation = features_a @ features_b.T / size
        if self.strategy is None:
            squares, diagonal = correlation.square(), correlation.diagonal()
            return (1 - diagonal).square().sum() + self.redundancy_weight * _off_diagonal_sum(squares)
        temperature = _temperatures(self.strategy, features_a, features_b, correlation)
        scaled = correlation.diagonal() / temperature.diagonal()
        omega = self.strategy.regularizer(temperature)
        return (
            (1 - scaled).square().sum()
            + self.redundancy_weight * _off_diagonal_sum(correlation.square() / temperature)
            + self.strategy.beta * (omega.diagonal().sum() - _off_diagonal_sum(omega))
        )


def _off_diagonal_sum(matrix: Tensor) -> Tensor:
    return matrix.sum() - matrix.diagonal().sum()


def _temperatures(strategy: AMCL, features_a: Tensor, features_b: Tensor, correlation: Tensor) -> Tensor:
    """Returns τ of all pairs of features, [D, D], with gradient; features are [D, N]."""
    if features_a.shape[1] != strategy.dimension:
        raise ShapeError(
            f"the batch holds {features_a.shape[1]} images where strategy 'amcl' has dimension={strategy.dimension}: in Barlow "
            "Twins φ sees features over the batch. Set dimension to the batch size (of all processes, with gather=True) and "
            "leave out incomplete batches with drop_last=True."
        )
    # Pair by pair, `temperature_of` would hold D·D·N numbers.
    anchors, candidates = (unit_rows(features)[0] for features in (features_a, features_b))
    batch = Batch(correlation.diagonal().detach(), anchors, candidates)
    pairs = cast(PairTemperatureMap, strategy.prepare(batch))
    return PairTemperatureMap.temperature_at(pairs.anchors @ pairs.candidates.T, pairs.span, pairs.floor)


__all__ = ["BarlowTwins"]
