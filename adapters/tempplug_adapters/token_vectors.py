"""Subtraction of the mean from a table of token vectors, for models without layers. Needs torch alone."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.errors import DataError, NonFiniteError

AT_ONCE = 2**20
"""Tokens whose vectors are added up at once, which bounds the memory."""


@torch.no_grad()
def subtract_mean_vector(weight: Tensor, tokens: Tensor) -> None:
    """Subtracts the mean vector of the tokens of some texts from a table of vectors, in place.

    Rows of zeros stay zero: unknown tokens, padding and unused rows have no vector, and would all get the same one, so that
    texts with an unknown token each would look alike. In the mean such a token counts as 0, each time that it occurs. Rows
    that do not occur do not count, and lose the mean if they are not zero. So does a row of unknown tokens that was trained:
    it has the common part that the others have.

    Args:
        weight: [V, D] floating point, a row for each token of the vocabulary.
        tokens: [n] integers from 0 to V - 1, every occurrence of a token in the texts.

    Raises:
        DataError: no token has a vector other than 0; the table is as before.
        NonFiniteError: the vector of a token is not finite; the table is as before.
    """
    tokens = tokens.to(weight.device)
    known = weight.any(dim=1)
    if not known[tokens].any():
        raise DataError(
            f"texts has {len(tokens):,} tokens, none with a vector other than 0; the mean needs words that the model knows."
        )
    wide = torch.promote_types(weight.dtype, torch.float32)
    mean = torch.stack([weight[some].to(wide).sum(0) for some in torch.split(tokens, AT_ONCE)]).sum(0) / len(tokens)
    if not mean.isfinite().all():
        raise NonFiniteError("the vectors of the model must be finite; some of those of texts have NaN or infinite values.")
    weight[known] -= mean.to(weight)
