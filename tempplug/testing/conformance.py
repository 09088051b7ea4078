"""The contract of strategies as one call: what a third party writes as its whole test. The others stand beside it.

Checks the contract alone, on a small random batch; the formulas of a strategy need tests of their own. This
module must not know any particular strategy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, product
from typing import TypeVar

import torch
from torch import Tensor, nn

from tempplug.create import create_objective
from tempplug.errors import TempplugError
from tempplug.loss import ContrastiveLoss
from tempplug.objectives.base import Objective
from tempplug.part import Part
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap
from tempplug.term_map import TermMap
from tempplug.types import Batch, EngineName

P = TypeVar("P", bound=Part)
ROWS, DIMENSION = 16, 8
PORTABLE_ENGINES: tuple[EngineName, ...] = ("dense", "tiled")
# By the type of parameters: how far two ways to one number may be apart, relatively where they are larger than 1.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}

# What to do where the gradient of a parameter of strategy or objective differs between engines.
REMEDIES = {
    "strategy.": " tensors() must return every tensor of the map that carries gradient.",
    "objective.": " A pair function must add what it learns by offset(logit_map), not in value(logit).",
}


class ConformanceError(TempplugError):
    """A strategy, an objective or a term breaks its contract; the message says which part of it."""


def require(holds: bool | Tensor, message: str) -> None:
    """Raises `ConformanceError` with the message where something does not hold."""
    if not bool(holds):
        raise ConformanceError(message)


@contextmanager
def contract_of(part: Part, base: type[Part]) -> Iterator[None]:
    """Names the part in the errors of the checks in the block, after the first: it is of its base, and has a name."""
    if not isinstance(part, base):
        raise ConformanceError(f"{part!r} is not an instance of tempplug.{base.__name__}.")
    try:
        require(bool(part.name), "the class has no name.")
        yield
    except ConformanceError as error:
        raise ConformanceError(f"{part.kind} '{part.name or type(part).__name__}': {error}") from error


def _types(*modules: nn.Module) -> Iterator[torch.dtype]:
    parameters = chain.from_iterable(module.parameters() for module in modules)
    return (parameter.dtype for parameter in parameters if parameter.is_floating_point())


def computed_in(*modules: nn.Module, free: torch.dtype = torch.float64) -> torch.dtype:
    """Returns in which type to compute beside these parameters, never below float32; without any, ``free``."""
    types = set(_types(*modules))
    return (torch.float64 if types == {torch.float64} else torch.float32) if types else free


def tolerance_of(*modules: nn.Module) -> float:
    """Returns how far two ways to one number may be apart beside these parameters."""
    return max((TOLERANCES[dtype] for dtype in _types(*modules)), default=TOLERANCES[torch.float64])


def random_rows(*shape: int, seed: int) -> Tensor:
    """Returns normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def known_of_anchors(dtype: torch.dtype) -> dict[str, Tensor]:
    """Returns what a call may tell of each anchor: labels 0 and 1, groups likewise, indices 0 to 15, an uncertainty."""
    halves, uncertainty = torch.arange(ROWS) % 2, random_rows(ROWS, seed=1).to(dtype)
    return {"labels": halves, "groups": halves, "index": torch.arange(ROWS), "uncertainty": uncertainty}


def _batch(strategy: Strategy, dtype: torch.dtype) -> Batch:
    """Returns anchors that are their own candidates, and of what is known of them what the strategy takes."""
    rows = torch.nn.functional.normalize(random_rows(ROWS, DIMENSION, seed=0)).to(dtype)
    known = {name: value for name, value in known_of_anchors(dtype).items() if name in strategy.takes}
    similarity = torch.linspace(0.2, 0.9, ROWS, dtype=dtype)
    return Batch(similarity, rows, rows, **known)  # type: ignore[arg-type]


def similarities_of(dtype: torch.dtype, limit: float = 1.0) -> Tensor:
    """Returns a symmetric matrix whose entries cover [-limit, limit], both ends and 0 included."""
    rows, columns = torch.triu_indices(ROWS, ROWS)
    values = torch.linspace(-limit, limit, len(rows), dtype=torch.float64)
    shuffled = values[torch.randperm(len(values), generator=torch.Generator().manual_seed(2))]
    shuffled[0] = 0.0
    matrix = torch.zeros(ROWS, ROWS, dtype=torch.float64)
    matrix[rows, columns] = shuffled
    matrix[columns, rows] = shuffled
    return matrix.to(dtype)


