"""The base of every term on negatives: which negatives count, and how much.

A term is added to the logit of a negative and has no gradient. ``-inf`` leaves the pair out, ln w gives it the weight w.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.options import Text
from tempplug.part import Part
from tempplug.roles import PairRoles
from tempplug.transforms import transformed

if TYPE_CHECKING:
    from tempplug.layouts.base import PairLayout
    from tempplug.objectives.base import Objective

Rows = slice | Tensor


@dataclass(slots=True, kw_only=True)
class Pairs:
    """One block of anchors × candidates, as a term sees it. Nothing here carries gradient.

    Attributes:
        anchors: [N, D] unit rows.
        candidates: [M, D] unit rows, of all processes.
        positive_similarity: [N] mean cosine similarity of each anchor and its positives.
        row_of_anchors: [N] number of the example that each anchor belongs to, among those of all processes.
        row_of_candidates: [M] likewise; -1 for candidates that belong to no example, such as those of a queue.
        hard: [M] which candidates are hard negatives; None where there are none.
        owned: whether hard negatives belong to examples, as those of shape [B, k, D] do.
        whole: whether the candidates are all that the anchors have. With ``gather="ring"`` they are those of one process, and
            ``main`` holds the positives among this process's own candidates: all of them, unless labels give the positives.
        of_anchors: returns an argument of the call that describes rows, by its name: [N, ...] of the anchors.
        of_candidates: the same of the candidates, [M, ...]; with ``of_row=True`` hard negatives [B, k, D] have the value of
            their row of view_a, unless the call gave theirs.
        main: the block that holds the positives of these anchors; None where it is this one.
    """

    anchors: Tensor
    candidates: Tensor
    roles: PairRoles
    positive_similarity: Tensor
    row_of_anchors: Tensor
    row_of_candidates: Tensor
    hard: Tensor | None = None
    owned: bool = True
    whole: bool = True
    of_anchors: Callable[..., Tensor]
    of_candidates: Callable[..., Tensor]
    main: Pairs | None = None

    def own(self) -> Keys:
        """Returns keys that are equal where a candidate belongs to the anchor's example: its positive, its hard negatives."""
        return Keys(self.row_of_anchors, self.row_of_candidates)


@dataclass(frozen=True, slots=True)
class Keys:
    """One integer for each anchor [N] and candidate [M], for terms on pairs with equal ones; [R, 1] and [C] bound to a tile."""

    of_anchors: Tensor
    of_candidates: Tensor

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> Keys:
        """Returns the keys of a tile or of index pairs; arguments as of `TermMap.at`."""
        keys = self.of_anchors[rows]
        return Keys(keys if paired else keys[:, None], self.of_candidates[columns])

    def equal(self, like: Tensor, other: bool = False) -> Tensor:
        """Returns 1 where the keys of a pair are equal (``other``: different) and 0 elsewhere, as a tensor like ``like``."""
        return marks(torch.ne if other else torch.eq, self.of_anchors, self.of_candidates, like)


def marks(compare: Callable[..., Tensor], left: Tensor, right: Tensor, like: Tensor) -> Tensor:
    """Returns 1 where a comparison of torch holds and 0 elsewhere, in the shape and type of ``like``."""
    if transformed():
        return compare(left, right).to(like.dtype)
    return compare(left, right, out=torch.empty_like(like))  # several times faster than booleans


class TermMap(ABC):
    """A term of every pair of a block, element by element on any tile; which pairs are negatives does not matter here.

    Attributes:
        bound: the largest value in nats, ``inf`` where it is not known.
        symmetric: whether the term of (i, j) is that of (j, i), so that half of a square matrix is enough, and one pass for a
            block and its transpose; engines refuse a term that is not for both at once.
    """

    bound: float = float("inf")
    symmetric: bool = False

    @abstractmethod
    def term(self, similarity: Tensor) -> Tensor:
        """Returns what is added to the logits, in nats, broadcastable to the shape of ``similarity``, which is only read."""

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> TermMap:
        """Returns the term bound to a tile or to index pairs; itself unless overridden; arguments as of `LogitMap.at`."""
        return self


class WeightMap(TermMap):
    """A term ln w of a weight w >= 0: sums of exp are multiplied by w, which is faster than a logarithm and an addition."""

    @abstractmethod
    def weight(self, similarity: Tensor) -> Tensor:
        """Returns w, broadcastable to the shape of ``similarity``, which is only read; 0 leaves a pair out."""

    def term(self, similarity: Tensor) -> Tensor:
        """Returns ln w."""
        return self.weight(similarity).log()


