"""`ContrastiveLoss`: similarity → strategy → logits → engine → row statistics → objective → reduction, in one module.

This is where strategies, objectives, engines and layouts meet; none of them knows the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from tempplug import distributed
from tempplug.create import create_objective, create_strategy
from tempplug.embeddings import check_embeddings, unit_rows
from tempplug.engine.dispatch import check_engine, row_statistics
from tempplug.errors import ConfigError, ShapeError
from tempplug.layouts import Direction, PairLayout, Views, create_layout
from tempplug.objectives.base import Objective
from tempplug.record import Trace, build_record
from tempplug.strategies.base import Strategy
from tempplug.types import Auxiliary, Batch, RowStatistics, StepRecord

REDUCTIONS = ("mean", "sum", "none")


class ContrastiveLoss(nn.Module):
    """A contrastive loss with any temperature strategy, objective and pair layout.

    Args:
        strategy: spec string or instance; how similarities become logits.
        objective: spec string or instance; how logits become a loss.
        layout: ``two-view`` (SimCLR), ``cross-view`` (SimCSE, CLIP), ``queue`` (MoCo), ``labels`` (SupCon) or ``masks``.
        symmetric: of ``cross-view``: average both directions.
        reduction: ``mean``, ``sum`` or ``none``; anchors without a positive leave the mean (and are 0 under ``none``).
        gather: candidates of all processes of the default group; without a process group it changes nothing.
        engine: ``auto`` or ``dense``.

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
        layout: str | PairLayout = "two-view",
        *,
        symmetric: bool = False,
        reduction: str = "mean",
        gather: bool = False,
        engine: str = "auto",
    ) -> None:
        super().__init__()
        self.strategy = create_strategy(strategy)
        self.objective = create_objective(objective)
        self.layout = create_layout(layout, symmetric)
        if reduction not in REDUCTIONS:
            raise ConfigError(f"reduction='{reduction}' must be one of {', '.join(REDUCTIONS)}.")
        if gather and self.layout.refuse_gather():
            raise ConfigError(f"gather=True has no meaning for layout '{self.layout.name}', whose roles are given outright.")
        self.reduction = reduction
        self.gather = gather
        self.engine = check_engine(engine)
        self._traces: list[Trace] = []
        self._call: dict[str, Any] = {}
        self._record: StepRecord | None = None

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
        for name, value in given.items():
            if value is not None and name not in self.layout.takes:
                raise ConfigError(f"layout '{self.layout.name}' has no use for {name}=.")
        heads = _heads(view_a, view_b)
        device = heads[0][0].device if isinstance(heads[0][0], Tensor) else torch.device("cpu")
        self._traces, self._record = [], None
        self._call = {"loss": 0.0, "zero_norm_rows": torch.zeros((), dtype=torch.int64, device=device)}
        # Half precision loses whole nats at small temperatures; everything from here on runs in at least float32.
        with torch.autocast(device.type, enabled=False):
            losses = [self._head(first, second, given) for first, second in heads]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum(0)
        return loss

    def logits(self, view_a: Tensor, view_b: Tensor, **given: Any) -> Tensor:
        """Returns the dense logits of view_a's rows against view_b's, [B, M], for losses that need them.

        Args:
            view_a: [B, D] raw embeddings.
            view_b: [M, D] raw embeddings; the first B rows count as positives for strategies that look at them.
            given: ``labels``, ``index`` or ``uncertainty`` [B], where the strategy needs them.
        """
        check_embeddings("view_a", view_a)
        check_embeddings("view_b", view_b, view_a.shape[1])
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
        if self._record is None:
            if not self._traces:
                raise ConfigError("record is empty: call the loss first.")
            floor_hits = getattr(self.strategy, "floor_hits", torch.zeros((), dtype=torch.int64))
            self._record = build_record(self._traces, floor_hits=floor_hits.detach().clone(), **self._call)
        return self._record

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        """Tells a schedule how far training is: epochs done (fractions allowed), and optimizer steps done."""
        self.strategy.set_progress(epoch, step)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay must spare (timm's convention)."""
        return {f"strategy.{name}" for name in self.strategy.no_weight_decay()}

    def extra_repr(self) -> str:
        """Shows layout, reduction and engine in ``print(loss)``."""
        return f"layout={self.layout.name}, reduction={self.reduction}, gather={self.gather}, engine={self.engine}"

    def _head(self, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any]) -> Tensor:
        views = self._views(view_a, view_b, given)
        directions = self.layout.directions(views)
        results = [self._direction(direction, views.rows) for direction in directions]
        row_losses = torch.stack([loss for loss, _ in results]).mean(0)
        valid = results[0][1].positive_count > 0
        if directions[0].roles.positive_index is None:
            row_losses = torch.where(valid, row_losses, 0.0)
        self._call["loss"] = self._call["loss"] + row_losses.detach().sum() / valid.sum()
        if self.reduction == "none":
            return row_losses
        # Every rank's sum times world over the global count: the mean over its own rows where all ranks hold as many, and
        # exact after DDP's averaging where they do not.
        total = row_losses.sum() * views.rows.world
        if self.reduction == "sum":
            return total
        if directions[0].roles.positive_index is not None:
            return total / (views.rows.total * valid.numel() / view_a.shape[0])
        return total / distributed.total(valid.sum(), views.rows)

    def _views(self, view_a: Tensor, view_b: Tensor | None, given: dict[str, Any]) -> Views:
        check_embeddings("view_a", view_a)
        size, dimension = view_a.shape
        if view_b is not None:
            check_embeddings("view_b", view_b, dimension)
            if view_b.shape[0] != size and self.layout.name != "masks":
                raise ShapeError(f"view_b has {view_b.shape[0]} rows where view_a has {size}; row i must pair with row i.")
        rows = distributed.share_rows(size, view_a.device, self.gather)
        unit: dict[str, Tensor] = {}
        extra = _flat_hard_negatives(given["hard_negatives"], size)
        for name, raw in (("view_a", view_a), ("view_b", view_b), ("queue", given["queue"]), ("hard_negatives", extra)):
            if raw is not None:
                check_embeddings(name, raw, dimension)
                unit[name], zero = unit_rows(raw)
                self._call["zero_norm_rows"] = self._call["zero_norm_rows"] + zero.sum()
        if extra is not None and rows.world > 1:
            shared = distributed.share_rows(extra.shape[0], view_a.device, True)
            unit["hard_negatives"] = distributed.gather(unit["hard_negatives"], shared)
        labels = _per_row("labels", given["labels"], size)
        return Views(
            view_a=unit["view_a"],
            all_a=distributed.gather(unit["view_a"], rows),
            rows=rows,
            view_b=unit.get("view_b"),
            all_b=None if view_b is None else distributed.gather(unit["view_b"], rows),
            queue=unit.get("queue"),
            hard_negatives=unit.get("hard_negatives"),
            labels=labels,
            all_labels=None if labels is None else distributed.gather(labels, rows),
            index=_per_row("index", given["index"], size),
            uncertainty=_uncertainty(given["uncertainty"], size),
            positive_mask=given["positive_mask"],
            negative_mask=given["negative_mask"],
        )

    def _direction(self, direction: Direction, rows: distributed.Rows) -> tuple[Tensor, RowStatistics]:
        counts = direction.positive_count()
        own_positives = direction.positive_similarity()
        if direction.roles.positive_index is None:
            own_positives = own_positives[counts > 0]
        # Two-view blocks hold each rank's rows twice, labelled blocks a different number on each rank.
        shared = rows if rows.world == 1 else distributed.share_rows(own_positives.shape[0], own_positives.device, True)
        positives = distributed.gather(own_positives, shared)
        self._check_roles(direction, counts, positives)
        batch = Batch(
            positive_similarity=positives,
            anchors=direction.anchors,
            candidates=direction.candidates,
            labels=direction.labels,
            index=direction.index,
            uncertainty=direction.uncertainty,
        )
        logit_map = self.strategy.prepare(batch)
        block = direction.anchors, direction.candidates, direction.roles
        statistics, self._call["engine"] = row_statistics(self.engine, *block, logit_map)
        if self.training:
            self.strategy.observe(batch, statistics)
        second_map = self.objective.second_map(logit_map)
        second = None
        if second_map is not None:
            with torch.no_grad():
                second, _ = row_statistics(self.engine, *block, second_map)
        detached = {each.name: _detached(getattr(direction, each.name)) for each in fields(direction)}
        self._traces.append(
            Trace(
                replace(direction, **detached),
                logit_map,
                RowStatistics(**{each.name: _detached(getattr(statistics, each.name)) for each in fields(statistics)}),
            )
        )
        return self.objective.row_loss(statistics, Auxiliary(positives, second)), statistics

    def _check_roles(self, direction: Direction, counts: Tensor, positives: Tensor) -> None:
        roles, name = direction.roles, self.layout.name
        if roles.positive_index is None:
            negatives = roles.negative(*roles.tile(slice(None), slice(None))).sum(1)
            lonely = int((negatives == 0).sum())
            if positives.numel() == 0:
                raise ShapeError(f"layout '{name}': no anchor has a positive, so there is nothing to pull together.")
            if not self.objective.several_positives and int(counts.max()) > 1:
                raise ConfigError(
                    f"objective '{self.objective.name}' has no form for several positives, and layout '{name}' gave an anchor "
                    f"{int(counts.max())}: use infonce or dcl, or masks with one positive a row."
                )
        else:
            ignored = 1 if roles.ignored_index is None else 2
            columns = roles.candidates - (roles.negatives_start or ignored)
            extra = 0 if roles.extra_start is None else roles.candidates - roles.extra_start
            blind = roles.anchors - roles.extra_anchors if extra else 0
            lonely = roles.anchors if columns <= 0 else (blind if columns - extra <= 0 else 0)
        if lonely:
            raise ShapeError(
                f"layout '{name}' leaves {lonely} of {roles.anchors} anchors without a negative: "
                "give a larger batch, a queue or hard_negatives."
            )


