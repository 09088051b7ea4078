"""The engines' row statistics against plain dense formulas in float64: any map, negative term and pair function.

In one tile and in many ragged ones, kept for the backward pass and computed again.
"""

from __future__ import annotations

import pytest
import torch
from covering import every_pair
from engine_cases import BLOCKS, compare_statistics, make_case
from engine_maps import FUNCTIONS, MAPS, TERMS, Bent, TooSimilar
from oracle_cases import CUTS, cut_into
from torch import Tensor
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss
from tempplug.engine.dispatch import row_statistics
from tempplug.objectives.base import Objective
from tempplug.pair_functions import Softplus
from tempplug.types import Auxiliary, EngineName, RowStatistics, Wanted

ENGINES: list[EngineName] = ["dense", "tiled"]
WAYS: list[tuple[EngineName, str]] = [("dense", "one tile"), *(("tiled", cut) for cut in CUTS)]
# Terms of negatives, the pair function, and what else is wanted.
Extras = tuple[tuple[str, ...], str | None, tuple[bool, int]]
EXTRAS: list[Extras] = [
    *(((), None, more) for more in ((False, 0), (True, 2))),
    *(((term,), None, (False, 0)) for term in TERMS),
    *(((), function, (False, 0)) for function in FUNCTIONS),
    (("too similar", "the similarity itself"), "softplus", (False, 0)),
    (tuple(TERMS), None, (True, 0)),
]
# Whose logit of (i, j) is that of (j, i).
BOTH_WAYS = [name for name in MAPS if "pair" not in name and "anchor" not in name]


@pytest.mark.parametrize(("way", "name", "block", "extras"), every_pair(WAYS, list(MAPS), BLOCKS, EXTRAS), ids=str)
def test_statistics_and_gradients_are_those_of_the_plain_formulas(
    way: tuple[EngineName, str], name: str, block: str, extras: Extras
) -> None:
    (engine, cut), (terms, function, more) = way, extras
    case = make_case(block)
    wanted = Wanted(*more, pair_function=None if function is None else FUNCTIONS[function])
    with cut_into(cut):
        logit_map = MAPS[name](case)
        compare_statistics(engine, case, logit_map, wanted=wanted, terms=[TERMS[each](case) for each in terms])


@pytest.mark.parametrize(("way", "name"), every_pair(WAYS, BOTH_WAYS), ids=str)
def test_both_directions_of_one_product(way: tuple[EngineName, str], name: str) -> None:
    case = make_case("cross-view")
    with cut_into(way[1]):
        compare_statistics(way[0], case, MAPS[name](case), mirrored=True)


@pytest.mark.parametrize("cut", CUTS)
def test_rows_without_negatives_have_no_mean_similarity(cut: str) -> None:
    case = make_case("masks")
    case.negative[2] = False
    with cut_into(cut):
        (found,), _ = row_statistics("tiled", case.block, Bent(), wanted=Wanted(negative_similarity=True))
    assert found.negative_similarity is not None
    assert found.negative_similarity[2] == 0
    assert found.negative_lse[2] == -torch.inf


@pytest.mark.parametrize(("way", "block"), every_pair(WAYS, ["two-view", "cross-view", "labels", "masks"]), ids=str)
def test_a_row_whose_negatives_all_are_left_out_has_none(way: tuple[EngineName, str], block: str) -> None:
    """The others keep their numbers and gradients."""
    case, engine = make_case(block), way[0]
    limit = torch.full((len(case.block.anchors),), 2.0, dtype=torch.float64)
    limit[3] = -2
    terms, others = [TooSimilar(limit)], torch.arange(len(limit)) != 3
    with cut_into(way[1]):
        (of_pairs,), _ = row_statistics(engine, case.block, Bent(), terms=terms, wanted=Wanted(pair_function=Softplus()))
        assert of_pairs.negative_lse[3] == 0
        for logit_map in (Bent(), Bent(900, 700)):
            (found,), _ = row_statistics(engine, case.block, logit_map, terms=terms)
            (plain,), _ = row_statistics(engine, case.block, logit_map)
            assert found.negative_lse[3] == -torch.inf
            assert found.negative_count.equal(plain.negative_count)
            torch.testing.assert_close(found.negative_lse[others], plain.negative_lse[others], rtol=1e-12, atol=1e-12)
            sums = [each.negative_lse[others].sum() for each in (found, plain)]
            ours, expected = (torch.autograd.grad(each, case.leaves, retain_graph=True) for each in sums)
            torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


class Top(Objective):
    """The mean of the two most similar negatives."""

    name = "top"
    top = 2

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        assert statistics.top_logits is not None
        return statistics.top_logits.mean(1) - statistics.positive_logit


@pytest.mark.parametrize("cut", CUTS)
def test_both_directions_have_their_most_similar_negatives(cut: str) -> None:
    a, b = normalize(torch.randn(2, 7, 5, dtype=torch.float64), dim=2)
    with cut_into(cut):
        loss = ContrastiveLoss("fixed:temperature=0.5", Top(), "cross-view", symmetric=True, engine="tiled")(a, b)
    logits = 2 * a @ b.T
    expected = [each.fill_diagonal_(-torch.inf).topk(2).values.mean() for each in (logits.clone(), logits.T.clone())]
    assert loss.item() == pytest.approx((sum(expected) / 2 - logits.trace() / 7).item(), rel=1e-12)
