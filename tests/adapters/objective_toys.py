"""An objective with a learned number, as a third party writes it: one file."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from tempplug import Objective, RowStatistics
from tempplug.options import Number
from tempplug.plugins import ObjectiveInfo, hookimpl
from tempplug.types import Auxiliary


class Biased(Objective):
    """softplus(d + b) + softplus(-b), d the margin and b learned.

    Args:
        initial_bias: b at the start; the parameter is called offset, since Trainers spare what is called bias anyway.
    """

    name: ClassVar[str] = "biased"
    formula: ClassVar[str] = "softplus(d + b) + softplus(-b)"
    source: ClassVar[str] = "these tests"

    learning_rate: float | None = 0.05
    initial_bias: float

    def __init__(self, initial_bias: Annotated[float, Number(help="b at the start")] = 0.5) -> None:
        super().__init__(initial_bias=initial_bias)
        self.offset = nn.Parameter(torch.tensor(float(initial_bias)))

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return softplus(statistics.negative_lse - statistics.positive_logit + self.offset) + softplus(-self.offset)


class Plugin:
    """What the third party registers."""

    @hookimpl
    def tempplug_register_objectives(self) -> list[ObjectiveInfo]:
        return [ObjectiveInfo(name="biased", target="objective_toys:Biased", summary="with a learned bias")]


BIAS = "objective_offset"
"""Its name in logs."""


def assert_learns(biases: list[float]) -> None:
    """Expects a record of the bias at every step: at first as it began, then moved by the objective's rate without decay."""
    assert biases[0] == 0.5
    # Adam's first step is the learning rate; decay would take more
    assert abs(biases[1] - biases[0]) == pytest.approx(Biased.learning_rate, rel=1e-3)
    assert len(set(biases)) == len(biases)
