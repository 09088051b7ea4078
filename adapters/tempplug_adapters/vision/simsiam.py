"""SimSiam: each view predicts the embedding of the other; no negatives, no softmax."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tempplug import Strategy
from tempplug.embeddings import unit_rows
from tempplug_adapters.vision.step_module import WithoutSoftmax, predict


class SimSiam(WithoutSoftmax):
    """The negative cosine similarity of predictions p and embeddings h: the mean of -s(p_a, sg h_b)/2 - s(p_b, sg h_a)/2.

    With AMCL each direction is -s/(2u) + β·(ln u + 1/u), u = u(p, sg h) the temperature of its pair; several heads are summed.
    Each view goes through the backbone by itself.

    The paper's -s/(2τ) + β·((D/2)·ln τ + 1/τ) is the same with u = τ·D/2, except for a constant and the factor D/2. In the
    paper's units it increases with τ above 2/D for every β, so all temperatures fall to any higher floor; with a lower floor,
    its gradient is D/2 times SimSiam's, and φ overshoots. AMCL's span and floor are bounds of u here, and the optimum of a pair
    of similarity s is u = 1 - s/(2β), which is at the floor for β below 1/2.

    Args:
        backbone: images to representations [B, F], with attribute ``dimension``.
        projection_head: representations to embeddings [B, D], or an `nn.ModuleList` of several.
        prediction_head: embeddings to predictions of the same dimension, one for each projection head.
        strategy: ``amcl:dimension=D`` or an instance of it; None for the plain method.

    Raises:
        ConfigError: another strategy, as there is no softmax; the backbone has no dimension; the numbers of heads differ.

    Source: Chen and He 2021; AMCL: Wang et al. 2024, eq. 2.2, where the prediction is written z and the embedding h.
    """

    title = "SimSiam"

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        prediction_head: nn.Module,
        strategy: str | Strategy | None = None,
    ) -> None:
        super().__init__(backbone, projection_head, strategy, prediction_head)
        self.prediction_head = prediction_head

    def loss(self, embeddings_a: list[Tensor], embeddings_b: list[Tensor]) -> Tensor:
        """Returns the loss, []: in [-1, 1] a head without AMCL."""
        predictions_a = predict(self.prediction_head, embeddings_a)
        predictions_b = predict(self.prediction_head, embeddings_b)
        with torch.autocast(embeddings_a[0].device.type, enabled=False):
            losses = [
                self._row_loss(prediction, embedding.detach())
                for predictions, embeddings in ((predictions_a, embeddings_b), (predictions_b, embeddings_a))
                for prediction, embedding in zip(predictions, embeddings, strict=True)
            ]
            return torch.stack(losses).sum(0).mean()

    def _row_loss(self, prediction: Tensor, embedding: Tensor) -> Tensor:
        """Returns one direction of one head, [B]."""
        similarity = (unit_rows(prediction)[0] * unit_rows(embedding)[0]).sum(1)
        if self.strategy is None:
            return -similarity / 2
        temperature = self.strategy.temperature_of(prediction, embedding)
        self._temperatures.append(temperature.detach())
        return self.strategy.beta * self.strategy.relative_regularizer(temperature) - similarity / (2 * temperature)


__all__ = ["SimSiam"]
