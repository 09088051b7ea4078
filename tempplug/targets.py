"""Targets: how much of an anchor's probability each candidate should have, in place of one positive an anchor.

``loss_fn(view_a, view_b, targets=T)`` takes any T [B, M] whose rows sum to 1, or to 0 where an anchor has no positive. The
functions here make some; rows of T that sum to 1 may be mixed, such as ``0.5 * of_keys(keys) + 0.5 * soft_targets(scores)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tempplug.embeddings import unit_rows
from tempplug.errors import ConfigError, ShapeError
from tempplug.inputs import check_finite, check_tensor, unread
from tempplug.precision import at_least_float32
from tempplug.roles import PairRoles

SUM_TOLERANCE = 1e-3
"""How far the sum of a row may be from 1: float16 and softmax round."""


def soft_targets(scores: Tensor, temperature: float = 1.0) -> Tensor:
    """Returns the softmax of a teacher's scores, or of graded labels, over the candidates of each row, [B, M].

    Args:
        scores: [B, M], -inf for candidates that are out of the question.
        temperature: that divides the scores, greater than 0.

    Source: Hinton et al. 2015; of graded labels ListNet, Cao et al. 2007.

    >>> soft_targets(torch.tensor([[2.0, 1.0, -torch.inf]]))
    tensor([[0.7311, 0.2689, 0.0000]])
    """
    if not temperature > 0:
        raise ConfigError(f"temperature={temperature:g} of soft targets must be greater than 0.")
    return torch.softmax(at_least_float32(scores.detach()) / temperature, 1)


def of_keys(keys: Tensor, candidate_keys: Tensor | None = None) -> Tensor:
    """Returns the same share for every candidate [M] with the key of the anchor [B], such as all answers of one question.

    With ``infonce`` the loss is SupCon's (Khosla et al. 2020, eq. 2). The candidates are view_b's rows unless their keys are
    given.

    >>> of_keys(torch.tensor([7, 3, 7]))
    tensor([[0.5000, 0.0000, 0.5000],
            [0.0000, 1.0000, 0.0000],
            [0.5000, 0.0000, 0.5000]])
    """
    same = (keys[:, None] == (keys if candidate_keys is None else candidate_keys)).float()
    return same / same.sum(1, keepdim=True).clamp(min=1)


def smoothed(targets: Tensor, share: float) -> Tensor:
    """Returns targets [B, M] of which a share, from 0 to 1, goes to all candidates alike (label smoothing).

    Source: Szegedy et al. 2016, section 7.

    >>> smoothed(torch.eye(2), 0.2)
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]])
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share={share:g} of smoothed targets must lie between 0 and 1.")
    return (1 - share) * targets + share * targets.sum(1, keepdim=True) / targets.shape[1]


def soft_assignments(distances: Tensor, sharpness: float, alpha: float = 0.5) -> Tensor:
    """Returns SoftCLT's assignments of instances by a distance of their data, divided by their sums, [B, M].

    Candidate i of anchor i has the assignment 1, every other one 2α·sigmoid(-sharpness·distance). The paper does not divide by
    the sums: its loss of a row is ours times ``1 + Σ_j≠i 2α·sigmoid(-sharpness·distance_ij)``.

    Args:
        distances: [B, M], at least 0.
        sharpness: τ_I of the paper.
        alpha: half the assignment of another instance at distance 0.

    Source: Lee et al. 2024, Soft Contrastive Learning for Time Series, eq. 1.
    """
    weights = 2 * alpha * torch.sigmoid(-sharpness * at_least_float32(distances.detach()))
    weights = weights.clone().fill_diagonal_(1.0)
    return weights / weights.sum(1, keepdim=True)


def within_modality(*embeddings: Tensor, temperature: float) -> Tensor:
    """Returns soft labels for CLIP: the softmax of similarities [B, B] within a modality, or of their mean over several.

    Args:
        embeddings: [B, D] raw rows of each modality, of one encoder or of several; no gradient flows to them.
        temperature: that divides the similarities.

    Source: Gao et al. 2023, SoftCLIP, eq. 5 and 6.

    >>> within_modality(torch.eye(2), temperature=1.0)
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """
    units = [unit_rows(rows.detach())[0] for rows in embeddings]
    return soft_targets(torch.stack([unit @ unit.T for unit in units]).mean(0), temperature)


