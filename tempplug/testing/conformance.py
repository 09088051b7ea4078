"""The contract of strategies and objectives as two calls: what a third party writes as its whole test.

Checks only what the contract says, on a small random batch; the formulas of a strategy are its own tests' business. This
module must not know any particular strategy or objective.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from tempplug.errors import ConfigError, TempplugError
from tempplug.loss import ContrastiveLoss
from tempplug.objectives.base import Objective
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap
from tempplug.types import Auxiliary, Batch, EngineName, RowStatistics

ROWS, DIMENSION = 16, 8
PORTABLE_ENGINES: tuple[EngineName, ...] = ("dense", "tiled")


class ConformanceError(TempplugError):
    """A strategy or an objective breaks its contract; the message says which part of it."""


def _require(holds: bool | Tensor, message: str) -> None:
    if not bool(holds):
        raise ConformanceError(message)


def _random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _known(dtype: torch.dtype) -> dict[str, Tensor]:
    """Returns what a call may tell of each anchor: labels 0 and 1, indices 0 to 15, an uncertainty."""
    return {
        "labels": torch.arange(ROWS) % 2,
        "index": torch.arange(ROWS),
        "uncertainty": _random(ROWS, seed=1).to(dtype),
    }


def _batch(strategy: Strategy, dtype: torch.dtype) -> Batch:
    """Returns anchors that are their own candidates, and of what is known of them what the strategy takes."""
    rows = torch.nn.functional.normalize(_random(ROWS, DIMENSION, seed=0)).to(dtype)
    return Batch(
        positive_similarity=torch.linspace(0.2, 0.9, ROWS, dtype=dtype),
        anchors=rows,
        candidates=rows,
        **{name: value for name, value in _known(dtype).items() if name in strategy.takes},
    )


def _similarities(limit: float = 1.0) -> Tensor:
    """Returns a symmetric matrix whose entries cover [-limit, limit], both ends and 0 included."""
    rows, columns = torch.triu_indices(ROWS, ROWS)
    values = torch.linspace(-limit, limit, len(rows), dtype=torch.float64)
    shuffled = values[torch.randperm(len(values), generator=torch.Generator().manual_seed(2))]
    shuffled[0] = 0.0
    matrix = torch.zeros(ROWS, ROWS, dtype=torch.float64)
    matrix[rows, columns] = shuffled
    matrix[columns, rows] = shuffled
    return matrix


def _prepared(strategy: Strategy, dtype: torch.dtype) -> LogitMap:
    try:
        logit_map = strategy.prepare(_batch(strategy, dtype))
    except Exception as error:
        raise ConformanceError(f"prepare(batch) raised {error!r}.") from error
    if not isinstance(logit_map, LogitMap):
        raise ConformanceError(f"prepare(batch) returned {type(logit_map).__name__}, not a LogitMap.")
    return logit_map


def _whole(logit_map: LogitMap) -> LogitMap:
    return logit_map.at(slice(0, ROWS), slice(0, ROWS))


def _check_values(logit_map: LogitMap) -> None:
    whole, s = _whole(logit_map), _similarities()
    for name in ("logit", "slope", "temperature"):
        values: Tensor = getattr(whole, name)(s)
        _require(values.shape == s.shape, f"{name}(s) has shape {list(values.shape)} for similarities {list(s.shape)}.")
        _require(values.dtype == torch.float64, f"{name}(s) of float64 is {values.dtype}.")
        _require(values.isfinite().all(), f"{name}(s) is not finite everywhere on [-1, 1].")
    temperature = whole.temperature(s)
    _require((temperature > 0).all(), f"temperature(s) is {float(temperature.min()):g} somewhere; it must be greater than 0.")


def _check_temperature(logit_map: LogitMap) -> None:
    """Holds where the logit is s/τ: not for a map with an offset, and not where a clamp replaces s."""
    whole, s = _whole(logit_map), _similarities(0.95)
    logit = whole.logit(s)
    proportional = (whole.logit(torch.zeros_like(s)) == 0) & (s.abs() > 0.01) & (whole.slope(s) != 0)
    expected = torch.where(proportional, s / torch.where(proportional, logit, 1.0), 1.0)
    error = torch.where(proportional, whole.temperature(s) - expected, 0.0)
    _require((error.abs() <= 1e-9 * expected.abs()).all(), "temperature(s) is not s / logit(s).")


def _check_slope(logit_map: LogitMap) -> None:
    whole, s = _whole(logit_map), (0.97 * torch.tanh(_random(ROWS, ROWS, seed=3))).requires_grad_()
    logit = whole.logit(s)
    _require(logit.requires_grad, "logit(s) carries no gradient of s.")
    (expected,) = torch.autograd.grad(logit.sum(), s)
    error = (whole.slope(s.detach()) - expected).abs()
    worst = float((error / expected.abs().clamp(min=1)).max())
    _require(worst <= 1e-9, f"slope(s) is not the derivative of logit(s): they differ by {worst:.1e} relative.")


def _check_half_precision(logit_map: LogitMap) -> None:
    whole = _whole(logit_map)
    for dtype in (torch.bfloat16, torch.float16):
        for name in ("logit", "slope", "temperature"):
            result = getattr(whole, name)(_similarities().to(dtype)).dtype
            _require(result in (torch.float32, torch.float64), f"{name}(s) of {dtype} is {result}; at least float32 is wanted.")


def _same(left: Tensor, right: Tensor) -> bool:
    """Returns whether two results agree but for the rounding of another order of operations."""
    return left.shape == right.shape and torch.allclose(left, right, rtol=1e-12, atol=1e-12)


def _check_tiles(logit_map: LogitMap) -> None:
    whole, s = _whole(logit_map), _similarities()
    rows, columns = torch.tensor([3, 0, 9, 3]), torch.tensor([1, 15, 9, 2])
    for name in ("logit", "slope", "temperature"):
        expected: Tensor = getattr(whole, name)(s)
        tile = getattr(logit_map.at(slice(5, 12), slice(2, 6)), name)(s[5:12, 2:6])
        _require(_same(tile, expected[5:12, 2:6]), f"{name} of a tile, at(slice, slice), is not that of the whole.")
        picked = getattr(logit_map.at(rows, columns), name)(s[rows][:, columns])
        _require(_same(picked, expected[rows][:, columns]), f"{name} of a tile, at(index, index), is not that of the whole.")
        pairs = getattr(logit_map.at(rows, columns, paired=True), name)(s[rows, columns])
        _require(_same(pairs, expected[rows, columns]), f"{name} of pairs, at(paired=True), is not that of the whole.")


def _check_flags(logit_map: LogitMap) -> None:
    s = _similarities()
    logit = _whole(logit_map).logit(s)
    if logit_map.symmetric:
        _require(_same(logit, logit.T), "symmetric is True, but the logit of (i, j) is not that of (j, i).")
    if logit_map.uniform:
        moved = _whole(logit_map).logit(s.flip(0))
        _require(_same(moved, logit.flip(0)), "uniform is True, but the map is not the same for every pair.")


def _check_tensors(logit_map: LogitMap) -> None:
    for position, tensor in enumerate(logit_map.tensors()):
        _require(isinstance(tensor, Tensor), f"tensors()[{position}] is {type(tensor).__name__}, not a tensor.")
        _require(tensor.requires_grad, f"tensors()[{position}] does not require a gradient.")


def _check_state(strategy: Strategy) -> None:
    """Uses one copy for a while, moves its state to an untouched one, and expects the same logits."""
    used, resumed = copy.deepcopy(strategy), copy.deepcopy(strategy)
    used.set_progress(epoch=37.0)
    _prepared(used, torch.float64)
    with torch.no_grad():
        for parameter in used.parameters():
            parameter.mul_(0.9)
    try:
        resumed.load_state_dict(used.state_dict())
    except Exception as error:
        raise ConformanceError(f"load_state_dict(state_dict()) raised {error!r}.") from error
    # a batch may move per-sample state, so both see one more
    logits = [_whole(_prepared(each, torch.float64)).logit(_similarities()) for each in (used, resumed)]
    _require(_same(*logits), "after load_state_dict(state_dict()) the logits differ: something that counts is not saved.")


def _check_training(strategy: Strategy | str, objective: Objective | str) -> None:
    """Runs the loss forward and backward on every engine that needs no accelerator."""
    values = []
    for engine in PORTABLE_ENGINES:
        loss_fn = ContrastiveLoss(copy.deepcopy(strategy), copy.deepcopy(objective), "cross-view", engine=engine)
        loss_fn.set_progress(epoch=1.0)
        rows, noise = (_random(ROWS, DIMENSION, seed=seed).float() for seed in (4, 5))
        a, b = rows.clone().requires_grad_(), (rows + 0.5 * noise).requires_grad_()
        try:
            loss = loss_fn(a, b, **loss_fn.taken(**_known(torch.float32)))
            loss.backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConformanceError(f"the loss on the engine '{engine}' raised {error!r}.") from error
        _require(loss.isfinite(), f"the loss on the engine '{engine}' is {float(loss.detach())}.")
        for name, leaf in [("view_a", a), ("view_b", b), *loss_fn.named_parameters()]:
            if not leaf.requires_grad:
                continue
            _require(leaf.grad is not None, f"{name} receives no gradient on the engine '{engine}'.")
            _require(
                leaf.grad is not None and leaf.grad.isfinite().all(),
                f"the gradient of {name} on the engine '{engine}' is not finite.",
            )
        values.append(float(loss.detach()))
    close = max(values) - min(values) <= 1e-4 * max(1.0, abs(values[0]))
    _require(close, f"the loss differs between the engines {', '.join(PORTABLE_ENGINES)}: {values}.")


def check_strategy(strategy: Strategy) -> None:
    """Checks that a temperature strategy keeps its contract; returns nothing when it does.

    The strategy itself is left as it is: the checks run on copies, with 16 anchors of 8 dimensions, labels 0 and 1,
    indices 0 to 15 and one uncertainty an anchor as far as it ``takes`` them, at epoch 1.

    Args:
        strategy: an instance, with whatever options.

    Raises:
        ConformanceError: `prepare` gives no `LogitMap`; the map is not finite on [-1, 1], has a wrong slope, temperature,
            precision, tile or flag; the state is not saved; or the loss or a gradient is missing or not finite.

    >>> from tempplug import create_strategy
    >>> check_strategy(create_strategy("macl:alpha=0.5"))
    """
    if not isinstance(strategy, Strategy):
        raise ConformanceError(f"{strategy!r} is not an instance of tempplug.Strategy.")
    label = f"strategy '{strategy.name or type(strategy).__name__}': "
    try:
        _require(bool(strategy.name), "the class has no name.")
        prepared = copy.deepcopy(strategy)
        prepared.set_progress(epoch=1.0)
        logit_map = _prepared(prepared, torch.float64)
        _check_tensors(logit_map)
        _check_values(logit_map)
        _check_slope(logit_map)
        _check_temperature(logit_map)
        _check_tiles(logit_map)
        _check_flags(logit_map)
        _check_half_precision(_prepared(prepared, torch.float32))
        _check_state(strategy)
        _check_training(strategy, "infonce")
    except ConformanceError as error:
        raise ConformanceError(label + str(error)) from error


def _statistics(positive: Tensor, negative_lse: Tensor, positive_lse: Tensor | None = None) -> RowStatistics:
    """Returns the statistics of rows with eight negatives and one positive, two where their log-sum-exp is given."""
    similarity = torch.linspace(-1, 1, len(positive), dtype=positive.dtype)
    one = torch.ones(len(positive), dtype=torch.long)
    if positive_lse is not None:
        return RowStatistics(positive, similarity, positive_lse, negative_lse, 2 * one, 8 * one, -similarity)
    return RowStatistics(positive, similarity, positive, negative_lse, one, 8 * one, -similarity)


def _row_loss(objective: Objective, positive: Tensor, negative_lse: Tensor) -> Tensor:
    statistics = _statistics(positive, negative_lse)
    frozen = positive.detach()
    second = _statistics(frozen / 10, frozen / 10 + 2)
    try:
        return objective.row_loss(statistics, Auxiliary(statistics.positive_similarity, second))
    except ConfigError as error:
        raise ConformanceError(f"row_loss raised {error!r} for anchors with one positive.") from error


def _check_closed_form(objective: Objective, positive: Tensor, negative: Tensor, positive_lse: Tensor | None = None) -> None:
    leaves = [each.detach().requires_grad_() for each in (positive, negative, positive_lse) if each is not None]
    auxiliary = Auxiliary(positive, _statistics(positive / 10, positive / 10 + 2))
    loss, of_negative, of_positive = objective.closed_form(_statistics(*(each.detach() for each in leaves)), auxiliary)
    expected = objective.row_loss(_statistics(*leaves), auxiliary)
    slopes = torch.autograd.grad(expected.sum(), leaves, materialize_grads=True)
    of_positive = -of_negative if of_positive is None else of_positive
    found = loss, of_positive, of_negative, -of_negative - of_positive
    for name, ours, theirs in zip(("the loss", *["a derivative"] * 3), found, (expected, *slopes), strict=False):
        _require(torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9), f"closed_form returns {name} that is not row_loss's.")


def check_objective(objective: Objective, *, shift_invariant: bool = True) -> None:
    """Checks that an objective keeps its contract; returns nothing when it does.

    Args:
        objective: an instance, with whatever options.
        shift_invariant: whether a constant added to all logits of a row must leave its loss alone; False for an objective
            that by nature depends on the height of the logits (weighted positives).

    Raises:
        ConformanceError: `row_loss` is not [N], or not finite in value and gradient for margins d from -200 to 200; a row
            shift changes it; `closed_form`, where there is one, differs from it; or the loss or a gradient of the whole is
            missing or not finite.

    >>> from tempplug import create_objective
    >>> check_objective(create_objective("infonce"))
    """
    if not isinstance(objective, Objective):
        raise ConformanceError(f"{objective!r} is not an instance of tempplug.Objective.")
    label = f"objective '{objective.name or type(objective).__name__}': "
    try:
        _require(bool(objective.name), "the class has no name.")
        for dtype in (torch.float32, torch.float64):
            margins = torch.linspace(-200, 200, 401, dtype=dtype)
            positive = torch.linspace(-10, 10, len(margins), dtype=dtype).requires_grad_()
            negative = (positive + margins).detach().requires_grad_()
            value = _row_loss(objective, positive, negative)
            _require(value.shape == margins.shape, f"row_loss has shape {list(value.shape)} for {len(margins)} anchors.")
            _require(value.isfinite().all(), f"row_loss is not finite for every d from -200 to 200 in {dtype}.")
            _require(value.requires_grad, "row_loss carries no gradient.")
            for gradient in torch.autograd.grad(value.sum(), (positive, negative), allow_unused=True):
                finite = gradient is not None and bool(gradient.isfinite().all())
                _require(finite, f"the gradient of row_loss is missing or not finite in {dtype}.")
        if type(objective).closed_form is not Objective.closed_form:
            _check_closed_form(objective, positive.detach(), negative.detach())
            if objective.several_positives:
                _check_closed_form(objective, positive.detach(), negative.detach(), positive.detach() + 0.9)
        shifted = _row_loss(objective, positive + 3, negative + 3)
        same = torch.allclose(shifted, value, rtol=1e-9, atol=1e-9)
        _require(same or not shift_invariant, "a constant added to all logits of a row changes its loss.")
        _check_training("fixed", copy.deepcopy(objective))
    except ConformanceError as error:
        raise ConformanceError(label + str(error)) from error
