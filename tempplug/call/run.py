"""The loss of one head of a call: from raw embeddings through blocks, maps, terms and engine to row losses and their mean.

This module joins strategies, objectives, terms on negatives, engines and layouts, which do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from tempplug import distributed
from tempplug.block import AuxiliaryOfBlock, BatchOfBlock, Block
from tempplug.call.blocks import argument_of, joined, pairs_of, statistics_of, term_maps, terms_of, with_row_terms
from tempplug.call.memory import Call
from tempplug.call.read import read_embeddings
from tempplug.call.reduction import message_without_negatives, no_losses, over_anchors, over_directions, with_loss, with_nan
from tempplug.call.replay import ADVICE, RememberedCall
from tempplug.call.ring import Ring, make_ring
from tempplug.call.scores import read_scores
from tempplug.embeddings import unit_rows
from tempplug.engine.forward import at_positives
from tempplug.errors import ConfigError, ShapeError
from tempplug.inputs import (
    check_embeddings,
    check_finite,
    check_integers,
    check_read,
    check_row_argument,
    check_uncertainty,
    common_type,
)
from tempplug.layouts import Views
from tempplug.negatives.base import NegativeTerm, Pairs, TermMap
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap
from tempplug.transforms import refuse_fake, valueless
from tempplug.types import NOTHING, Batch, RowStatistics, Wanted

T = TypeVar("T")


@dataclass(slots=True)
class Run(Call):
    """One head of one call of a loss, from its arguments to its reduced loss.

    Attributes:
        observing: whether the strategy learns from the batch.
        objective_observes: whether the objective does.
        counting: terms on negatives that count what they see.
        ring: of the call, where the candidates of other processes go round.
        excludes: whether the layout leaves out negatives by their rows.
        remembered: what a call makes of a state that moves; None where nothing moves, or no backward pass computes it again.
        again: whether this is the second computation of that call.
    """

    observing: bool = False
    objective_observes: bool = False
    counting: Sequence[NegativeTerm] = ()
    ring: Ring | None = None
    excludes: bool = False
    remembered: RememberedCall | None = None
    again: bool = False

    def of_embeddings(self, view_a: Tensor, view_b: Tensor | None, arguments: dict[str, Any]) -> Tensor:
        """Returns the loss of raw embeddings, reduced; ``arguments`` holds the optional ones that were given."""
        views = read_embeddings(self, view_a, view_b, arguments)
        if views.own.without is not None:
            self.step.zero_norm.append(views.own.without)
        return self._loss(views)

    def of_scores(self, scores: Tensor, _: None, arguments: dict[str, Any]) -> Tensor:
        """Returns the loss of similarities [N, M] that the caller computed, reduced."""
        return self._loss(read_scores(self.parts, self.memory, scores, arguments))

    def _loss(self, views: Views) -> Tensor:
        parts, step = self.parts, self.step
        if self.training:
            self.observing, self.objective_observes = parts.strategy.observes, parts.objective.observes
            if parts.terms:
                self.counting = [term for term in parts.terms if term.observes]
            if self.observing or self.counting or self.objective_observes:
                self.remembered, self.again = self.memory.replay.call(views, len(step.row_losses))
        if views.targets is not None and not parts.objective.soft_targets:
            raise ConfigError(f"objective '{parts.objective.name}' has no meaning for targets=: use infonce or sigmoid.")
        blocks = parts.layout.build(views)
        if views.chunk is not None:
            self.ring = make_ring(parts, views, blocks)
        paired = [self._find_positives(block, views, blocks, number) for number, block in enumerate(blocks)]
        if not any(paired):
            return self._without_positives(views, blocks[0].roles.anchors)
        for number, block in enumerate(blocks):
            self._choose_map(block, blocks, number)
            if block.excluded or parts.terms:
                self._prepare_terms(block, views, blocks, number)
        losses, valid = self._row_losses(blocks, views)
        if len(losses) == 1 and valid[0] is None:
            row_losses, has_loss = losses[0], None
        else:
            row_losses, has_loss = over_directions(losses, valid)
            if has_loss is not None:
                row_losses = with_nan(row_losses, views)
        step.row_losses.append((row_losses.detach(), has_loss))
        return over_anchors(row_losses, has_loss, views, parts.reduction)

    def _without_positives(self, views: Views, anchors: int) -> Tensor:
        """Returns the loss of a call in which no anchor has a positive, 0; the first such call warns."""
        lacking = f"layout '{self.parts.layout.name}': no anchor has a positive, so the loss is 0"
        self.memory.warn("positive", f"{lacking}, here and in later such batches.")
        row_losses = with_nan(no_losses(views, self.parts.parameters(), anchors), views)
        self.step.row_losses.append((row_losses.detach(), torch.zeros_like(row_losses, dtype=torch.bool)))
        return over_anchors(row_losses, None, views, self.parts.reduction)

    def _shared(self, block: Block, blocks: list[Block], number: int) -> Block | None:
        """Returns the first block, where one by its number has the same rows and shares what that has."""
        return blocks[0] if number and (self.parts.layout.joint or block.mirrors_first) else None

    def _find_positives(self, block: Block, views: Views, blocks: list[Block], number: int) -> bool:
        """Sets what a strategy sees of a block; returns whether any anchor of any process has a positive."""
        roles, shared = block.roles, self._shared(block, blocks, number)
        if shared is not None:
            block.positive_similarity = shared.positive_similarity
        elif block.scores is not None:
            block.positive_similarity = roles.mean_over_positives(block.scores.detach())
        else:
            block.positive_similarity = roles.positive_similarity(block.of_anchors.detached, block.of_candidates.detached)
        positives, paired, there = block.positive_similarity, None, True
        if roles.positives is None or views.rows.world > 1:
            positives, paired = self._positives(block, views, number)
            there = roles.positives is not None or positives.numel() > 0
        # Targets may give positives to one direction alone.
        seen = positives if there else positives.new_zeros(1)
        block.batch = BatchOfBlock(block, seen, paired, views.rows.sizes[views.rows.rank])
        if "groups" in self.parts.strategy.takes and "groups" in views.row_arguments:
            block.batch.groups = argument_of(views, views.parts_of(block)[0], "groups")
        return there

    def _choose_map(self, block: Block, blocks: list[Block], number: int) -> None:
        """Sets the map of a block by its number: that of the block whose batch it shares, where one map holds for both."""
        parts, shared = self.parts, self._shared(block, blocks, number)
        if shared is not None and shared.logit_map.uniform and (parts.layout.joint or shared.logit_map.symmetric):
            block.logit_map, block.must_observe = shared.logit_map, shared.must_observe
        elif self.observing:
            block.logit_map, block.must_observe = self._observing_map(block.batch, number), not self.again
        else:
            block.logit_map = parts.objective.training_map(parts.strategy.prepare(block.batch))

    def _prepare_terms(self, block: Block, views: Views, blocks: list[Block], number: int) -> None:
        """Sets the terms of a block by its number.

        Raises:
            ConfigError: the objective ranks negatives, which terms and layouts leave out.
        """
        self.excludes = self.excludes or bool(block.excluded)
        objective = self.parts.objective
        if objective.top:
            raise ConfigError(
                f"objective '{objective.name}' ranks all negatives of a row by similarity: it takes no negatives=, no "
                "hard_negative_mask= and no layout with hard=own."
            )
        if self.parts.terms:
            main = None if block.paired else next(other.pairs for other in blocks if other.pairs is not None)
            block.pairs = pairs_of(block, views, block.positive_similarity, main)
            block.terms = self._terms(block, block.pairs, views, number)

    def _positives(self, block: Block, views: Views, number: int) -> tuple[Tensor, Tensor | None]:
        """Returns the similarities of the positives of all processes, [G], and which anchors have some (None: all).

        Anchors without one are left out, unless that waits for a device.

        Raises:
            ConfigError: an anchor has several, and the objective has no form for that.
        """
        roles, rows, counts, positives, paired = block.roles, views.rows, None, block.positive_similarity, None
        if roles.positives is None:
            counts = roles.positive_count
            if self.ring is not None:
                positives, counts = self.ring.positive_similarity(number)
            block.positive_similarity = positives
            paired = None if roles.fewest_positives else counts > 0
            if paired is not None and (rows.world > 1 or positives.is_cpu):
                positives, paired = positives[paired], None
        if rows.world > 1:
            # Blocks of two views hold each rank's rows twice; labels leave a different number on each rank.
            count = positives.shape[0]
            of_own = rows.times(count // views.size) if counts is None and count % views.size == 0 else None
            positives = distributed.gather(positives, of_own or distributed.share_rows(count, positives.device, True))
        several = counts is not None and positives.numel() and not self.parts.objective.several_positives
        if counts is not None and several and (rows.world > 1 or self.memory.may_read("several positives", counts.device)):
            # Asked of all processes, because one that raises alone leaves the others waiting.
            most = int(distributed.largest(counts.max(), rows))
            if most > 1:
                raise ConfigError(
                    f"objective '{self.parts.objective.name}' has no form for several positives, and layout "
                    f"'{self.parts.layout.name}' gave an anchor {most}: use infonce or dcl, or masks with one positive a row."
                )
        return positives, paired

    def _observing_map(self, batch: Batch, number: int) -> LogitMap:
        """Returns the map of a strategy that observes batches; in a second computation, that of the first one.

        Raises:
            ConfigError: the map of the first computation learns, too.
        """
        strategy, call, name = self.parts.strategy, self.remembered, ("map", number)
        if call is None or not self.again:
            logit_map = self.parts.objective.training_map(strategy.prepare(batch))
            if call is not None:  # a map that learns holds the graph of its call, which must not be kept alive
                call.made[name] = None if logit_map.tensors() else logit_map
            return logit_map
        if call.made[name] is None:
            raise ConfigError(
                f"strategy '{strategy.name}' both learns and observes batches, so a checkpoint cannot compute its logits "
                f"again: {ADVICE}."
            )
        return cast(LogitMap, call.made[name])

    def _terms(self, block: Block, pairs: Pairs, views: Views, number: int) -> tuple[TermMap, ...]:
        """Returns the terms of a block by its number; those that count have seen the call, but no second computation of it."""
        meant = terms_of(self.parts.terms, block)
        if not self.counting:
            return term_maps(meant, pairs)
        if self.ring is not None and self.again:
            raise ConfigError(
                f"negative term '{self.counting[0].name}' counts, so a checkpoint cannot compute the terms of other processes "
                f"again where gather='ring': use gather=True, or {ADVICE}."
            )
        if not (number or self.again or self.step.row_losses):  # once for all heads
            arguments = {name: {source: local for source, (local, _) in of.items()} for name, of in views.row_arguments.items()}
            for term in self.counting:
                term.observe(arguments)
        counted = self._made(("terms", number), lambda: term_maps([term for term in meant if term.observes], pairs))
        return counted + term_maps([term for term in meant if not term.observes], pairs)

    def _made(self, name: tuple[str, int], make: Callable[[], T]) -> T:
        """Returns what is made of a state that moves; in a second computation of the call, what the first one made."""
        if self.remembered is None:
            return make()
        if not self.again:
            self.remembered.made[name] = make()
        return cast(T, self.remembered.made[name])

    def _row_losses(self, blocks: list[Block], views: Views) -> tuple[list[Tensor], list[Tensor | None]]:
        """Returns the losses of the rows of each softmax, and which of them count (None: all)."""
        strategy, objective, step = self.parts.strategy, self.parts.objective, self.step
        counts = bool(self.excludes or self.parts.terms) and self._counts_negatives()
        mean, wanted = self.training and strategy.needs_negative_similarity, NOTHING
        step.sums = objective.pair_function is not None
        if mean or counts or objective.top or step.sums:
            wanted = Wanted(mean, objective.top, objective.pair_function, counts)
        maps = []
        for block in blocks:
            maps.append(block.logit_map)
        positive_maps = self._positive_maps(blocks)
        statistics = self._statistics(blocks, wanted, maps)
        second = self._second(blocks, counts)
        of_loss = self._with_positives(blocks, statistics, positive_maps) if positive_maps else statistics
        losses: list[Tensor] = []
        valid: list[Tensor | None] = []
        for number, rows in enumerate(statistics):
            block = blocks[number]
            if block.must_observe:
                strategy.observe(block.batch, rows)
            auxiliary = AuxiliaryOfBlock(block.batch, None if second is None else second[number], block.logit_map)
            if self.objective_observes:
                auxiliary.observed = self._made(("observed", number), partial(objective.observe, block.batch, rows))
            without = self._without_negatives(block, rows)
            valid.append(with_loss(block.roles, rows.positive_count, without, objective, views.rows.world == 1))
            rows = of_loss[number]
            if without is not None and not objective.without_negatives:
                # Dropped later; until then any number does that has no infinite one to be subtracted from.
                level = rows.positive_lse.detach()
                rows = replace(rows, negative_lse=torch.where(without, level, rows.negative_lse))
            losses.append(objective.row_loss(rows, auxiliary))
        for number, block in enumerate(blocks):
            step.blocks.append(block.for_record(statistics[number] if number < len(statistics) else None))
        return losses, valid

    def _statistics(self, blocks: list[Block], wanted: Wanted, maps: Sequence[LogitMap]) -> list[RowStatistics]:
        """Returns the statistics of the rows of each block, or of one where all blocks share a softmax."""
        if self.ring is None:
            statistics, self.step.engine = statistics_of(self.parts.engine, blocks, maps, wanted, self.plain)
        else:
            statistics, self.step.engine = self.ring.statistics(blocks, maps, wanted)
        if self.parts.layout.joint:
            statistics = [joined(statistics, [block.paired for block in blocks], wanted.pair_function)]
        if self.parts.terms and (of_rows := [term for term in self.parts.terms if term.reads_rows]):
            joined_rows = zip(statistics, blocks, maps, strict=False)
            statistics = [with_row_terms(of_rows, rows, block.roles, logit_map) for rows, block, logit_map in joined_rows]
        return statistics

    def _positive_maps(self, blocks: list[Block]) -> list[LogitMap]:
        """Returns the maps that the objective has for the positives of each block; none where it has none."""
        of_blocks = [self.parts.objective.positive_map(block.logit_map) for block in blocks]
        maps = [positive_map for positive_map in of_blocks if positive_map is not None]
        if maps:  # with a graph of the rows, the gradients of two passes are added up before they are rounded
            _ = blocks[0].anchors, blocks[0].candidates
        return maps

    def _with_positives(
        self, blocks: list[Block], statistics: list[RowStatistics], maps: list[LogitMap]
    ) -> list[RowStatistics]:
        """Returns the statistics with the logits of positives under maps of their own; several a row need another pass."""
        if blocks[0].roles.positives is None or (self.parts.layout.joint and sum(block.paired for block in blocks) > 1):
            others = self._statistics(blocks, NOTHING, maps)
            logits = [(rows.positive_logit, rows.positive_lse) for rows in others]
        else:
            paired = zip(statistics, blocks, maps, strict=False)
            logits = [(at_positives(own, block.roles).logit(rows.positive_similarity),) * 2 for rows, block, own in paired]
        both = zip(statistics, logits, strict=True)
        return [replace(rows, positive_logit=logit, positive_lse=lse) for rows, (logit, lse) in both]

    def _counts_negatives(self) -> bool:
        """Returns whether something reads how many negatives are left in."""
        objective, strategy = self.parts.objective, self.parts.strategy
        if objective.pair_function is not None:  # whose sums do not tell that there are none
            return True
        if objective.reads_negative_count or (self.observing and strategy.reads_negative_count):
            return True
        return any(term.reads_rows and term.reads_negative_count for term in self.parts.terms)

    def _second(self, blocks: list[Block], counts: bool) -> list[RowStatistics] | None:
        """Returns the statistics of a second pass without gradient, where the objective has a map for one."""
        maps: list[LogitMap] = []
        for block in blocks:
            second = self.parts.objective.reference_map(block.logit_map)
            if second is None:
                return None
            maps.append(second)
        with torch.no_grad():
            return self._statistics(blocks, Wanted(negative_count=True) if counts else NOTHING, maps)

    def _without_negatives(self, block: Block, statistics: RowStatistics) -> Tensor | None:
        """Returns which anchors have no negative, [N]; None where all are known to have some. The first such batch warns."""
        roles, objective = block.roles, self.parts.objective
        without = roles.without_negatives
        if self.ring is not None:  # the roles are those of this process's candidates, and every other process has some
            everyone = roles.positives is not None and block.everyone
            without = None if everyone else statistics.negative_count == 0
        if self.parts.terms or block.excluded or self.parts.layout.joint:
            empty = statistics.negative_lse.detach() == -torch.inf
            without = empty if objective.pair_function is None else statistics.negative_count == 0
        # With targets every candidate may be a positive.
        if without is None or roles.targets is not None or valueless() or "negative" in self.memory.warned:
            return without
        number = int(without.sum()) if self.memory.may_read("anchors without a negative", without.device) else 0
        if number:
            message = message_without_negatives(number, roles.anchors, self.parts.layout.name, objective)
            self.memory.warn("negative", message)
        return without


def dense_logits(strategy: Strategy, view_a: Tensor, view_b: Tensor, **arguments: Tensor | None) -> Tensor:
    """Returns the logits of view_a's rows against view_b's, [B, M]; see `tempplug.ContrastiveLoss.logits` for the arguments."""
    refuse_fake(view_a, view_b)
    device, groups = view_a.device if isinstance(view_a, Tensor) else torch.device("cpu"), arguments["groups"]
    check_read(arguments, strategy)
    size, dimension = check_embeddings("view_a", view_a, device).shape
    check_embeddings("view_b", view_b, device, dimension)
    check_finite("view_a", view_a)
    check_finite("view_b", view_b)
    checked = check_uncertainty(arguments["uncertainty"], device, size)
    if isinstance(checked, tuple):
        raise ShapeError("uncertainty is a pair; wanted one tensor [B], of view_a.")
    with torch.autocast(device.type, enabled=False):
        anchors, candidates = (unit_rows(view)[0] for view in common_type(view_a, view_b))
        paired = min(len(anchors), len(candidates))
        batch = Batch(
            positive_similarity=(anchors[:paired] * candidates[:paired]).sum(1).detach(),
            anchors=anchors,
            candidates=candidates,
            labels=check_integers("labels", arguments["labels"], device, size),
            index=check_integers("index", arguments["index"], device, size),
            uncertainty=checked,
            groups=None if groups is None else check_row_argument("groups", groups, {"view_a": view_a})["view_a"],
        )
        bound = strategy.prepare(batch).restrict(slice(None), slice(None))
        return bound.logit(anchors @ candidates.T)
