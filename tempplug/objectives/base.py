"""The base of every contrastive objective: row statistics to one loss per anchor, an O(N) function."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from tempplug.pair_functions import PairFunction
from tempplug.part import Part
from tempplug.renamed import follow
from tempplug.strategies.maps import LogitMap
from tempplug.types import Auxiliary, Batch, RowStatistics

RENAMED = {"first_map": "training_map", "second_map": "reference_map"}


class Objective(Part):
    """Turns the statistics of each row of the similarity matrix into a loss.

    A subclass declares its options as a `tempplug.part.Part` does, and implements `row_loss`. It never sees the matrix. Of the
    arguments of a call, `observe` may read ``labels``, ``index`` and ``uncertainty``.

    Attributes:
        several_positives: whether `row_loss` is defined for anchors with more than one positive.
        soft_targets: whether it has a meaning where positives count differently, by ``targets``.
        without_negatives: whether `row_loss` is defined for anchors without a negative, whose ``negative_lse`` is -inf; where
            it is not, such anchors leave the mean, and whatever `row_loss` returns for them is dropped.
        cosines_only: whether it needs cosines in [-1, 1]; `tempplug.ContrastiveLoss.from_scores` then refuses it.
        top: how many of each anchor's most similar negatives `row_loss` reads, which costs more than the log-sum-exp.
        pair_function: f of which `row_loss` reads sums in place of log-sum-exps: f(l) over the negatives is ``negative_lse``,
            f(-l) over the positives is ``positive_lse``; see `tempplug.pair_functions`.
    """

    kind: ClassVar[str] = "objective"
    several_positives: ClassVar[bool] = False
    without_negatives: ClassVar[bool] = False
    soft_targets: ClassVar[bool] = False
    cosines_only: bool = False
    top: int = 0
    pair_function: PairFunction | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        follow(cls, RENAMED)

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns the loss of each anchor, [N], in nats; ``auxiliary`` holds the positive similarities of the whole batch."""
        raise NotImplementedError(f"{type(self).__name__} must implement row_loss(statistics) -> [N].")

    def training_map(self, logit_map: LogitMap) -> LogitMap:
        """Returns the map to train with, in place of the strategy's; the same one unless the objective changes it."""
        return logit_map

    def reference_map(self, logit_map: LogitMap) -> LogitMap | None:
        """Returns the map of a second, gradient-free pass over the same similarities; None for no such pass."""
        return None

    def positive_map(self, logit_map: LogitMap) -> LogitMap | None:
        """Returns the map of the positives that `row_loss` reads, where it is not that of the negatives; None for the same.

        Anchors with one positive cost nothing more, those with several, or with ``targets``, a second pass over all pairs.
        """
        return None

    def observe(self, batch: Batch, statistics: RowStatistics) -> Tensor | None:
        """Receives the statistics of the batch, in training mode only, before `row_loss`; for what is counted in buffers.

        Returns [N] without gradient, which `row_loss` finds as ``observed`` of its auxiliary, or None.

        Raises:
            ConfigError: the batch lacks an input that this objective needs.
        """
        return None

    @property
    def observes(self) -> bool:
        """Whether `observe` does anything."""
        return type(self).observe is not Objective.observe

    def learned(self) -> dict[str, Tensor]:
        """Returns the learned numbers of the record (``bias`` as ``objective_bias``): by default all single parameters."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.numel() == 1}


follow(Objective, RENAMED)


def margin(statistics: RowStatistics) -> Tensor:
    """Returns d = negative_lse - positive_logit, [N]: what all these objectives are functions of."""
    return statistics.negative_lse - statistics.positive_logit


def softplus(difference: Tensor) -> Tensor:
    """Returns ln(1 + exp(d)), exact to float64 (torch's own default turns linear at 20, which is 1e-10 off)."""
    return nn.functional.softplus(difference, threshold=40)


def with_gradient_of(value: Tensor, source: Tensor) -> Tensor:
    """Returns ``value`` to the forward pass and the gradient of ``source`` to the backward pass."""
    return value.detach() + (source - source.detach())
