"""`ContrastiveLoss`: similarity → strategy → logits → engine → row statistics → objective → reduction, in one module.

This is where strategies, objectives, engines and layouts meet; none of them knows the others.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.compiler import OUTSIDE, left_out, takes_in
from tempplug.create import create_objective, create_strategy
from tempplug.dense_logits import dense_logits
from tempplug.engine.dispatch import check_engine, row_statistics
from tempplug.errors import ConfigError
from tempplug.layouts import Direction, PairLayout, Views, create_layout, positive_similarity
from tempplug.objectives.base import Objective
from tempplug.precision import plain_precision
from tempplug.record import Step, Trace, build_record
from tempplug.reduction import blame, no_losses, over_anchors, over_directions, told_of_lonely, with_loss
from tempplug.replay import Replay, recomputing
from tempplug.roles import Block, PairRoles
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap
from tempplug.transforms import dispatching, explained, refuse_fake, transformed
from tempplug.types import NOTHING, Auxiliary, Batch, EngineName, LayoutName, Reduction, RowStatistics, StepRecord, Wanted
from tempplug.unchanged import Unchanged
from tempplug.unlearned import Unlearned
from tempplug.views import Reader, split_heads

Embeddings = Tensor | Sequence[Tensor]
"""Raw rows [B, D], or those of several heads."""
Prepared = tuple[Block, LogitMap, Batch, bool]
"""One direction, ready for an engine, and whether its strategy is to observe it."""


class ContrastiveLoss(nn.Module):
    """A contrastive loss with any temperature strategy, objective and pair layout.

    Args:
        strategy: spec string or instance; how similarities become logits.
        objective: spec string or instance; how logits become a loss.
        layout: ``two-view`` (SimCLR), ``cross-view`` (SimCSE, CLIP), ``queue`` (MoCo), ``labels`` (SupCon) or ``masks``.
        symmetric: of ``cross-view``: average both directions.
        reduction: ``mean``, ``sum`` or ``none``; anchors without a positive leave the mean (and are 0 under ``none``).
        gather: candidates of all processes of the default group; without a process group it changes nothing.
        engine: ``auto``, ``dense``, ``tiled`` or ``triton``, which has to be asked for; ``record.engine`` says which one ran.

    ``torch.compile`` and ``torch.export`` trace calls of ``two-view``, ``cross-view`` and ``queue`` with up to 4 million pairs,
    or any number with ``dense``; other calls stay outside of the graph (docs/loss.md).

    Raises:
        UnknownNameError: no such strategy, objective, option or layout.
        ConfigError: an option, the reduction or the engine is not allowed.

    >>> loss_fn = ContrastiveLoss("macl:base_temperature=0.05,alpha=2,threshold=0.8", layout="cross-view")
    >>> view_a = torch.eye(3)
    >>> round(loss_fn(view_a, view_a).item(), 6), round(loss_fn.record.temperature_mean.item(), 6)
    (1e-06, 0.07)
    """

    def __init__(
        self,
        strategy: str | Strategy = "fixed",
        objective: str | Objective = "infonce",
        layout: LayoutName | PairLayout = "two-view",
        *,
        symmetric: bool = False,
        reduction: Reduction = "mean",
        gather: bool = False,
        engine: EngineName = "auto",
    ) -> None:
        super().__init__()
        self.strategy = create_strategy(strategy)
        self.objective = create_objective(objective)
        self.layout = create_layout(layout, symmetric)
        if not isinstance(reduction, str) or reduction not in get_args(Reduction):
            raise ConfigError(f"reduction={reduction!r} must be one of {', '.join(get_args(Reduction))}.")
        if not isinstance(gather, bool):
            raise ConfigError(f"gather={gather!r} must be True or False.")
        if gather and self.layout.refuse_gather():
            raise ConfigError(f"gather=True has no meaning for layout '{self.layout.name}', whose roles are given outright.")
        self.reduction = reduction
        self.gather = gather
        self.engine = check_engine(engine)
        # A list, because assigning attributes of a module costs more than some operations on tensors.
        self._last: list[Any] = [None, None]
        self._checked: set[Hashable] = set()
        self._replay = Replay()
        self._unlearned: Unlearned | None = Unlearned()
        self._warned: set[str] = set()

    def forward(
        self,
        view_a: Embeddings,
        view_b: Embeddings | None = None,
        *,
        queue: Tensor | None = None,
        hard_negatives: Tensor | None = None,
        labels: Tensor | None = None,
        index: Tensor | None = None,
        uncertainty: Tensor | tuple[Tensor, Tensor] | None = None,
        positive_mask: Tensor | None = None,
        negative_mask: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss in nats: [] for ``mean`` and ``sum``; for ``none`` [2B] with two-view, else [N], N anchors.

        Args:
            view_a: [B, D] raw embeddings, the anchors; or a list of them, one a head, whose losses are summed.
            view_b: [B, D] raw embeddings, row i the positive of view_a's row i ([M, D] candidates for ``masks``).
            queue: [K, D] past candidates, for ``queue``.
            hard_negatives: [H, D], or [B, k, D] taken as [B·k, D]; all of them join the candidates of every anchor of view_a.
            labels: [B] class of each row, serving both views.
            index: [B] position of each row in the data set.
            uncertainty: [B], or a pair of them where both views hold anchors.
            positive_mask: [B, M] boolean, for ``masks``.
            negative_mask: [B, M] boolean, for ``masks``.

        An anchor without a negative, as in a batch of one, has under ``infonce`` the loss of its positives alone, 0 with one
        positive, and leaves the mean under the other objectives, which are not defined there; so does one without a positive.
        Where no anchor is left the loss is 0, with gradients of 0. The first such batch warns.
        Labels and masks must not be changed in place before the backward pass; it raises where they were.

        Raises:
            TensorError: an argument is no dense tensor of the right numbers on view_a's device, see `tempplug.inputs`.
            ShapeError: shapes do not fit.
            ConfigError: strategy or objective misses an input, or neither strategy nor layout reads one that was given.
            NonFiniteError: embeddings hold NaN or infinite values, or a parameter does (on CPU).
        """
        arguments = {
            "queue": queue,
            "hard_negatives": hard_negatives,
            "labels": labels,
            "index": index,
            "uncertainty": uncertainty,
            "positive_mask": positive_mask,
            "negative_mask": negative_mask,
        }
        given = {name: value for name, value in arguments.items() if value is not None}
        if torch.compiler.is_compiling() and takes_in(self, view_a, view_b, given):
            return self._graph(view_a, view_b, given)
        return self._loss(view_a, view_b, given)

    if TYPE_CHECKING:
        # `nn.Module` promises Any; a loss is a tensor.
        __call__ = forward

    def logits(
        self,
        view_a: Tensor,
        view_b: Tensor,
        *,
        labels: Tensor | None = None,
        index: Tensor | None = None,
        uncertainty: Tensor | None = None,
    ) -> Tensor:
        """Returns the dense logits of view_a's rows against view_b's, [B, M], for losses that need them.

        Args:
            view_a: [B, D] raw embeddings.
            view_b: [M, D] raw embeddings; the first B rows count as positives for strategies that look at them.
            labels: [B] class of each row of view_a, where the strategy reads it, as the next two.
            index: [B] position of each row in the data set.
            uncertainty: [B].

        Raises:
            TensorError: as for a call.
            ShapeError: shapes do not fit.
            ConfigError: the strategy misses an argument, or does not read one that was given.
            NonFiniteError: embeddings hold NaN or infinite values (on CPU).
        """
        return dense_logits(self.strategy, view_a, view_b, labels, index, uncertainty)

    @property
    def takes(self) -> frozenset[str]:
        """The names of the optional arguments of a call that layout or strategy read; others are refused."""
        return self.layout.takes | self.strategy.takes

    def taken(self, **offered: Any) -> dict[str, Any]:
        """Returns those of the arguments that layout or strategy read, for code that knows more than every loss wants.

        >>> ContrastiveLoss("individual:size=9").taken(index=torch.arange(3), labels=torch.zeros(3))
        {'index': tensor([0, 1, 2])}
        """
        return {name: value for name, value in offered.items() if name in self.takes}

    @property
    def record(self) -> StepRecord:
        """The record of the last call, computed on first reading.

        Raises:
            ConfigError: the loss was not called yet.
            RuntimeError: labels or masks were changed in place since the call, before the first reading.
        """
        step, record = self._last
        if step is None or not step.row_losses:
            raise ConfigError("record is empty: call the loss first, outside of the transforms of torch.func and exports.")
        if record is None:
            record = self._last[1] = build_record(step, self.strategy)
        return cast(StepRecord, record)

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        """Tells a schedule how far training is: epochs done (fractions allowed), and optimizer steps done."""
        self.strategy.set_progress(epoch, step)

    def set_length(self, epochs: float) -> None:
        """Tells a schedule how long the training will be, in epochs (fractions allowed)."""
        self.strategy.set_length(epochs)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay must spare (timm's convention)."""
        of_strategy = {f"strategy.{name}" for name in self.strategy.no_weight_decay()}
        return of_strategy | {f"objective.{name}" for name in self.objective.no_weight_decay()}

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the last call behind: copies and pickles start without a record."""
        return {**self.__dict__, "_last": [None, None], "_replay": Replay(), "_unlearned": Unlearned()}

    def extra_repr(self) -> str:
        """Shows layout, reduction and engine in ``print(loss)``."""
        return f"layout={self.layout.name}, reduction={self.reduction}, gather={self.gather}, engine={self.engine}"

    @left_out(OUTSIDE)
    def _loss(self, view_a: Embeddings, view_b: Embeddings | None, given: dict[str, Any]) -> Tensor:
        heads: Sequence[tuple[Tensor, Tensor | None]] = ((view_a, view_b),)  # type: ignore[assignment]
        if type(view_a) is not Tensor or not (view_b is None or isinstance(view_b, Tensor)):
            heads = split_heads(view_a, view_b)
        device = heads[0][0].device.type if isinstance(heads[0][0], Tensor) else "cpu"
        if device != "meta" and torch.is_autocast_enabled(device):
            # Half precision loses whole nats at small temperatures; everything from here on runs in at least float32.
            with torch.autocast(device, enabled=False):
                return self._loss(view_a, view_b, given)
        if transformed() or dispatching():
            return self._inside(heads, given)
        if self._unlearned is not None and not self._unlearned.begin(self):
            self._unlearned = None
        step = Step(Unchanged(given, self.layout.takes) if given else None)
        self._last[:] = step, None
        objective = self.objective
        if objective._parameters or objective._modules:
            step.learned = {name: number.detach().clone() for name, number in objective.learned().items()}
        total = self._head(*heads[0], given, step)
        if len(heads) > 1:
            total = torch.stack([total, *(self._head(*each, given, step) for each in heads[1:])]).sum(0)
        # Inputs were finite. On CUDA, looking would wait for the device.
        if device == "cpu" and not math.isfinite(total.item() if total.ndim == 0 else total.sum().item()):
            blame(self)
        if step.given is not None:
            step.given.watch(total)
        if self._unlearned is not None:
            self._unlearned.end(view_a)
        return total

    def _inside(self, heads: Sequence[tuple[Tensor, Tensor | None]], given: dict[str, Any]) -> Tensor:
        """Returns the loss inside of a transform or a mode, of which nothing may be kept."""
        self._last[:] = None, None
        if torch.compiler.is_compiling():
            raise ConfigError(f"{OUTSIDE}: leave it out of what is exported.")
        refuse_fake(heads, *given.values())
        if self.training and self.strategy.observes:
            raise ConfigError(
                f"strategy '{self.strategy.name}' learns from every batch, which no transform of torch.func allows: call "
                "loss_fn.eval(), or use autograd."
            )
        with explained(self.layout.name, self.strategy.name):
            return torch.stack([self._head(*each, given, Step(None)) for each in heads]).sum(0)

    def _graph(self, view_a: Embeddings, view_b: Embeddings | None, given: dict[str, Any]) -> Tensor:
        """Returns the loss as a part of a graph; a compiled one leaves its record behind."""
        step = Step(None)
        if not torch.compiler.is_exporting():
            self._last[:] = None if transformed() else step, None
        heads = split_heads(view_a, view_b)
        with plain_precision(heads[0][0].device.type):
            return torch.stack([self._head(*each, given, step) for each in heads]).sum(0)

    def _head(self, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any], step: Step) -> Tensor:
        strategy, objective = self.strategy, self.objective
        observing = self.training and strategy.observes
        checked = None if torch.compiler.is_compiling() else self._checked
        reader = Reader(self.layout, self.gather, self.engine == "dense", checked)
        views, zero = reader.read(strategy, view_a, view_b, given)
        step.zero_norm += zero
        directions = self.layout.directions(views)
        prepared: list[Prepared] = []
        for direction in directions:
            found = self._prepare(strategy, objective, direction, views, prepared[0] if direction.mirrored else None, observing)
            if found is None:
                lacking = f"layout '{self.layout.name}': no anchor has a positive, so the loss is 0"
                self._warn("positive", f"{lacking}, here and in later such batches.")
                row_losses = no_losses(views, self.parameters())
                step.row_losses.append((row_losses.detach(), torch.zeros_like(row_losses, dtype=torch.bool)))
                return over_anchors(row_losses, None, views, self.reduction)
            prepared.append(found)
        (block, logit_map, *_), *others = prepared
        mean, wanted = strategy.needs_negative_similarity and self.training, NOTHING
        if mean or objective.top or objective.pair_function is not None:
            wanted, step.sums = Wanted(mean, objective.top, objective.pair_function), objective.pair_function is not None
        # The sums of a block and its mirror image come from one pass.
        mirrored = directions[-1].mirrored and others[0][1] is logit_map and not wanted.more
        every, step.engine = row_statistics(self.engine, block, logit_map, mirrored=mirrored, wanted=wanted)
        for other, other_map, *_ in others[len(every) - 1 :]:
            every += row_statistics(self.engine, other, other_map, wanted=wanted)[0]
        losses: list[Tensor] = []
        valid: list[Tensor | None] = []
        for (block, logit_map, batch, fresh), statistics in zip(prepared, every, strict=True):
            if fresh:
                strategy.observe(batch, statistics)
            losses.append(self._row_losses(objective, block, logit_map, batch, statistics))
            valid.append(with_loss(block.roles, statistics.positive_count, objective, views.rows.world == 1))
            step.traces.append(partial(Trace, *block.bare, block.roles, logit_map.detached(), statistics.detached()))
        row_losses, kept = (losses[0], None) if len(losses) == 1 and valid[0] is None else over_directions(losses, valid)
        step.row_losses.append((row_losses.detach(), kept))
        if kept is None and self.reduction == "mean" and views.rows.world == 1:
            return row_losses.mean()
        return over_anchors(row_losses, kept, views, self.reduction)

    def _prepare(
        self,
        strategy: Strategy,
        objective: Objective,
        direction: Direction,
        views: Views,
        mirror: Prepared | None,
        observing: bool,
    ) -> Prepared | None:
        """Returns the block of a direction, its map and batch; None where no anchor of any process has a positive.

        A mirror image shares what its original found out; a second computation of a call has the map of the first.
        """
        roles, rows = direction.roles, views.rows
        bare = direction.bare() if mirror is None else mirror[0].bare[::-1]
        similarity = positive_similarity(*bare, roles) if mirror is None else mirror[0].positive_similarity
        own, counts = similarity, None
        if roles.positives is None:
            counts = roles.positive_count()
            own = own if roles.fewest_positives else own[counts > 0]
        # Two-view blocks hold each rank's rows twice, labelled blocks a different number on each rank.
        positives = own if rows.world == 1 else distributed.gather(own, distributed.share_rows(own.shape[0], own.device, True))
        if counts is not None and positives.numel() == 0:
            return None
        if counts is not None or roles.lonely is not None:
            self._check_roles(roles, counts, rows)
        anchors, candidates = direction.anchors, direction.candidates
        batch = Batch(positives, anchors, candidates, direction.labels, direction.index, direction.uncertainty)
        block = Block(anchors, candidates, bare, roles, similarity, views.precision)
        if mirror is not None and mirror[1].uniform and mirror[1].symmetric:
            return block, mirror[1], batch, mirror[3]
        recalled = self._replay.recall(batch, strategy.name) if observing and recomputing() else None
        if recalled is not None:
            return block, recalled, batch, False
        logit_map = objective.first_map(strategy.prepare(batch))
        if observing:
            self._replay.remember(batch, logit_map)
        return block, logit_map, batch, observing

    def _row_losses(
        self, objective: Objective, block: Block, logit_map: LogitMap, batch: Batch, statistics: RowStatistics
    ) -> Tensor:
        second = None
        second_map = objective.second_map(logit_map)
        if second_map is not None:
            with torch.no_grad():
                second = row_statistics(self.engine, block, second_map)[0][0]
        lonely = block.roles.lonely
        if lonely is not None and not objective.without_negatives:
            # Dropped later; until then any number does that has no infinite one to be subtracted from.
            level = statistics.positive_lse.detach()
            statistics = replace(statistics, negative_lse=torch.where(lonely, level, statistics.negative_lse))
        return objective.row_loss(statistics, Auxiliary(batch.positive_similarity, second))

    def _check_roles(self, roles: PairRoles, counts: Tensor | None, rows: distributed.Rows) -> None:
        name = self.layout.name
        if counts is not None and not self.objective.several_positives:
            # Asked of all processes, because one that raises alone leaves the others waiting.
            most = int(distributed.largest(counts.max(), rows))
            if most > 1:
                raise ConfigError(
                    f"objective '{self.objective.name}' has no form for several positives, and layout '{name}' gave an anchor "
                    f"{most}: use infonce or dcl, or masks with one positive a row."
                )
        # On CUDA, counting what labels or masks say waits for the device: until the warning is out.
        if not torch.compiler.is_compiling() and roles.lonely is not None and "negative" not in self._warned:
            lonely = int(roles.lonely.sum())
            if lonely:
                self._warn("negative", told_of_lonely(lonely, roles.anchors, name, self.objective))

    def _warn(self, kind: str, message: str) -> None:
        """Warns once in the life of this module."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, RuntimeWarning, stacklevel=6)
