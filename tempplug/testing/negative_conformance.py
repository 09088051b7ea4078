"""The contract of terms on negatives as one call: what a third party writes as its whole test.

Checks the contract alone, on a small random batch in float64. This module must not know any particular term.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tempplug.arguments import parse_spec
from tempplug.block import Block
from tempplug.errors import TempplugError
from tempplug.layouts import create_layout
from tempplug.loss import ContrastiveLoss
from tempplug.negatives.base import NegativeTerm, TermMap
from tempplug.testing.conformance import (
    DIMENSION,
    PORTABLE_ENGINES,
    ROWS,
    ConformanceError,
    check_state,
    check_tiles,
    contract_of,
    known_of_anchors,
    random_rows,
    require,
)
from tempplug.types import EngineName

TOLERANCE = 1e-9
LAYOUTS = ("two-view", "cross-view:directions=ab+aa+ba+bb")
Given = Mapping[str, Any]


def _known() -> dict[str, Tensor | Mapping[str, Tensor]]:
    """Returns arguments that built-in terms read, for terms that read them as well."""
    arguments = known_of_anchors(torch.float64)
    keys, log_q = torch.arange(ROWS) // 2, -torch.linspace(0, 5, ROWS, dtype=torch.float64)
    seen = random_rows(ROWS, 4, seed=6)
    guide = {"view_a": seen, "view_b": seen + random_rows(ROWS, 4, seed=7) / 4}
    return {**arguments, "keys": keys, "groups": keys % 2, "guide": guide, "candidate_log_q": log_q}


def _called(
    term: NegativeTerm, layout: str, engine: EngineName, arguments: Given, training: bool = False
) -> tuple[ContrastiveLoss, list[Tensor]]:
    """Returns the loss after a call, and its value and gradients."""
    loss_fn = ContrastiveLoss("fixed", layout=create_layout(layout), negatives=[term], engine=engine).train(training)
    a, noise = (random_rows(ROWS, DIMENSION, seed=seed) for seed in (4, 5))
    views = a.requires_grad_(), (a.detach() + noise).requires_grad_()
    try:
        loss = loss_fn(*views, **arguments)
        return loss_fn, [loss.detach(), *torch.autograd.grad(loss, views)]
    except Exception as error:
        raise ConformanceError(f"the loss of layout '{layout}' on the engine '{engine}' raised {error!r}.") from error


def _blocks(term: NegativeTerm, layout: str, arguments: Given) -> list[Block]:
    loss_fn, _ = _called(term, layout, "dense", arguments)
    step = loss_fn.memory.step
    return [] if step is None else step.blocks


def _similarity(block: Block) -> Tensor:
    """Returns similarities that come up to 1, symmetric ones of a square."""
    s = block.anchors @ block.candidates.T
    s = (s + s.T) / 2 if block.roles.square else s
    return s / s.abs().max()


def _same(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    pairs = zip(actual, expected, strict=True)
    return all(torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE) for one, other in pairs)


def _whole(term_map: TermMap, s: Tensor) -> Tensor:
    return term_map.restrict(slice(0, len(s)), slice(0, s.shape[1])).term(s)


def _check_map(term_map: TermMap, block: Block) -> None:
    s, rows, columns = _similarity(block), torch.arange(block.roles.anchors), torch.arange(block.roles.candidates)
    negative = block.roles.negative(rows[:, None], columns)
    for similarity in (s, -s):
        before = similarity.clone()
        values = _whole(term_map, similarity)
        require(torch.equal(similarity, before), "term(similarity) changes the similarities, which are only to be read.")
        require(not values.requires_grad, "term(similarity) carries gradient; use detach().")
        try:
            values = values.expand_as(similarity)
        except RuntimeError as error:
            shapes = f"{list(values.shape)} for similarities {list(similarity.shape)}"
            raise ConformanceError(f"term(similarity) has shape {shapes}.") from error
        require(not (values.isnan() | (values == torch.inf)).any(), "term(similarity) is NaN or +inf somewhere.")
        highest = float(values.max())
        require(highest <= term_map.bound, f"bound is {term_map.bound:g}, but a term is {highest:g}.")
        if term_map.symmetric and block.roles.square:
            require(_same([values], [values.T]), "symmetric is True, but the term of (i, j) is not that of (j, i).")
        check_tiles(term_map, ["term"], similarity, TOLERANCE, negative)


def _check_row_sums(term: NegativeTerm) -> None:
    """Holds of what becomes of the sums of rows: of usual ones, of small and large ones, and of none."""
    lse = torch.tensor([2.0, -80.0, 80.0, 0.0, -torch.inf], dtype=torch.float64, requires_grad=True)
    positive = torch.linspace(-5, 5, 5, dtype=torch.float64).requires_grad_()
    result = term.negative_lse(lse, positive, torch.tensor([7, 7, 7, 7, 0]), torch.tensor(-10.0, dtype=torch.float64))
    require(result.shape == lse.shape, f"negative_lse(...) has shape {list(result.shape)} for {len(lse)} rows.")
    require(result[:-1].isfinite().all(), "negative_lse(...) is not finite for rows with negatives.")
    require(result[-1] == -torch.inf, "negative_lse(...) must leave -inf of rows without negatives as it is.")
    if result.requires_grad:
        gradients = torch.autograd.grad(result[:-1].sum(), (lse, positive), allow_unused=True)
        finite = all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)
        require(finite, "the gradient of negative_lse(...) is not finite.")


def _check_spec(term: NegativeTerm) -> None:
    written = term.spec()
    try:
        again = type(term)(**parse_spec(written)[1]).spec()
    except Exception as error:
        raise ConformanceError(f"its spec string '{written}' cannot be read back: {error!r}.") from error
    require(again == written, f"its spec string '{written}' is read back as '{again}'.")


def _check_missing(term: NegativeTerm, layout: str, arguments: Given) -> None:
    for name in sorted(term.takes):
        left = {other: value for other, value in arguments.items() if other != name}
        try:
            _called(copy.deepcopy(term), layout, "dense", left, training=True)
        except ConformanceError as error:
            cause = error.__cause__
            named = isinstance(cause, TempplugError) and f"{name}=" in str(cause)
            require(named, f"a call without {name}= must raise a TempplugError that names it; it raised {cause!r}.")
        else:
            raise ConformanceError(f"it takes {name}=, and a call without it is not refused.")


def _in_float64(value: Tensor | Mapping[str, Tensor]) -> Tensor | Mapping[str, Tensor]:
    """Returns an argument in float64: in float32 a term may round differently on a tile than on the whole."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in value.items()}


