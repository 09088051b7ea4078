"""The oracle: every strategy, objective, term on negatives and layout again, in float64, dense, from the papers' formulas.

It is slow on purpose: the whole similarity matrix, boolean masks, one log-sum-exp a row, gradients by autograd. The fast
engines are tested against it, so it must not know them, nor the strategies, objectives, terms, layouts or the loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tempplug.errors import ConfigError
from tempplug.testing.oracle_blocks import Direction, Uncertainty, debiased_lse, directions, of_rows, oracle_term, unit_rows
from tempplug.testing.oracle_logits import ROW_STRATEGIES, SCALAR_STRATEGIES, oracle_logit

Negatives = Mapping[str, Mapping[str, Any]]
# Those that are defined by the mean logit and the log-sum-exp of the positives; the others weigh the one positive.
SEVERAL_POSITIVES = ("infonce", "dcl", "flatnce", "sigmoid", "sogclr")
# Those whose formula holds without a negative.
WITHOUT_NEGATIVES = ("infonce", "sigmoid")


def _softplus(d: Tensor) -> Tensor:
    """Returns ln(1 + e^d) without the cut-off at d = 20 that torch's own makes."""
    return -F.logsigmoid(-d)


def _per_gradient_scale(d: Tensor) -> Tensor:
    """Returns softplus(d)/σ(d) with the gradient of d: sg[1/W]·InfoNCE, whose own gradient is W·∇d; a series below -30."""
    frozen = d.detach()
    value = torch.where(frozen < -30, 1 + frozen.exp() / 2, _softplus(frozen) / torch.sigmoid(frozen))
    return value + (d - frozen)


class _Rows:
    """The quantities of one softmax, for the anchors that its objective has a loss for (``valid``).

    ``everyone`` is the mean similarity of each anchor with a positive to its positives, frozen; ``positive_similarity`` is the
    same of those that are kept.
    """

    def __init__(self, blocks: Sequence[Direction], objective: str, negatives: Negatives, arguments: Mapping[str, Any]) -> None:
        first = blocks[0]
        similarities = [block.anchors @ block.candidates.T for block in blocks]
        term = torch.cat([oracle_term(negatives, block, first, arguments) for block in blocks], dim=1)
        positive, negative = (torch.cat([getattr(block, of) for block in blocks], 1) for of in ("positive", "negative"))
        negative = negative & (term > -torch.inf)  # one that is left out does not count
        count = negative.sum(dim=1)
        paired = first.positive.any(dim=1)
        self.valid = valid = paired & (negative.any(dim=1) | (objective in WITHOUT_NEGATIVES))
        self.similarity = torch.cat(similarities, dim=1)
        self.first = first.positive.double() if first.share is None else first.share
        of_all = self._mean(similarities[0]).detach()
        self.everyone, self.positive_similarity = of_all[paired], of_all[valid]
        self.first, self.positive, self.negative = self.first[valid], positive[valid], negative[valid]
        self.share = self.positive.double() if first.share is None else self.first
        self.term, self.count = term.masked_fill(term == -torch.inf, 0.0)[valid], count[valid]
        self.debiased = negatives.get("debiased")

    def _mean(self, values: Tensor) -> Tensor:
        """Returns the mean over the positives of the first block, which each loss is about."""
        values = values[:, : self.first.shape[1]]
        return (self.first * values).sum(dim=1) / self.first.sum(dim=1)

    def read(self, logits: Tensor, lowest: Tensor, of_positives: Tensor | None = None) -> None:
        """Takes the logits of the whole matrix, first the map, then the masks; and those of the similarity -1.

        ``of_positives`` are the logits that count at positives, where they are others.
        """
        logits = logits[self.valid]
        of_positives = logits if of_positives is None else of_positives[self.valid]
        self.positive_logit = self._mean(of_positives)
        self.positive_lse = torch.logsumexp(of_positives.masked_fill(~self.positive, -torch.inf), dim=1)
        self.negative_lse = torch.logsumexp((logits + self.term).masked_fill(~self.negative, -torch.inf), dim=1)
        if self.debiased is not None:
            some, lse = self.negative.any(dim=1), self.negative_lse
            rows = torch.where(some, lse, 0.0), self._mean(logits), self.count, lowest[self.valid, 0]
            self.negative_lse = torch.where(some, debiased_lse(*rows, **self.debiased), lse)
        self.d = self.negative_lse - self.positive_logit
        self.logits = logits

    def top_mean(self, count: int) -> Tensor:
        """Returns the mean logit of the ``count`` most similar negatives of each row, of all where it has fewer."""
        means = []
        for similarity, negative, logits in zip(self.similarity[self.valid], self.negative, self.logits, strict=True):
            order = sorted(negative.nonzero().flatten().tolist(), key=lambda index: -float(similarity[index].detach()))[:count]
            means.append(logits[order].mean())
        return torch.stack(means)


