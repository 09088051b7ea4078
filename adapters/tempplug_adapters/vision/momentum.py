"""The momentum encoder: a copy of backbone and projection heads that follows their weights slowly. It must know no loss."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from tempplug.errors import ConfigError
from tempplug_adapters.vision.step_module import project


class MomentumEncoder(nn.Module):
    """Copies of a backbone and its projection heads, without gradient.

    The copies are made here, so load pretrained weights before. Their batch normalisation keeps statistics of its own, those
    of the batches that it sees.

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
        """Moves the copies towards their originals; all weights in a few kernels.

        Args:
            backbone: the original.
            projection_head: the original.
        """
        copies = [*self.backbone.parameters(), *self.projection_head.parameters()]
        if copies:
            average = get_ema_multi_avg_fn(self.momentum)  # type: ignore[no-untyped-call]
            average(copies, [*backbone.parameters(), *projection_head.parameters()], None)

    @torch.no_grad()
    def forward(self, images: Tensor) -> list[Tensor]:
        """Returns the embeddings [B, D] of each projection head, without gradient.

        Args:
            images: [B, 3, H, W], or whatever the backbone takes.
        """
        return project(self.projection_head, self.backbone(images))

    def extra_repr(self) -> str:
        """Shows the momentum in ``print(module)``."""
        return f"momentum={self.momentum}"
