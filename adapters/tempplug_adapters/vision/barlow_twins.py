"""Barlow Twins: correlates each feature with its counterpart in the other view and decorrelates all others; no softmax."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug import Strategy, distributed
from tempplug.errors import ConfigError, ShapeError
from tempplug.precision import at_least_float32
from tempplug_adapters.vision.step_module import WithoutSoftmax

# number of features of each view that `measure` samples
_SAMPLED_FEATURES = 64


class BarlowTwins(WithoutSoftmax):
    """Σ_l (1 - C_ll)² + λ Σ_{l≠m} C_lm², C the correlation over the batch of feature l of view_a and feature m of view_b.

    With AMCL a pair of features has a temperature u, and the loss of a head with D features is
    Σ_l (1 - C_ll/u_ll)² + λ Σ_{l≠m} C_lm²/u_lm + β Σ_l Ω(u_ll) - β/(D-1) Σ_{l≠m} Ω(u_lm), Ω(u) = ln u + 1/u; several heads are
    summed. The input of φ is the values of a feature over the batch, so the strategy's dimension is the batch size N (of all
    processes, with ``gather``). Train with ``drop_last=True``. Each view goes through the backbone by itself.

    The loss differs from the paper's in three points, because with the paper's all temperatures reach the floor within ten
    steps. The paper's Ω is (N/2)·ln τ + 1/τ, with its minimum at 2/N; here temperatures are in units of 2/N, so the minimum is
    at 1, which is best for a perfect correlation. The sum of Ω over all other features is a mean here, as AMCL has a mean over
    the negatives of an anchor: D - 1 terms would outweigh the one of the feature itself. And the gradient of φ is 1/D of the
    sum's, as elsewhere that of the mean over the anchors: with the whole sum, one step saturates φ. All other gradients are
    exact.

    Args:
        backbone: images to representations [B, F], with attribute ``dimension``.
        projection_head: representations to embeddings [B, D], or an `nn.ModuleList` of several.
        strategy: ``amcl:dimension=N`` or an instance of it; None for the plain method.
        redundancy_weight: λ, at least 0.
        gather: correlate over the images of all processes, with the gradient of one process that holds them all.

    Raises:
        ConfigError: another strategy, as there is no softmax; the backbone has no dimension; λ is negative.

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

    def loss(self, embeddings_a: list[Tensor], embeddings_b: list[Tensor]) -> Tensor:
        """Returns the loss, [], of the embeddings [B, D] of each head."""
        count, device = len(embeddings_a[0]), embeddings_a[0].device
        with torch.autocast(device.type, enabled=False):
            heads = ", ".join(f"{each.dtype} [B, {each.shape[1]}]" for each in (*embeddings_a, *embeddings_b))
            call = distributed.Agreement((("embeddings of Barlow Twins", heads),))
            rows = distributed.share_rows(count, device, self.gather, call)
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
        if size != self.strategy.dimension:
            raise ShapeError(
                f"the batch holds {size} images where strategy 'amcl' has dimension={self.strategy.dimension}: in Barlow Twins "
                "the input of φ is a feature over the batch. Set dimension to the batch size (of all processes, with "
                "gather=True) and leave out incomplete batches with drop_last=True."
            )
        temperature = self.strategy.temperature_between(features_a, features_b, share=1 / len(features_a))
        # for `measure`: the diagonal, and the pairs of some features, evenly spread; [D, D] is not kept
        stride, found = -(-len(temperature) // _SAMPLED_FEATURES), temperature.detach()
        self._temperatures += [found.diagonal().clone(), found[::stride, ::stride].flatten().clone()]
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


__all__ = ["BarlowTwins"]
