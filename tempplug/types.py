"""What crosses module borders: the words that choose a part of the loss, and records: what a strategy sees, what an engine
returns, what a step reports.

Shapes: N local anchors, G anchors of all processes (G = N without gathering), M candidates, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor

from tempplug.pair_functions import PairFunction

if TYPE_CHECKING:
    from tempplug.logit_map import LogitMap

    Function = TypeVar("Function", bound=Callable[..., Any])

    def with_signature_of(function: Function) -> Callable[[Callable[..., Any]], Function]:
        """Gives a method another one's signature: `nn.Module` declares a call of anything that returns anything."""


ObjectiveName = Literal["infonce", "dcl", "dclw", "flatnce", "reweighted", "dual-temperature", "amcl-top", "sogclr", "sigmoid"]
"""Built-in objectives by name, see `tempplug.objectives`."""
LayoutName = Literal["two-view", "cross-view", "queue", "labels", "masks"]
"""Pair layouts by name, see `tempplug.layouts`."""
Reduction = Literal["mean", "sum", "none"]
"""What `tempplug.ContrastiveLoss` makes of the losses of the anchors."""
Gather = bool | Literal["ring"]
"""Whether a loss compares with the candidates of all processes, and ``ring`` for those of one after the other."""
EngineName = Literal["auto", "dense", "tiled", "triton"]
"""Engines by name, and ``auto`` for the fastest that can do a block; see `tempplug.engine.dispatch`."""


@dataclass(slots=True)
class Batch:
    """What a strategy may read before it chooses a logit map.

    Attributes:
        positive_similarity: [G] each anchor's mean cosine similarity over its positives, detached; anchors without a positive
            are left out.
        anchors: [N, D] unit rows; None of scores that the caller computed, as ``candidates``.
        candidates: [M, D] unit rows, of all processes.
        labels: [N] class of each anchor, None unless given, as the next two.
        index: [N] position of each anchor in the data set.
        uncertainty: [N] the learned scalar of each anchor (TaU).
        of_view_a: how many of the anchors, the first ones, are rows of view_a; None: all.
        groups: [N] group of each anchor, such as its data set; None unless given.
    """

    positive_similarity: Tensor
    anchors: Tensor | None = None
    candidates: Tensor | None = None
    labels: Tensor | None = None
    index: Tensor | None = None
    uncertainty: Tensor | None = None
    of_view_a: int | None = None
    groups: Tensor | None = None

    @property
    def mean_positive_similarity(self) -> Tensor:
        """The mean of ``positive_similarity``, []; with masks or labels on a GPU it alone does not wait for the device."""
        return self.positive_similarity.mean()

    @property
    def device(self) -> torch.device:
        """Where a map computes."""
        return self.positive_similarity.device

    @property
    def dtype(self) -> torch.dtype:
        """In which type a map computes."""
        return self.positive_similarity.dtype


@dataclass(slots=True)
class Wanted:
    """Statistics that cost an engine more, computed only where a strategy or an objective reads them.

    Attributes:
        negative_similarity: the softmax-weighted mean similarity of the negatives.
        top: how many of the most similar negatives, 0 for none.
        pair_function: f of whose values the sums are wanted in place of log-sum-exps; None for the latter.
        negative_count: whether the negatives that terms leave in are counted; otherwise the count is that of the roles.
        needs_pairs: whether anything beside sums and counts is wanted.
    """

    negative_similarity: bool = False
    top: int = 0
    pair_function: PairFunction | None = None
    negative_count: bool = False
    needs_pairs: bool = field(init=False)

    def __post_init__(self) -> None:
        self.needs_pairs = self.negative_similarity or self.top > 0


NOTHING = Wanted()
"""The log-sum-exps alone."""


@dataclass(slots=True)
class RowStatistics:
    """The input of an objective: one number per anchor and quantity, in nats.

    Attributes:
        positive_logit: [N] mean logit over the anchor's positives (0 where it has none).
        positive_similarity: [N] mean similarity over the anchor's positives (0 where it has none).
        positive_lse: [N] log-sum-exp of the logits of the positives.
        negative_lse: [N] log-sum-exp of the logits of the negatives, -inf where there are none, or where terms of negatives
            leave them all out. Where the objective has a ``pair_function`` f, this is the sum of f(l) over the negatives
            instead, and ``positive_lse`` that of f(-l) over the positives, with ``targets`` t of t·f(-l) + (1 - t)·f(l).
        positive_count: [N] number of the anchor's positives.
        negative_count: [N] number of the anchor's negatives that no term leaves out; one with a weight between 0 and 1 counts
            as one. Where no part of the loss reads it (`tempplug.Objective.reads_negative_count`), it does not ask the terms.
        negative_similarity: [N] softmax-weighted mean similarity of the negatives, only where it is wanted.
        top_logits: [N, k] logits of the anchor's k most similar negatives, most similar first, only where they are wanted.
            Of an anchor with fewer negatives, only the first ``negative_count`` count.
    """

    positive_logit: Tensor
    positive_similarity: Tensor
    positive_lse: Tensor
    negative_lse: Tensor
    positive_count: Tensor
    negative_count: Tensor
    negative_similarity: Tensor | None = None
    top_logits: Tensor | None = None

    def detached(self) -> RowStatistics:
        """Returns the same numbers without gradient."""
        positive = self.positive_logit.detach()
        return RowStatistics(
            positive,
            self.positive_similarity.detach(),
            positive if self.positive_lse is self.positive_logit else self.positive_lse.detach(),
            self.negative_lse.detach(),
            self.positive_count,
            self.negative_count,
            None if self.negative_similarity is None else self.negative_similarity.detach(),
            None if self.top_logits is None else self.top_logits.detach(),
        )


