"""The loss of one head of a call: from raw embeddings through blocks, maps, terms and engine to row losses and their mean.

This module joins strategies, objectives, terms on negatives, engines and layouts, which do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from tempplug import distributed
from tempplug.block import Block
from tempplug.blocks import joined, pairs_of, statistics_of, term_maps, terms_of, with_row_terms
from tempplug.embeddings import unit_rows
from tempplug.errors import ConfigError, ShapeError
from tempplug.inputs import (
    check_embeddings,
    check_finite,
    check_integers,
    check_read,
    check_uncertainty,
    common_type,
    unread,
)
from tempplug.layouts import Views
from tempplug.memory import Setting
from tempplug.negatives.base import Pairs, TermMap
from tempplug.record import Step
from tempplug.reduction import message_without_negatives, no_losses, over_anchors, over_directions, with_loss, with_nan
from tempplug.replay import ADVICE, RememberedCall
from tempplug.ring import Ring, make_ring
from tempplug.scores import views_of_scores
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap
from tempplug.transforms import refuse_fake, valueless
from tempplug.types import NOTHING, Auxiliary, Batch, RowStatistics, Wanted
from tempplug.views import views_of_embeddings

T = TypeVar("T")
# Beside the kinds of calls that were checked: that a call on a device looked for anchors without a negative.
LOOKED = "looked for anchors without a negative"


class Head:
    """One head of one call, which adds to the ``step`` what the record of the call needs."""

    def __init__(self, setting: Setting, step: Step) -> None:
        self.setting, self.step = setting, step
        parts, self.memory, training, _, self.plain = setting
        self.parts = parts
        self.strategy, self.objective, self.layout, self.terms = parts.strategy, parts.objective, parts.layout, parts.terms
        self.observing = training and parts.strategy.observes
        self.objective_observes = training and parts.objective.observes
        self.counting = [term for term in self.terms if term.observes] if training and self.terms else []
        self.ring: Ring | None = None
        # Whether the layout leaves out negatives by their rows.
        self.excludes = False
        # What a call makes of a state that moves, and whether this is its second computation.
        self.call: RememberedCall | None = None
        self.again = False

    def loss(self, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any]) -> Tensor:
        """Returns the loss of raw embeddings, reduced; ``given`` holds the optional arguments of the call that were given."""
        views, without_norm = views_of_embeddings(self.setting, view_a, view_b, given)
        if without_norm is not None:
            self.step.zero_norm.append(without_norm)
        return self._of_views(views)

    def of_scores(self, scores: Tensor, _: None, given: dict[str, Any]) -> Tensor:
        """Returns the loss of similarities [N, M] that the caller computed, reduced."""
        return self._of_views(views_of_scores(self.parts, scores, given))

    def _of_views(self, views: Views) -> Tensor:
        step, reduction = self.step, self.parts.reduction
        if self.observing or self.counting or self.objective_observes:
            self.call, self.again = self.memory.replay.call(views, len(step.row_losses))
        blocks = self._blocks(views)
        if blocks is None:
            lacking = f"layout '{self.layout.name}': no anchor has a positive, so the loss is 0"
            self.memory.warn("positive", f"{lacking}, here and in later such batches.")
            row_losses = with_nan(no_losses(views, self.parts.parameters()), views)
            step.row_losses.append((row_losses.detach(), torch.zeros_like(row_losses, dtype=torch.bool)))
            return over_anchors(row_losses, None, views, reduction)
        losses, valid = self._row_losses(blocks, views)
        row_losses, kept = (losses[0], None) if len(losses) == 1 and valid[0] is None else over_directions(losses, valid)
        if kept is not None:
            row_losses = with_nan(row_losses, views)
        step.row_losses.append((row_losses.detach(), kept))
        return over_anchors(row_losses, kept, views, reduction)

    def _row_losses(self, blocks: list[Block], views: Views) -> tuple[list[Tensor], list[Tensor | None]]:
        """Returns the losses of the rows of each softmax, and which of them count (None: all)."""
        objective, step = self.objective, self.step
        counts = (self.excludes or bool(self.terms)) and self._counts_negatives()
        mean, wanted = self.setting.training and self.strategy.needs_negative_similarity, NOTHING
        step.sums = objective.pair_function is not None
        if mean or counts or objective.top or step.sums:
            wanted = Wanted(mean, objective.top, objective.pair_function, counts)
        statistics = self._statistics(blocks, wanted, [block.logit_map for block in blocks])
        second = self._second(blocks, counts)
        losses: list[Tensor] = []
        valid: list[Tensor | None] = []
        for number, rows in enumerate(statistics):
            block = blocks[number]
            if block.must_observe:
                self.strategy.observe(block.batch, rows)
            auxiliary = Auxiliary(block.batch.positive_similarity, None if second is None else second[number], block.logit_map)
            if self.objective_observes:
                auxiliary.observed = self._made(("observed", number), partial(objective.observe, block.batch, rows))
            without = self._without_negatives(block, rows)
            valid.append(with_loss(block.roles, rows.positive_count, without, objective, views.rows.world == 1))
            if without is not None and not objective.without_negatives:
                # Dropped later; until then any number does that has no infinite one to be subtracted from.
                level = rows.positive_lse.detach()
                rows = replace(rows, negative_lse=torch.where(without, level, rows.negative_lse))
            losses.append(objective.row_loss(rows, auxiliary))
        step.blocks += [block.detached(rows) for block, rows in zip_longest(blocks, statistics)]
        return losses, valid

    def _blocks(self, views: Views) -> list[Block] | None:
        """Returns the blocks, ready for an engine; None where no anchor of any process has a positive."""
        blocks = self.layout.build(views)
        if views.chunk is not None:
            self.ring = make_ring(self.parts, views, blocks)
        main: Pairs | None = None
        for number, block in enumerate(blocks):
            if not self._complete(block, views, blocks[0] if number else None, number):
                return None
            if self.terms:
                block.pairs = pairs_of(block, views, block.positive_similarity, None if block.paired else main)
                block.terms = self._terms(block, block.pairs, views, number)
                main = main or block.pairs
            self.excludes = self.excludes or bool(block.excluded)
            if self.objective.top and (self.terms or block.excluded):
                raise ConfigError(
                    f"objective '{self.objective.name}' ranks all negatives of a row by similarity: it takes no negatives=, no "
                    "hard_negative_mask= and no layout with hard=own."
                )
        return blocks

    def _terms(self, block: Block, pairs: Pairs, views: Views, number: int) -> tuple[TermMap, ...]:
        """Returns the terms of a block by its number; those that count have seen the call, but no second computation of it."""
        meant = terms_of(self.terms, block)
        if not self.counting:
            return term_maps(meant, pairs)
        if self.ring is not None and self.again:
            raise ConfigError(
                f"negative term '{self.counting[0].name}' counts, so a checkpoint cannot compute the terms of other processes "
                f"again where gather='ring': use gather=True, or {ADVICE}."
            )
        if not (number or self.again or self.step.row_losses):  # once for all heads
            given = {name: {part: own for part, (own, _) in of.items()} for name, of in views.row_arguments.items()}
            for term in self.counting:
                term.observe(given)
        counted = self._made(("terms", number), lambda: term_maps([term for term in meant if term.observes], pairs))
        return counted + term_maps([term for term in meant if not term.observes], pairs)

    def _made(self, name: tuple[str, int], make: Callable[[], T]) -> T:
        """Returns what is made of a state that moves; in a second computation of the call, what the first one made."""
        if self.call is None:
            return make()
        if not self.again:
            self.call.made[name] = make()
        return cast(T, self.call.made[name])

    def _complete(self, block: Block, views: Views, first: Block | None, number: int) -> bool:
        """Gives a block its similarities of positives, its batch and its map; returns whether any anchor has a positive.

        Blocks of the same rows as the ``first`` share what it has.
        """
        roles, rows, joint = block.roles, views.rows, self.layout.joint
        shared = first if first is not None and (joint or block.mirrors_first) else None
        positives, counts = self._positives(block, shared), None
        if roles.positives is None:
            counts = roles.positive_count
            if self.ring is not None:
                positives, counts = self.ring.positive_similarity()
            block.positive_similarity = positives
            positives = positives if roles.fewest_positives else positives[counts > 0]
        else:
            block.positive_similarity = positives
        if rows.world > 1:
            # Blocks of two views hold each rank's rows twice; labels leave a different number on each rank.
            count = positives.shape[0]
            of_own = rows.times(count // views.size) if counts is None and count % views.size == 0 else None
            positives = distributed.gather(positives, of_own or distributed.share_rows(count, positives.device, True))
        if counts is not None:
            if positives.numel() == 0:
                return False
            if not self.objective.several_positives:
                self._refuse_several(counts, rows)
        names = block.arguments[0]
        batch = block.batch = Batch(
            positives,
            None if block.scores is not None else block.anchors,
            None if block.scores is not None else block.candidates,
            block.labels,
            block.index,
            block.uncertainty,
            (views.size if names[0] == "view_a" else 0) if names else None,
        )
        if shared is not None and shared.logit_map.uniform and (joint or shared.logit_map.symmetric):
            block.logit_map, block.must_observe = shared.logit_map, shared.must_observe
        elif self.observing:
            block.logit_map, block.must_observe = self._observing_map(batch, number), not self.again
        else:
            block.logit_map = self.objective.first_map(self.strategy.prepare(batch))
        return True

    def _positives(self, block: Block, shared: Block | None) -> Tensor:
        """Returns the mean similarity of each anchor with its positives, [N]."""
        if shared is not None:
            return shared.positive_similarity
        if block.scores is not None:
            return block.roles.mean_over_positives(block.scores.detach())
        return block.roles.positive_similarity(*block.bare)

    def _observing_map(self, batch: Batch, number: int) -> LogitMap:
        """Returns the map of a strategy that observes batches; in a second computation, that of the first one.

        Raises:
            ConfigError: the map of the first computation learns, too.
        """
        call, name = self.call, ("map", number)
        if call is None or not self.again:
            logit_map = self.objective.first_map(self.strategy.prepare(batch))
            if call is not None:  # a map that learns holds the graph of its call, which must not be kept alive
                call.made[name] = None if logit_map.tensors() else logit_map
            return logit_map
        if call.made[name] is None:
            raise ConfigError(
                f"strategy '{self.strategy.name}' both learns and observes batches, so a checkpoint cannot compute its logits "
                f"again: {ADVICE}."
            )
        return cast(LogitMap, call.made[name])

    def _statistics(self, blocks: list[Block], wanted: Wanted, maps: Sequence[LogitMap]) -> list[RowStatistics]:
        """Returns the statistics of the rows of each block, or of one where all blocks share a softmax."""
        if self.ring is None:
            found, self.step.engine = statistics_of(self.parts.engine, blocks, maps, wanted, self.plain)
        else:
            found, self.step.engine = self.ring.statistics(blocks, maps, wanted)
        if self.layout.joint:
            found = [joined(found, [block.paired for block in blocks], wanted.pair_function)]
        if self.terms and (of_rows := [each for each in self.terms if each.reads_rows]):
            found = [
                with_row_terms(of_rows, rows, block.roles, logit_map)
                for rows, block, logit_map in zip(found, blocks, maps, strict=False)
            ]
        return found

    def _counts_negatives(self) -> bool:
        """Returns whether something reads how many negatives are left in."""
        if self.objective.pair_function is not None:  # whose sums do not tell that there are none
            return True
        if self.objective.reads_negative_count or (self.observing and self.strategy.reads_negative_count):
            return True
        return any(term.reads_rows and term.reads_negative_count for term in self.terms)

    def _second(self, blocks: list[Block], counts: bool) -> list[RowStatistics] | None:
        """Returns the statistics of a second pass without gradient, where the objective has a map for one."""
        maps: list[LogitMap] = []
        for block in blocks:
            second = self.objective.second_map(block.logit_map)
            if second is None:
                return None
            maps.append(second)
        with torch.no_grad():
            return self._statistics(blocks, Wanted(negative_count=True) if counts else NOTHING, maps)

    def _without_negatives(self, block: Block, statistics: RowStatistics) -> Tensor | None:
        """Returns which anchors have no negative, [N]; None where all are known to have some. The first such batch warns."""
        roles, objective = block.roles, self.objective
        without = roles.without_negatives
        if self.ring is not None:  # the roles are those of this process's candidates, and every other process has some
            everyone = roles.positives is not None and block.everyone
            without = None if everyone else statistics.negative_count == 0
        if self.terms or block.excluded or self.layout.joint:
            empty = statistics.negative_lse.detach() == -torch.inf
            without = empty if objective.pair_function is None else statistics.negative_count == 0
        if without is None or valueless() or "negative" in self.memory.warned:
            return without
        waits = unread(without.device)
        if not (waits and LOOKED in self.memory.checked):  # a device is waited for in the first call only
            if waits:
                self.memory.checked.add(LOOKED)
            number = int(without.sum())
            if number:
                message = message_without_negatives(number, roles.anchors, self.layout.name, objective)
                self.memory.warn("negative", message)
        return without

    def _refuse_several(self, counts: Tensor, rows: distributed.Rows) -> None:
        # Asked of all processes, because one that raises alone leaves the others waiting.
        most = int(distributed.largest(counts.max(), rows))
        if most > 1:
            raise ConfigError(
                f"objective '{self.objective.name}' has no form for several positives, and layout '{self.layout.name}' gave an "
                f"anchor {most}: use infonce or dcl, or masks with one positive a row."
            )


def dense_logits(
    strategy: Strategy, view_a: Tensor, view_b: Tensor, labels: Tensor | None, index: Tensor | None, uncertainty: Tensor | None
) -> Tensor:
    """Returns the logits of view_a's rows against view_b's, [B, M]; see `tempplug.ContrastiveLoss.logits`."""
    refuse_fake(view_a, view_b)
    device = view_a.device if isinstance(view_a, Tensor) else torch.device("cpu")
    given = {"labels": labels, "index": index, "uncertainty": uncertainty}
    check_read(given, strategy)
    size, dimension = check_embeddings("view_a", view_a, device).shape
    check_embeddings("view_b", view_b, device, dimension)
    check_finite("view_a", view_a)
    check_finite("view_b", view_b)
    checked = check_uncertainty(uncertainty, device, size)
    if isinstance(checked, tuple):
        raise ShapeError("uncertainty is a pair; wanted one tensor [B], of view_a.")
    with torch.autocast(device.type, enabled=False):
        anchors, candidates = (unit_rows(each)[0] for each in common_type(view_a, view_b))
        paired = min(len(anchors), len(candidates))
        batch = Batch(
            positive_similarity=(anchors[:paired] * candidates[:paired]).sum(1).detach(),
            anchors=anchors,
            candidates=candidates,
            labels=check_integers("labels", labels, device, size),
            index=check_integers("index", index, device, size),
            uncertainty=checked,
        )
        bound = strategy.prepare(batch).at(slice(None), slice(None))
        return bound.logit(anchors @ candidates.T)