def prepared_map(strategy: Strategy, free: torch.dtype = torch.float64) -> LogitMap:
    """Returns the map of a batch in the type of the strategy's parameters; without any, ``free``."""
    try:
        logit_map = strategy.prepare(_batch(strategy, computed_in(strategy, free=free)))
    except Exception as error:
        raise ConformanceError(f"prepare(batch) raised {error!r}.") from error
    if not isinstance(logit_map, LogitMap):
        raise ConformanceError(f"prepare(batch) returned {type(logit_map).__name__}, not a LogitMap.")
    return logit_map


def whole_of(logit_map: LogitMap) -> LogitMap:
    """Returns the map bound to all pairs of the batch."""
    return logit_map.restrict(slice(0, ROWS), slice(0, ROWS))


def _check_values(logit_map: LogitMap, dtype: torch.dtype, tolerance: float) -> None:
    whole, s = whole_of(logit_map), similarities_of(dtype)
    for name in ("logit", "slope", "temperature"):
        values: Tensor = getattr(whole, name)(s)
        require(values.shape == s.shape, f"{name}(s) has shape {list(values.shape)} for similarities {list(s.shape)}.")
        wide_enough = torch.promote_types(values.dtype, dtype) == values.dtype
        require(wide_enough, f"{name}(s) of {str(dtype).removeprefix('torch.')} is {values.dtype}.")
        require(values.isfinite().all(), f"{name}(s) is not finite everywhere on [-1, 1].")
    largest = float(whole.logit(s).detach().abs().max())
    require(largest <= whole.bound * (1 + tolerance), f"bound is {whole.bound:g}, but a logit is {largest:g}, up or down.")
    lowest = float(whole.temperature(s).detach().min())
    require(lowest > 0, f"temperature(s) is {lowest:g} somewhere; it must be greater than 0.")


def _check_temperature(logit_map: LogitMap, dtype: torch.dtype, tolerance: float) -> None:
    """Holds where the logit is s/τ: not for a map with an offset, and not where a clamp replaces s."""
    whole, s = whole_of(logit_map), similarities_of(dtype, 0.95)
    logit = whole.logit(s)
    proportional = (whole.logit(torch.zeros_like(s)) == 0) & (s.abs() > 0.01) & (whole.slope(s) != 0)
    expected = torch.where(proportional, s / torch.where(proportional, logit, 1.0), 1.0)
    error = torch.where(proportional, whole.temperature(s) - expected, 0.0)
    require((error.abs() <= tolerance * expected.abs()).all(), "temperature(s) is not s / logit(s).")


def _check_slope(logit_map: LogitMap, dtype: torch.dtype, tolerance: float) -> None:
    whole, s = whole_of(logit_map), (0.97 * torch.tanh(random_rows(ROWS, ROWS, seed=3))).to(dtype).requires_grad_()
    logit = whole.logit(s)
    require(logit.requires_grad, "logit(s) carries no gradient of s.")
    (expected,) = torch.autograd.grad(logit.sum(), s)
    error = (whole.slope(s.detach()).detach() - expected).abs()
    worst = float((error / expected.abs().clamp(min=1)).max())
    require(worst <= tolerance, f"slope(s) is not the derivative of logit(s): they differ by {worst:.1e} relative.")


def _check_half_precision(logit_map: LogitMap) -> None:
    """Holds of a map that takes half precision at all: engines give at least float32, which its parameters may require."""
    whole = whole_of(logit_map)
    for dtype in (torch.bfloat16, torch.float16):
        for name in ("logit", "slope", "temperature"):
            try:
                result = getattr(whole, name)(similarities_of(dtype)).dtype
            except RuntimeError:
                continue
            require(result in (torch.float32, torch.float64), f"{name}(s) of {dtype} is {result}; at least float32 is wanted.")


def _same(left: Tensor, right: Tensor, *, tolerance: float) -> bool:
    """Returns whether two results agree but for the rounding of another order of operations."""
    tolerance = 1e-12 if tolerance == TOLERANCES[torch.float64] else tolerance
    return left.shape == right.shape and torch.allclose(left, right, rtol=tolerance, atol=tolerance)


