"""Barlow Twins: correlates each feature with its counterpart in the other view and decorrelates all others; no softmax."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug import Strategy, distributed
from tempplug.errors import ConfigError, ShapeError
from tempplug.precision import at_least_float32
from tempplug.strategies.amcl import AMCL
from tempplug_adapters.vision.step_module import WithoutSoftmax

# number of features of each view that `measure` samples
_SAMPLED_FEATURES = 64


class BarlowTwins(WithoutSoftmax):
    """Σ_l (1 - C_ll)² + λ Σ_{l≠m} C_lm², C the correlation over the batch of feature l of view_a and feature m of view_b.

    With AMCL a pair of features has a temperature u, and the loss of a head with D features is
    Σ_l (1 - C_ll/u_ll)² + λ Σ_{l≠m} C_lm²/u_lm + β Σ_l Ω(u_ll) - β/(D-1) Σ_{l≠m} Ω(u_lm), Ω(u) = ln u + 1/u; several heads are
    summed. What φ sees are the values of a feature over the batch, so that the strategy's dimension is the batch size N (of
    all processes, with ``gather``). Train with ``drop_last=True``. Each view goes through the backbone by itself.

    This is not the paper's loss to the letter, which does not train: within ten steps all temperatures lie on the floor.
    Three things differ. Ω is (N/2)·ln τ + 1/τ there, lowest at 2/N; here temperatures are in units of that, so that it is
    lowest at 1, where a perfect correlation wants them. Its sum over all other features is a mean here, as AMCL's softmax or
    top-κ mean is one for the negatives of an anchor: D - 1 terms outweigh the one of the feature itself. And φ learns from
    the mean over the features, as elsewhere from the mean over the anchors, so that its gradient is 1/D of the sum's: with
    all of it, one step takes φ to where the temperatures no longer move. The gradient of everything else is exact.

    Args:
        backbone: images to representations [B, F], with attribute ``dimension``.
        projection_head: representations to embeddings [B, D], or an `nn.ModuleList` of several.
        strategy: ``amcl:dimension=N`` or an instance of it; None for Barlow Twins as it is.
        redundancy_weight: λ, at least 0.
        gather: correlate over the images of all processes, with the gradient of one process that holds them all.

    Attributes:
        strategy: AMCL, or None.

    Raises:
        ConfigError: any other strategy, since there is no softmax; the backbone does not say its dimension; λ is negative.

    Source: Zbontar et al. 2021; features are normalised over the batch with the 1e-5 of the authors' batch normalisation.
    AMCL: Wang et al. 2024, eq. 2.3, where 1/τ stands inside the square on the diagonal and outside of it elsewhere.
    """

    title = "Barlow Twins"

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        strategy: str | Strategy | None = None,
        *,
        redundancy_weight: float = 5e-3,
        gather: bool = False,
    ) -> None:
        super().__init__(backbone, projection_head, strategy)
        if redundancy_weight < 0:
            raise ConfigError(f"redundancy_weight={redundancy_weight} of Barlow Twins must be at least 0.")
        self.redundancy_weight = redundancy_weight
        self.gather = gather

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
        self._temperatures.clear()
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
        temperature = _temperatures(self.strategy, features_a, features_b)
        self._temperatures += _sampled(temperature.detach())
        scaled = correlation.diagonal() / temperature.diagonal()
        omega = self.strategy.relative_regularizer(temperature)
        others = max(1, len(features_a) - 1)
        return (
            (1 - scaled).square().sum()
            + self.redundancy_weight * _off_diagonal_sum(correlation.square() / temperature)
            + self.strategy.beta * (omega.diagonal().sum() - _off_diagonal_sum(omega) / others)
        )


def _off_diagonal_sum(matrix: Tensor) -> Tensor:
    return matrix.sum() - matrix.diagonal().sum()


def _sampled(temperature: Tensor) -> list[Tensor]:
    """Returns the temperatures of the diagonal, and those of the pairs of some features, evenly spread; [D, D] is not kept."""
    stride = -(-len(temperature) // _SAMPLED_FEATURES)
    return [temperature.diagonal().clone(), temperature[::stride, ::stride].flatten().clone()]


def _temperatures(strategy: AMCL, features_a: Tensor, features_b: Tensor) -> Tensor:
    """Returns the temperatures of all pairs of features, [D, D], with gradient; features are [D, N]."""
    if features_a.shape[1] != strategy.dimension:
        raise ShapeError(
            f"the batch holds {features_a.shape[1]} images where strategy 'amcl' has dimension={strategy.dimension}: in Barlow "
            "Twins φ sees features over the batch. Set dimension to the batch size (of all processes, with gather=True) and "
            "leave out incomplete batches with drop_last=True."
        )
    return strategy.temperature_between(features_a, features_b, share=1 / len(features_a))


__all__ = ["BarlowTwins"]