def check_negative(term: NegativeTerm, **arguments: Tensor | Mapping[str, Tensor]) -> None:
    """Checks that a term on negatives keeps its contract; returns nothing when it does.

    The checks run on copies, with two views of 16 rows in float64, in the layouts ``two-view`` and
    ``cross-view:directions=ab+aa+ba+bb``, of terms with ``blocks`` in the latter alone.

    Args:
        term: an instance, with whatever options.
        arguments: what the term takes, as a call of the loss does, of 16 rows; floating-point numbers become float64. Not
            needed for ``labels`` (0 and 1), ``index`` (0 to 15), ``uncertainty``, ``keys``, ``groups``, ``guide`` and
            ``candidate_log_q``.

    Raises:
        ConformanceError: a term is NaN, +inf, above its bound, of a wrong shape, carries gradient, or is another one of a tile
            or of index pairs; the flag ``symmetric`` or the spec string is wrong; an argument that is missing is not refused by
            name; the state is not saved; or the loss or its gradient is not finite or differs between engines.

    >>> from tempplug import create_negatives
    >>> check_negative(*create_negatives("false-negatives:margin=0.1"))
    """
    with contract_of(term, NegativeTerm):
        known = {**_known(), **{name: _in_float64(value) for name, value in arguments.items()}}
        for name in sorted(term.takes - known.keys()):
            raise ConformanceError(f"it takes {name}=: pass that of {ROWS} rows, check_negative(term, {name}=...).")
        taken = {name: value for name, value in known.items() if name in term.takes}
        _check_spec(term)
        _check_row_sums(term)
        for layout in LAYOUTS[1:] if term.blocks else LAYOUTS:
            for block in _blocks(copy.deepcopy(term), layout, taken):
                for term_map in block.terms:
                    if not isinstance(term_map, TermMap):
                        raise ConformanceError(f"prepare(pairs) returned {type(term_map).__name__}, not a TermMap or None.")
                    _check_map(term_map, block)
            values = [_called(copy.deepcopy(term), layout, engine, taken)[1] for engine in PORTABLE_ENGINES]
            require(all(bool(tensor.isfinite().all()) for tensor in values[0]), "the loss or its gradient is not finite.")
            require(_same(*values), f"the loss of layout '{layout}' differs between the engines {', '.join(PORTABLE_ENGINES)}.")
            _check_missing(term, layout, taken)
        layout = LAYOUTS[1]
        check_state(
            term,
            lambda used: _called(used, layout, "dense", taken, training=True),
            lambda trained: _called(trained, layout, "dense", taken)[1],
            "loss differs",
            TOLERANCE,
        )
