"""What a step looked like: turns the pieces that a loss call leaves behind into a `StepRecord`.

Built when somebody reads it, not in the training step, and always without gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tempplug.layouts import Direction
from tempplug.roles import PairRoles
from tempplug.strategies.maps import LogitMap
from tempplug.types import RowStatistics, StepRecord

SAMPLED_NEGATIVES = 4096


@dataclass(frozen=True, slots=True)
class Trace:
    """One direction of a call, detached.

    Attributes:
        direction: anchors, candidates and roles.
        logit_map: of the batch.
        statistics: of the rows.
    """

    direction: Direction
    logit_map: LogitMap
    statistics: RowStatistics


def _sample_negatives(trace: Trace) -> tuple[Tensor, Tensor]:
    """Returns the rows and columns of at most `SAMPLED_NEGATIVES` pairs, evenly spread, those that are negatives."""
    roles = trace.direction.roles
    width = roles.candidates - roles.negatives_start
    pairs = roles.anchors * width
    # A stride that shares a factor with the row length would visit few columns only.
    stride = -(-pairs // SAMPLED_NEGATIVES)
    while math.gcd(stride, width) > 1:
        stride += 1
    flat = torch.arange(0, pairs, stride, device=roles.device)
    rows, columns = flat // width, flat % width + roles.negatives_start
    negative = roles.negative(rows, columns)
    return rows[negative], columns[negative]


def _some_positives(roles: PairRoles) -> tuple[Tensor, Tensor]:
    """Returns rows and columns of the positives of evenly spread anchors, at most about a million pairs looked at."""
    stride = max(1, roles.anchors * roles.candidates >> 20)
    chosen = torch.arange(0, roles.anchors, stride, device=roles.device)
    columns = torch.arange(roles.candidates, device=roles.device)
    found, column = roles.positive(chosen[:, None], columns[None, :]).nonzero(as_tuple=True)
    return chosen[found], column


def _temperatures(trace: Trace) -> tuple[Tensor, Tensor]:
    """Returns the temperatures of positives and sampled negatives, and the similarities of the latter."""
    direction, roles = trace.direction, trace.direction.roles
    rows, columns = _sample_negatives(trace)
    negatives = (direction.anchors[rows] * direction.candidates[columns]).sum(1)
    found = [trace.logit_map.at(rows, columns, paired=True).temperature(negatives)]
    if roles.positives is not None:
        rows = torch.arange(roles.anchors, device=roles.device)
        columns = roles.positives.columns(rows)
    else:
        rows, columns = _some_positives(roles)
    positives = (direction.anchors[rows] * direction.candidates[columns]).sum(1)
    found.append(trace.logit_map.at(rows, columns, paired=True).temperature(positives))
    return torch.cat(found), negatives


@dataclass(slots=True)
class Step:
    """What a call leaves behind for whoever reads its record.

    Attributes:
        device: of the embeddings.
        traces: one per direction and head.
        row_losses: of each head, and which rows have a positive (None: all).
        zero_norm: which rows had no norm, for every input that held some.
        engine: that ran.
    """

    device: torch.device
    traces: list[Trace] = field(default_factory=list)
    row_losses: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    zero_norm: list[Tensor] = field(default_factory=list)
    engine: str = ""


@torch.no_grad()
def build_record(step: Step, floor_hits: Tensor) -> StepRecord:
    """Returns the record of a call.

    Args:
        step: what the call left behind.
        floor_hits: [] from the strategy.
    """
    traces = step.traces
    means = [losses.mean() if valid is None else losses.sum() / valid.sum() for losses, valid in step.row_losses]
    loss = means[0] if len(means) == 1 else torch.stack(means).sum()
    zero_norm_rows = torch.zeros((), dtype=torch.int64, device=step.device)
    for without_norm in step.zero_norm:
        zero_norm_rows = zero_norm_rows + without_norm.sum()
    sampled = [_temperatures(trace) for trace in traces]
    temperatures = torch.cat([temperature for temperature, _ in sampled])
    negatives = torch.cat([similarity for _, similarity in sampled])

    def over_rows(values: list[Tensor]) -> Tensor:
        kept = [value[trace.statistics.positive_count > 0] for value, trace in zip(values, traces, strict=True)]
        return torch.cat(kept).mean()

    statistics = [trace.statistics for trace in traces]
    scale = over_rows([torch.sigmoid(each.negative_lse - each.positive_lse) for each in statistics])
    return StepRecord(
        loss=loss,
        infonce=over_rows([torch.logaddexp(each.positive_lse, each.negative_lse) - each.positive_logit for each in statistics]),
        temperature_mean=temperatures.mean(),
        temperature_min=temperatures.min(),
        temperature_max=temperatures.max(),
        positive_similarity=over_rows([each.positive_similarity for each in statistics]),
        negative_similarity=negatives.mean(),
        positive_probability=1 - scale,
        gradient_scale=scale,
        zero_norm_rows=zero_norm_rows,
        floor_hits=floor_hits,
        finite=torch.isfinite(loss),
        engine=step.engine,
    )
