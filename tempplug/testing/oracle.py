"""The oracle: every strategy, objective and layout again, in float64, dense, straight from the papers' formulas.

It is slow on purpose: the whole similarity matrix, boolean masks, one log-sum-exp a row, gradients by autograd. The fast
engines are tested against it, so it must not know them, nor the strategies, objectives, layouts or the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tempplug.errors import ConfigError
from tempplug.testing.oracle_layouts import Direction, Uncertainty, directions, unit_rows
from tempplug.testing.oracle_logits import SCALAR_STRATEGIES, oracle_logit

# Those that are defined by the mean logit and the log-sum-exp of the positives; the others weigh the one positive.
SEVERAL_POSITIVES = ("infonce", "dcl", "flatnce", "sigmoid")
# Those whose formula holds without a negative: the positive is all that its anchor can be told from.
WITHOUT_NEGATIVES = ("infonce", "sigmoid")


def _softplus(d: Tensor) -> Tensor:
    """Returns ln(1 + e^d) without the cut-off at d = 20 that torch's own makes."""
    return -F.logsigmoid(-d)


def _per_gradient_scale(d: Tensor) -> Tensor:
    """Returns softplus(d)/σ(d) with the gradient of d: V = sg[1/W] times InfoNCE, whose gradient is W·∇d.

    Below d = -30 numerator and denominator agree to 1 + e^d/2, and their quotient ends in 0/0.
    """
    frozen = d.detach()
    value = torch.where(frozen < -30, 1 + frozen.exp() / 2, _softplus(frozen) / torch.sigmoid(frozen))
    return value + (d - frozen)


class _Rows:
    """The quantities of one direction, for the anchors that its objective has a loss for.

    Attributes:
        kept: which those are: the ones with a positive, and, unless the objective is defined without them, with a negative.
        everyone: the mean similarity of each anchor with a positive to its positives, frozen.
        positive_similarity: the same of those that are kept.
    """

    def __init__(self, direction: Direction, objective: str) -> None:
        paired = direction.positive.any(dim=1)
        self.kept = paired & (direction.negative.any(dim=1) | (objective in WITHOUT_NEGATIVES))
        self.similarity = direction.anchors @ direction.candidates.T
        self.positive = direction.positive
        of_all = self._mean(self.similarity).detach()
        self.everyone, self.positive_similarity = of_all[paired], of_all[self.kept]
        self.positive = direction.positive[self.kept]
        self.negative = direction.negative[self.kept]

    def _mean(self, values: Tensor) -> Tensor:
        return torch.where(self.positive, values, 0.0).sum(dim=1) / self.positive.sum(dim=1)

    def read(self, logits: Tensor) -> None:
        """Takes the logits of the whole matrix: first the map, then the masks."""
        logits = logits[self.kept]
        self.positive_logit = self._mean(logits)
        self.positive_lse = torch.logsumexp(logits.masked_fill(~self.positive, -torch.inf), dim=1)
        self.negative_lse = torch.logsumexp(logits.masked_fill(~self.negative, -torch.inf), dim=1)
        self.d = self.negative_lse - self.positive_logit
        self.logits = logits

    def top_mean(self, count: int) -> Tensor:
        """Returns the mean logit of the ``count`` most similar negatives of each row, of all where it has fewer."""
        means = []
        for similarity, negative, logits in zip(self.similarity[self.kept], self.negative, self.logits, strict=True):
            order = sorted(negative.nonzero().flatten().tolist(), key=lambda each: -float(similarity[each].detach()))[:count]
            means.append(logits[order].mean())
        return torch.stack(means)


