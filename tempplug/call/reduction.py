"""From row losses to what a call returns: which anchors count, the mean over directions and anchors, and what is wrong with it.

It must not know strategies or engines, and of an objective only what anchors without a negative become.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.errors import NonFiniteError
from tempplug.inputs import unread
from tempplug.layouts import Views
from tempplug.objectives.base import Objective
from tempplug.precision import at_least_float32
from tempplug.roles import PairRoles
from tempplug.types import Reduction


def with_loss(
    roles: PairRoles, positive_count: Tensor, without: Tensor | None, objective: Objective, alone: bool
) -> Tensor | None:
    """Returns which anchors have a loss, [N]; None where all have, on every process, which only one ``alone`` can tell.

    ``without`` [N] says which anchors have no negative; None where all have some.
    """
    if alone and roles.fewest_positives and without is None:
        return None
    valid = None if without is None or objective.without_negatives else ~without
    if roles.positives is not None or (alone and roles.fewest_positives):
        return valid
    paired = positive_count > 0
    return paired if valid is None else paired & valid


def over_directions(losses: list[Tensor], valid: list[Tensor | None]) -> tuple[Tensor, Tensor | None]:
    """Returns each anchor's mean loss over the directions in which it has one, [N], and which have any (None: all)."""
    if all(mask is None for mask in valid):
        return losses[0] if len(losses) == 1 else (losses[0] + losses[1]) / 2, None
    masks = [
        torch.ones_like(loss, dtype=torch.bool) if mask is None else mask for loss, mask in zip(losses, valid, strict=True)
    ]
    counted = [torch.where(mask, loss, 0.0) for loss, mask in zip(losses, masks, strict=True)]
    if len(losses) == 1:
        return counted[0], masks[0]
    count = torch.stack(masks).sum(0)
    return torch.stack(counted).sum(0) / count.clamp(min=1), count > 0


def over_anchors(row_losses: Tensor, valid: Tensor | None, views: Views, reduction: Reduction) -> Tensor:
    """Returns the mean or the sum of the losses [N] of valid anchors (None: all); with ``none`` the losses as they are."""
    if reduction == "none":
        return row_losses
    if reduction == "mean" and valid is None and views.rows.world == 1:
        return row_losses.mean()
    # Every rank's sum times world over the global count: the mean over its own rows where all ranks hold as many, and
    # exact after DDP's averaging where they do not.
    total = row_losses.sum()
    if views.rows.world > 1:
        total = total * views.rows.world
    if reduction == "sum":
        return total
    if valid is None:
        return total / (views.rows.total * row_losses.numel() / views.size)
    return total / distributed.total(valid.sum(), views.rows).clamp(min=1)


def no_losses(views: Views, parameters: Iterable[nn.Parameter], anchors: int) -> Tensor:
    """Returns zeros [N] with a graph, so that everything that learns has a gradient: of 0."""
    uncertainty = views.uncertainty if isinstance(views.uncertainty, tuple) else (views.uncertainty,)
    learning = [
        tensor for tensor in (*views.own.learning, *uncertainty, *parameters) if tensor is not None and tensor.requires_grad
    ]
    zero = at_least_float32(torch.zeros((), device=views.device, dtype=views.precision))
    total = sum(((tensor * 0).sum().to(zero) for tensor in learning), zero)
    return total.expand(anchors)


def with_nan(row_losses: Tensor, views: Views) -> Tensor:
    """Returns the losses; NaN if embeddings or scores hold NaN that was not checked: it may lie in rows without a loss."""
    if not unread(views.device):
        return row_losses
    # Rows that are not finite have no direction, so their unit rows are NaN.
    division = views.own.division
    unit_rows = views.own.of_groups if division is None else (division.unit,)
    for tensor in (*unit_rows, *(() if views.scores is None else (views.scores,))):
        row_losses = row_losses + (tensor.detach() * 0).sum()
    return row_losses


def message_without_negatives(without: int, anchors: int, layout: str, objective: Objective) -> str:
    """Returns the warning of anchors without a negative."""
    become = "leave the mean"
    if objective.without_negatives:
        become = "have a loss of their positives alone"
        become += "" if objective.pair_function is not None else " (0 with one)"
    return (
        f"layout '{layout}' leaves {without} of {anchors} anchors without a negative: under objective '{objective.name}' they "
        f"{become}. Use a larger batch, drop_last=True or a queue."
    )


def raise_if_nonfinite(loss_fn: nn.Module) -> None:
    """Raises `NonFiniteError` where a parameter or a buffer makes the loss of finite embeddings not finite; names the first."""
    for name, parameter in loss_fn.named_parameters():
        bad = parameter.detach()[~torch.isfinite(parameter)]
        if bad.numel():
            raise NonFiniteError(
                f"parameter {name} of this loss became {float(bad[0])} ({bad.numel()} of {parameter.numel()} numbers), as "
                "a step of the optimizer can do: clip its gradient, or lower its learning rate."
            )
    for name, buffer in loss_fn.named_buffers():
        if buffer.isnan().any():
            raise NonFiniteError(
                f"buffer {name} of this loss holds NaN in {int(buffer.isnan().sum())} of {buffer.numel()} numbers."
            )
