"""The base of every term on negatives: which negatives count, and how much.

A term is added to the logit of a negative and has no gradient. ``-inf`` leaves the pair out, ln w gives it the weight w.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.layouts.base import PairLayout, read_blocks
from tempplug.options import Text
from tempplug.part import Part
from tempplug.roles import PairRoles
from tempplug.term_map import Keys, LeftOut, Rows, TermMap, WeightMap, marks

if TYPE_CHECKING:
    from tempplug.objectives.base import Objective

__all__ = ["Blocks", "Keys", "LeftOut", "NegativeTerm", "Pairs", "Rows", "TermMap", "WeightMap", "joined_spec", "marks"]


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
