"""The tiled engine's row statistics against plain dense formulas in float64: any map, negative term and pair function.

In one tile and in many ragged ones, kept for the backward pass and computed again (``cut`` and ``cut_or_not`` of conftest).
"""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable

import pytest
import torch
from engine_cases import BLOCKS, Case, Plain, compare_statistics, make_case, unit_rows
from engine_maps import (
    Affine,
    Bent,
    ByColumns,
    Frequent,
    HalfSquare,
    Hardness,
    Identity,
    Itself,
    Linear,
    PerPair,
    Square,
    Steeper,
    TooSimilar,
    View,
    softplus,
)
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.engine import tiled
from tempplug.engine.dispatch import row_statistics
from tempplug.negatives.base import TermMap
from tempplug.objectives.base import Objective
from tempplug.pair_functions import PairFunction, Softplus
from tempplug.strategies.maps import LogitMap, LogOddsMap, PairTemperatureMap, ProfileMap, ScaleMap
from tempplug.types import Auxiliary, RowStatistics, Wanted

Logits = Callable[[Tensor], Tensor]


def cubic(first: float, second: float, weights: Tensor | None = None) -> Logits:
    a, b = (first, second) if weights is None else weights
    return lambda s: a * s + b * s**3


def third_party(name: str, case: Case) -> tuple[LogitMap, Logits, list[Tensor]]:
    """Returns a map that a third party might write, its formula, and what it learns."""
    if name == "bent":
        return Bent(4, 2), cubic(4, 2), []
    if name == "learned":
        learned = Bent(4, 2, learned=True)
        return learned, cubic(0, 0, learned.weights), [learned.weights]
    if name == "large":  # sums of exp overflow, and nobody says so beforehand
        learned = Bent(900, 700, learned=True)
        return learned, cubic(0, 0, learned.weights), [learned.weights]
    if name == "small":  # every exp of a row underflows
        return Bent(-900, -200), cubic(-900, -200), []
    if name == "by columns":
        return ByColumns(4, 2), cubic(4, 2), []
    if name == "per pair":
        of_anchors, of_candidates = (torch.linspace(1, 2, size, dtype=torch.float64) for size in case.positive.shape)
        pairs, factor = PerPair(of_anchors, of_candidates.flip(0), learned=True), of_anchors[:, None] / of_candidates.flip(0)
        return pairs, lambda s: cubic(0, 0, pairs.weights)(s) * factor, [pairs.weights]
    if name == "identity":
        return Identity(), lambda s: 1 * s, []
    if name == "view":
        return View(), lambda s: 1 * s, []
    if name == "half square":
        return HalfSquare(), lambda s: s**2 / 2, []
    if name == "steeper":
        steeper = Steeper(torch.tensor(3.0, dtype=torch.float64, requires_grad=True))
        return steeper, lambda s: steeper.scale * s + 2 * s**3, [steeper.scale]
    if name == "linear":
        linear = Linear(6)
        return linear, lambda s: linear.scale * s, [linear.scale]
    affine = Affine(8, -3)
    return affine, lambda s: affine.scale * s + affine.bias, [affine.scale, affine.bias]


THIRD_PARTY = (
    "bent", "learned", "large", "small", "by columns", "per pair", "identity", "view", "half square", "steeper", "linear",
    "affine",
)  # fmt: skip