def _objective(name: str, rows: _Rows, second: Tensor | None, options: Mapping[str, Any]) -> Tensor:
    """Returns the loss of each anchor with a positive; ``second`` are the frozen d of the second temperature."""
    d = rows.d
    if name == "infonce":
        # logaddexp(positive_lse, negative_lse) - positive_logit, without the cancellation
        return _softplus(rows.negative_lse - rows.positive_lse) + (rows.positive_lse - rows.positive_logit)
    if name == "dcl":
        return d
    if name == "dclw":
        sigma = options.get("sigma", 0.5)
        highest = rows.everyone.max()
        mean = ((rows.everyone - highest) / sigma).exp().mean()
        weight: Tensor = 2 - ((rows.positive_similarity - highest) / sigma).exp() / mean
        return rows.negative_lse - weight * rows.positive_logit
    if name == "flatnce":
        return torch.exp(d - d.detach())
    if name == "reweighted":
        return _per_gradient_scale(d)
    if name == "dual-temperature" and second is not None:
        return torch.sigmoid(second) * _per_gradient_scale(d)
    if name == "amcl-top":
        return rows.top_mean(options["top_k"]) - rows.positive_logit
    raise ConfigError(f"objective='{name}' is unknown to the oracle.")


def _sigmoid(rows: _Rows, strategy: str, bias: Tensor | None, options: Mapping[str, Any], logit_of: Any) -> Tensor:
    """Returns Σ -ln σ(l + b) over the positives and Σ -ln σ(-(l + b)) over the negatives of each anchor."""
    relative = options.get("relative_bias", False)
    if bias is None:
        bias = torch.tensor(options.get("initial_bias", 1 if relative else -10), dtype=torch.float64)
    if relative and strategy not in SCALAR_STRATEGIES:
        raise ConfigError(f"relative_bias=True: strategy '{strategy}' has no single scale.")
    logits = rows.logits + (-bias * logit_of(torch.ones(1, 1, dtype=torch.float64)) if relative else bias)
    pairs = torch.where(rows.positive, F.logsigmoid(logits), 0.0) + torch.where(rows.negative, F.logsigmoid(-logits), 0.0)
    return -pairs.sum(dim=1)


def _second_temperature(strategy: str, options: Mapping[str, Any], logit_of: Any) -> float:
    """Returns the option, or ten times the one temperature of the strategy."""
    given = options.get("second_temperature")
    if given is not None:
        return float(given)
    if strategy not in SCALAR_STRATEGIES:
        raise ConfigError(f"second_temperature=None: strategy '{strategy}' has no single temperature to take ten times.")
    return 10 / float(logit_of(torch.ones(1, 1, dtype=torch.float64)).detach())