def _with_margin(s: Tensor, positive: Tensor, *, margin: float = 0.0, margin_kind: str = "additive") -> Tensor:
    """Returns s - m at positives, or cos θ·cos m - sin θ·sin m, past θ + m = π s - m·sin m; elsewhere s."""
    cosine = s.where(positive, 0.0)
    sine = (1 - cosine * cosine).clamp(min=1e-300).sqrt()  # with the gradient 0 at ±1
    turned = cosine * math.cos(margin) - sine * math.sin(margin)
    past = torch.acos(cosine.detach().clamp(-1, 1)) > math.pi - margin
    angular = torch.where(past, cosine - margin * math.sin(margin), turned)
    return torch.where(positive, angular if margin_kind == "angular" else cosine - margin, s)


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
    """Returns Σ -t·ln σ(l + b) - (1 - t)·ln σ(-(l + b)) of each anchor; t of negatives is 0, of positives 1 or the target."""
    relative = options.get("relative_bias", False)
    if bias is None:
        bias = torch.tensor(options.get("initial_bias", 1 if relative else -10), dtype=torch.float64)
    if relative and strategy not in SCALAR_STRATEGIES:
        raise ConfigError(f"relative_bias=True: strategy '{strategy}' has no single scale.")
    logits = rows.logits + (-bias * logit_of(torch.ones_like(rows.similarity))[:1, :1] if relative else bias)
    of_negatives = F.logsigmoid(-(logits + rows.term))
    of_positives = rows.share * F.logsigmoid(logits) + (1 - rows.share) * F.logsigmoid(-logits)
    pairs = torch.where(rows.positive, of_positives, 0.0) + torch.where(rows.negative, of_negatives, 0.0)
    return -pairs.sum(dim=1)


def _sogclr(
    rows: _Rows,
    old: Tensor,
    temperature: Tensor,
    *,
    gamma: float = 0.9,
    eps: float = 0.0,
    rho: float = 0.0,
    relative: bool = True,
    **of_the_state: object,
) -> Tensor:
    """Returns τ·(ln(ε + u) + ρ) with the gradient of τ·g/sg(ε + u), and of the value along τ; ``old`` u is 0 where none is."""
    positive = rows.positive_logit
    g = (rows.negative_lse - positive if relative else rows.negative_lse).exp() / rows.count
    u = torch.where(old > 0, (1 - gamma) * old + gamma * g, g).detach() + eps
    value, source = torch.log(u) + rho, g / u
    if not relative:
        value, source = value - positive.detach(), source - positive
    return temperature * value + temperature.detach() * (source - source.detach())


def _second_temperature(options: Mapping[str, Any], scale: Tensor) -> float:
    """Returns the option, or ten times the strategy's one temperature; ``scale`` are its logits of the similarity 1."""
    option = options.get("second_temperature")
    return 10 / float(scale.detach().flatten()[0]) if option is None else float(option)


