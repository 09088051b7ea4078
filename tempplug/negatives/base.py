"""The base of every term on negatives: which negatives count, and how much.

A term is added to the logit of a negative and has no gradient. ``-inf`` leaves the pair out, ln w gives it the weight w.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from torch import Tensor

from tempplug.block import Pairs
from tempplug.errors import ConfigError
from tempplug.layouts.base import PairLayout, read_blocks
from tempplug.options import Text
from tempplug.part import Part
from tempplug.term_map import Keys, LeftOut, Rows, TermMap, WeightMap, marks

if TYPE_CHECKING:
    from tempplug.objectives.base import Objective

__all__ = ["Blocks", "Keys", "LeftOut", "NegativeTerm", "Pairs", "Rows", "TermMap", "WeightMap", "joined_spec", "marks"]


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
    return "+".join(term.spec() for term in terms) or None
