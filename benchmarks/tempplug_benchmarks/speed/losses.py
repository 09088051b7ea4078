"""The losses of the speed suite and all their implementations: tempplug, eager and compiled formulas, and other libraries.

tempplug is called through `ContrastiveLoss`; other libraries are imported only when their implementation is created. This
module must not depend on how anything is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from torch import Tensor

from tempplug import Batch, ContrastiveLoss, LogitMap, Strategy, create_objective
from tempplug.errors import UnknownNameError, listed, nearest
from tempplug.strategies.amcl import AMCL
from tempplug.types import EngineName, LayoutName
from tempplug_benchmarks.speed import formulas
from tempplug_benchmarks.speed.formulas import LossFunction

LOWEST, HIGHEST = 0.1, 0.2


class CosineMap(LogitMap):
    """l = s / τ(s), with τ from `LOWEST` at s = 0 to `HIGHEST` at s = ±1; τ is treated as a constant by the gradient."""

    def temperature(self, similarity: Tensor) -> Tensor:
        """Returns τ(s)."""
        return LOWEST + 0.5 * (HIGHEST - LOWEST) * (1 + torch.cos(math.pi * (1 + similarity)))

    def logit(self, similarity: Tensor) -> Tensor:
        """Returns s / τ(s)."""
        return similarity / self.temperature(similarity.detach())

    def slope(self, similarity: Tensor) -> Tensor:
        """Returns 1 / τ(s)."""
        return 1 / self.temperature(similarity)


class PluginMap(Strategy):
    """DySTreSS's cosine profile in plain PyTorch."""

    name: ClassVar[str] = "plugin-map"
    formula: ClassVar[str] = "l = s / τ(s), τ(s) = 0.1 + 0.1·(1 + cos(π(1 + s)))/2"
    source: ClassVar[str] = "Manna et al., DySTreSS: Dynamically Scaled Temperature in Self-Supervised Contrastive Learning"

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the same map for every batch."""
        return CosineMap()


QUEUED = 4096
CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One implementation of a loss.

    Attributes:
        make: maps a temperature to the loss function.
        package: import name of a required library besides torch and tempplug; empty if there is none.
        is_compiled: whether its first call compiles it.
    """

    make: Callable[[float], LossFunction]
    package: str = ""
    is_compiled: bool = False

    @property
    def installed(self) -> bool:
        """Whether its package is installed, determined without importing it."""
        return not self.package or find_spec(self.package) is not None


def _square(rows: int) -> float:
    """Returns the inner products of a symmetric square of 2N rows: half of them forward, all of them backward."""
    return 1.5 * (2 * rows) ** 2


