"""Blocks for tests of the engines, and plain dense formulas for what they return; `engine_maps` has maps.

Roles are written here as two boolean matrices, without `tempplug.roles`, so that the expectations know no engine and no layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tempplug.engine.dispatch import row_statistics
from tempplug.negatives.base import TermMap
from tempplug.roles import Block, Pairing, PairRoles
from tempplug.strategies.maps import LogitMap
from tempplug.types import EngineName, Wanted

CPU = torch.device("cpu")
EVERY = slice(None)
SIZE, HARD, QUEUED, DIMENSION = 9, 4, 7, 5
BLOCKS = ("two-view", "two-view+hard", "cross-view", "cross-view+hard", "queue", "labels", "labels+hard", "masks")
STATISTICS = ("positive_logit", "positive_similarity", "positive_lse", "negative_lse", "negative_similarity", "top_logits")


@dataclass
class Case:
    """A block, and which of its pairs are positives and negatives."""

    block: Block
    positive: Tensor
    negative: Tensor
    leaves: list[Tensor] = field(default_factory=list)

    @property
    def similarity(self) -> Tensor:
        return self.block.anchors @ self.block.candidates.T


def unit_rows(count: int, seed: int) -> Tensor:
    values = torch.randn(count, DIMENSION, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return normalize(values).requires_grad_()


def bare_rows(anchors: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Both without gradient; the same tensor twice where they are one."""
    bare = anchors.detach()
    return bare, bare if candidates is anchors else candidates.detach()


def make_case(name: str) -> Case:
    layout, _, hard = name.partition("+")
    n, count, extra = SIZE, SIZE, HARD if hard else 0
    anchors, more = unit_rows(n, 1), unit_rows(HARD, 4)
    leaves, other = [anchors], unit_rows(n, 2)
    own = torch.eye(n, dtype=torch.bool)
    given: dict[str, object] = {}
    if layout in ("two-view", "labels"):
        anchors = unit_rows(2 * n, 3)
        leaves, count = [anchors], 2 * n
        own = torch.eye(count, dtype=torch.bool)
        given |= {"ignored": Pairing(((0, count, 0),)), "square": True}
        candidates = anchors
    elif layout == "queue":
        candidates = unit_rows(n + QUEUED, 2)
    elif layout == "masks":
        candidates = unit_rows(n + 2, 2)
    else:
        candidates = other
    if candidates is not anchors:
        leaves.append(candidates)
    if layout == "two-view":
        positive = own.roll(n, 1)
        negative = ~own & ~positive
        given["positives"] = Pairing(((0, n, n), (n, 2 * n, -n)))
    elif layout == "cross-view":
        positive, negative = own, ~own
        given["positives"] = Pairing(((0, n, 0),))
    elif layout == "queue":
        positive = torch.eye(n, n + QUEUED, dtype=torch.bool)
        negative = (torch.arange(n + QUEUED) >= n).expand(n, -1)
        given |= {"positives": Pairing(((0, n, 0),)), "negatives_start": n}
    elif layout == "labels":
        labels = torch.arange(count) // 3
        labels[-1] = 99  # no other anchor has it
        same = labels[:, None] == labels
        positive, negative = same & ~own, ~same
        given |= {"anchor_labels": labels, "candidate_labels": torch.cat([labels, labels.new_full((extra,), -1)])}
        if not extra:
            given["candidate_labels"] = labels
    else:
        own = torch.eye(n, n + 2, dtype=torch.bool)
        positive = own | (own.roll(1, 1) & (torch.arange(n) % 2 == 0)[:, None])
        negative = ~positive & ~own.roll(2, 1)
        positive[-1] = False
        given |= {"positive_mask": positive, "negative_mask": negative}
    if extra:
        seeing = n if layout == "two-view" else count
        candidates = torch.cat([candidates, more])
        leaves.append(more)
        seen = (torch.arange(count) < seeing)[:, None].expand(-1, extra)
        positive = torch.cat([positive, torch.zeros_like(seen)], 1)
        negative = torch.cat([negative, seen], 1)
        given |= {"extra_start": candidates.shape[0] - extra, "extra_anchors": seeing}
    roles = PairRoles(anchors=len(anchors), candidates=len(candidates), device=CPU, **given)  # type: ignore[arg-type]
    mean = ((anchors @ candidates.T) * positive).sum(1) / positive.sum(1).clamp(min=1)
    block = Block(anchors, candidates, bare_rows(anchors, candidates), roles, mean.detach(), torch.float64)
    return Case(block, positive, negative, leaves)