def read_targets(
    targets: object, blocks: Sequence[str], rows: int, device: torch.device, precision: torch.dtype, of_pairs: bool, alone: bool
) -> dict[str, Tensor]:
    """Returns the targets of each block, by its name, without gradient, in the type that ``precision`` is computed in.

    Those of ``ba`` are the transpose of those of ``ab``, of whose rows only the ratios count, unless the call gave a pair.

    Args:
        targets: of a call: [N, M], or a pair of them.
        blocks: names of the layout's blocks.
        rows: N.
        device: where they must be.
        precision: of the embeddings.
        of_pairs: whether they are the probability of each pair by itself, as of `sigmoid`, not that of a row's candidates.
        alone: whether no other process has rows of the transpose.

    Raises:
        TensorError: they are no dense floating-point tensors on the device.
        ShapeError: they are no matrix with ``rows`` rows, or a pair where the layout has one direction.
        NonFiniteError: they hold NaN or infinite values; on a GPU, where looking would wait for the device, nothing is asked.
        ConfigError: a number is below 0, or a row sums to another number than 0 and 1 (``of_pairs``: a number is above 1), not
            asked on a GPU either; or one tensor has to do for both directions, and others have its transpose's rows.
    """
    expected = rows, device, precision, of_pairs
    if not isinstance(targets, tuple | list) or not any(isinstance(item, Tensor) for item in targets):
        of_ab = _read("targets", targets, *expected)
        if len(blocks) > 1 and not alone:
            raise ConfigError(
                "targets= for both directions must be a pair with gather: (T_ab, T_ba), of this process's rows of view_a and "
                "of view_b, because other processes have rows of the transpose."
            )
        return dict(zip(blocks, (of_ab, of_ab[:, :rows].T), strict=False))
    if len(targets) != len(blocks) or len(blocks) != 2:
        raise ShapeError(
            f"targets holds {len(targets)} tensors, and the layout has directions {'+'.join(blocks)}: wanted one tensor, or a "
            "pair (T_ab, T_ba) with ab+ba."
        )
    return {name: _read(f"targets[{number}]", targets[number], *expected) for number, name in enumerate(blocks)}


def _read(name: str, given: object, rows: int, device: torch.device, precision: torch.dtype, of_pairs: bool) -> Tensor:
    """Returns the targets of one direction; the arguments and errors are those of `read_targets`."""
    targets = check_tensor("targets", given, device, name)
    if targets.ndim != 2 or targets.shape[0] != rows:
        raise ShapeError(f"{name} of shape {list(targets.shape)} must be [{rows}, M]: a row for each of view_a's.")
    targets = targets.detach().to(torch.promote_types(precision, torch.float32))
    if unread(targets.device) or not targets.numel():
        return targets
    lowest, highest = (extreme.item() for extreme in torch.aminmax(targets))
    if of_pairs:
        if not (lowest >= 0 and highest <= 1):
            check_finite(name, targets)
            number = lowest if lowest < 0 else highest
            raise ConfigError(f"{name} holds the number {number:g}; wanted the probability of each pair, from 0 to 1.")
        return targets
    sums = targets.sum(1)
    wrong = ~((sums - 1).abs() <= SUM_TOLERANCE) & (sums != 0)
    if not lowest >= 0 or bool(wrong.any()):
        check_finite(name, targets)
        row = int(wrong.to(torch.uint8).argmax())
        what = f"row {row} with the sum {float(sums[row]):g}" if lowest >= 0 else f"the number {lowest:g}"
        raise ConfigError(
            f"{name} holds {what}; wanted numbers of at least 0, each row with the sum 1, or 0 where it has no positive: "
            "divide rows by their sums, or take tempplug.targets.soft_targets(scores)."
        )
    return targets


def roles_of_targets(targets: Tensor, candidates: int, spans: Sequence[tuple[int, int]] = ()) -> PairRoles:
    """Returns the roles that targets [N, M] give, of as many candidates; a row that sums to 0 has no positive.

    Args:
        targets: of all candidates.
        candidates: M.
        spans: the first and the number of the candidates of each part of a block, if it has only some of them.

    Raises:
        ShapeError: M is another number than that of the candidates.
    """
    rows, columns = targets.shape
    if columns != candidates:
        raise ShapeError(
            f"targets of shape {[rows, columns]} must be [{rows}, {candidates}]: a column for each candidate, view_b's rows "
            "(with gather those of all processes), then the queue, then the hard negatives."
        )
    total = targets.sum(1) if spans else None
    if spans:
        targets = torch.cat([targets[:, start : start + size] for start, size in spans], 1)
    return PairRoles(anchors=rows, candidates=targets.shape[1], device=targets.device, targets=targets, total_of_targets=total)
