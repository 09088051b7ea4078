"""SupCon: both views of every image of a class are each other's positives, all views of other classes negatives."""

from __future__ import annotations

from typing import ClassVar

from tempplug.types import LayoutName
from tempplug_adapters.vision.simclr import SimCLR


class SupCon(SimCLR):
    """SimCLR with classes: an anchor's loss is the mean of its positives' logarithms, with any temperature strategy.

    A call needs ``labels``, [B] classes. Objectives need a form for several positives: ``infonce``, ``dcl`` or ``flatnce``.

    Source: Khosla et al. 2020, eq. 2 (the sum over positives outside of the logarithm).

    >>> import torch
    >>> from torch import nn
    >>> backbone = nn.Flatten()
    >>> backbone.dimension = 12
    >>> classes = torch.tensor([0, 0, 1, 1])
    >>> SupCon(backbone, nn.Linear(12, 4))(torch.rand(4, 3, 2, 2), torch.rand(4, 3, 2, 2), labels=classes).shape
    torch.Size([])
    """

    layout: ClassVar[LayoutName] = "labels"
    title = "SupCon"
    needs_labels = True


__all__ = ["SupCon"]
