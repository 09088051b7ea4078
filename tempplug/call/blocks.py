"""From the blocks of a call to the statistics of its rows: terms on negatives, engines, and blocks that share a softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from tempplug.block import Block
from tempplug.engine.dispatch import row_statistics
from tempplug.engine.forward import at_positives
from tempplug.errors import ConfigError, ShapeError
from tempplug.layouts import Views
from tempplug.layouts.base import Part
from tempplug.negatives.base import NegativeTerm, Pairs, TermMap
from tempplug.pair_functions import PairFunction
from tempplug.roles import PairRoles
from tempplug.strategies.maps import LogitMap
from tempplug.types import EngineName, RowStatistics, Wanted


def terms_of(terms: Sequence[NegativeTerm], block: Block) -> list[NegativeTerm]:
    """Returns those of the terms that are meant for a block."""
    return [term for term in terms if not term.blocks or block.name in term.blocks]


def term_maps(terms: Sequence[NegativeTerm], pairs: Pairs) -> tuple[TermMap, ...]:
    """Returns the term maps of a block."""
    maps = [term.prepare(pairs) for term in terms]
    return tuple(term_map for term_map in maps if term_map is not None)


def pairs_of(block: Block, views: Views, similarity: Tensor, main: Pairs | None) -> Pairs:
    """Returns a block as terms see it; ``main`` is the block with the positives, None where it is this one."""
    of_anchors, of_candidates = views.parts_of(block)
    hard = [torch.full((part.size,), part.name == "hard_negatives", device=views.device) for part in of_candidates]
    anchors, candidates = block.detached
    return Pairs(
        anchors=anchors,
        candidates=candidates,
        roles=block.roles,
        positive_similarity=similarity,
        row_of_anchors=torch.cat([views.numbers(part) for part in of_anchors]),
        row_of_candidates=torch.cat([views.numbers(part) for part in of_candidates]),
        of_anchors=partial(argument_of, views, of_anchors),
        of_candidates=partial(argument_of, views, of_candidates),
        hard=torch.cat(hard) if "hard_negatives" in views.everyone.order.spans else None,
        owned="hard_negatives" not in views.everyone.order.spans or views.hard_rows is not None,
        whole=views.chunk is None,
        main=main,
    )


def argument_of(views: Views, parts: Sequence[Part], name: str, of_row: bool = False) -> Tensor:
    """Returns what a call gives of the rows of some parts, one behind the other; see `Pairs`."""
    values, tensors = views.row_arguments.get(name, {}), []
    for part in parts:
        if part.name in values:
            tensors.append(values[part.name][part.everyone])
        elif of_row and part.name == "hard_negatives" and views.hard_rows is not None and "view_a" in values:
            tensors.append(values["view_a"][True][views.hard_rows - views.start])
        else:
            wanted = ", ".join(f"'{source}': ..." for source in dict.fromkeys([*values, *(part.name for part in parts)]))
            raise ShapeError(f"{name}= is needed of {part.name}, too: pass {name}={{{wanted}}}.")
    return torch.cat(tensors)


def statistics_of(
    engine: EngineName, blocks: Sequence[Block], maps: Sequence[LogitMap], wanted: Wanted, plain: bool | None = None
) -> tuple[list[RowStatistics], EngineName]:
    """Returns the statistics of each block under its map, and the name of the engine that computed them."""
    first, last = blocks[0], blocks[-1]
    terms = first.terms + first.excluded
    # The sums of a block and its mirror image come from one pass.
    mirrored = last.mirrors_first and maps[-1] is maps[0] and not (wanted.needs_pairs or terms or last.terms)
    first.alone = mirrored or len(blocks) == 1
    statistics, used = row_statistics(engine, first, maps[0], mirrored=mirrored, wanted=wanted, terms=terms, plain=plain)
    if len(statistics) < len(blocks):
        for block, logit_map in zip(blocks[len(statistics) :], maps[len(statistics) :], strict=True):
            terms = block.terms + block.excluded
            statistics += row_statistics(engine, block, logit_map, wanted=wanted, terms=terms, plain=plain)[0]
    return statistics, used


def joined(blocks: Sequence[RowStatistics], paired: Sequence[bool], pair_function: PairFunction | None) -> RowStatistics:
    """Returns the statistics of rows whose negatives lie in several blocks, the first of which holds the positives.

    The positive is in the sum once for each ``paired`` block. With a pair function the statistics hold sums of it.

    Raises:
        ConfigError: the most similar negatives are wanted.
    """
    first = blocks[0]
    if first.top_logits is not None:
        raise ConfigError("the most similar negatives of a row are not known of several blocks: use directions=ab.")
    with_positive = [block.positive_lse for block, holds in zip(blocks, paired, strict=True) if holds]
    negatives = torch.stack([block.negative_lse for block in blocks])
    means = [block.negative_similarity for block in blocks if block.negative_similarity is not None]
    return replace(
        first,
        positive_lse=with_positive[0] if len(with_positive) == 1 else _total(torch.stack(with_positive), pair_function),
        negative_lse=_total(negatives, pair_function),
        negative_count=torch.stack([block.negative_count.expand_as(first.negative_lse) for block in blocks]).sum(0),
        negative_similarity=(negatives.detach().softmax(0).nan_to_num() * torch.stack(means)).sum(0) if means else None,
    )


def _total(sums: Tensor, pair_function: PairFunction | None) -> Tensor:
    """Returns the sums of rows over blocks, [N]; of logarithms their log-sum-exp, with no gradient where all are -inf."""
    if pair_function is not None:
        return sums.sum(0)
    empty = (sums.detach() == -torch.inf).all(0)
    return torch.logsumexp(sums.masked_fill(empty, 0.0), 0).masked_fill(empty, -torch.inf)


def with_row_terms(
    terms: Sequence[NegativeTerm], statistics: RowStatistics, roles: PairRoles, logit_map: LogitMap
) -> RowStatistics:
    """Returns the statistics of rows after `NegativeTerm.negative_lse` of each term; the map needs a smallest logit."""
    if logit_map.products:
        raise ConfigError(
            f"negative term '{terms[0].name}' needs the smallest logit of a row, which strategies with a temperature for each "
            "pair, such as 'amcl', do not have: use another strategy."
        )
    lowest = torch.full_like(statistics.positive_similarity.detach(), -1.0)
    lse, lowest = statistics.negative_lse, at_positives(logit_map, roles).logit(lowest).detach()
    for term in terms:
        lse = term.negative_lse(lse, statistics.positive_logit, statistics.negative_count, lowest)
    return replace(statistics, negative_lse=lse)
