"""Coarse supervision for long-tail data: one temperature for anchors of frequent classes, another for rare ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.inputs import check_within
from tempplug.options import Number, Numbers, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Batch


@dataclass(eq=False, repr=False)
class HeadTail(Strategy):
    """Divides row i by temperature_head or temperature_tail, by the class of anchor i.

    Args:
        class_counts: examples of each class, at least 2 classes.
        temperature_head: from 1e-9 to 1e9.
        temperature_tail: from 1e-9 to 1e9.
        head_classes: how many of the most frequent classes are head (ties: the lower class first), or the classes
            themselves; by default half of them, rounded up.

    Raises:
        ConfigError: an option is out of range; at a call, labels are missing or outside the table.

    Source: Kukleva et al. 2023, section 3.3.

    >>> HeadTail(class_counts=[5, 50, 20]).head
    (1, 2)
    """

    name: ClassVar[str] = "head-tail"
    formula: ClassVar[str] = "l_ij = s_ij / τ_i, τ_i = τ_head for anchors of frequent classes, else τ_tail"
    source: ClassVar[str] = (
        "Kukleva et al. 2023, Temperature Schedules for Self-Supervised Contrastive Methods on Long-Tail Data, 3.3"
    )
    cosines_only = False
    takes: ClassVar[frozenset[str]] = frozenset({"labels"})

    class_counts: Annotated[
        Sequence[int], Numbers(Number(at_least=0, integer=True), minimum_length=2, help="examples of each class")
    ]
    temperature_head: Annotated[float, Temperature(help="τ of anchors of frequent classes")] = 1.0
    temperature_tail: Annotated[float, Temperature(help="τ of anchors of rare classes")] = 0.1
    head_classes: Annotated[
        int | Sequence[int] | None,
        Numbers(Number(at_least=0, integer=True), or_number=True, optional=True, help="how many, or which"),
    ] = None
    scales: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        classes = len(self.class_counts)
        if isinstance(self.head_classes, Sequence):
            self.head = tuple(sorted(set(self.head_classes)))
        else:
            count = -(-classes // 2) if self.head_classes is None else self.head_classes
            by_frequency = sorted(range(classes), key=lambda index: (-self.class_counts[index], index))
            self.head = tuple(sorted(by_frequency[:count]))
            if count > classes:
                raise ConfigError(f"{self.where('head_classes', count)} must be at most {classes}, the number of classes.")
        if self.head and self.head[-1] >= classes:
            raise ConfigError(f"{self.where('head_classes', self.head)} must name classes below {classes}.")
        scales = torch.full((classes,), 1 / self.temperature_tail, dtype=torch.float64)
        scales[list(self.head)] = 1 / self.temperature_head
        self.register_buffer("scales", scales, persistent=False)

    def check_call(self, given: Mapping[str, Any]) -> None:
        """Raises where labels do not fit the classes."""
        if "labels" in given:
            check_within(self, "labels", given["labels"], self.scales, "class_counts")

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the scale of each anchor's class."""
        return ScaleMap(of_class(self, batch, self.scales))


def of_class(strategy: Strategy, batch: Batch, values: Tensor) -> Tensor:
    """Returns the value of each anchor's class, [N], from those of all classes [C]; raises where labels do not fit."""
    labels = batch.labels
    if labels is None:
        raise strategy.missing("the class of each anchor", "labels")
    return values[check_within(strategy, "labels", labels, values, "class_counts")].to(batch.dtype)
