"""The contract of objectives as one call: what a third party writes as its whole test.

Checks the contract alone, on statistics that are made up or come from a small random batch. This module must not know
any particular objective.
"""

from __future__ import annotations

import copy
from math import log

import torch
from torch import Tensor

from tempplug.create import create_strategy
from tempplug.errors import ConfigError
from tempplug.objectives.base import Objective
from tempplug.pair_functions import PairFunction
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap
from tempplug.testing.conformance import (
    ConformanceError,
    check_training,
    computed_in,
    contract_of,
    prepared_map,
    require,
    similarities_of,
    tolerance_of,
    whole_of,
)
from tempplug.types import Auxiliary, RowStatistics

NEGATIVES = 8


def _statistics(objective: Objective, positive: Tensor, negative_lse: Tensor, *, s: Tensor | None = None) -> RowStatistics:
    """Returns statistics of rows with equal negatives and one positive; a pair function's sums are ``negative_lse``."""
    pair = objective.pair_function
    similarity = torch.linspace(-1, 1, len(positive), dtype=positive.dtype) if s is None else s
    one = torch.ones(len(positive), dtype=torch.long)
    count = max(NEGATIVES, objective.top)
    of_negatives = negative_lse - log(count) if pair is None else positive.detach().flip(0)
    return RowStatistics(
        positive_logit=positive,
        positive_similarity=similarity,
        positive_lse=positive if pair is None else pair.value(-positive),
        negative_lse=negative_lse,
        positive_count=one,
        negative_count=count * one,
        negative_similarity=-similarity,
        top_logits=of_negatives[:, None].expand(-1, objective.top) if objective.top else None,
    )


def _auxiliary(objective: Objective, statistics: RowStatistics) -> Auxiliary:
    frozen = statistics.positive_logit.detach() / 10
    return Auxiliary(statistics.positive_similarity, _statistics(objective, frozen, frozen + 2))


def _row_loss(objective: Objective, statistics: RowStatistics) -> Tensor:
    try:
        return objective.row_loss(statistics, _auxiliary(objective, statistics))
    except (ConfigError, TypeError) as error:
        raise ConformanceError(f"row_loss raised {error!r} for anchors with one positive.") from error


def _rows_of(objective: Objective, strategy: Strategy | None, dtype: torch.dtype) -> RowStatistics:
    """Returns statistics with margins from -200 to 200, or those of all logits that the objective's map gives."""
    chosen = create_strategy("fixed") if strategy is None else copy.deepcopy(strategy)
    chosen.set_progress(epoch=1.0)
    logit_map = prepared_map(chosen)
    try:
        training_map = objective.training_map(logit_map)
    except ConfigError as error:
        remedy = "" if strategy is not None else " Pass strategy=, one whose maps it takes."
        raise ConformanceError(f"training_map refuses the map of strategy '{chosen.name}': {error}{remedy}") from error
    if not isinstance(training_map, LogitMap):
        raise ConformanceError(f"training_map returned {type(training_map).__name__}, not a LogitMap.")
    s, pair = None, objective.pair_function
    if strategy is None and training_map is logit_map and pair is None:
        margins = torch.linspace(-200, 200, 401, dtype=dtype)
        positive = torch.linspace(-10, 10, len(margins), dtype=dtype)
        negative = positive + margins
    else:
        with torch.no_grad():
            logits = whole_of(training_map).logit(similarities_of(computed_in(chosen))).to(dtype).flatten()
        positive, order = logits.sort()
        s = similarities_of(dtype).flatten()[order]
        count = max(NEGATIVES, objective.top)
        negative = positive.flip(0) + log(count) if pair is None else count * pair.value(positive.flip(0))
    return _statistics(objective, positive.requires_grad_(), negative.requires_grad_(), s=s)