def check_tiles(
    unbound: LogitMap | TermMap, names: Sequence[str], s: Tensor, tolerance: float, counted: Tensor | None = None
) -> None:
    """Raises where methods of a map or term on tiles and index pairs differ from the whole [N, M], of at least 16 of each.

    With ``counted`` [N, M] booleans, only these pairs are compared.
    """
    rows, columns = torch.tensor([3, 0, 9, 3]), torch.tensor([1, 15, 9, 2])
    parts: list[tuple[str, LogitMap | TermMap, Callable[[Tensor], Tensor]]] = [
        ("a tile, restrict(slice, slice),", unbound.restrict(slice(5, 12), slice(2, 6)), lambda whole: whole[5:12, 2:6]),
        ("a tile, restrict(index, index),", unbound.restrict(rows, columns), lambda whole: whole[rows][:, columns]),
        ("pairs, restrict(paired=True),", unbound.restrict(rows, columns, paired=True), lambda whole: whole[rows, columns]),
    ]
    for (what, bound, select), name in product(parts, names):
        whole: Tensor = getattr(unbound.restrict(slice(0, len(s)), slice(0, s.shape[1])), name)(s)
        message, expected = f"{name} of {what} is not that of the whole.", select(whole.expand_as(s))
        try:
            actual = getattr(bound, name)(select(s)).expand_as(expected)
        except RuntimeError as error:
            raise ConformanceError(message) from error
        if counted is not None:
            actual, expected = (torch.where(select(counted), tensor, 0.0) for tensor in (actual, expected))
        require(_same(actual, expected, tolerance=tolerance), message)


def _check_flags(logit_map: LogitMap, dtype: torch.dtype, tolerance: float) -> None:
    s = similarities_of(dtype)
    logit = whole_of(logit_map).logit(s)
    if logit_map.symmetric:
        require(_same(logit, logit.T, tolerance=tolerance), "symmetric is True, but the logit of (i, j) is not that of (j, i).")
    if logit_map.uniform:
        moved = whole_of(logit_map).logit(s.flip(0))
        require(
            _same(moved, logit.flip(0), tolerance=tolerance), "uniform is True, but the map is not the same for every pair."
        )


def _check_scores(strategy: Strategy, dtype: torch.dtype) -> None:
    """Holds of a strategy that takes scores of any range: it needs no rows, and logits rise with the scores."""
    batch = _batch(strategy, dtype)
    batch.anchors = batch.candidates = None
    s = torch.linspace(-4, 4, ROWS, dtype=dtype).expand(ROWS, ROWS)
    try:
        logit = whole_of(strategy.prepare(batch)).logit(s)
    except Exception as error:
        raise ConformanceError(f"cosines_only is False, but without anchors and candidates it raised {error!r}.") from error
    require((logit.diff() > 0).all(), "cosines_only is False, but logit(s) does not rise with s everywhere on [-4, 4].")


def _check_tensors(logit_map: LogitMap) -> None:
    for position, tensor in enumerate(logit_map.tensors()):
        require(isinstance(tensor, Tensor), f"tensors()[{position}] is {type(tensor).__name__}, not a tensor.")
        require(tensor.requires_grad, f"tensors()[{position}] does not require a gradient.")


def check_state(
    part: P, use: Callable[[P], object], results: Callable[[P], Sequence[Tensor]], what: str, tolerance: float
) -> None:
    """Uses one copy, moves its state to an untouched one, and raises where the results of both differ."""
    used, resumed = copy.deepcopy(part), copy.deepcopy(part)
    use(used)
    try:
        resumed.load_state_dict(used.state_dict())
    except Exception as error:
        raise ConformanceError(f"load_state_dict(state_dict()) raised {error!r}.") from error
    pairs = zip(results(used), results(resumed), strict=True)
    same = all(_same(*pair, tolerance=tolerance) for pair in pairs)
    require(same, f"after load_state_dict(state_dict()) the {what}: something that counts is not saved.")


def _use(strategy: Strategy) -> None:
    strategy.set_progress(epoch=37.0)
    prepared_map(strategy)
    with torch.no_grad():
        for parameter in strategy.parameters():
            parameter.mul_(0.9)


def _logits(strategy: Strategy) -> list[Tensor]:
    return [whole_of(prepared_map(strategy)).logit(similarities_of(computed_in(strategy)))]


