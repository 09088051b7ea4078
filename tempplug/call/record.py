"""What a step looked like: turns the pieces that a loss call leaves behind into a `StepRecord`.

Built when it is read, not in the training step, and always without gradient. Reading may wait for the device.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tempplug.block import Block
from tempplug.call.between_calls import Unchanged
from tempplug.logit_map import LogitMap
from tempplug.metrics import effective_negatives
from tempplug.roles import PairRoles
from tempplug.strategies.base import Strategy
from tempplug.types import RowStatistics, StepRecord

SAMPLED_NEGATIVES = 4096
PAIRS_OF_WHOLE_ROWS = 1 << 16
# Learned temperatures come as close to a bound as one looks: what is nearer than this, relative to the bound, is on it.
ON_BOUND = 0.01
NEARLY_ALL = 0.99


def _sample_negatives(block: Block) -> tuple[Tensor, Tensor]:
    """Returns the rows and columns of at most `SAMPLED_NEGATIVES` pairs, evenly spread, those that are negatives."""
    roles = block.roles
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
    row, column = roles.positive(chosen[:, None], columns[None, :]).nonzero(as_tuple=True)
    return chosen[row], column


def _temperatures(block: Block) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the temperatures of positives and sampled negatives, the similarities of the latter, and their terms."""
    roles = block.roles
    rows, columns = _sample_negatives(block)
    negatives = block.similarity(rows, columns)
    if block.excluded:
        there = block.term(block.excluded, rows, columns, negatives, True) == 0
        rows, columns, negatives = rows[there], columns[there], negatives[there]
    terms = block.term(block.terms, rows, columns, negatives, True)
    temperatures = [block.logit_map.restrict(rows, columns, paired=True).temperature(negatives)]
    if block.statistics is None:
        return temperatures[0], negatives, terms
    if roles.positives is not None:
        rows = torch.arange(roles.anchors, device=roles.device)
        columns = roles.positive_columns
    else:
        rows, columns = _some_positives(roles)
    positives = block.similarity(rows, columns)
    temperatures.append(block.logit_map.restrict(rows, columns, paired=True).temperature(positives))
    return torch.cat(temperatures), negatives, terms


