"""The base of every contrastive objective: row statistics to one loss per anchor, an O(N) function."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from tempplug.options import Configured
from tempplug.pair_functions import PairFunction
from tempplug.strategies.maps import LogitMap
from tempplug.types import Auxiliary, Batch, RowStatistics


class Objective(Configured, nn.Module):
    """Turns the statistics of each row of the similarity matrix into a loss.

    A subclass sets ``name``, ``formula`` and ``source``, and implements `row_loss`. It never sees the matrix. What it learns is
    an ``nn.Parameter``, and what it counts a buffer, so that both are saved.

    Attributes:
        several_positives: whether `row_loss` is defined for anchors with more than one positive.
        without_negatives: whether `row_loss` is defined for anchors without a negative, whose ``negative_lse`` is -inf; where
            it is not, such anchors leave the mean, and whatever `row_loss` returns for them is dropped.
        takes: which of the arguments ``labels``, ``index`` and ``uncertainty`` of the loss `observe` reads, as of
            `tempplug.Strategy`.
        top: how many of each anchor's most similar negatives `row_loss` reads, which costs more than the log-sum-exp.
        pair_function: f of which `row_loss` reads sums in place of log-sum-exps: f(l) over the negatives is ``negative_lse``,
            f(-l) over the positives is ``positive_lse``; see `tempplug.pair_functions`.
        learning_rate: at which an optimizer is to move what this objective learns, as of `tempplug.Strategy`; None: that of the
            model.
    """

    kind: ClassVar[str] = "objective"
    formula: ClassVar[str] = ""
    source: ClassVar[str] = ""
    several_positives: ClassVar[bool] = False
    without_negatives: ClassVar[bool] = False
    takes: ClassVar[frozenset[str]] = frozenset()
    top: int = 0
    pair_function: PairFunction | None = None
    learning_rate: float | None = None

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.configure(**options)

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns the loss of each anchor, [N], in nats.

        Args:
            statistics: of the rows; see `tempplug.types.RowStatistics`.
            auxiliary: batch-wide positive similarities, and the statistics of the second pass where `second_map` asked.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement row_loss(statistics) -> [N].")

    def first_map(self, logit_map: LogitMap) -> LogitMap:
        """Returns the map to train with, in place of the strategy's; the same one unless the objective changes it."""
        return logit_map

    def second_map(self, logit_map: LogitMap) -> LogitMap | None:
        """Returns the map of a second, gradient-free pass over the same similarities; None asks for no such pass."""
        return None

    def observe(self, batch: Batch, statistics: RowStatistics) -> Tensor | None:
        """Sees the statistics of the batch, in training mode only, before `row_loss`; for what is counted in buffers.

        Returns what `row_loss` finds as ``observed`` of its auxiliary, [N], without gradient.

        Args:
            batch: as a strategy sees it.
            statistics: of its rows.

        Raises:
            ConfigError: the batch lacks an input that this objective needs.
        """
        return None

    @property
    def observes(self) -> bool:
        """Whether `observe` does anything."""
        return type(self).observe is not Objective.observe

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        """Tells how far training is, as of `tempplug.Strategy`; objectives that do not depend on it ignore it."""

    def set_length(self, epochs: float) -> None:
        """Tells how long the training will be, as of `tempplug.Strategy`; most objectives ignore it."""

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay must spare; all of them unless overridden."""
        return {name for name, _ in self.named_parameters()}

    def learned(self) -> dict[str, Tensor]:
        """Returns the learned numbers that the record of a step shows, one number each, ``bias`` as ``objective_bias``.

        These are the parameters of one number unless overridden: an objective that learns a logarithm may show its exponential.
        """
        return {name: parameter for name, parameter in self.named_parameters() if parameter.numel() == 1}

    def extra_repr(self) -> str:
        """Shows the spec string in ``print(loss)``."""
        return self.spec()


def margin(statistics: RowStatistics) -> Tensor:
    """Returns d = negative_lse - positive_logit, [N]: what all these objectives are functions of."""
    return statistics.negative_lse - statistics.positive_logit


def softplus(difference: Tensor) -> Tensor:
    """Returns ln(1 + exp(d)), exact to float64 (torch's own default turns linear at 20, which is 1e-10 off)."""
    return nn.functional.softplus(difference, threshold=40)


def with_gradient_of(value: Tensor, source: Tensor) -> Tensor:
    """Returns ``value`` to the forward pass and the gradient of ``source`` to the backward pass."""
    return value.detach() + (source - source.detach())