def turned(case: Case) -> Case:
    """The transposed block, whose rows are the columns of this one."""
    return Case(case.block.mirrored(), case.positive.T, case.negative.T, case.leaves)


def plain_statistics(case: Case, logits: Tensor, of_negatives: Tensor, wanted: Wanted) -> dict[str, Tensor]:
    """What a row's statistics are, from the logits of all pairs and those with the terms of negatives added."""
    s, count = case.similarity, case.positive.sum(1).clamp(min=1)
    nothing, function = torch.full_like(s, -torch.inf), wanted.pair_function
    if function is None:
        some = case.positive | (case.positive.sum(1) == 0)[:, None]
        positive = torch.where(some, logits, nothing).logsumexp(1)
        negative = torch.where(case.negative, of_negatives, nothing).logsumexp(1)
    else:
        # A pair that a term leaves out has no logit, and would have no derivative.
        left = case.negative & (of_negatives > -torch.inf)
        negative = torch.where(left, function.value(torch.where(left, of_negatives, 0.0)), 0.0).sum(1)
        positive = torch.where(case.positive, function.value(logits), 0.0).sum(1)
    found = {
        "positive_logit": torch.where(case.positive, logits, 0.0).sum(1) / count,
        "positive_similarity": torch.where(case.positive, s, 0.0).sum(1) / count,
        "positive_lse": positive,
        "negative_lse": negative,
    }
    if wanted.negative_similarity:
        weights = torch.where(case.negative, of_negatives, nothing).softmax(1)
        found["negative_similarity"] = (weights * s).sum(1).detach()
    if wanted.top:
        order = torch.where(case.negative, s, nothing).argsort(1, descending=True)[:, : wanted.top]
        found["top_logits"] = of_negatives.gather(1, order)
    return found


def weights_of(case: Case, name: str, values: Tensor) -> Tensor:
    """Random numbers, 0 where a statistic has no meaning: positives of an anchor without any."""
    numbers = torch.rand(values.shape, generator=torch.Generator().manual_seed(len(name)), dtype=values.dtype)
    return numbers * case.positive.any(1) if name.startswith("positive") else numbers


def compare_statistics(
    engine: EngineName,
    case: Case,
    logit_map: LogitMap,
    *,
    wanted: Wanted | None = None,
    terms: Sequence[TermMap] = (),
    mirrored: bool = False,
    tolerance: float = 1e-10,
) -> None:
    """Asserts that values and gradients of every statistic are those of the plain formulas on the map's own logits."""
    wanted = Wanted() if wanted is None else wanted
    every, name = row_statistics(engine, case.block, logit_map, mirrored=mirrored, wanted=wanted, terms=terms)
    assert name == engine
    learned = getattr(logit_map, "learned", logit_map.tensors())
    leaves = [*case.leaves, *(each for each in learned if each.requires_grad)]
    ours, theirs = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    logits = logit_map.at(EVERY, EVERY).logit(case.similarity)
    of_negatives = logits + sum(each.at(EVERY, EVERY).term(case.similarity.detach()) for each in terms)
    expected = [plain_statistics(case, logits, of_negatives, wanted)]
    if mirrored:
        expected.append(plain_statistics(turned(case), logits.T, of_negatives.T, wanted))
    for found, each, plain in zip(every, [case, turned(case)][: len(expected)], expected, strict=True):
        assert torch.equal(found.positive_count, each.positive.sum(1))
        assert torch.equal(found.negative_count, each.negative.sum(1))
        for statistic in STATISTICS:
            value: Tensor | None = getattr(found, statistic)
            if statistic not in plain:
                assert value is None
                continue
            assert value is not None
            weights = weights_of(each, statistic, value)
            shown = weights > 0
            close(value[shown], plain[statistic][shown], tolerance, statistic)
            if value.requires_grad:
                ours = ours + (weights * torch.where(shown, value, 0.0)).sum()
                theirs = theirs + (weights * torch.where(shown, plain[statistic], 0.0)).sum()
    right = torch.autograd.grad(theirs, leaves)
    for again in (True, False):  # a second backward pass finds the same, from tiles that are computed again
        left = torch.autograd.grad(ours, leaves, retain_graph=again)
        for position, (one, other) in enumerate(zip(left, right, strict=True)):
            close(one, other, tolerance * other.abs().max().clamp(min=1).item(), f"gradient {position}", rtol=0)


def close(found: Tensor, expected: Tensor, tolerance: float, name: str, rtol: float | None = None) -> None:
    rtol = tolerance if rtol is None else rtol
    torch.testing.assert_close(found, expected, rtol=rtol, atol=tolerance, msg=lambda text: f"{name}: {text}")
