"""The oracle's layouts: which pairs are positives and negatives, as dense boolean masks.

It must not know the layouts that are tested against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError

Uncertainty = Tensor | tuple[Tensor, Tensor] | list[Tensor]


@dataclass(frozen=True)
class Direction:
    """One block: unit rows, which pairs are positives and negatives, and what belongs to each anchor.

    Attributes:
        sources: arguments of the call that the anchors come from, and the candidates, one behind the other.
        name: of the block, in the layout ``cross-view``.
    """

    anchors: Tensor
    candidates: Tensor
    positive: Tensor
    negative: Tensor
    labels: Tensor | None
    uncertainty: Tensor | None
    sources: tuple[tuple[str, ...], tuple[str, ...]]
    name: str = ""
    averages: Tensor | None = None

    def with_hard_negatives(self, rows: Tensor, seen: Tensor) -> Direction:
        """Adds candidates [H, D] that are negatives of the first n anchors where ``seen`` [n, H] is true, and else ignored."""
        added = torch.zeros(len(self.anchors), len(rows), dtype=torch.bool)
        added[: len(seen)] = seen
        return Direction(
            self.anchors,
            torch.cat([self.candidates, rows]),
            torch.cat([self.positive, torch.zeros_like(added)], dim=1),
            torch.cat([self.negative, added], dim=1),
            self.labels,
            self.uncertainty,
            (self.sources[0], (*self.sources[1], "hard_negatives")),
            self.name,
            self.averages,
        )


def unit_rows(embeddings: Tensor) -> Tensor:
    """Returns unit rows in float64; a row of zeros stays one and gets no gradient."""
    rows = embeddings.double()
    zero = (rows == 0).all(dim=-1, keepdim=True)
    length = torch.where(zero, torch.ones_like(rows), rows).square().sum(dim=-1, keepdim=True).sqrt()
    return torch.where(zero, torch.zeros_like(rows), rows / length)


def _join(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None or second is None else torch.cat([first, second])


def _pair(values: Uncertainty | None) -> tuple[Tensor | None, Tensor | None]:
    """Returns the values of view_a's rows and of view_b's, converted once so that their gradient is rounded once."""
    if isinstance(values, Tensor):
        values = values.double()
        return values, values
    of_a, of_b = (None, None) if values is None else values
    return None if of_a is None else of_a.double(), None if of_b is None else of_b.double()


def _seen(count: int, hard: Tensor, mask: Tensor | None, owners: str) -> Tensor:
    """Returns which hard negatives each anchor sees, [count, H]: of ``every`` row, of its ``own`` or of the ``others``."""
    seen = torch.ones(count, hard.shape[:-1].numel(), dtype=torch.bool)
    if hard.ndim == 3 and owners != "every":
        own = torch.arange(count)[:, None] == torch.arange(count).repeat_interleave(hard.shape[1])
        seen = own if owners == "own" else ~own
    elif owners == "own":
        raise ConfigError("hard=own: the oracle needs hard_negatives [B, k, D], which belong to rows.")
    return seen if mask is None else seen & mask.flatten()


def _cross_view(
    a: Tensor,
    b: Tensor,
    hard: Tensor | None,
    mask: Tensor | None,
    labels: Tensor | None,
    uncertainty: tuple[Tensor | None, Tensor | None],
    averages: tuple[Tensor | None, Tensor | None],
    *,
    directions: str = "ab",
    softmax: str = "joint",
    hard_option: str = "shared",
    in_batch: bool = True,
) -> list[list[Direction]]:
    own = torch.eye(len(a), dtype=torch.bool)
    views = {"a": (a, "view_a", uncertainty[0], averages[0]), "b": (b, "view_b", uncertainty[1], averages[1])}
    found = []
    for name in directions.split("+"):
        (anchors, source, of_anchors, kept), (candidates, other, *_) = (views[letter] for letter in name)
        positive = own if name in ("ab", "ba") else torch.zeros_like(own)
        negative = ~own if in_batch else torch.zeros_like(own)
        block = Direction(anchors, candidates, positive, negative, labels, of_anchors, ((source,), (other,)), name, kept)
        owners = {"ab": "own" if hard_option == "own" else "every", "bb": "others" if hard_option == "shared" else ""}.get(name)
        if hard is not None and owners:
            block = block.with_hard_negatives(hard.flatten(0, -2), _seen(len(a), hard, mask, owners))
        found.append(block)
    return [found] if softmax == "joint" else [[each] for each in found]


def directions(
    layout: str,
    options: Mapping[str, Any],
    rows: Mapping[str, Tensor],
    *,
    labels: Tensor | None = None,
    uncertainty: Uncertainty | None = None,
    masks: Sequence[Tensor | None] = (None, None),
    hard_negative_mask: Tensor | None = None,
    averages: Uncertainty | None = None,
) -> list[list[Direction]]:
    """Returns the blocks of each softmax of a row; the first one of each holds the positives that its loss is about.

    ``rows`` are unit rows by the name of the argument, ``masks`` those of positives and of negatives; the rest is as of
    `tempplug.testing.oracle_row_losses`.
    """
    (of_a, of_b), (kept_of_a, kept_of_b) = _pair(uncertainty), _pair(averages)
    kept_of_both = _join(kept_of_a, kept_of_b)
    a, b, queue, hard = (rows.get(name) for name in ("view_a", "view_b", "queue", "hard_negatives"))
    if a is None:
        raise ConfigError("view_a=None: the oracle needs anchors.")
    own, both = torch.eye(len(a), dtype=torch.bool), ("view_a", "view_b")
    if layout == "cross-view" and b is not None:
        options = {"hard_option" if name == "hard" else name: value for name, value in options.items()}
        return _cross_view(a, b, hard, hard_negative_mask, labels, (of_a, of_b), (kept_of_a, kept_of_b), **options)
    if layout == "two-view" and b is not None:
        self_pairs = torch.eye(2 * len(a), dtype=torch.bool)
        positive, z = self_pairs.roll(len(a), dims=1), torch.cat([a, b])
        negative = ~positive & ~self_pairs
        found = Direction(
            z, z, positive, negative, _join(labels, labels), _join(of_a, of_b), (both, both), averages=kept_of_both
        )
    elif layout == "queue" and b is not None and queue is not None:
        none = torch.zeros(len(a), len(queue), dtype=torch.bool)
        positive, negative = torch.cat([own, none], dim=1), torch.cat([torch.zeros_like(own), ~none], dim=1)
        found = Direction(
            a, torch.cat([b, queue]), positive, negative, labels, of_a, (("view_a",), ("view_b", "queue")), averages=kept_of_a
        )
    elif layout == "labels" and labels is not None:
        z, classes = (a, labels) if b is None else (torch.cat([a, b]), torch.cat([labels, labels]))
        same, self_pairs = classes[:, None] == classes[None, :], torch.eye(len(z), dtype=torch.bool)
        names = both if b is not None else ("view_a",)
        of_all, kept = (of_a, kept_of_a) if b is None else (_join(of_a, of_b), kept_of_both)
        found = Direction(z, z, same & ~self_pairs, ~same, classes, of_all, (names, names), averages=kept)
    elif layout == "masks" and b is not None and masks[0] is not None and masks[1] is not None:
        found = Direction(a, b, masks[0], masks[1], labels, of_a, (("view_a",), ("view_b",)), averages=kept_of_a)
    else:
        raise ConfigError(f"layout='{layout}' is unknown to the oracle, or lacks an input that it needs.")
    if hard is not None:
        found = found.with_hard_negatives(hard.flatten(0, -2), _seen(len(a), hard, hard_negative_mask, "every"))
    return [[found]]