@dataclass(slots=True)
class Auxiliary:
    """What some objectives need beside the statistics of their rows.

    Attributes:
        positive_similarity: [G] as in `Batch`.
        second: the statistics of a second pass without gradient, where `tempplug.Objective.reference_map` returned a map.
        observed: [N] what `tempplug.Objective.observe` returned; None in evaluation mode.
    """

    positive_similarity: Tensor
    second: RowStatistics | None = None
    logit_map: LogitMap | None = None
    observed: Tensor | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What the last call of the loss looked like: detached scalars (tensors), converted to numbers only when logged.

    Temperatures are taken over all positives and a strided sample of at most 4,096 negatives. What there is nothing of (the
    similarity of negatives in a batch of one, what a softmax gives under an objective with a ``pair_function``, distances of
    scores that the caller computed) is NaN.

    Attributes:
        loss: mean of the objective's row losses over this process's anchors that have one; summed over heads.
        infonce: mean InfoNCE of the same logits, comparable across strategies (MACL's own value never falls below 1).
        temperature_mean: mean temperature.
        temperature_min: smallest temperature.
        temperature_max: largest temperature.
        temperature_at_bound: share of the temperatures that lie on a bound of the strategy, where they adapt no longer, in
            [0, 1]; 0 for strategies without bounds.
        positive_similarity: mean cosine similarity of the positives.
        negative_similarity: mean cosine similarity of the sampled negatives.
        alignment: mean squared distance of an anchor from its positives, as of `tempplug.metrics.alignment`; lower is closer.
        uniformity: ln of the mean Gaussian potential of the sampled negatives, as of `tempplug.metrics.uniformity`; lower is
            more spread.
        positive_probability: mean softmax probability of the positives; with ``targets`` t of a row what it shares with its
            probabilities p, Σ min(t, p), of some anchors (NaN in a ring).
        gradient_scale: mean W = 1 - positive probability, the factor of InfoNCE's gradient; with targets half of Σ |p - t|.
        effective_negatives: how many negatives an anchor's gradient comes from, mean over some anchors; see
            `tempplug.metrics.effective_negatives`.
        zero_norm_rows: embeddings with zero norm among anchors and candidates.
        anchors_without_negative: how many anchors had no negative.
        negatives_left_out: share of the sampled negatives that terms on negatives left out, in [0, 1]; NaN without terms.
        negative_weight: mean weight that those terms gave the rest; NaN without terms.
        floor_hits: how often the strategy's temperature ran into its floor so far (MACL).
        finite: whether the loss is finite.
        engine: the engine that ran.
        learned: numbers that the objective learns, as they were in the call, by their names behind ``objective_``; see
            `tempplug.Objective.learned`.
    """

    loss: Tensor
    infonce: Tensor
    temperature_mean: Tensor
    temperature_min: Tensor
    temperature_max: Tensor
    temperature_at_bound: Tensor
    positive_similarity: Tensor
    negative_similarity: Tensor
    alignment: Tensor
    uniformity: Tensor
    positive_probability: Tensor
    gradient_scale: Tensor
    effective_negatives: Tensor
    zero_norm_rows: Tensor
    anchors_without_negative: Tensor
    negatives_left_out: Tensor
    negative_weight: Tensor
    floor_hits: Tensor
    finite: Tensor
    engine: str
    learned: Mapping[str, Tensor] = field(default_factory=dict)

    def numbers(self) -> dict[str, float]:
        """Returns the scalars as Python floats, by field name or that in ``learned``; waits for the device that holds them.

        What this batch had nothing of is left out; the loss is always there.
        """
        names = [attribute.name for attribute in fields(self) if attribute.name not in ("engine", "learned")]
        tensors = {name: getattr(self, name) for name in names} | dict(self.learned)
        values = {name: float(tensor) for name, tensor in tensors.items()}
        return {name: value for name, value in values.items() if name == "loss" or not math.isnan(value)}

    def to_dict(self) -> dict[str, float | str]:
        """Returns `numbers` and the name of the engine."""
        return {**self.numbers(), "engine": self.engine}
