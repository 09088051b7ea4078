"""The oracle's layouts: which pairs are positives and negatives, as dense boolean masks.

It must not know the layouts that are tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tempplug.errors import ConfigError

Uncertainty = Tensor | tuple[Tensor, Tensor] | list[Tensor]


@dataclass(frozen=True)
class Direction:
    """One direction: unit rows, which pairs are positives and negatives, and what belongs to each anchor."""

    anchors: Tensor
    candidates: Tensor
    positive: Tensor
    negative: Tensor
    labels: Tensor | None
    uncertainty: Tensor | None
    averages: Tensor | None = None

    def with_hard_negatives(self, rows: Tensor | None, count: int) -> Direction:
        """Adds candidates that are negatives of the first ``count`` anchors and ignored by the others."""
        if rows is None:
            return self
        added = torch.zeros(len(self.anchors), len(rows), dtype=torch.bool)
        added[:count] = True
        return Direction(
            self.anchors,
            torch.cat([self.candidates, rows]),
            torch.cat([self.positive, torch.zeros_like(added)], dim=1),
            torch.cat([self.negative, added], dim=1),
            self.labels,
            self.uncertainty,
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
    """Returns the values of view_a's rows and of view_b's."""
    if isinstance(values, Tensor) or values is None:
        return values, values
    return values[0], values[1]


def directions(
    layout: str,
    symmetric: bool,
    a: Tensor,
    b: Tensor | None,
    queue: Tensor | None,
    labels: Tensor | None,
    uncertainty: Uncertainty | None,
    positive_mask: Tensor | None,
    negative_mask: Tensor | None,
    averages: Uncertainty | None = None,
) -> list[Direction]:
    """Returns the directions of a layout, without hard negatives."""
    of_a, of_b = _pair(uncertainty)
    kept_of_a, kept_of_b = _pair(averages)
    both = _join(kept_of_a, kept_of_b)
    own = torch.eye(len(a), dtype=torch.bool)
    if layout == "two-view" and b is not None:
        self_pairs = torch.eye(2 * len(a), dtype=torch.bool)
        positive = self_pairs.roll(len(a), dims=1)
        z = torch.cat([a, b])
        return [Direction(z, z, positive, ~positive & ~self_pairs, _join(labels, labels), _join(of_a, of_b), both)]
    if layout == "cross-view" and b is not None:
        forth = Direction(a, b, own, ~own, labels, of_a, kept_of_a)
        return [forth, Direction(b, a, own, ~own, labels, of_b, kept_of_b)] if symmetric else [forth]
    if layout == "queue" and b is not None and queue is not None:
        none, all_of_it = torch.zeros(len(a), len(queue), dtype=torch.bool), torch.ones(len(a), len(queue), dtype=torch.bool)
        positive, negative = torch.cat([own, none], dim=1), torch.cat([torch.zeros_like(own), all_of_it], dim=1)
        return [Direction(a, torch.cat([b, queue]), positive, negative, labels, of_a, kept_of_a)]
    if layout == "labels" and labels is not None:
        z, classes = (a, labels) if b is None else (torch.cat([a, b]), torch.cat([labels, labels]))
        same, self_pairs = classes[:, None] == classes[None, :], torch.eye(len(z), dtype=torch.bool)
        found, kept = (of_a, kept_of_a) if b is None else (_join(of_a, of_b), both)
        return [Direction(z, z, same & ~self_pairs, ~same, classes, found, kept)]
    if layout == "masks" and b is not None and positive_mask is not None and negative_mask is not None:
        return [Direction(a, b, positive_mask, negative_mask, labels, of_a, kept_of_a)]
    raise ConfigError(f"layout='{layout}' is unknown to the oracle, or lacks an input that it needs.")