def _heads(view_a: Tensor | Sequence[Tensor], view_b: Tensor | Sequence[Tensor] | None) -> list[tuple[Tensor, Tensor | None]]:
    if isinstance(view_a, list | tuple):
        if not isinstance(view_b, list | tuple) or len(view_a) != len(view_b) or not view_a:
            raise ShapeError("view_a is a list of heads, so view_b must be a list of as many, at least one.")
        return list(zip(view_a, view_b, strict=True))
    if isinstance(view_b, list | tuple):
        raise ShapeError("view_b is a list of heads, so view_a must be a list of as many.")
    return [(view_a, view_b)]  # type: ignore[list-item]


def _flat_hard_negatives(hard_negatives: Tensor | None, size: int) -> Tensor | None:
    if hard_negatives is None or hard_negatives.ndim != 3:
        return hard_negatives
    if hard_negatives.shape[0] != size:
        raise ShapeError(f"hard_negatives of shape {list(hard_negatives.shape)} must be [H, D] or [{size}, k, D].")
    return hard_negatives.flatten(0, 1)


def _per_row(name: str, values: Tensor | None, size: int) -> Tensor | None:
    if values is not None and tuple(values.shape) != (size,):
        raise ShapeError(f"{name} of shape {list(values.shape)} must have shape [{size}], one value a row of view_a.")
    return values


def _uncertainty(values: Tensor | tuple[Tensor, Tensor] | None, size: int) -> Tensor | tuple[Tensor, Tensor] | None:
    if values is None or isinstance(values, Tensor):
        return _per_row("uncertainty", values, size)
    if len(values) != 2:
        raise ShapeError(f"uncertainty holds {len(values)} tensors; wanted one, or a pair (of view_a, of view_b).")
    for value in values:
        _per_row("uncertainty", value, size)
    return (values[0], values[1])


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
