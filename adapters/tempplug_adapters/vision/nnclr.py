"""NNCLR: the anchor of an image is the nearest neighbour of its embedding in a support set of past embeddings."""

from __future__ import annotations

from typing import ClassVar, Unpack

from torch import Tensor, nn

from tempplug import Objective, Strategy
from tempplug.embeddings import unit_rows
from tempplug.types import LayoutName, ObjectiveName
from tempplug_adapters.ring_buffer import RingBuffer
from tempplug_adapters.vision.step_module import LossOptions, WithSoftmax, heads_of, predict


class NNCLR(WithSoftmax):
    """InfoNCE of the neighbours of one view against the predictions of the other, averaged over both directions.

    The candidates of an anchor are the predictions of all images of the other view (no same-side ones, which lightly adds).
    Neighbours carry no gradient; it flows through the predictions. The neighbour of an image may be another image, so MACL's
    mean similarity is that of neighbours. A training step enqueues the embeddings of view_a, after both lookups; nothing else
    changes the support set. Each view goes through the backbone by itself.

    Args:
        backbone: images to representations [B, F], with attribute ``dimension``.
        projection_head: representations to embeddings, or an `nn.ModuleList` of several: each has a support set of its own,
            and the losses are summed.
        prediction_head: embeddings to predictions of the same dimension, one for each projection head.
        strategy: spec string or instance, not ``uncertainty``.
        objective: spec string or instance.
        embedding_dimension: D.
        queue_size: K of the support set, at least 1, not necessarily a multiple of the batch size.
        **options: of `LossOptions`. With a process group, the embeddings of all processes are enqueued also without ``gather``.

    Attributes:
        support_sets: one `RingBuffer` a head.

    Raises:
        ConfigError: the backbone has no dimension, the numbers of heads differ, or an option is not allowed.
        UnknownNameError: no such strategy, objective or option.

    Source: Dwibedi et al. 2021, section 3.
    """

    layout: ClassVar[LayoutName] = "cross-view"
    title = "NNCLR"

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        prediction_head: nn.Module,
        strategy: str | Strategy = "fixed",
        objective: ObjectiveName | Objective = "infonce",
        *,
        embedding_dimension: int = 256,
        queue_size: int = 98304,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(backbone, projection_head, strategy, objective, prediction_head=prediction_head, **options)
        self.prediction_head = prediction_head
        self.support_sets = nn.ModuleList(RingBuffer(queue_size, embedding_dimension) for _ in heads_of(projection_head))

    def forward(self, view_a: Tensor, view_b: Tensor, *, index: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Returns the loss in nats, [].

        Args:
            view_a: [B, 3, H, W].
            view_b: [B, 3, H, W], another view of the same images.
            index: [B] positions in the data set, for strategies that use them.
            labels: [B] classes, likewise, and the keys of terms on negatives that read some.

        Raises:
            ShapeError: the embeddings have not D dimensions.
        """
        embeddings_a, embeddings_b = self.embed(view_a), self.embed(view_b)
        predictions_a = predict(self.prediction_head, embeddings_a)
        predictions_b = predict(self.prediction_head, embeddings_b)
        given = self.loss_fn.accepted(index=index, labels=labels, keys=labels)
        loss: Tensor = self.loss_fn(self._neighbours(embeddings_a), predictions_b, **given)
        loss = (loss + self.loss_fn(self._neighbours(embeddings_b), predictions_a, **given)) / 2
        if self.training and embeddings_a[0].requires_grad:
            for support_set, embeddings in zip(self.support_sets, embeddings_a, strict=True):
                support_set.enqueue(unit_rows(embeddings.detach())[0])  # type: ignore[operator]
        return loss

    def _neighbours(self, embeddings: list[Tensor]) -> list[Tensor]:
        return [each.nearest(rows) for each, rows in zip(self.support_sets, embeddings, strict=True)]  # type: ignore[operator]


__all__ = ["NNCLR"]
