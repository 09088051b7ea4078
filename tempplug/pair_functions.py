"""What becomes of the logit of a pair before a row is summed: exp in softmax losses, softplus in the sigmoid loss.

A function here works element by element on any tile and must not depend on rows or roles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from tempplug.logit_map import LogitMap


class PairFunction(ABC):
    """f of a logit; an objective that sets one as its ``pair_function`` gets sums of f in place of log-sum-exps.

    Summed are f(l + offset) over the negatives of a row and f(-(l + offset)) over its positives.
    """

    def offset(self, logit_map: LogitMap) -> Tensor:
        """Returns the number that is added to all logits of a map, [], which may carry gradient; 0 unless overridden."""
        return torch.zeros((), device="cpu")

    @abstractmethod
    def value(self, logit: Tensor) -> Tensor:
        """Returns f of each logit, in its shape; 0 at -inf, where a term of negatives leaves a pair out."""

    @abstractmethod
    def slope(self, logit: Tensor) -> Tensor:
        """Returns the derivative of f at each logit, in its shape."""


class Softplus(PairFunction):
    """f(l) = ln(1 + exp l).

    Source: Zhai et al. 2023, Sigmoid Loss for Language Image Pre-Training, section 3.2.
    """

    def value(self, logit: Tensor) -> Tensor:
        """Returns ln(1 + exp l)."""
        return F.softplus(logit, threshold=40)

    def slope(self, logit: Tensor) -> Tensor:
        """Returns 1/(1 + exp -l)."""
        return logit.sigmoid()