def _some_rows(block: Block) -> tuple[Tensor, Tensor, Tensor, LogitMap]:
    """Returns evenly spread anchors [R], all candidates [M], their similarities [R, M], and the map of these."""
    roles = block.roles
    looked_at = max(1, PAIRS_OF_WHOLE_ROWS // max(1, roles.candidates))
    rows = torch.arange(0, roles.anchors, -(-roles.anchors // looked_at), device=roles.device)
    columns = torch.arange(roles.candidates, device=roles.device)
    similarity = block.anchors[rows] @ block.candidates.T if block.scores is None else block.scores[rows]
    return rows, columns, similarity, block.logit_map.restrict(rows, slice(None))


def _distances(block: Block, targets: Tensor) -> Tensor:
    """Returns half of Σ_j |p_ij - t_ij|, 1 - p of a single positive, of evenly spread anchors with a positive."""
    rows, columns, similarity, bound = _some_rows(block)
    logits, wanted = bound.logit(similarity), targets[rows]
    if block.terms or block.excluded:
        terms = block.term(block.terms + block.excluded, rows, columns, similarity, False)
        logits = logits + terms.masked_fill(wanted > 0, 0.0)
    some = wanted.sum(1) > 0
    return (logits[some].softmax(1) - wanted[some] / wanted[some].sum(1, keepdim=True)).abs().sum(1) / 2


def _effective_negatives(block: Block) -> Tensor:
    """Returns how many negatives an anchor's gradient comes from, mean over evenly spread anchors, []."""
    rows, columns, similarity, bound = _some_rows(block)
    # InfoNCE pushes a negative away with exp(l)·dl/ds, over a sum that all of the row share
    weights = bound.logit(similarity) + bound.slope(similarity).abs().log()
    if block.terms or block.excluded:
        weights = weights + block.term(block.terms + block.excluded, rows, columns, similarity, False)
    return effective_negatives(weights.masked_fill(~block.roles.negative(rows[:, None], columns[None, :]), -torch.inf))


@torch.no_grad()
def describe_temperatures(strategy: Strategy, temperatures: Tensor) -> dict[str, Tensor]:
    """Returns the fields of a record about temperatures, and warns once where nearly all lie on a bound of the strategy."""
    if not len(temperatures):
        temperatures = temperatures.new_full((1,), torch.nan)
    at_bound = torch.zeros_like(temperatures, dtype=torch.bool)
    on_bounds = []
    for name, bound in strategy.bounds().items():
        on_this = (temperatures - bound).abs() <= ON_BOUND * bound
        at_bound |= on_this
        on_bounds.append((name, bound, on_this))
    share = at_bound.to(temperatures.dtype).mean()
    if on_bounds and not strategy.warned_of_bounds and float(share) > NEARLY_ALL:
        strategy.warned_of_bounds = True
        shares = " and ".join(
            f"{float(on.to(share).mean()):.1%} on {name}={bound:g}" for name, bound, on in on_bounds if on.any()
        )
        warnings.warn(
            f"strategy '{strategy.name}': nearly all temperatures lie on a bound, where they no longer adapt: {shares}. "
            f"To let them adapt, {strategy.remedy}.",
            RuntimeWarning,
            stacklevel=2,
        )
    return {
        "temperature_mean": temperatures.mean(),
        "temperature_min": temperatures.min(),
        "temperature_max": temperatures.max(),
        "temperature_at_bound": share,
    }


@dataclass(slots=True)
class Step:
    """What a call keeps for its record.

    Attributes:
        unchanged: labels and masks of the call; None where it had none.
        blocks: of all heads, without gradient.
        row_losses: of each head, and which rows have a positive (None: all).
        zero_norm: which rows had no norm, for every input that held some.
        sums: whether statistics hold sums of a pair function, of which there is no softmax.
    """

    unchanged: Unchanged | None
    blocks: list[Block] = field(default_factory=list)
    row_losses: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    zero_norm: list[Tensor] = field(default_factory=list)
    engine: str = ""
    learned: dict[str, Tensor] = field(default_factory=dict)
    sums: bool = False


def _without_negatives(statistics: RowStatistics, sums: bool) -> Tensor:
    none = statistics.negative_count == 0
    return none if sums else none | (statistics.negative_lse == -torch.inf)


def _total(counts: list[Tensor], device: torch.device) -> Tensor:
    return torch.stack([torch.zeros((), dtype=torch.int64, device=device), *counts]).sum()


@torch.no_grad()
def build_record(step: Step, strategy: Strategy) -> StepRecord:
    """Returns the record of a call; raises `RuntimeError` where labels or masks were changed in place since the call."""
    if step.unchanged is not None:
        step.unchanged.check("record")
    means = [losses.mean() if valid is None else losses.sum() / valid.sum().clamp(min=1) for losses, valid in step.row_losses]
    loss = means[0] if len(means) == 1 else torch.stack(means).sum()
    nothing, device = loss.new_empty(0), loss.device
    sampled = [_temperatures(block) for block in step.blocks]
    negatives = torch.cat([nothing, *(similarity for _, similarity, _ in sampled)])
    terms = torch.cat([nothing, *(term for (*_, term), block in zip(sampled, step.blocks, strict=True) if block.terms)])
    with_rows = [(block, block.statistics) for block in step.blocks if block.statistics is not None]

    def over_rows(values: list[Tensor], of_softmax: bool = False) -> Tensor:
        if of_softmax and step.sums:
            return loss.new_full((), math.nan)
        with_positive = [value[rows.positive_count > 0] for value, (_, rows) in zip(values, with_rows, strict=True)]
        return torch.cat([nothing, *with_positive]).mean()

    statistics = [rows for _, rows in with_rows]
    positive = over_rows([rows.positive_similarity for rows in statistics])
    potentials = 4 * (negatives - 1)  # -2·‖x - y‖² of unit rows
    nan, distances = loss.new_full((), math.nan), all(block.scores is None for block in step.blocks)
    effective = [] if step.sums else [_effective_negatives(block) for block in step.blocks]
    scale = over_rows([torch.sigmoid(rows.negative_lse - rows.positive_lse) for rows in statistics], of_softmax=True)
    of_targets = [(block, block.roles.targets) for block in step.blocks if block.roles.targets is not None and not step.sums]
    if of_targets:  # in a ring, no process has all candidates of a row
        ring = any(block.roles.total_of_targets is not None for block, _ in of_targets)
        scale = nan if ring else torch.cat([_distances(block, targets).to(nothing) for block, targets in of_targets]).mean()
    infonce = [torch.logaddexp(rows.positive_lse, rows.negative_lse) - rows.positive_logit for rows in statistics]
    return StepRecord(
        loss=loss,
        infonce=over_rows(infonce, of_softmax=True),
        **describe_temperatures(strategy, torch.cat([nothing, *(temperature for temperature, *_ in sampled)])),
        positive_similarity=positive,
        negative_similarity=negatives.mean(),
        alignment=2 - 2 * positive if distances else nan,
        uniformity=potentials.logsumexp(0) - math.log(len(negatives)) if distances and len(negatives) else nan,
        positive_probability=1 - scale,
        gradient_scale=scale,
        effective_negatives=torch.cat([nothing, *(count.reshape(1).to(nothing) for count in effective)]).nanmean(),
        zero_norm_rows=_total([mask.sum() for mask in step.zero_norm], device),
        anchors_without_negative=_total([_without_negatives(rows, step.sums).sum() for rows in statistics], device),
        negatives_left_out=(terms == -torch.inf).to(loss.dtype).mean(),
        negative_weight=terms[terms > -torch.inf].exp().mean(),
        floor_hits=getattr(strategy, "floor_hits", torch.zeros((), dtype=torch.int64, device="cpu")).detach().clone(),
        finite=torch.isfinite(loss),
        engine=step.engine,
        learned={f"objective_{name}": number for name, number in step.learned.items()},
    )