def built_in(name: str, case: Case) -> tuple[LogitMap, Logits, list[Tensor]]:
    """Returns a map of this package, its formula, and what it learns."""
    n, m = case.positive.shape
    if name == "scale":
        scale = torch.tensor(7.0, dtype=torch.float64, requires_grad=True)
        return ScaleMap(scale), lambda s: scale * s, [scale]
    if name == "scale of each anchor":
        scale = torch.linspace(3, 9, n, dtype=torch.float64).requires_grad_()
        return ScaleMap(scale), lambda s: scale[:, None] * s, [scale]
    if name == "small temperature":
        scale = torch.tensor(900.0, dtype=torch.float64, requires_grad=True)
        return ScaleMap(scale), lambda s: scale * s, [scale]
    if name == "profile":
        profile = ProfileMap("cosine", 0.1, 0.2, detach=False)
        return profile, lambda s: s / (0.1 + 0.05 * (1 + torch.cos(math.pi * (1 + s)))), []
    if name == "log-odds":
        return LogOddsMap(1e-2), lambda s: 2 * torch.atanh(s.clamp(-0.99, 0.99)), []
    anchors, more = (torch.linspace(-1, 1.3, 3 * k, dtype=torch.float64).sin().view(k, 3).requires_grad_() for k in (n, m))
    learned = [anchors, more]
    candidates = more
    if case.block.roles.square:  # the first candidates are the anchors
        candidates = anchors if n == m else torch.cat([anchors, more[n:]])
        learned = [anchors] if n == m else learned
    elif name == "pairs, candidates learn":
        anchors.requires_grad_(False)
        learned = [more]

    def of_pairs(s: Tensor) -> Tensor:
        temperature = 2 / (1 + (anchors @ candidates.T).exp()) + 0.1
        return (s - 0.3) / temperature - 0.45 * temperature.log()

    return PairTemperatureMap(anchors, candidates, 2, 0.1, 0.3), of_pairs, learned


BUILT_IN = (
    "scale", "scale of each anchor", "small temperature", "profile", "log-odds", "pairs", "pairs, candidates learn",
)  # fmt: skip


def negative_term(name: str, case: Case) -> tuple[TermMap, Callable[[Tensor], Tensor]]:
    """Returns a term and its formula."""
    n, m = case.positive.shape
    limit = torch.linspace(0, 0.7, n, dtype=torch.float64)
    if name == "too similar":
        return TooSimilar(limit), lambda s: torch.where(s > limit[:, None], -torch.inf, 0.0)
    if name == "hardness":
        return Hardness(-5), lambda s: -5 * s
    if name == "the similarity itself":
        return Hardness(1), lambda s: s
    numbers = torch.linspace(-300, 100, m, dtype=torch.float64) if name == "far apart" else torch.linspace(-2, 1, m).double()
    return Frequent(numbers), lambda s: numbers.expand_as(s)


TERMS = ("too similar", "hardness", "the similarity itself", "of each candidate", "far apart")
FUNCTIONS: dict[str, tuple[PairFunction, Callable[[Tensor], Tensor]]] = {
    "softplus": (Softplus(), softplus),
    "square": (Square(), lambda logit: logit**2 / 2),
    "itself": (Itself(), lambda logit: 1 * logit),
}


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", THIRD_PARTY)
def test_maps_of_third_parties(name: str, block: str) -> None:
    case = make_case(block)
    logit_map, formula, learned = third_party(name, case)
    compare_statistics(case, logit_map, Plain(formula), learned=learned)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_maps(name: str, block: str) -> None:
    case = make_case(block)
    logit_map, formula, learned = built_in(name, case)
    compare_statistics(case, logit_map, Plain(formula), learned=learned)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize(
    "name", ["bent", "learned", "large", "small", "identity", "view", "half square", "steeper", "linear", "affine"]
)
def test_both_directions_of_one_product(name: str) -> None:
    case = make_case("cross-view")
    logit_map, formula, learned = third_party(name, case)
    compare_statistics(case, logit_map, Plain(formula), learned=learned, mirrored=True)


@pytest.mark.usefixtures("cut_or_not")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("name", ["learned", "large", "scale of each anchor", "pairs"])
def test_terms_of_negatives(name: str, term: str, block: str) -> None:
    case = make_case(block)
    logit_map, formula, learned = (third_party if name in THIRD_PARTY else built_in)(name, case)
    term_map, of_pairs = negative_term(term, case)
    compare_statistics(case, logit_map, Plain(formula, of_pairs), learned=learned, terms=[term_map])


@pytest.mark.usefixtures("cut_or_not")
def test_terms_add_up() -> None:
    case = make_case("two-view+hard")
    logit_map, formula, learned = third_party("learned", case)
    maps, formulas = zip(*(negative_term(each, case) for each in TERMS), strict=True)
    plain = Plain(formula, lambda s: torch.stack([each(s) for each in formulas]).sum(0))
    compare_statistics(case, logit_map, plain, learned=learned, terms=maps)


