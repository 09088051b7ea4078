"""Blocks for tests of the engines, and plain dense formulas for what they return; `engine_maps` has maps.

The roles of pairs are those of the oracle, two boolean matrices, so that the expectations use no engine and no layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from oracle_cases import build, make_call, roles_of
from torch import Tensor

from tempplug.block import Block
from tempplug.embeddings import Selection
from tempplug.engine.dispatch import row_statistics
from tempplug.negatives.base import TermMap
from tempplug.strategies.maps import LogitMap
from tempplug.types import EngineName, Wanted

CPU = torch.device("cpu")
EVERY = slice(None)
SIZE, DIMENSION = 9, 5
BLOCKS = ("two-view", "two-view+hard", "cross-view", "cross-view+hard", "queue+hard", "labels", "labels+hard", "masks")
STATISTICS = ("positive_logit", "positive_similarity", "positive_lse", "negative_lse", "negative_similarity", "top_logits")


@dataclass
class Case:
    """A block, which of its pairs are positives and negatives, and the embeddings that it was made of."""

    block: Block
    positive: Tensor
    negative: Tensor
    leaves: list[Tensor]

    @property
    def similarity(self) -> Tensor:
        return self.block.anchors @ self.block.candidates.T


def block_of_rows(anchors: Tensor, candidates: Tensor, *fields: Any) -> Block:
    """A block of unit rows with a graph of their own; the same selection twice where they are one tensor."""
    of_anchors = Selection(None, rows=anchors)
    return Block(of_anchors, of_anchors if candidates is anchors else Selection(None, rows=candidates), *fields)


def with_rows(block: Block, anchors: Tensor, candidates: Tensor) -> Block:
    """The same block of other rows."""
    return replace(block, of_anchors=Selection(None, rows=anchors), of_candidates=Selection(None, rows=candidates))


def make_case(name: str) -> Case:
    """The first block that the loss of a layout gives to an engine, and the roles that the oracle has for it."""
    call = make_call(name, "fixed", SIZE, DIMENSION, torch.float64)
    if name.startswith("labels"):
        call.inputs["labels"][-1] = 99  # no other anchor has it
    blocks: list[Block] = []

    def seen(engine: EngineName, block: Block, *rest: Any, **more: Any) -> Any:
        # The call drops the graph of its own block.
        of_anchors, of_candidates = copy(block.of_anchors), copy(block.of_candidates)
        square = block.of_candidates is block.of_anchors
        blocks.append(replace(block, of_anchors=of_anchors, of_candidates=of_anchors if square else of_candidates))
        return row_statistics(engine, block, *rest, **more)

    with patch("tempplug.call.blocks.row_statistics", seen):
        build("fixed", "infonce", call, "none")(*call.views, **call.inputs)
    direction = roles_of(call)[0][0]
    return Case(blocks[0], direction.positive, direction.negative, call.leaves())


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
        positive = torch.where(case.positive, function.value(-logits), 0.0).sum(1)
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
    logits = logit_map.restrict(EVERY, EVERY).logit(case.similarity)
    of_negatives = logits + sum(each.restrict(EVERY, EVERY).term(case.similarity.detach()) for each in terms)
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
    right = torch.autograd.grad(theirs, leaves, retain_graph=True)
    for _ in range(2):  # a second backward pass finds the same, from tiles that are computed again
        left = torch.autograd.grad(ours, leaves, retain_graph=True)
        for position, (one, other) in enumerate(zip(left, right, strict=True)):
            close(one, other, tolerance * other.abs().max().clamp(min=1).item(), f"gradient {position}", rtol=0)


def close(found: Tensor, expected: Tensor, tolerance: float, name: str, rtol: float | None = None) -> None:
    rtol = tolerance if rtol is None else rtol
    torch.testing.assert_close(found, expected, rtol=rtol, atol=tolerance, msg=lambda text: f"{name}: {text}")
