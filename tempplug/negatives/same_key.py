"""Pairs that are no negatives because of what the call gives: those with the same key, and those of two data sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tempplug.inputs import check_row_integers
from tempplug.negatives.base import Keys, LeftOut, NegativeTerm, Pairs, TermMap


@dataclass(eq=False, repr=False)
class SameKey(NegativeTerm):
    """Leaves out the negatives that have the key of their anchor, such as the same text, document or class.

    The call passes ``keys=``: [B] integers for both views, or a dictionary of those of ``view_a``, ``view_b``,
    ``hard_negatives`` and ``queue``.

    >>> import torch
    >>> from tempplug import ContrastiveLoss
    >>> loss_fn = ContrastiveLoss(layout="cross-view", negatives="same-key")
    >>> rows = torch.eye(3)
    >>> loss_fn(rows, rows.roll(1, 0), keys=torch.tensor([5, 6, 5])) < loss_fn(rows, rows.roll(1, 0), keys=torch.arange(3))
    tensor(True)
    """

    name: ClassVar[str] = "same-key"
    formula: ClassVar[str] = "-inf where key_i = key_j, else 0"
    source: ClassVar[str] = "identical texts or documents of a batch are positives of each other"
    cosines_only = False
    takes: ClassVar[frozenset[str]] = frozenset({"keys"})

    def prepare(self, pairs: Pairs) -> TermMap:
        """Returns the term that compares keys."""
        keys = (check_row_integers("keys", argument_of("keys")) for argument_of in (pairs.of_anchors, pairs.of_candidates))
        return LeftOut(Keys(*keys))


@dataclass(eq=False, repr=False)
class WithinGroup(NegativeTerm):
    """Leaves out the negatives of other groups, as in batches that mix several data sets.

    The call passes ``groups=``: [B] integers for both views, or a dictionary as of ``same-key``; hard negatives [B, k, D] have
    the groups of their rows unless others are given.
    """

    name: ClassVar[str] = "within-group"
    formula: ClassVar[str] = "-inf where group_i ≠ group_j, else 0"
    source: ClassVar[str] = "negatives within a data set, as in batches of one source (Nussbaum et al. 2024, Nomic Embed)"
    cosines_only = False
    takes: ClassVar[frozenset[str]] = frozenset({"groups"})

    def prepare(self, pairs: Pairs) -> TermMap:
        """Returns the term that compares groups."""
        of_anchors, of_candidates = pairs.of_anchors("groups"), pairs.of_candidates("groups", of_row=True)
        groups = Keys(check_row_integers("groups", of_anchors), check_row_integers("groups", of_candidates))
        return LeftOut(groups, equal=False)
