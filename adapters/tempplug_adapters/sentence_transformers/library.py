"""The names of sentence-transformers that older releases have in other places: losses before 5.4, GradCache before 5.7."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from sentence_transformers.sentence_transformer import losses, modules
except ImportError:  # before 5.4
    if not TYPE_CHECKING:
        from sentence_transformers import losses, models as modules

try:
    from sentence_transformers.base.losses.gradcache import CachedLossMixin, has_static_embedding_input
except ImportError:  # before 5.7
    if not TYPE_CHECKING:

        class CachedLossMixin(losses.CachedMultipleNegativesRankingLoss):
            """GradCache of the library's own cached loss, as a base class, which MatryoshkaLoss requires."""

            forward_cached = losses.CachedMultipleNegativesRankingLoss.forward

        def has_static_embedding_input(model: Any) -> bool:
            """Returns whether the inputs of a model cannot be split."""
            return isinstance(model[0], modules.StaticEmbedding)


MultipleNegativesRankingLoss = losses.MultipleNegativesRankingLoss


def dimension_of(model: Any) -> dict[str, int]:
    """Returns the dimension of a model's embeddings as an option of strategies; none if the model has no such method."""
    known = getattr(model, "get_embedding_dimension", None) or getattr(model, "get_sentence_embedding_dimension", None)
    found = None if known is None else known()
    return {} if found is None else {"dimension": found}


__all__ = ["CachedLossMixin", "MultipleNegativesRankingLoss", "dimension_of", "has_static_embedding_input", "modules"]
