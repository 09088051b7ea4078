"""MoCo v2: anchors against the keys of a slowly moving copy of the encoder, those of past batches in a queue.

It must not know augmentations, optimizers or data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss, Objective, Strategy
from tempplug.embeddings import unit_rows
from tempplug.types import EngineName
from tempplug_adapters.vision.momentum import MomentumEncoder
from tempplug_adapters.vision.ring_buffer import RingBuffer
from tempplug_adapters.vision.step_module import StepModule, heads_of, without_uncertainty


class MoCo(StepModule):
    """InfoNCE of each anchor against its own key and a queue of past ones, with any temperature strategy.

    A training step moves the momentum encoder, embeds each view by itself, computes the loss and then enqueues the keys of
    view_b; nothing but a training step changes momentum encoder or queue. With a process group the keys of all processes are
    enqueued, and ``gather`` makes batch statistics such as MACL's mean similarity global. The authors also shuffle the images
    between processes so that batch normalisation cannot tell a key from others; this does not: use `nn.SyncBatchNorm`.

    Args:
        backbone: images to representations [B, F], with attribute ``dimension``.
        projection_head: representations to embeddings, or an `nn.ModuleList` of several: each has a queue of its own, their
            losses are summed, and ``loss_fn.record`` speaks of the last.
        strategy: spec string or instance, not ``uncertainty``.
        objective: spec string or instance.
        embedding_dimension: D.
        queue_size: K, at least 1; the batch need not divide it.
        momentum: of the momentum encoder, in [0, 1].
        symmetric: average with the direction from view_b to the keys of view_a (lightly, AMCL); the queue grows no faster.
        gather: see above.
        engine: as in `tempplug.ContrastiveLoss`.

    Attributes:
        momentum_encoder: the copies.
        queues: one `RingBuffer` a head.

    Raises:
        ConfigError: the backbone does not say its dimension, or an option is not allowed.
        UnknownNameError: no such strategy, objective or option.

    Source: He et al. 2020; Chen et al. 2020 (MoCo v2).

    >>> backbone = nn.Flatten()
    >>> backbone.dimension = 12
    >>> moco = MoCo(backbone, nn.Linear(12, 4), "macl", embedding_dimension=4, queue_size=10)
    >>> moco(torch.rand(8, 3, 2, 2), torch.rand(8, 3, 2, 2)).shape, moco.queues[0].position
    (torch.Size([]), tensor(8))
    """

    loss_fn: ContrastiveLoss

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        strategy: str | Strategy = "fixed",
        objective: str | Objective = "infonce",
        *,
        embedding_dimension: int = 128,
        queue_size: int = 65536,
        momentum: float = 0.999,
        symmetric: bool = False,
        gather: bool = False,
        engine: EngineName = "auto",
    ) -> None:
        super().__init__(backbone, projection_head)
        loss_fn = ContrastiveLoss(strategy, objective, "queue", gather=gather, engine=engine)
        self.loss_fn = without_uncertainty("MoCo", loss_fn)
        self.symmetric = symmetric
        self.momentum_encoder = MomentumEncoder(backbone, projection_head, momentum)
        self.queues = nn.ModuleList(RingBuffer(queue_size, embedding_dimension) for _ in heads_of(projection_head))

    def forward(self, view_a: Tensor, view_b: Tensor, *, index: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Returns the loss in nats, [].

        Args:
            view_a: [B, 3, H, W], whose embeddings are the anchors.
            view_b: [B, 3, H, W], another view of the same images, whose embeddings are the keys.
            index: [B] positions in the data set, for strategies that want them.
            labels: [B] classes, likewise.

        Raises:
            ShapeError: the embeddings have not D dimensions, or the views differ in rows.
        """
        if self.training and torch.is_grad_enabled():
            self.momentum_encoder.update(self.backbone, self.projection_head)
        anchors, keys = self.embed(view_a), self.momentum_encoder(view_b)
        loss = self._direction(anchors, keys, index, labels)
        if self.symmetric:
            loss = (loss + self._direction(self.embed(view_b), self.momentum_encoder(view_a), index, labels)) / 2
        if self.training and anchors[0].requires_grad:
            for queue, key in zip(self.queues, keys, strict=True):
                queue.enqueue(unit_rows(key)[0])  # type: ignore[operator]
        return loss

    def _direction(self, anchors: list[Tensor], keys: list[Tensor], index: Tensor | None, labels: Tensor | None) -> Tensor:
        known = self.loss_fn.taken(index=index, labels=labels)
        losses = [
            self.loss_fn(anchor, key, queue=queue.rows, **known)  # type: ignore[arg-type]
            for anchor, key, queue in zip(anchors, keys, self.queues, strict=True)
        ]
        return torch.stack(losses).sum()


__all__ = ["MoCo"]