def _softmax_losses(
    blocks: Sequence[Direction],
    strategy: str,
    strategy_options: Mapping[str, Any],
    objective: str,
    objective_options: Mapping[str, Any],
    epoch: float,
    learned: Sequence[Tensor],
    negatives: Negatives,
    bias: Tensor | None,
    arguments: Mapping[str, Any],
) -> tuple[Tensor, Tensor]:
    """Returns the loss of each anchor of one softmax, and which have one."""
    if objective not in SEVERAL_POSITIVES and bool((blocks[0].positive.sum(dim=1) > 1).any()):
        raise ConfigError(f"objective '{objective}' has no form for several positives.")
    scalar = strategy in SCALAR_STRATEGIES or objective_options.get("second_temperature") is not None
    if objective == "dual-temperature" and not scalar:
        raise ConfigError(f"second_temperature=None: strategy '{strategy}' has no single temperature to take ten times.")
    if objective == "amcl-top" and (negatives or len(blocks) > 1):
        raise ConfigError("objective 'amcl-top' ranks the negatives of one block, without terms on them.")
    if objective == "sigmoid" and "debiased" in negatives:
        raise ConfigError("debiased estimates a sum of exp, which objective 'sigmoid' has not.")
    if strategy == "amcl" and "debiased" in negatives:
        raise ConfigError("debiased needs the smallest logit of a row, and strategy 'amcl' has one for each pair.")
    rows = _Rows(blocks, objective, negatives, arguments)
    losses = torch.zeros(len(blocks[0].anchors), dtype=torch.float64)
    if not bool(rows.valid.any()):
        return losses + 0 * rows.similarity.sum(), rows.valid
    if objective == "amcl-top":
        strategy_options = {**strategy_options, "beta": objective_options["beta"]}

    def logit_of(similarity: Tensor) -> Tensor:
        parts = torch.split(similarity, [len(block.candidates) for block in blocks], dim=1)
        logits = [
            oracle_logit(
                strategy,
                block_similarity,
                positive_similarity=rows.everyone,
                labels=block.labels,
                uncertainty=block.uncertainty,
                epoch=epoch,
                learned=learned,
                anchors=block.anchors,
                candidates=block.candidates,
                groups=of_rows(arguments, "groups", block.sources[0]) if strategy == "by-group" else None,
                **strategy_options,
            )
            for block_similarity, block in zip(parts, blocks, strict=True)
        ]
        return torch.cat(logits, dim=1)

    lowest, second = torch.full_like(rows.similarity, -1.0), None
    if objective == "dual-temperature":
        temperature = _second_temperature(objective_options, logit_of(-lowest))
        rows.read(rows.similarity / temperature, lowest / temperature)
        second = rows.d.detach()
    of_positives = None
    if objective == "infonce" and objective_options.get("margin"):
        positive = torch.cat([block.positive for block in blocks], 1)
        of_positives = logit_of(_with_margin(rows.similarity, positive, **objective_options))
    rows.read(logit_of(rows.similarity), logit_of(lowest), of_positives)
    if objective == "sogclr":
        if blocks[0].averages is None:
            raise ConfigError("averages=None: the oracle of objective 'sogclr' needs them.")
        scale = logit_of(torch.ones_like(rows.similarity)) if strategy in (*SCALAR_STRATEGIES, *ROW_STRATEGIES) else None
        own = torch.ones((), dtype=torch.float64) if scale is None else 1 / scale[rows.valid, 0]
        row_losses = _sogclr(rows, blocks[0].averages[rows.valid].double(), own, **objective_options)
    elif objective == "sigmoid":
        row_losses = _sigmoid(rows, strategy, bias, objective_options, logit_of)
    else:
        row_losses = _objective(objective, rows, second, objective_options)
    return losses.masked_scatter(rows.valid, row_losses), rows.valid