def _check_pair_function(pair: PairFunction, like: Tensor) -> None:
    """Compares slope and value at random logits in the range of given ones, none of them at a kink."""
    random = torch.rand(len(like), generator=torch.Generator().manual_seed(6), dtype=torch.float64).to(like.dtype)
    logits = torch.lerp(like.min(), like.max(), random).detach()
    leaf = logits.clone().requires_grad_()
    value, slope = pair.value(leaf), pair.slope(logits)
    require(value.shape == slope.shape == logits.shape, "value(l) and slope(l) of the pair function must have the shape of l.")
    (expected,) = torch.autograd.grad(value.sum(), leaf)
    close = 1e-4 if logits.dtype == torch.float32 else 1e-9
    worst = float(((slope.detach() - expected).abs() / expected.abs().clamp(min=1)).max())
    require(
        worst <= close, f"slope(l) of the pair function is not the derivative of value(l): they differ by {worst:.1e} relative."
    )
    of_none = pair.value(torch.full((1,), -torch.inf, dtype=logits.dtype)).detach()
    require(of_none == 0, f"value(l) of the pair function is {float(of_none):g} at l = -inf; it must be 0.")


def check_objective(objective: Objective, *, strategy: Strategy | str | None = None, shift_invariant: bool = True) -> None:
    """Checks that an objective keeps its contract; returns nothing when it does.

    It computes in the type of the objective's parameters, as `check_strategy` does; without any, in float32 and float64.

    Args:
        objective: an instance, with whatever options.
        strategy: spec string or instance whose maps the objective is made for, with 16 anchors of 8 dimensions; `row_loss` then
            receives the logits that they give, through `training_map`. None: every strategy, margins d from -200 to 200; where
            `training_map` returns another map than that of ``fixed``, or with a ``pair_function``, the logits of a map.
        shift_invariant: whether a constant added to all logits of a row must not change its loss; False for an objective that
            depends on the height of the logits, as every one with a ``pair_function`` does.

    Raises:
        ConformanceError: `training_map` refuses the map, or returns none; `row_loss` is not [N], or not finite in value and
            gradient; the pair function has a wrong slope, or is not 0 at -inf; a row shift changes the loss; or the loss or a
            gradient, also of a parameter, is missing, not finite, or differs between engines.

    >>> from tempplug import create_objective
    >>> check_objective(create_objective("amcl-top:top_k=2,beta=0.1"), strategy="amcl:dimension=8")
    """
    trained = create_strategy("fixed" if strategy is None else strategy)
    with contract_of(objective, Objective):
        for dtype in sorted({computed_in(objective, free=free) for free in (torch.float32, torch.float64)}, key=str):
            rows = _rows_of(objective, None if strategy is None else trained, dtype)
            value, ends = _row_loss(objective, rows), (rows.positive_logit, rows.negative_lse)
            margins = (ends[1] - ends[0]).detach()
            require(value.shape == margins.shape, f"row_loss has shape {list(value.shape)} for {len(margins)} anchors.")
            what, all_of = ("d", margins) if objective.pair_function is None else ("logit", ends[0])
            of_all = f"for every {what} from {all_of.min():.4g} to {all_of.max():.4g} in {dtype}"
            require(value.isfinite().all(), f"row_loss is not finite {of_all}.")
            require(value.requires_grad, "row_loss carries no gradient.")
            if objective.pair_function is not None:
                _check_pair_function(objective.pair_function, ends[0])
            for gradient in torch.autograd.grad(value.sum(), ends, allow_unused=True):
                finite = gradient is not None and bool(gradient.isfinite().all())
                require(finite, f"the gradient of row_loss is missing or not finite in {dtype}.")
        if shift_invariant and objective.pair_function is None:
            shifted = _statistics(objective, *(end + 3 for end in ends), s=rows.positive_similarity)
            close = tolerance_of(objective)
            same = torch.allclose(_row_loss(objective, shifted), value, rtol=close, atol=close)
            require(same, "a constant added to all logits of a row changes its loss.")
        check_training(trained, objective)
