"""`ContrastiveLoss`: similarity → strategy → logits → engine → row statistics → objective → reduction, in one module.

This is where strategies, objectives, engines and layouts meet; none of them knows the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.create import create_objective, create_strategy
from tempplug.embeddings import check_embeddings, check_finite, unit_rows
from tempplug.engine.dispatch import check_engine, row_statistics
from tempplug.errors import ConfigError, ShapeError
from tempplug.layouts import Direction, PairLayout, Views, create_layout
from tempplug.objectives.base import Objective
from tempplug.record import Step, Trace, build_record
from tempplug.roles import Block, PairRoles
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap
from tempplug.types import Auxiliary, Batch, EngineName, LayoutName, Reduction, RowStatistics, StepRecord, Wanted
from tempplug.views import build_views, split_heads

Prepared = tuple[Block, LogitMap, Batch]
_F = TypeVar("_F", bound=Callable[..., Any])


def _not_compiled(function: _F) -> _F:
    """Returns the function as `torch.compile` leaves it alone, typed as it was."""
    disable: Callable[[_F], _F] = torch.compiler.disable
    return disable(function)


class ContrastiveLoss(nn.Module):
    """A contrastive loss with any temperature strategy, objective and pair layout.

    Args:
        strategy: spec string or instance; how similarities become logits.
        objective: spec string or instance; how logits become a loss.
        layout: ``two-view`` (SimCLR), ``cross-view`` (SimCSE, CLIP), ``queue`` (MoCo), ``labels`` (SupCon) or ``masks``.
        symmetric: of ``cross-view``: average both directions.
        reduction: ``mean``, ``sum`` or ``none``; anchors without a positive leave the mean (and are 0 under ``none``).
        gather: candidates of all processes of the default group; without a process group it changes nothing.
        engine: ``auto``, ``dense``, ``tiled`` or ``triton``; ``record.engine`` says which one ran.

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
        if reduction not in get_args(Reduction):
            raise ConfigError(f"reduction='{reduction}' must be one of {', '.join(get_args(Reduction))}.")
        if gather and self.layout.refuse_gather():
            raise ConfigError(f"gather=True has no meaning for layout '{self.layout.name}', whose roles are given outright.")
        self.reduction = reduction
        self.gather = gather
        self.engine = check_engine(engine)
        # A list, because assigning attributes of a module costs more than some operations on tensors.
        self._last: list[Any] = [None, None]

    @_not_compiled
    def forward(
        self,
        view_a: Tensor | Sequence[Tensor],
        view_b: Tensor | Sequence[Tensor] | None = None,
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
            hard_negatives: [H, D] or [B, k, D]; they join the candidates of every anchor of view_a.
            labels: [B] class of each row, serving both views.
            index: [B] position of each row in the data set.
            uncertainty: [B], or a pair of them where both views hold anchors.
            positive_mask: [B, M] boolean, for ``masks``.
            negative_mask: [B, M] boolean, for ``masks``.

        Raises:
            ShapeError: shapes do not fit, an anchor has no negative, or no anchor has a positive.
            ConfigError: the strategy or objective misses an input, or the layout has no use for one that was given.
            NonFiniteError: embeddings hold NaN or infinite values (on CPU).
        """
        given = {
            "queue": queue,
            "hard_negatives": hard_negatives,
            "labels": labels,
            "index": index,
            "uncertainty": uncertainty,
            "positive_mask": positive_mask,
            "negative_mask": negative_mask,
        }
        heads = split_heads(view_a, view_b)
        device = heads[0][0].device if isinstance(heads[0][0], Tensor) else torch.device("cpu")
        self._last[:] = step, _ = Step(device), None
        # Half precision loses whole nats at small temperatures; everything from here on runs in at least float32.
        with torch.autocast(device.type, enabled=False):
            losses = [self._head(first, second, given, step) for first, second in heads]
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum(0)

    if TYPE_CHECKING:
        # `nn.Module` promises Any; a loss is a tensor.
        __call__ = forward

    def logits(self, view_a: Tensor, view_b: Tensor, **given: Any) -> Tensor:
        """Returns the dense logits of view_a's rows against view_b's, [B, M], for losses that need them.

        Args:
            view_a: [B, D] raw embeddings.
            view_b: [M, D] raw embeddings; the first B rows count as positives for strategies that look at them.
            given: ``labels``, ``index`` or ``uncertainty`` [B], where the strategy needs them.
        """
        check_embeddings("view_a", view_a)
        check_embeddings("view_b", view_b, view_a.shape[1])
        check_finite("view_a", view_a)
        check_finite("view_b", view_b)
        with torch.autocast(view_a.device.type, enabled=False):
            anchors, candidates = unit_rows(view_a)[0], unit_rows(view_b)[0]
            paired = min(len(anchors), len(candidates))
            batch = Batch(
                positive_similarity=(anchors[:paired] * candidates[:paired]).sum(1).detach(),
                anchors=anchors,
                candidates=candidates,
                **given,
            )
            bound = self.strategy.prepare(batch).at(slice(None), slice(None))
            return bound.logit(anchors @ candidates.T)

    @property
    def record(self) -> StepRecord:
        """The record of the last call, computed on first reading.

        Raises:
            ConfigError: the loss was not called yet.
        """
        step, record = self._last
        if step is None or not step.traces:
            raise ConfigError("record is empty: call the loss first.")
        if record is None:
            record = self._last[1] = build_record(step, self.strategy)
        return cast(StepRecord, record)

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        """Tells a schedule how far training is: epochs done (fractions allowed), and optimizer steps done."""
        self.strategy.set_progress(epoch, step)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay must spare (timm's convention)."""
        return {f"strategy.{name}" for name in self.strategy.no_weight_decay()}

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the last call behind: copies and pickles start without a record."""
        return {**self.__dict__, "_last": [None, None]}

    def extra_repr(self) -> str:
        """Shows layout, reduction and engine in ``print(loss)``."""
        return f"layout={self.layout.name}, reduction={self.reduction}, gather={self.gather}, engine={self.engine}"

    def _head(self, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any], step: Step) -> Tensor:
        views, zero = build_views(view_a, view_b, given, self.layout, self.gather, twice=self.engine == "dense")
        step.zero_norm += zero
        directions = self.layout.directions(views)
        prepared: list[Prepared] = []
        for direction in directions:
            prepared.append(self._prepare(direction, views, prepared[0] if direction.mirrored else None))
        losses, counts = [], None
        found = self._statistics(prepared, step)
        for (block, logit_map, batch), direction, statistics in zip(prepared, directions, found, strict=True):
            losses.append(self._row_losses(block, logit_map, batch, statistics))
            counts = counts if block.roles.positives is not None else statistics.positive_count
            step.traces.append(Trace(direction.detached(), logit_map.detached(), statistics.detached()))
        row_losses = losses[0] if len(losses) == 1 else (losses[0] + losses[1]) / 2
        valid = None if counts is None else counts > 0
        if valid is not None:
            row_losses = torch.where(valid, row_losses, 0.0)
        step.row_losses.append((row_losses.detach(), valid))
        return self._reduce(row_losses, valid, views)

    def _reduce(self, row_losses: Tensor, valid: Tensor | None, views: Views) -> Tensor:
        if self.reduction == "none":
            return row_losses
        if self.reduction == "mean" and valid is None and views.rows.world == 1:
            return row_losses.mean()
        # Every rank's sum times world over the global count: the mean over its own rows where all ranks hold as many, and
        # exact after DDP's averaging where they do not.
        total = row_losses.sum()
        if views.rows.world > 1:
            total = total * views.rows.world
        if self.reduction == "sum":
            return total
        if valid is None:
            return total / (views.rows.total * row_losses.numel() / views.size)
        return total / distributed.total(valid.sum(), views.rows)

    def _prepare(self, direction: Direction, views: Views, mirror: Prepared | None) -> Prepared:
        """Returns the block of a direction, its map and batch; a mirror image shares what its original found out."""
        roles, rows = direction.roles, views.rows
        shared_similarity = None if mirror is None else mirror[0].positive_similarity
        similarity = direction.positive_similarity() if shared_similarity is None else shared_similarity
        own = similarity
        counts = None
        if roles.positives is None:
            counts = roles.positive_count()
            own = own[counts > 0]
        # Two-view blocks hold each rank's rows twice, labelled blocks a different number on each rank.
        positives = own if rows.world == 1 else distributed.gather(own, distributed.share_rows(own.shape[0], own.device, True))
        self._check_roles(roles, counts, positives, rows)
        batch = Batch(
            positive_similarity=positives,
            anchors=direction.anchors,
            candidates=direction.candidates,
            labels=direction.labels,
            index=direction.index,
            uncertainty=direction.uncertainty,
        )
        paired = similarity if counts is None else None
        block = Block(direction.anchors, direction.candidates, roles, paired, views.precision)
        if mirror is not None and mirror[1].uniform and mirror[1].symmetric:
            return block, mirror[1], batch
        return block, self.objective.first_map(self.strategy.prepare(batch)), batch

    def _statistics(self, prepared: list[Prepared], step: Step) -> list[RowStatistics]:
        """Returns the statistics of every direction; those of a block and its mirror image come from one pass."""
        (block, logit_map, _), *others = prepared
        mirrored = bool(others) and others[0][1] is logit_map
        wanted = Wanted(self.strategy.needs_negative_similarity and self.training, self.objective.top)
        first, step.engine = row_statistics(self.engine, block, logit_map, mirrored=mirrored, wanted=wanted)
        for other, other_map, _ in others[len(first) - 1 :]:
            first += row_statistics(self.engine, other, other_map, wanted=wanted)[0]
        return first

    def _row_losses(self, block: Block, logit_map: LogitMap, batch: Batch, statistics: RowStatistics) -> Tensor:
        if self.training:
            self.strategy.observe(batch, statistics)
        second = None
        second_map = self.objective.second_map(logit_map)
        if second_map is not None:
            with torch.no_grad():
                second = row_statistics(self.engine, block, second_map)[0][0]
        return self.objective.row_loss(statistics, Auxiliary(batch.positive_similarity, second))

    def _check_roles(self, roles: PairRoles, counts: Tensor | None, positives: Tensor, rows: distributed.Rows) -> None:
        name = self.layout.name
        if counts is not None:
            if positives.numel() == 0:
                raise ShapeError(f"layout '{name}': no anchor has a positive, so there is nothing to pull together.")
            # Asked of all processes, because one that raises alone leaves the others waiting.
            most = 1 if self.objective.several_positives else int(distributed.largest(counts.max(), rows))
            if most > 1:
                raise ConfigError(
                    f"objective '{self.objective.name}' has no form for several positives, and layout '{name}' gave an anchor "
                    f"{most}: use infonce or dcl, or masks with one positive a row."
                )
            lonely = int((roles.negative_count() == 0).sum())
        else:
            # Positions alone decide here: the first anchor and the last stand for all.
            ends = {row: roles.negatives_of(row) == 0 for row in (0, roles.anchors - 1)}
            seeing = roles.anchors if roles.extra_start is None else roles.extra_anchors
            lonely = seeing * ends[0] + (roles.anchors - seeing) * ends[roles.anchors - 1]
        if lonely:
            raise ShapeError(
                f"layout '{name}' leaves {lonely} of {roles.anchors} anchors without a negative: "
                "give a larger batch, a queue or hard_negatives."
            )
