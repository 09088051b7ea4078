"""Pair layouts: which embeddings are anchors, which are candidates, and who is positive to whom.

A layout turns the tensors of a call into one or two directions of anchors × candidates. It must not know any strategy,
engine or objective. Shapes: B local pairs, G global ones, N local anchors, M candidates, D dimensions, K queue rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tempplug import positions
from tempplug.distributed import Rows
from tempplug.errors import ConfigError, ShapeError, UnknownNameError, nearest, quoted
from tempplug.roles import Pairing, PairRoles, roles_of_masks
from tempplug.types import LayoutName


@dataclass(slots=True, kw_only=True)
class Views:
    """The unit embeddings of a call. ``all_*`` hold the rows of every process (the same tensors without gathering).

    Layouts whose anchors are both views get them as one tensor, ``joined`` [2B, D] (view_a's rows first) and ``all_joined``
    [2G, D], the others one by one.

    Attributes:
        candidates: rows of view_b, queue and hard negatives, one behind the other, where they are one tensor.
        size: B, rows of view_a on this process.
        rows: how those of all processes lie.
        device: of everything.
        precision: dtype of the raw embeddings.
    """

    size: int
    rows: Rows
    device: torch.device
    precision: torch.dtype = torch.float32
    view_a: Tensor | None = None
    all_a: Tensor | None = None
    view_b: Tensor | None = None
    all_b: Tensor | None = None
    candidates: Tensor | None = None
    joined: Tensor | None = None
    all_joined: Tensor | None = None
    queue: Tensor | None = None
    hard_negatives: Tensor | None = None
    labels: Tensor | None = None
    all_labels: Tensor | None = None
    index: Tensor | None = None
    uncertainty: Tensor | tuple[Tensor, Tensor] | None = None
    positive_mask: Tensor | None = None
    negative_mask: Tensor | None = None


@dataclass(slots=True, kw_only=True)
class Direction:
    """One block of similarities: anchors [N, D] against candidates [M, D], their roles, and what is known per anchor.

    ``mirrored`` says that the block is the transpose of the call's first one: the same pairs the other way round.
    """

    anchors: Tensor
    candidates: Tensor
    roles: PairRoles
    labels: Tensor | None = None
    index: Tensor | None = None
    uncertainty: Tensor | None = None
    mirrored: bool = False

    def bare(self) -> tuple[Tensor, Tensor]:
        """Returns anchors and candidates without gradient."""
        anchors = self.anchors.detach()
        return anchors, anchors if self.candidates is self.anchors else self.candidates.detach()


def positive_similarity(anchors: Tensor, candidates: Tensor, roles: PairRoles) -> Tensor:
    """Returns each anchor's mean similarity over its positives, [N] (0 where it has none).

    Args:
        anchors: [N, D] unit rows without gradient.
        candidates: [M, D] unit rows without gradient.
        roles: of the pairs.
    """
    if roles.positives is not None:
        paired: Tensor = torch.linalg.vecdot(anchors, roles.positives.partners(candidates))
        return paired
    if roles.positive_mask is not None:
        # Bytes become floating point faster than booleans; some rows at a time, so that no square of them is there.
        parts = torch.split(roles.positive_mask.view(torch.uint8), 256)
        sums = torch.cat([part.to(candidates.dtype) @ candidates for part in parts])
    else:
        sums = roles.sums_of_class(anchors, candidates)
    counts = roles.positive_count()
    total: Tensor = torch.linalg.vecdot(anchors, sums)
    return total / (counts if roles.fewest_positives else counts.clamp(min=1))


class PairLayout(ABC):
    """Builds the directions of a call.

    Attributes:
        name: as in spec strings.
        takes: the optional arguments of the loss that this layout reads. ``labels``, ``index`` and ``uncertainty`` it hands
            on to strategies, which say themselves what they read; what nobody reads is refused.
        one_view: whether a call without view_b makes sense.
        joins_views: whether the anchors are the rows of both views, one behind the other.
        by_position: whether sizes alone decide all roles, so that a graph can hold them.
    """

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    one_view: ClassVar[bool] = False
    joins_views: ClassVar[bool] = False
    by_position: ClassVar[bool] = False

    @abstractmethod
    def directions(self, views: Views) -> list[Direction]:
        """Returns one direction, or both of a symmetric layout."""

    def refuse_gather(self) -> bool:
        """Returns whether the layout has no meaning across processes."""
        return False


def _twice(values: Tensor | None) -> Tensor | None:
    return None if values is None else torch.cat([values, values])


def _with_extra(candidates: Tensor, views: Views) -> tuple[Tensor, int | None]:
    """Returns the candidates with the hard negatives behind them, and where those begin."""
    if views.hard_negatives is None:
        return candidates, None
    return torch.cat([candidates, views.hard_negatives]), candidates.shape[0]


def _extra(views: Views) -> int:
    """Returns how many hard negatives there are."""
    return 0 if views.hard_negatives is None else views.hard_negatives.shape[0]


def _lacks_second(name: str) -> ShapeError:
    return ShapeError(f"layout '{name}' needs view_b beside view_a.")


def _given(tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None:
        raise _lacks_second(name)
    return tensor


def _one_uncertainty(views: Views, position: int, name: str) -> Tensor | None:
    if isinstance(views.uncertainty, tuple):
        return views.uncertainty[position]
    if position == 1 and views.uncertainty is not None:
        raise ShapeError(f"uncertainty must be a pair (of view_a, of view_b) where layout '{name}' has anchors of both.")
    return views.uncertainty


def _mask(name: str, mask: Tensor | None, wanted: tuple[int, int]) -> Tensor:
    if mask is None:
        raise ShapeError(f"layout 'masks' needs {name}=, a boolean tensor of shape {list(wanted)}.")
    return mask


class TwoView(PairLayout):
    """SimCLR's NT-Xent: 2B anchors, each against the other 2G-1 embeddings, same-side ones included."""

    name = "two-view"
    takes = frozenset({"hard_negatives"})
    joins_views = True
    by_position = True

    def directions(self, views: Views) -> list[Direction]:
        """Returns the block [2B, 2G (+ H)]."""
        anchors, candidates, hard = views.joined, views.all_joined, views.hard_negatives
        if anchors is None or candidates is None:
            raise _lacks_second(self.name)
        uncertainty = None
        if views.uncertainty is not None:
            pair = [_one_uncertainty(views, position, self.name) for position in (0, 1)]
            uncertainty = torch.cat([each for each in pair if each is not None])
        extra = 0 if hard is None else hard.shape[0]
        return [
            Direction(
                anchors=anchors,
                candidates=candidates if hard is None else torch.cat([candidates, hard]),
                roles=positions.two_view(views.size, views.rows.offset, views.rows.total, extra, views.device),
                labels=None if views.labels is None else _twice(views.labels),
                index=None if views.index is None else _twice(views.index),
                uncertainty=uncertainty,
            )
        ]


class CrossView(PairLayout):
    """SimCSE's and CLIP's block: view_a's rows against view_b's, positive on the diagonal.

    Args:
        symmetric: average with the direction from view_b to view_a.
    """

    name = "cross-view"
    takes = frozenset({"hard_negatives"})
    by_position = True

    def __init__(self, symmetric: bool = False) -> None:
        self.symmetric = symmetric

    def directions(self, views: Views) -> list[Direction]:
        """Returns the block [B, G (+ H)], and its counterpart where symmetric (hard negatives serve view_a's anchors)."""
        view_a, view_b = _given(views.view_a, self.name), _given(views.view_b, self.name)
        forward = views.candidates
        if forward is None:
            forward, _ = _with_extra(_given(views.all_b, self.name), views)
        blocks = [(view_a, forward, _extra(views))]
        if self.symmetric:
            blocks.append((view_b, _given(views.all_a, self.name), 0))
        return [
            Direction(
                anchors=anchors,
                candidates=candidates,
                roles=positions.cross_view(views.size, views.rows.offset, views.rows.total, extra, views.device),
                labels=views.labels,
                index=views.index,
                uncertainty=_one_uncertainty(views, position, self.name),
                mirrored=position == 1 and views.rows.world == 1 and views.hard_negatives is None,
            )
            for position, (anchors, candidates, extra) in enumerate(blocks)
        ]


class Queue(PairLayout):
    """MoCo's block: each anchor against its own key and the K rows of a queue shared by all."""

    name = "queue"
    takes = frozenset({"queue", "hard_negatives"})
    by_position = True

    def directions(self, views: Views) -> list[Direction]:
        """Returns the block [B, B + K (+ H)], whose first B columns hold the keys and no negatives."""
        view_a, view_b = _given(views.view_a, self.name), _given(views.view_b, self.name)
        if views.queue is None:
            raise ShapeError("layout 'queue' needs queue=, the past candidates [K, D].")
        candidates = views.candidates
        if candidates is None:
            candidates, _ = _with_extra(torch.cat([view_b, views.queue]), views)
        return [
            Direction(
                anchors=view_a,
                candidates=candidates,
                roles=positions.queue(view_b.shape[0], views.queue.shape[0], _extra(views), candidates.device),
                labels=views.labels,
                index=views.index,
                uncertainty=_one_uncertainty(views, 0, self.name),
            )
        ]


class Labels(PairLayout):
    """SupCon's block: every embedding against all others, those of its own class positive."""

    name = "labels"
    takes = frozenset({"hard_negatives", "labels"})
    one_view = True
    joins_views = True

    def directions(self, views: Views) -> list[Direction]:
        """Returns the block [B, G (+ H)] of one view, or [2B, 2G (+ H)] of two."""
        if views.labels is None or views.all_labels is None:
            raise ConfigError("layout 'labels' needs labels=, the class of each row of view_a.")
        uncertainty = _one_uncertainty(views, 0, self.name)
        labels, all_labels, index = views.labels, views.all_labels, views.index
        if views.joined is None:
            anchors, everyone = _given(views.view_a, self.name), _given(views.all_a, self.name)
        else:
            anchors, everyone = views.joined, _given(views.all_joined, self.name)
            labels, index = torch.cat([labels, labels]), None if views.index is None else _twice(views.index)
            all_labels = labels if views.rows.world == 1 else torch.cat([all_labels, all_labels])
            second = _one_uncertainty(views, 1, self.name)
            if uncertainty is not None and second is not None:
                uncertainty = torch.cat([uncertainty, second])
        return [
            Direction(
                anchors=anchors,
                candidates=_with_extra(everyone, views)[0],
                roles=self.roles(labels, all_labels, views.size, views.rows.offset, _extra(views)),
                labels=labels,
                index=index,
                uncertainty=uncertainty,
            )
        ]

    @staticmethod
    def roles(labels: Tensor, all_labels: Tensor, size: int, offset: int, extra: int) -> PairRoles:
        """Returns the roles of one view or two, [B or 2B, G or 2G (+ extra)].

        Args:
            labels: of the anchors.
            all_labels: of all processes' anchors; the same tensor where there is one process.
            size: B, how many anchors of view_a there are.
            offset: number of the first of them in all processes'.
            extra: hard negatives, which the anchors of view_a see.
        """
        count, total = labels.shape[0], all_labels.shape[0]
        both = positions.of_both(size, offset, total // 2, False)
        return PairRoles(
            anchors=count,
            candidates=total + extra,
            device=labels.device,
            ignored=Pairing(((0, size, offset),)) if count == size else both,
            square=count == total,
            anchor_labels=labels,
            candidate_labels=torch.cat([all_labels, all_labels.new_zeros(extra)]) if extra else all_labels,
            extra_start=total if extra else None,
            extra_anchors=size,
        )


class Masks(PairLayout):
    """Roles given outright as two boolean masks, PyGCL's contract; view_a are the anchors, view_b the candidates."""

    name = "masks"
    takes = frozenset({"positive_mask", "negative_mask"})

    def directions(self, views: Views) -> list[Direction]:
        """Returns the block [N, M] with the given masks."""
        view_a, view_b = _given(views.view_a, self.name), _given(views.view_b, self.name)
        wanted = (view_a.shape[0], view_b.shape[0])
        positive = _mask("positive_mask", views.positive_mask, wanted)
        negative = _mask("negative_mask", views.negative_mask, wanted)
        # Their bytes, because a maximum of bytes is many times faster than `any` of booleans.
        if bool((positive.view(torch.uint8) & negative.view(torch.uint8)).max()):
            raise ConfigError("positive_mask and negative_mask overlap: a pair cannot be both.")
        return [
            Direction(
                anchors=view_a,
                candidates=view_b,
                roles=roles_of_masks(positive, negative),
                labels=views.labels,
                index=views.index,
                uncertainty=_one_uncertainty(views, 0, self.name),
            )
        ]

    def refuse_gather(self) -> bool:
        """Returns True: the masks speak of the rows at hand."""
        return True


LAYOUTS: dict[str, type[PairLayout]] = {layout.name: layout for layout in (TwoView, CrossView, Queue, Labels, Masks)}


def create_layout(layout: LayoutName | PairLayout, symmetric: bool = False) -> PairLayout:
    """Returns the layout of that name.

    Args:
        layout: ``two-view``, ``cross-view``, ``queue``, ``labels`` or ``masks``, or an instance.
        symmetric: of ``cross-view``: average both directions.

    Raises:
        UnknownNameError: there is no such layout.
        ConfigError: ``symmetric`` with another layout, or an argument of another type.
    """
    if not isinstance(symmetric, bool):
        raise ConfigError(f"symmetric={symmetric!r} must be True or False.")
    if not isinstance(layout, str | PairLayout):
        raise ConfigError(f"layout={layout!r} must be the name of a layout, one of {', '.join(LAYOUTS)}, or an instance.")
    if isinstance(layout, str) and layout not in LAYOUTS:
        raise UnknownNameError(f"unknown layout {quoted(layout)}.{nearest(layout, LAYOUTS)} Known: {', '.join(LAYOUTS)}.")
    name = layout if isinstance(layout, str) else layout.name
    if symmetric and (name != "cross-view" or not isinstance(layout, str)):
        raise ConfigError(f"symmetric=True belongs to layout 'cross-view', not to '{name}'.")
    if not isinstance(layout, str):
        return layout
    return CrossView(symmetric) if layout == "cross-view" else LAYOUTS[layout]()