def oracle_row_losses(
    view_a: Tensor,
    view_b: Tensor | None = None,
    *,
    strategy: str = "fixed",
    strategy_options: Mapping[str, Any] | None = None,
    objective: str = "infonce",
    objective_options: Mapping[str, Any] | None = None,
    layout: str = "two-view",
    layout_options: Mapping[str, Any] | None = None,
    symmetric: bool = False,
    negatives: Negatives | None = None,
    queue: Tensor | None = None,
    hard_negatives: Tensor | None = None,
    hard_negative_mask: Tensor | None = None,
    labels: Tensor | None = None,
    uncertainty: Uncertainty | None = None,
    positive_mask: Tensor | None = None,
    negative_mask: Tensor | None = None,
    targets: Tensor | tuple[Tensor, Tensor] | None = None,
    averages: Uncertainty | None = None,
    epoch: float = 0.0,
    learned: Sequence[Tensor] = (),
    bias: Tensor | None = None,
    **of_rows: Any,
) -> tuple[Tensor, Tensor]:
    """Returns the loss of every anchor, 0 where it has none, and which anchors have one.

    An anchor has a loss where it has a positive and, under every objective but ``infonce`` and ``sigmoid``, a negative. Of a
    symmetric layout it is the mean over the directions in which it has one. Arguments are those of a call of the loss, except:

    Args:
        strategy: name of a strategy, see `oracle_logit`; options are given apart, as of the objective and of ``cross-view``.
        negatives: options of each term on negatives, by its name.
        averages: [B] moving average u of each row before the call, 0 where it has none (``sogclr``); a pair of them where both
            views are anchors.
        epoch: epochs done, for schedules.
        learned: the parameters of the strategy, see `oracle_logit`.
        bias: [1] what ``sigmoid`` has learned; None: its initial bias.
        of_rows: what terms read, such as ``keys``, as a call of the loss takes it; and ``counts`` [size], those of earlier
            batches, for ``log-q:size=…``, which counts this one as well.

    Returns:
        losses: float64, [2B] for ``two-view`` and ``labels`` with two views, [B] otherwise; differentiable.
        valid: boolean, the same shape.

    Raises:
        ConfigError: unknown names, or an input that the layout or the strategy needs is missing.
    """
    embeddings = {"view_a": view_a, "view_b": view_b, "queue": queue, "hard_negatives": hard_negatives}
    softmaxes = directions(
        layout,
        {"directions": "ab+ba", "softmax": "separate"} if symmetric else layout_options or {},
        {name: unit_rows(rows) for name, rows in embeddings.items() if rows is not None},
        labels=labels,
        uncertainty=uncertainty,
        masks=(positive_mask, negative_mask),
        hard_negative_mask=hard_negative_mask,
        averages=averages,
        targets=targets,
        arguments={**of_rows, "hard_negatives": hard_negatives},
    )
    if targets is not None and objective not in WITHOUT_NEGATIVES:
        raise ConfigError(f"objective '{objective}' has no meaning for targets.")
    settings = strategy, strategy_options or {}, objective, objective_options or {}, epoch, learned, negatives or {}, bias
    results = [_softmax_losses(blocks_of_one, *settings, {**of_rows, **embeddings}) for blocks_of_one in softmaxes]
    counts = torch.stack([valid for _, valid in results]).sum(dim=0)
    return torch.stack([losses for losses, _ in results]).sum(dim=0) / counts.clamp(min=1), counts > 0


def oracle_loss(
    view_a: Tensor, view_b: Tensor | None = None, *, reduction: Literal["mean", "none"] = "mean", **arguments: Any
) -> Tensor:
    """Returns the mean of the losses of the anchors that have one, or with ``reduction="none"`` one loss an anchor.

    The other arguments and errors are those of `oracle_row_losses`. The NT-Xent of orthogonal pairs at τ = 0.5 is ln(1 +
    2e^-2):

    >>> pairs = torch.eye(2)
    >>> oracle_loss(pairs, pairs, strategy_options={"temperature": 0.5})
    tensor(0.2395, dtype=torch.float64)
    """
    losses, valid = oracle_row_losses(view_a, view_b, **arguments)
    return losses if reduction == "none" else losses.sum() / valid.sum().clamp(min=1)