@pytest.mark.usefixtures("cut_or_not")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", ["affine", "identity", "half square", "scale", "pairs"])
def test_pair_functions(name: str, function: str, block: str) -> None:
    case = make_case(block)
    logit_map, formula, learned = (third_party if name in THIRD_PARTY else built_in)(name, case)
    pair, plain = FUNCTIONS[function]
    wanted = Wanted(pair_function=pair)
    compare_statistics(case, logit_map, Plain(formula, function=plain), learned=learned, wanted=wanted)


@pytest.mark.usefixtures("cut_or_not")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("term", ["too similar", "the similarity itself", "of each candidate"])
@pytest.mark.parametrize("name", ["affine", "scale of each anchor"])
def test_pair_functions_beside_terms(name: str, term: str, block: str) -> None:
    case = make_case(block)
    logit_map, formula, learned = (third_party if name in THIRD_PARTY else built_in)(name, case)
    term_map, of_pairs = negative_term(term, case)
    plain = Plain(formula, of_pairs, softplus)
    compare_statistics(case, logit_map, plain, learned=learned, terms=[term_map], wanted=Wanted(pair_function=Softplus()))


@pytest.mark.usefixtures("cut_or_not")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("term", [None, "of each candidate"])
@pytest.mark.parametrize("name", ["large", "small", "by columns", "identity", "scale", "log-odds", "pairs"])
def test_mean_similarity_and_most_similar_negatives(name: str, term: str | None, block: str) -> None:
    case = make_case(block)
    logit_map, formula, learned = (third_party if name in THIRD_PARTY else built_in)(name, case)
    term_map, of_pairs = negative_term(term, case) if term else (None, torch.zeros_like)
    wanted = Wanted(negative_similarity=True, top=2)
    terms = [] if term_map is None else [term_map]
    compare_statistics(case, logit_map, Plain(formula, of_pairs), learned=learned, wanted=wanted, terms=terms)


@pytest.mark.usefixtures("cut_or_not")
def test_rows_without_negatives_have_no_mean_similarity() -> None:
    case = make_case("masks")
    case.negative[2] = False
    (found,), _ = row_statistics("tiled", case.block, Bent(4, 2), wanted=Wanted(negative_similarity=True))
    assert found.negative_similarity is not None
    assert found.negative_similarity[2] == 0
    assert found.negative_lse[2] == -torch.inf


@pytest.mark.usefixtures("cut_or_not")
def test_a_pass_with_top_logits_is_freed_with_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that its own graph held would keep the tiles until the next collection of cycles."""
    passes: list[weakref.ref[tiled.Pass]] = []

    class Watched(tiled.Pass):
        def forward(self, keep: bool) -> tuple[Tensor | None, ...]:
            passes.append(weakref.ref(self))
            return super().forward(keep)

    monkeypatch.setattr(tiled, "Pass", Watched)
    gc.disable()
    try:
        found = row_statistics("tiled", make_case("queue").block, Bent(4, 2), wanted=Wanted(True, 2))
        assert passes[0]() is not None
        del found
        assert passes[0]() is None
    finally:
        gc.enable()


class Top(Objective):
    """The mean of the two most similar negatives."""

    name = "top"
    top = 2

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        assert statistics.top_logits is not None
        return statistics.top_logits.mean(1) - statistics.positive_logit


@pytest.mark.usefixtures("cut_or_not")
def test_both_directions_have_their_most_similar_negatives() -> None:
    a, b = unit_rows(7, 1), unit_rows(7, 2)
    loss = ContrastiveLoss("fixed:temperature=0.5", Top(), "cross-view", symmetric=True, engine="tiled")(a, b)
    logits = 2 * a @ b.T
    expected = [each.fill_diagonal_(-torch.inf).topk(2).values.mean() for each in (logits.clone(), logits.T.clone())]
    assert loss.item() == pytest.approx((sum(expected) / 2 - logits.trace() / 7).item(), rel=1e-12)
