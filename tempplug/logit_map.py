"""The base of every logit map: what engines know of how a similarity becomes a logit."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.renamed import follow

LOG2E = math.log2(math.e)
Rows = slice | Tensor
RENAMED = {"at": "restrict", "against": "with_candidates"}


class LogitMap(ABC):
    """An immutable, element-wise map of cosine similarities in [-1, 1] to logits in nats.

    A map needs `logit`, `slope` and `temperature`. The methods whose names end in an underscore are what engines call on a
    tile; they may overwrite it, and are there for maps that gain from that. A subclass that writes `logit` or `slope` anew gets
    those of this class unless it writes them, too.

    Attributes:
        uniform: the same map for every pair.
        symmetric: the logit of (i, j) is that of (j, i), so that half of a square matrix is enough.
        products: the rows of anchors and of candidates whose product the map reads beside the similarity; mostly none. With
            products, `tensors` may return nothing but these rows.
        linear: the logit is ``scale`` times the similarity, ``scale`` [] or [N] being all that `tensors` may return: engines
            find its gradient without the pairs.
    """

    uniform: bool = True
    symmetric: bool = True
    linear: bool = False
    products: tuple[tuple[Tensor, Tensor], ...] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        follow(cls, RENAMED)
        namespace = cls.__dict__
        if "logit" in namespace or "slope" in namespace:
            for name in ("bound", "linear", "logit_and_slopes_", "exponential_and_slopes_"):
                if name not in namespace:
                    setattr(cls, name, LogitMap.__dict__[name])

    @property
    def bound(self) -> float:
        """The largest logit in nats, up or down; ``inf`` where it is not known without waiting for the device."""
        return math.inf

    @abstractmethod
    def logit(self, similarity: Tensor) -> Tensor:
        """Returns the logits; autograd through them gives `slope`."""

    @abstractmethod
    def slope(self, similarity: Tensor) -> Tensor:
        """Returns the derivative of the logit that training uses, under the paper's stop-gradient."""

    @abstractmethod
    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns similarity / logit, the temperature in force, for logs and plots."""

    def restrict(self, rows: Rows, columns: Rows, paired: bool = False) -> LogitMap:
        """Returns the map bound to a tile, or to index pairs.

        Args:
            rows: anchors of the tile, or with ``paired`` the anchor of each pair.
            columns: candidates of the tile, or with ``paired`` the candidate of each pair.
            paired: whether ``rows`` and ``columns`` run together (similarities of shape [P]) or span a tile [R, C].
        """
        return self

    def with_candidates(self, candidates: Sequence[Tensor]) -> LogitMap:
        """Returns the map of the same anchors and other candidates, those of another process in a ring.

        ``candidates`` are their rows of each of `products`. A map that knows candidates in another way overrides this, as does
        one that is not `uniform` nor `linear` and knows none.

        Raises:
            ConfigError: this map cannot.
        """
        if (self.uniform or self.linear) and not self.products:
            return self
        raise ConfigError(
            f"gather='ring' has the candidates of one process at a time, and logit map {type(self).__name__} does not say how "
            "it is for these alone: use gather=True, or implement its method with_candidates()."
        )

    def tensors(self) -> tuple[Tensor, ...]:
        """Returns every tensor that `logit` reads and that carries gradient: a learned number, or rows of `products`.

        The tiled engine finds their gradients by autograd through `logit`. A tensor that is missing here gets a wrong gradient
        there, which `tempplug.testing.check_strategy` reports.
        """
        return ()

    def detached(self) -> LogitMap:
        """Returns the same map with `tensors` detached, for the record; a map with `tensors` overrides this."""
        return self

    def logit_and_slopes_(self, similarity: Tensor) -> tuple[Tensor, ...]:
        """Returns base-2 logits, and slopes in nats: along the similarity (none if linear), and along each product.

        The similarities [R, C], at least float32, may be overwritten, as what this method returns.
        """
        return self.logit(similarity) * LOG2E, self.slope(similarity)

    def exponential_and_slopes_(self, similarity: Tensor) -> tuple[Tensor, ...]:
        """Returns what `logit_and_slopes_` does, with exp(logit) in place of the logit."""
        logit, *slopes = self.logit_and_slopes_(similarity)
        return logit.exp2_(), *slopes  # several times faster than exp on a CPU


follow(LogitMap, RENAMED)
