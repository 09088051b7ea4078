"""Negatives that are more similar than the positive are taken for false ones: left out, or weighed less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tempplug.negatives.base import Blocks, NegativeTerm, Pairs, Rows, TermMap, WeightMap, marks
from tempplug.options import Choice, Number


@dataclass(eq=False, repr=False)
class FalseNegatives(NegativeTerm):
    """Leaves out the negatives whose similarity exceeds that of the anchor's positive by more than a margin.

    Args:
        margin: m, from -2 to 2.
        rule: ``absolute`` leaves a pair out where s > s⁺ + m, ``relative`` where s > s⁺ + m·|s⁺|. Qwen3-Embedding has 0.1;
            NV-Retriever has ``relative`` with -0.05.
        weight: w, in [0, 1): the weight of such a pair in the sum over negatives; 0 leaves it out.
        blocks: of the layout ``cross-view``, such as ``ab/aa``; all by default.

    s⁺ is the mean similarity over an anchor's positives, and of the pair (a_i, b_i) in every block.

    Source: Zhang et al. 2025, Qwen3 Embedding, section 3 (absolute); Moreira et al. 2024, NV-Retriever, section 4 (relative).
    """

    name: ClassVar[str] = "false-negatives"
    formula: ClassVar[str] = "ln w where s_ij > s⁺_i + m (relative: s⁺_i + m·|s⁺_i|), else 0"
    source: ClassVar[str] = "Zhang et al. 2025, Qwen3 Embedding, section 3; Moreira et al. 2024, NV-Retriever, section 4"
    cosines_only = False

    margin: Annotated[float, Number(at_least=-2, at_most=2, help="m, added to the positive's similarity")] = 0.1
    rule: Annotated[str, Choice(("absolute", "relative"), help="s⁺ + m, or s⁺ + m·|s⁺|")] = "absolute"
    weight: Annotated[float, Number(at_least=0, below=1, help="w of such a pair; 0 leaves it out")] = 0.0
    blocks: Blocks = None

    def threshold(self, positive_similarity: Tensor) -> Tensor:
        """Returns the similarity of each anchor above which a negative is taken for a false one, [N], of s⁺ [N]."""
        return positive_similarity + self.margin * (positive_similarity.abs() if self.rule == "relative" else 1.0)

    def prepare(self, pairs: Pairs) -> TermMap:
        """Returns the term of the similarity of each pair."""
        return AboveThreshold(self.threshold(pairs.positive_similarity), self.weight)


class AboveThreshold(WeightMap):
    """The weight ``above`` where a similarity exceeds the threshold [N] of its row, else 1.

    Compared is the product of ``judges``, rows of anchors and of candidates; None for the similarity of the pair itself.
    """

    bound = 0.0

    def __init__(self, threshold: Tensor, above: float, judges: tuple[Tensor, Tensor] | None = None) -> None:
        self.threshold, self.above, self.judges = threshold, above, judges
        self.judged: Tensor | None = None

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> TermMap:
        """Returns the term of these pairs."""
        threshold = self.threshold[rows]
        bound = AboveThreshold(threshold if paired else threshold[:, None], self.above)
        if self.judges is not None:
            left, right = self.judges[0][rows], self.judges[1][columns]
            bound.judged = torch.linalg.vecdot(left, right) if paired else left @ right.T
        return bound

    def weight(self, similarity: Tensor) -> Tensor:
        """Returns w or 1."""
        judged = similarity if self.judged is None else self.judged
        weight = marks(torch.le, judged, self.threshold, similarity)
        return weight.mul_(1 - self.above).add_(self.above) if self.above else weight
