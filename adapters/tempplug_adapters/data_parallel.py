"""Which processes hold different data: their losses contrast with each other, those of a tensor-parallel model do not."""

from __future__ import annotations

from typing import Any

from torch import nn

import tempplug
from tempplug.distributed import LossGroup


def use_accelerate(losses: nn.Module, accelerator: Any) -> None:
    """Sets the group of every loss that gathers to the data-parallel processes of accelerate's ``parallelism_config``.

    Without tensor, context or sequence parallelism nothing changes. A group that was given stays. Where DeepSpeed holds the
    groups of sequence parallelism, accelerate has no mesh, and the loss itself refuses equal rows.

    Args:
        losses: a `tempplug.ContrastiveLoss`, or a module that holds some.
        accelerator: the `accelerate.Accelerator` of a Trainer.
    """
    config = getattr(accelerator, "parallelism_config", None)
    if config is not None and config.non_data_parallel_size > 1:
        use_mesh(losses, accelerator.torch_device_mesh, "dp")


def use_mesh(losses: nn.Module, mesh: Any, dimension: str) -> None:
    """Sets the group of every loss that gathers to one dimension of a DeviceMesh; without that dimension, to itself alone.

    Args:
        losses: a `tempplug.ContrastiveLoss`, or a module that holds some.
        mesh: a DeviceMesh, or None for a framework that has none.
        dimension: the name of its data-parallel dimension.
    """
    for each in losses.modules():
        if isinstance(each, tempplug.ContrastiveLoss) and each.gather and each.group is None and mesh is not None:
            try:
                each.group = LossGroup(mesh[dimension], each.gather)
            except KeyError:  # one data-parallel process
                each.gather = False
