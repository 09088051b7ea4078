"""False negatives as a guide model sees them (GISTEmbed)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from torch import Tensor

from tempplug.embeddings import unit_rows
from tempplug.errors import ConfigError, ShapeError
from tempplug.inputs import check_finite
from tempplug.negatives.base import Blocks, Pairs, TermMap
from tempplug.negatives.false_negatives import AboveThreshold, FalseNegatives
from tempplug.options import Choice, Number

if TYPE_CHECKING:
    from tempplug.layouts.base import PairLayout


@dataclass(eq=False, repr=False)
class Guide(FalseNegatives):
    """Leaves out the negatives that a guide model finds more similar than the positive, by more than a margin.

    The call passes ``guide={"view_a": [B, E], "view_b": [B, E]}``, the guide's raw embeddings of the same rows, and those of
    ``hard_negatives`` and ``queue`` where there are any. Options are as of ``false-negatives``; GISTEmbed's margin of 0.1 is
    -0.1 here. One tensor for both views makes g⁺ = 1: with a margin below 0 that leaves out the items that the guide finds
    nearly equal, as for two views of one image, and otherwise nothing, which is refused.

    Source: Solatorio 2024, GISTEmbed, eq. 4.
    """

    name: ClassVar[str] = "guide"
    formula: ClassVar[str] = "ln w where g_ij > g⁺_i + m (relative: g⁺_i + m·|g⁺_i|), else 0; g the guide's similarities"
    source: ClassVar[str] = "Solatorio 2024, GISTEmbed: Guided In-sample Selection of Training Negatives, eq. 4"
    takes: ClassVar[frozenset[str]] = frozenset({"guide"})

    margin: Annotated[float, Number(at_least=-2, at_most=2, help="m, added to the positive's similarity")] = 0.0
    rule: Annotated[str, Choice(("absolute", "relative"), help="g⁺ + m, or g⁺ + m·|g⁺|")] = "absolute"
    weight: Annotated[float, Number(at_least=0, below=1, help="w of such a pair; 0 leaves it out")] = 0.0
    blocks: Blocks = None

    def check_arguments(self, given: Mapping[str, Mapping[str, Tensor]], layout: PairLayout) -> None:
        """Raises where they are no embeddings, or the same of both views where the margin then leaves nothing out."""
        rows = given.get("guide", {})
        for tensor in rows.values():
            if tensor.ndim != 2 or not tensor.is_floating_point():
                raise ShapeError(
                    f"guide= holds {tensor.dtype} of shape {list(tensor.shape)}; wanted floating-point embeddings [B, E]."
                )
            check_finite("guide", tensor)
        if layout.by_position and self.margin >= 0 and "view_a" in rows and rows["view_a"] is rows.get("view_b"):
            raise ConfigError(
                "guide= is one tensor for view_a and view_b, so each positive has the guide's similarity 1, and "
                f"{self.where('margin', self.margin)} leaves nothing out: pass guide={{'view_a': [B, E], 'view_b': [B, E]}}, "
                "or take a margin below 0 where both views are of one item."
            )

    def prepare(self, pairs: Pairs) -> TermMap:
        """Returns the term of the guide's similarity of each pair."""
        main = pairs.main or pairs
        if not main.whole and main.roles.positives is None:
            raise ConfigError(
                f"negative term '{self.name}' needs an anchor's positives of all processes at once unless positions give them, "
                "and gather='ring' has those of one process at a time: use gather=True."
            )
        positive = main.roles.positive_similarity(_unit(main.of_anchors("guide")), _unit(main.of_candidates("guide")))
        anchors, candidates = _unit(pairs.of_anchors("guide")), _unit(pairs.of_candidates("guide"))
        return AboveThreshold(self.threshold(positive), self.weight, (anchors, candidates))


def _unit(rows: Tensor) -> Tensor:
    """Returns unit rows of the guide's embeddings."""
    return unit_rows(rows.detach())[0]
