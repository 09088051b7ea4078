"""One temperature for each group of anchors: data sets, languages, tasks, or the dimensions of Matryoshka embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, ShapeError
from tempplug.inputs import check_row_integers, check_within
from tempplug.options import Flag, Number, Numbers, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.learnable import MaxScale, OwnRate, bounded, check_start
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Batch


@dataclass(eq=False, repr=False)
class ByGroup(Strategy):
    """Divides row i by the temperature of its anchor's group, fixed or learned.

    The call passes ``groups=``: [B] integers from 0, such as the number of the data set of each row, for both views, or a
    dictionary of those of ``view_a`` and ``view_b``. With ``dimensions`` the group is that of the embeddings' dimension, the
    same for all rows of a call, as where a Matryoshka loss calls this one with shorter and shorter embeddings.

    Learned temperatures are exp(-t), t the parameter ``log_scales`` [G], which must reach the optimizer without weight decay,
    as that of ``learnable``.

    Args:
        temperatures: of each group, G of 2 or more; where they are learned, before the first step.
        learn: whether they are learned.
        dimensions: of the embeddings, one a group; None: the call passes ``groups=``.
        max_scale: of learned temperatures, upper bound of 1/τ; None: no bound.
        learning_rate: of t, greater than 0, as of ``learnable``; None: that of the model.

    Raises:
        ConfigError: an option is out of range; at a call, groups are missing or outside of those that have a temperature.

    >>> ByGroup(temperatures=[0.05, 0.1]).now()
    tensor([0.0500, 0.1000], dtype=torch.float64)
    """

    name: ClassVar[str] = "by-group"
    formula: ClassVar[str] = "l_ij = s_ij / τ_g, g the group of anchor i, τ fixed or learned"
    source: ClassVar[str] = "Radford et al. 2021 (CLIP), a learned scalar; here one for each group"
    cosines_only = False
    takes: ClassVar[frozenset[str]] = frozenset({"groups"})
    remedy: ClassVar[str] = "raise max_scale, or train the temperatures with a smaller learning rate"

    temperatures: Annotated[
        Sequence[float], Numbers(Temperature(), minimum_length=2, help="τ of each group; learned: at the start")
    ]
    learn: Annotated[bool, Flag(help="whether the temperatures are learned")] = False
    dimensions: Annotated[
        Sequence[int] | None, Numbers(Number(at_least=1, integer=True), optional=True, help="of embeddings, as groups")
    ] = None
    max_scale: MaxScale = 100.0
    learning_rate: OwnRate = 0.01
    scales: Tensor = field(init=False)
    log_scales: nn.Parameter = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.dimensions
        if given is not None and not len(given) == len(set(given)) == len(self.temperatures):
            raise ConfigError(f"{self.where('dimensions', given)} must name each once, as many as there are temperatures.")
        self.takes = frozenset({"groups"} if given is None else ())  # type: ignore[misc]
        self.cosines_only = given is not None
        scales = 1 / torch.tensor(self.temperatures, dtype=torch.float64)
        if not self.learn:
            self.register_buffer("scales", scales, persistent=False)
            return
        check_start(self, "temperatures", self.temperatures, self.max_scale)
        self.log_scales = nn.Parameter(scales.log().to(torch.get_default_dtype()))

    def bounds(self) -> dict[str, float]:
        """Returns the temperature that the highest learned scale is, if there is one."""
        return {"1/max_scale": 1 / self.max_scale} if self.learn and self.max_scale is not None else {}

    def now(self) -> Tensor:
        """Returns the temperature of each group as it is, [G]."""
        return (self.log_scales.detach().exp() if self.learn else self.scales).reciprocal()

    def check_call(self, given: Mapping[str, Any]) -> None:
        """Raises where groups do not fit the temperatures."""
        if "groups" in given:
            self._checked(given["groups"])

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the scale of each anchor's group, or the one of the embeddings' dimension."""
        group = self._place(batch.anchors) if self.dimensions is not None else self._checked(batch.groups)
        if self.learn:
            return ScaleMap(bounded(self.log_scales, self.max_scale)[group].to(batch.dtype).exp())
        return ScaleMap(self.scales[group].to(batch.dtype))

    def _place(self, rows: Tensor | None) -> int:
        """Returns the group of embeddings [N, D]."""
        if rows is None:
            raise self.missing("the dimension of embeddings", "view_a")
        dimensions = list(self.dimensions or ())
        if rows.shape[1] not in dimensions:
            raise ShapeError(f"{self.where('dimensions', dimensions)} must hold {rows.shape[1]}, that of the embeddings.")
        return dimensions.index(rows.shape[1])

    def _checked(self, groups: Tensor | None) -> Tensor:
        """Returns the groups of a call if each has a temperature."""
        if groups is None:
            raise self.missing("the group of each anchor", "groups")
        state = self.log_scales if self.learn else self.scales
        return check_within(self, "groups", check_row_integers("groups", groups), state, "temperatures")