def check_training(strategy: Strategy, objective: Objective) -> None:
    """Runs the loss forward and backward on every engine that needs no accelerator, and compares values and gradients.

    For an objective with ``soft_targets`` so does a call whose targets are one positive a row.
    """
    values, gradients = [], list[dict[str, Tensor]]()
    dtype = computed_in(strategy, objective, free=torch.float32)
    calls: list[tuple[EngineName, dict[str, Tensor]]] = [(engine, {}) for engine in PORTABLE_ENGINES]
    compared = f"the engines {', '.join(PORTABLE_ENGINES)}"
    if objective.soft_targets:
        calls.append(("dense", {"targets": torch.eye(ROWS, dtype=dtype)}))
        compared += ", or with targets of one positive"
    for engine, targets in calls:
        loss_fn = ContrastiveLoss(copy.deepcopy(strategy), copy.deepcopy(objective), "cross-view", engine=engine)
        loss_fn.set_progress(epoch=1.0)
        rows, noise = (random_rows(ROWS, DIMENSION, seed=seed).to(dtype) for seed in (4, 5))
        a, b = rows.clone().requires_grad_(), (rows + 0.5 * noise).requires_grad_()
        try:
            loss = loss_fn(a, b, **loss_fn.accepted(**known_of_anchors(dtype)), **targets)
            loss.backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConformanceError(f"the loss on the engine '{engine}' raised {error!r}.") from error
        require(loss.isfinite(), f"the loss on the engine '{engine}' is {float(loss.detach())}.")
        values.append(float(loss.detach()))
        gradients.append({})
        for name, leaf in [("view_a", a), ("view_b", b), *loss_fn.named_parameters()]:
            if leaf.grad is not None:
                finite = leaf.grad.isfinite().all()
                require(finite, f"the gradient of {name} on the engine '{engine}' is not finite.")
                gradients[-1][name] = leaf.grad
            else:
                require(not leaf.requires_grad, f"{name} receives no gradient on the engine '{engine}'.")
    close = max(values) - min(values) <= 1e-4 * max(1.0, abs(values[0]))
    require(close, f"the loss differs between {compared}: {values}.")
    tolerance = max(1e-3, tolerance_of(strategy, objective))
    for name, expected in gradients[0].items():
        difference = max(float((others[name] - expected).abs().max()) for others in gradients[1:])
        size = float(expected.abs().max())
        remedy = next((text for start, text in REMEDIES.items() if name.startswith(start)), "")
        differs = f"the gradient of {name} differs between {compared} by up to {difference:.1e}"
        require(difference <= tolerance * size + 1e-6, f"{differs}, where its largest number is {size:.1e}.{remedy}")


def check_strategy(strategy: Strategy) -> None:
    """Checks that a strategy keeps its contract; returns nothing when it does.

    The strategy itself is left as it is: the checks run on copies, with 16 anchors of 8 dimensions, labels and groups 0 and 1,
    indices 0 to 15 and one uncertainty an anchor as far as it ``takes`` them, at epoch 1. They compute in float64 where all
    parameters are, or without any, and else in float32; the tolerance follows the parameters' type, so
    ``check_strategy(strategy.double())`` is the strictest.

    Args:
        strategy: an instance, with whatever options.

    Raises:
        ConformanceError: `prepare` gives no `LogitMap`; the map is not finite on [-1, 1], has a wrong slope, temperature,
            bound, precision, tile or flag; ``cosines_only`` is wrongly False; the state is not saved; or the loss or a
            gradient is missing, not finite, or differs between engines.

    >>> from tempplug import create_strategy
    >>> check_strategy(create_strategy("macl:alpha=0.5"))
    """
    with contract_of(strategy, Strategy):
        prepared = copy.deepcopy(strategy)
        prepared.set_progress(epoch=1.0)
        logit_map, dtype, tolerance = prepared_map(prepared), computed_in(strategy), tolerance_of(strategy)
        _check_tensors(logit_map)
        _check_values(logit_map, dtype, tolerance)
        _check_slope(logit_map, dtype, tolerance)
        _check_temperature(logit_map, dtype, tolerance)
        check_tiles(logit_map, ("logit", "slope", "temperature"), similarities_of(dtype), tolerance)
        _check_flags(logit_map, dtype, tolerance)
        if not strategy.cosines_only:
            _check_scores(prepared, dtype)
        _check_half_precision(prepared_map(prepared, torch.float32))
        check_state(strategy, _use, _logits, "logits differ", tolerance)
        check_training(strategy, create_objective("infonce"))