def _across(rows: int) -> float:
    """Returns the inner products of N anchors with N candidates: all forward, and all backward for each side."""
    return 3.0 * rows**2


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One loss with its implementations.

    Attributes:
        strategy: spec of the strategy, with ``{temperature}`` for the case's temperature; or a function that creates it.
        formula: the loss in eager PyTorch, a function of views and temperature.
        inputs: further inputs of a call by name, created from the first view; the same for every call with a shape.
        module: tempplug's loss if there are such inputs.
        others: further implementations by name.
        products: number of inner products of a forward and backward pass, as a function of N.
    """

    strategy: str | Callable[[], Strategy] = "fixed:temperature={temperature}"
    objective: str = "infonce"
    layout: LayoutName = "two-view"
    symmetric: bool = False
    formula: Callable[..., Tensor]
    inputs: Callable[[Tensor], dict[str, Tensor]] | None = None
    module: Callable[..., ContrastiveLoss] | None = None
    others: Mapping[str, Implementation] = field(default_factory=dict)
    products: Callable[[int], float] = _square

    def ours(self, temperature: float, engine: EngineName = "auto") -> ContrastiveLoss:
        """Returns tempplug's module."""
        made = ContrastiveLoss if self.inputs is None else partial(self.module or WithInputs, self.inputs)
        strategy = self.strategy.format(temperature=temperature) if isinstance(self.strategy, str) else self.strategy()
        return made(strategy, create_objective(self.objective), self.layout, symmetric=self.symmetric, engine=engine)

    def ours_compiled(self, temperature: float) -> LossFunction:
        """Returns a function that calls tempplug's module, compiled as one graph with static shapes."""
        loss = self.ours(temperature, engine="dense")  # which graphs hold for any number of rows
        compiled: LossFunction = torch.compile(lambda view_a, view_b: loss(view_a, view_b), fullgraph=True, dynamic=False)
        return compiled

    def eager(self, temperature: float) -> LossFunction:
        """Returns the eager formula."""
        return partial(_at, self.formula, temperature, inputs=self.inputs)

    def compiled(self, temperature: float) -> LossFunction:
        """Returns the eager formula, compiled with static shapes."""
        return partial(_at, torch.compile(self.formula, dynamic=False), temperature, inputs=self.inputs)

    def implementations(self) -> dict[str, Implementation]:
        """Returns all implementations of the loss, by name."""
        return {
            "tempplug": Implementation(make=self.ours),
            "tempplug-dense": Implementation(make=partial(self.ours, engine="dense")),
            "tempplug-triton": Implementation(make=partial(self.ours, engine="triton")),
            "tempplug-compiled": Implementation(make=self.ours_compiled, is_compiled=True),
            "eager": Implementation(make=self.eager),
            "compiled": Implementation(make=self.compiled, is_compiled=True),
            **self.others,
        }

    def implementation(self, name: str) -> Implementation:
        """Returns an implementation by name, or raises `UnknownNameError`."""
        known = self.implementations()
        if name not in known:
            raise UnknownNameError(f"unknown implementation '{name}'.{nearest(name, known)} Known are: {listed(known)}.")
        return known[name]


Inputs = Callable[[Tensor], dict[str, Tensor]]