def _direction_losses(
    direction: Direction,
    strategy: str,
    strategy_options: Mapping[str, Any],
    objective: str,
    objective_options: Mapping[str, Any],
    epoch: float,
    learned: Sequence[Tensor],
    bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    if objective not in SEVERAL_POSITIVES and bool((direction.positive.sum(dim=1) > 1).any()):
        raise ConfigError(f"objective '{objective}' has no form for several positives.")
    rows = _Rows(direction, objective)
    losses = torch.zeros(len(direction.anchors), dtype=torch.float64)
    if not bool(rows.kept.any()):
        return losses + 0 * rows.similarity.sum(), rows.kept
    if objective == "amcl-top":
        strategy_options = {**strategy_options, "beta": objective_options["beta"]}

    def logit_of(similarity: Tensor) -> Tensor:
        return oracle_logit(
            strategy,
            similarity,
            positive_similarity=rows.everyone,
            labels=direction.labels,
            uncertainty=direction.uncertainty,
            epoch=epoch,
            learned=learned,
            anchors=direction.anchors,
            candidates=direction.candidates,
            **strategy_options,
        )

    second = None
    if objective == "dual-temperature":
        rows.read(rows.similarity / _second_temperature(strategy, objective_options, logit_of))
        second = rows.d.detach()
    rows.read(logit_of(rows.similarity))
    if objective == "sigmoid":
        found = _sigmoid(rows, strategy, bias, objective_options, logit_of)
    else:
        found = _objective(objective, rows, second, objective_options)
    return losses.masked_scatter(rows.kept, found), rows.kept


def oracle_row_losses(
    view_a: Tensor,
    view_b: Tensor | None = None,
    *,
    strategy: str = "fixed",
    strategy_options: Mapping[str, Any] | None = None,
    objective: str = "infonce",
    objective_options: Mapping[str, Any] | None = None,
    layout: str = "two-view",
    symmetric: bool = False,
    queue: Tensor | None = None,
    hard_negatives: Tensor | None = None,
    labels: Tensor | None = None,
    uncertainty: Uncertainty | None = None,
    positive_mask: Tensor | None = None,
    negative_mask: Tensor | None = None,
    epoch: float = 0.0,
    learned: Sequence[Tensor] = (),
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the loss of every anchor, 0 where it has none, and which anchors have one.

    An anchor has a loss where it has a positive and, under every objective but ``infonce`` and ``sigmoid``, a negative. Of a
    symmetric layout it is the mean over the directions in which it has one.

    Args:
        view_a: [B, D] raw embeddings, the anchors of every layout.
        view_b: [B, D] raw embeddings, or [M, D] candidates for the layout ``masks``.
        strategy: name of a strategy, see `oracle_logit`.
        strategy_options: its options.
        objective: name of an objective.
        objective_options: its options.
        layout: ``two-view``, ``cross-view``, ``queue``, ``labels`` or ``masks``.
        symmetric: for ``cross-view``, the average of both directions.
        queue: [K, D] past candidates.
        hard_negatives: [H, D] or [B, k, D] negatives of every view_a anchor.
        labels: [B] class of each row; in both views the same.
        uncertainty: [B] scalar of each anchor; a pair of them where both views are anchors.
        positive_mask: [N, M] boolean, for ``masks``.
        negative_mask: [N, M] boolean, for ``masks``; a pair in neither is ignored.
        epoch: epochs done, for schedules.
        learned: the parameters of the strategy, see `oracle_logit`.
        bias: [1] what ``sigmoid`` has learned; None: its initial bias.

    Returns:
        losses: float64, [2B] for ``two-view`` and ``labels`` with two views, [B] otherwise; differentiable.
        kept: boolean, the same shape.

    Raises:
        ConfigError: unknown names, or an input that the layout or the strategy needs is missing.
    """
    a, b, past, hard = (None if rows is None else unit_rows(rows) for rows in (view_a, view_b, queue, hard_negatives))
    if a is None:
        raise ConfigError("view_a=None: the oracle needs anchors.")
    found = directions(layout, symmetric, a, b, past, labels, uncertainty, positive_mask, negative_mask)
    found[0] = found[0].with_hard_negatives(None if hard is None else hard.flatten(0, -2), len(a))
    results = [
        _direction_losses(each, strategy, strategy_options or {}, objective, objective_options or {}, epoch, learned, bias)
        for each in found
    ]
    kept = torch.stack([kept for _, kept in results]).sum(dim=0)
    return torch.stack([losses for losses, _ in results]).sum(dim=0) / kept.clamp(min=1), kept > 0


def oracle_loss(
    view_a: Tensor,
    view_b: Tensor | None = None,
    *,
    reduction: Literal["mean", "none"] = "mean",
    **arguments: Any,
) -> Tensor:
    """Returns the loss: the mean over the anchors that have one, or with ``reduction="none"`` one loss an anchor.

    Args:
        view_a: see `oracle_row_losses`.
        view_b: see `oracle_row_losses`.
        reduction: ``mean`` or ``none``.
        **arguments: everything else that `oracle_row_losses` takes.

    Raises:
        ConfigError: see `oracle_row_losses`.

    Two views, one negative direction each: the NT-Xent of orthogonal pairs at τ = 0.5 is ln(1 + 2e^-2).

    >>> pairs = torch.eye(2)
    >>> oracle_loss(pairs, pairs, strategy_options={"temperature": 0.5})
    tensor(0.2395, dtype=torch.float64)
    """
    losses, kept = oracle_row_losses(view_a, view_b, **arguments)
    return losses if reduction == "none" else losses.sum() / kept.sum().clamp(min=1)