class LeftOut(WeightMap):
    """Leaves out pairs of equal keys, or those of different ones; ``spared`` [M] marks candidates that stay in any case."""

    bound = 0.0

    def __init__(self, keys: Keys, equal: bool = True, spared: Tensor | None = None) -> None:
        self.keys, self.equal, self.spared = keys, equal, spared
        self.symmetric = keys.of_anchors is keys.of_candidates and spared is None

    def at(self, rows: Rows, columns: Rows, paired: bool = False) -> TermMap:
        """Returns the term of these pairs."""
        spared = None if self.spared is None else self.spared[columns]
        return LeftOut(self.keys.at(rows, columns, paired), self.equal, spared)

    def weight(self, similarity: Tensor) -> Tensor:
        """Returns 0 or 1."""
        kept = self.keys.equal(similarity, other=self.equal)
        return kept if self.spared is None else torch.maximum(kept, self.spared.to(kept.dtype))


Blocks = Annotated[Any, Text(optional=True, help="of cross-view, such as ab/aa; none: all")]
"""The option ``blocks``, a word; the attribute holds the names."""


class NegativeTerm(Part):
    """Chooses the term of each block of a batch.

    A subclass declares its options as a `tempplug.part.Part` does, and implements `prepare`. It may choose the names of the
    arguments that it takes: the loss accepts them as keywords, a tensor [B, ...] for both views or a dictionary by the name of
    the embeddings, and `Pairs` has those of a block's rows.

    Attributes:
        cosines_only: whether it needs the rows, or cosines in [-1, 1]; `tempplug.ContrastiveLoss.from_scores` then refuses it.
        blocks: names of the blocks of ``cross-view`` (``ab``, ``aa``, ``ba``, ``bb``) that the term is for; () for all.
    """

    kind: ClassVar[str] = "negative term"
    cosines_only: bool = True
    blocks: tuple[str, ...] = ()

    def configure(self, **values: object) -> None:
        """Checks the options, and reads ``blocks`` where it is one."""
        super().configure(**values)
        written = self.options.get("blocks")
        self.blocks = () if written is None else read_blocks(self.where("blocks", written), written)

    def check_with(self, layout: PairLayout, objective: Objective) -> None:
        """Raises `ConfigError` if the term has no meaning with this layout or this objective."""
        if not set(self.blocks) <= set(layout.blocks):
            raise ConfigError(
                f"{self.where('blocks', '/'.join(self.blocks))} must be among those of layout '{layout.name}': "
                f"{', '.join(layout.blocks) or 'none'}."
            )
        if self.reads_rows and objective.pair_function is not None:
            raise ConfigError(f"negative term '{self.name}' works on log-sum-exps, which objective '{objective.name}' has not.")

    def check_arguments(self, given: Mapping[str, Mapping[str, Tensor]], layout: PairLayout) -> None:
        """Raises `TempplugError` where an argument that the term takes cannot be meant.

        Called once a call, with the arguments of this process's rows, by name and by that of the embeddings. A tensor that
        serves both views is there under both names.
        """

    def prepare(self, pairs: Pairs) -> TermMap | None:
        """Returns the term of the pairs of a block, None for no term; called once a block, does O(N) work.

        Raises:
            TempplugError: an argument of the call does not fit.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement prepare(pairs) -> TermMap.")

    def observe(self, given: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Receives the arguments that the term takes, of this process's rows, by name and by that of the embeddings.

        Called once a call, in training mode only, before `prepare`.
        """

    @property
    def observes(self) -> bool:
        """Whether `observe` does anything."""
        return type(self).observe is not NegativeTerm.observe

    def negative_lse(self, lse: Tensor, positive_logit: Tensor, count: Tensor, lowest: Tensor) -> Tensor:
        """Returns the log-sum-exp of each row's negatives [N] that the loss uses; the given one unless overridden.

        Args:
            lse: [N] of the row's negatives, terms included; -inf where there are none.
            positive_logit: [N] mean logit of the row's positives.
            count: [N] number of the row's negatives.
            lowest: [N] or [] logit of the similarity -1.
        """
        return lse

    @property
    def reads_rows(self) -> bool:
        """Whether `negative_lse` does anything."""
        return type(self).negative_lse is not NegativeTerm.negative_lse


def joined_spec(terms: Iterable[NegativeTerm]) -> str | None:
    """Returns the spec string of several terms, None where there are none."""
    return "+".join(each.spec() for each in terms) or None


BLOCKS = ("ab", "aa", "ba", "bb")
"""Blocks of the layout ``cross-view``: view_a's rows are anchors in ``ab`` and ``aa``, view_b's in ``ba`` and ``bb``."""


def read_blocks(where: str, written: str, separator: str = "/") -> tuple[str, ...]:
    """Returns the names of blocks in a word such as ``ab/aa``; raises `ConfigError` for another name, or one twice."""
    names = tuple(written.split(separator))
    if not set(names) <= set(BLOCKS) or len(set(names)) < len(names):
        raise ConfigError(f"{where} must be some of {', '.join(BLOCKS)}, each once, joined by '{separator}'.")
    return names