class WithInputs(ContrastiveLoss):
    """A loss that takes further ``inputs`` (see `Loss`) besides the views; other arguments as in `ContrastiveLoss`."""

    def __init__(self, inputs: Inputs, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.inputs = inputs

    def forward(self, view_a: Tensor, view_b: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the loss."""
        return super().forward(view_a, view_b, **self.inputs(view_a))


class WithProjection(WithInputs):
    """AMCL's loss; its projection is created with the dimension of the first views."""

    def forward(self, view_a: Tensor, view_b: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the loss."""
        assert isinstance(self.strategy, AMCL)
        if self.strategy.dimension != view_a.shape[1]:
            self.strategy = AMCL(**{**self.strategy.options, "dimension": view_a.shape[1]})
            self.strategy.phi.to(view_a.device, view_a.dtype)
            self.strategy.phi.load_state_dict(self.inputs(view_a))
        return ContrastiveLoss.forward(self, view_a, view_b)


def _at(
    formula: Callable[..., Tensor], temperature: float, view_a: Tensor, view_b: Tensor, inputs: Inputs | None = None
) -> Tensor:
    return formula(view_a, view_b, temperature, **({} if inputs is None else inputs(view_a)))


def _for_each_shape(make: Callable[[int, int], dict[str, Tensor]], learned: bool = False) -> Inputs:
    """Returns inputs created once for each shape, precision and device, with a separate random generator; or parameters."""
    made = lru_cache(maxsize=4)(
        lambda rows, width, dtype, device: {
            name: value.to(device, dtype if value.is_floating_point() else None).requires_grad_(learned)
            for name, value in make(rows, width).items()
        }
    )
    return lambda view: made(*view.shape, view.dtype, view.device)


def _rows(count: int, width: int) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(1))


def _masks(classes: Callable[[int], Tensor]) -> Inputs:
    """Returns masks of the pairs with equal and with different classes, which are a function of N."""

    def make(rows: int, width: int) -> dict[str, Tensor]:
        same = classes(rows)[:, None] == classes(rows)
        return {"positive_mask": same, "negative_mask": ~same}

    return _for_each_shape(make)


def _projection(rows: int, width: int) -> dict[str, Tensor]:
    """Returns the weight [D, D] and the bias [D] of a projection, the same for every N."""
    return {"weight": _rows(width, width) / width**0.5, "bias": torch.zeros(width)}


def _formula(formula: Callable[[Tensor, Tensor, float], Tensor]) -> Implementation:
    return Implementation(make=lambda temperature: partial(_at, formula, temperature))


def installed_packages(loss: str, implementations: Iterable[str]) -> tuple[str, ...]:
    """Returns the installed optional packages, which determine the implementations compared."""
    ways = [LOSSES[loss].implementation(name) for name in implementations]
    return tuple(sorted({way.package for way in ways if way.package and way.installed}))


_NT_XENT = {
    "grace": _formula(formulas.grace),
    "pygcl": _formula(formulas.pygcl_infonce),
    "lightly": Implementation(make=formulas.lightly_nt_xent, package="lightly"),
    "pytorch-metric-learning": Implementation(make=formulas.metric_learning_nt_xent, package="pytorch_metric_learning"),
}
_RANKING = {
    "sentence-transformers": formulas.multiple_negatives_ranking,
    "sentence-transformers-cached": formulas.cached_multiple_negatives_ranking,
}
LOSSES: dict[str, Loss] = {
    "nt-xent": Loss(formula=formulas.nt_xent, others=_NT_XENT),
    "macl": Loss(
        strategy="macl:base_temperature={temperature},alpha=0.5,threshold=0",
        objective="reweighted",
        formula=formulas.macl,
        others={"lightly": Implementation(make=formulas.lightly_macl, package="lightly")},
    ),
    "dystress": Loss(strategy="dystress:temperature_min=0.1,temperature_max=0.2", formula=formulas.dystress),
    "plugin-map": Loss(
        strategy=PluginMap,
        formula=formulas.dystress,
        others={"tempplug-dystress": Implementation(make=lambda temperature: LOSSES["dystress"].ours(temperature))},
    ),
    "temperature-free": Loss(strategy="temperature-free:eps=1e-4", formula=formulas.temperature_free),
    "one-way": Loss(
        layout="cross-view",
        formula=formulas.one_way,
        products=_across,
        others={name: Implementation(make=make, package="sentence_transformers") for name, make in _RANKING.items()},
    ),
    "hard-negatives": Loss(
        layout="cross-view",
        formula=formulas.hard_negatives,
        inputs=_for_each_shape(lambda rows, width: {"hard_negatives": _rows(rows, width)}),
        products=lambda rows: 2 * _across(rows),
    ),
    "queue": Loss(
        layout="queue",
        formula=formulas.queue,
        inputs=_for_each_shape(lambda rows, width: {"queue": _rows(QUEUED, width)}),
        products=lambda rows: 2.0 * rows * QUEUED,
    ),
    "labels": Loss(
        layout="labels",
        formula=formulas.labels,
        inputs=_for_each_shape(lambda rows, width: {"labels": torch.arange(rows) % CLASSES}),
    ),
    "masks": Loss(layout="masks", formula=formulas.masks, inputs=_masks(lambda rows: torch.arange(rows)), products=_across),
    "masks-several": Loss(
        layout="masks", formula=formulas.masks, inputs=_masks(lambda rows: torch.arange(rows) % CLASSES), products=_across
    ),
    "amcl": Loss(
        strategy="amcl:dimension=1,floor={temperature}",
        objective="dcl",
        formula=formulas.amcl,
        inputs=_for_each_shape(_projection, learned=True),
        module=WithProjection,
        products=lambda rows: 2 * _square(rows),
    ),
    "two-way": Loss(
        layout="cross-view",
        symmetric=True,
        formula=formulas.two_way,
        others={"open-clip": _formula(formulas.open_clip)},
        products=_across,
    ),
}
