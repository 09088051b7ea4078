"""Harder negatives weigh more: their own similarity is added to their logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.negatives.base import Blocks, Keys, NegativeTerm, Pairs, Rows, TermMap
from tempplug.options import Choice, Number


@dataclass(eq=False, repr=False)
class Hardness(NegativeTerm):
    """Adds α times its similarity, without gradient and not divided by a temperature, to the logit of a negative.

    Args:
        strength: α, from 0 to 100. LLaVE has 9 on in-batch negatives, EmbeddingGemma 5 on hard ones.
        of: which negatives: ``all``, the anchor's own ``hard`` ones, or ``in-batch``: all but those of the anchor's own row.
        blocks: of the layout ``cross-view``, such as ``ab``; all by default.

    Source: Lan et al. 2025, LLaVE, eq. 5; Schechter Vera et al. 2025, EmbeddingGemma, section 2.3.
    """

    name: ClassVar[str] = "hardness"
    formula: ClassVar[str] = "α·sg(s_ij)"
    source: ClassVar[str] = "Lan et al. 2025, LLaVE, eq. 5; Schechter Vera et al. 2025, EmbeddingGemma"
    cosines_only = False

    strength: Annotated[float, Number(at_least=0, at_most=100, search=(1, 10), help="α")] = 5.0
    of: Annotated[str, Choice(("all", "hard", "in-batch"), help="which negatives")] = "all"
    blocks: Blocks = None

    def prepare(self, pairs: Pairs) -> TermMap | None:
        """Returns the term of all pairs, or of some."""
        if self.of == "all":
            return TimesSimilarity(self.strength)
        if not pairs.owned:
            raise ConfigError(
                f"{self.where('of', self.of)} needs to know whose hard negatives they are: pass hard_negatives [B, k, D]."
            )
        if self.of == "in-batch":
            return TimesSimilarity(self.strength, pairs.own())
        return None if pairs.hard is None else TimesSimilarity(self.strength, pairs.own(), pairs.hard)


class TimesSimilarity(TermMap):
    """α·s of all pairs; with ``keys`` where these differ; with ``hard`` of hard negatives where they are equal."""

    def __init__(self, strength: float, keys: Keys | None = None, hard: Tensor | None = None) -> None:
        self.strength, self.keys, self.hard = strength, keys, hard
        self.bound, self.symmetric = strength, keys is None

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> TermMap:
        """Returns the term of these pairs."""
        if self.keys is None:
            return self
        hard = None if self.hard is None else self.hard[columns]
        return TimesSimilarity(self.strength, self.keys.restrict(rows, columns, paired), hard)

    def term(self, similarity: Tensor) -> Tensor:
        """Returns α·s or 0."""
        if self.keys is None:
            return similarity * self.strength
        term = (similarity * self.keys.equal(similarity, other=self.hard is None)).mul_(self.strength)
        return term if self.hard is None else term.mul_(self.hard)
