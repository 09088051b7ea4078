"""MoCo v2: contrasts anchors with keys of a momentum encoder and a queue of keys of past batches."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from tempplug import Objective, Strategy
from tempplug.embeddings import unit_rows
from tempplug.errors import ConfigError
from tempplug.types import LayoutName, ObjectiveName
from tempplug_adapters.contexts import refuse_missing
from tempplug_adapters.ring_buffer import RingBuffer
from tempplug_adapters.vision.step_module import LossOptions, WithSoftmax, heads_of, project


class MomentumEncoder(nn.Module):
    """Copies of a backbone and its projection heads that follow their weights slowly, without gradient.

    The copies are made here, so load pretrained weights before. Their batch normalisation has its own statistics.

    Args:
        backbone: images to representations.
        projection_head: representations to embeddings, or an `nn.ModuleList` of several.
        momentum: m in [0, 1]: at each step a weight becomes m times itself and 1 - m times the original's.

    Raises:
        ConfigError: the momentum is out of range.

    Source: He et al. 2020 (MoCo), eq. 2.
    """

    def __init__(self, backbone: nn.Module, projection_head: nn.Module, momentum: float = 0.999) -> None:
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ConfigError(f"momentum={momentum} of the momentum encoder must be at least 0 and at most 1.")
        self.momentum = momentum
        self.backbone = deepcopy(backbone).requires_grad_(False)
        self.projection_head = deepcopy(projection_head).requires_grad_(False)

    @torch.no_grad()
    def update(self, backbone: nn.Module, projection_head: nn.Module) -> None:
        """Updates the copies by an exponential moving average of the original weights, with fused kernels."""
        copies = [*self.backbone.parameters(), *self.projection_head.parameters()]
        if copies:
            average = get_ema_multi_avg_fn(self.momentum)  # type: ignore[no-untyped-call]
            average(copies, [*backbone.parameters(), *projection_head.parameters()], None)

    @torch.no_grad()
    def forward(self, images: Tensor) -> list[Tensor]:
        """Returns the embeddings [B, D] of each projection head, without gradient."""
        return project(self.projection_head, self.backbone(images))


class MoCo(WithSoftmax):
    """InfoNCE of each anchor against its own key and a queue of past ones, with any temperature strategy.

    A training step updates the momentum encoder, embeds each view by itself, computes the loss and then enqueues the keys of
    view_b; only a training step changes the momentum encoder or the queue. With a process group the keys of all processes are
    enqueued, and ``gather`` makes batch statistics such as MACL's mean similarity global. Unlike the authors' code, images are
    not shuffled between processes against leaks through batch normalisation: use `nn.SyncBatchNorm`.

    Args:
        backbone: images to representations [B, F], with attribute ``dimension``.
        projection_head: representations to embeddings, or an `nn.ModuleList` of several, each with a queue of its own;
            ``loss_fn.record`` is that of the last.
        strategy: spec string or instance, not ``uncertainty``.
        objective: spec string or instance.
        embedding_dimension: D.
        queue_size: K, at least 1, not necessarily a multiple of the batch size.
        momentum: of the momentum encoder, in [0, 1].
        symmetric: average with the direction from view_b to the keys of view_a (lightly, AMCL); the queue grows no faster.
        **options: of `LossOptions`; for ``gather`` see above.

    Attributes:
        queues: one `RingBuffer` a head.

    Raises:
        ConfigError: the backbone has no dimension, an option is not allowed, or a term on negatives reads an argument of
            rows, which the queue does not hold.
        UnknownNameError: no such strategy, objective or option.

    Source: He et al. 2020; Chen et al. 2020 (MoCo v2).

    >>> backbone = nn.Flatten()
    >>> backbone.dimension = 12
    >>> moco = MoCo(backbone, nn.Linear(12, 4), "macl", embedding_dimension=4, queue_size=10)
    >>> moco(torch.rand(8, 3, 2, 2), torch.rand(8, 3, 2, 2)).shape, moco.queues[0].position
    (torch.Size([]), tensor(8))
    """

    layout: ClassVar[LayoutName] = "queue"
    title = "MoCo"
    takes_small_crops = True

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        strategy: str | Strategy = "fixed",
        objective: ObjectiveName | Objective = "infonce",
        *,
        embedding_dimension: int = 128,
        queue_size: int = 65536,
        momentum: float = 0.999,
        symmetric: bool = False,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(backbone, projection_head, strategy, objective, **options)
        refuse_missing(self.loss_fn.terms, (), "MoCo, whose queue holds embeddings alone,")
        self.symmetric = symmetric
        self.momentum_encoder = MomentumEncoder(backbone, projection_head, momentum)
        self.queues = nn.ModuleList(RingBuffer(queue_size, embedding_dimension) for _ in heads_of(projection_head))

    def forward(
        self,
        view_a: Tensor,
        view_b: Tensor,
        *,
        index: Tensor | None = None,
        labels: Tensor | None = None,
        small: Sequence[Tensor] = (),
    ) -> Tensor:
        """Returns the loss in nats, [].

        Args:
            view_a: [B, 3, H, W], whose embeddings are the anchors.
            view_b: [B, 3, H, W], another view of the same images, whose embeddings are the keys.
            index: [B] positions in the data set, for strategies that use them.
            labels: [B] classes, likewise.
            small: small crops of the same images, each [B, 3, h, w], which are further anchors; the loss is the mean.

        Raises:
            ShapeError: the embeddings have not D dimensions, or the views differ in rows.
            ConfigError: there are small crops, and the loss has a state of each image.
        """
        self.check_small_crops(small)
        if self.training and torch.is_grad_enabled():
            self.momentum_encoder.update(self.backbone, self.projection_head)
        anchors, keys = self.embed(view_a), self.momentum_encoder(view_b)
        crops = [self.embed(each) for each in small]
        losses = [self._direction(each, keys, index, labels) for each in (*crops, anchors)]
        if self.symmetric:
            other, others = self.momentum_encoder(view_a), (*crops, self.embed(view_b))
            losses += [self._direction(each, other, index, labels) for each in others]
        loss = torch.stack(losses).mean()
        if self.training and anchors[0].requires_grad:
            for queue, key in zip(self.queues, keys, strict=True):
                queue.enqueue(unit_rows(key)[0])  # type: ignore[operator]
        return loss

    def _direction(self, anchors: list[Tensor], keys: list[Tensor], index: Tensor | None, labels: Tensor | None) -> Tensor:
        known = self.loss_fn.accepted(index=index, labels=labels)
        losses = [
            self.loss_fn(anchor, key, queue=queue.rows, **known)  # type: ignore[arg-type]
            for anchor, key, queue in zip(anchors, keys, self.queues, strict=True)
        ]
        return torch.stack(losses).sum()


__all__ = ["MoCo", "MomentumEncoder"]
