"""The base of all methods: a module that maps two views to a loss, with a backbone and one or several projection heads.

It must not depend on augmentations, optimizers or data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypedDict, Unpack

import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss, NegativeTerm, Objective, Strategy, create_strategy
from tempplug.arguments import parse_spec
from tempplug.call.record import describe_temperatures
from tempplug.errors import ConfigError
from tempplug.strategies.amcl import AMCL
from tempplug.strategies.uncertainty import Uncertainty
from tempplug.types import EngineName, LayoutName, ObjectiveName
from tempplug_adapters.measurements import numbers_of
from tempplug_adapters.parameter_groups import spared_by_decay


class StepModule(nn.Module):
    """Base of `WithSoftmax` and `WithoutSoftmax`.

    Args:
        backbone: images to representations [B, F]; its attribute ``dimension`` is F.
        projection_head: representations to embeddings [B, D]. An `nn.ModuleList` of several, as AMCL has, gives one loss for
            each head; the losses are summed.
        prediction_head: embeddings to predictions of the same dimension, one for each projection head; None where the method
            has none.

    Attributes:
        dimension: F.
        loss_fn: the loss, None where the method has no softmax.
        takes_small_crops: whether a call takes further views ``small``, of another size.

    Raises:
        ConfigError: the backbone does not give its dimension, or the numbers of heads differ.
    """

    loss_fn: ContrastiveLoss | None
    takes_small_crops: ClassVar[bool] = False

    def __init__(self, backbone: nn.Module, projection_head: nn.Module, prediction_head: nn.Module | None = None) -> None:
        super().__init__()
        dimension = getattr(backbone, "dimension", None)
        if not isinstance(dimension, int):
            raise ConfigError(
                f"backbone of type {type(backbone).__name__} has dimension={dimension!r}; wanted the length of its "
                "representations, an integer: wrap it in tempplug_adapters.images.backbones.Backbone, or set the attribute."
            )
        self.backbone = backbone
        self.projection_head = projection_head
        self.dimension = dimension
        if prediction_head is not None:
            projections, predictions = len(heads_of(projection_head)), len(heads_of(prediction_head))
            if projections != predictions:
                raise ConfigError(
                    f"prediction_head has {predictions} heads where projection_head has {projections}: give as many."
                )

    def embed(self, images: Tensor) -> list[Tensor]:
        """Returns the embeddings [B, D] of each projection head, from images [B, 3, H, W] or other inputs of the backbone."""
        return project(self.projection_head, self.backbone(images))

    def measure(self) -> dict[str, float]:
        """Returns the statistics of the last call for logs; synchronises with the device."""
        return {} if self.loss_fn is None else numbers_of(self.loss_fn.record)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay: those of the parts of this module (timm's convention)."""
        return spared_by_decay(nn.ModuleDict(dict(self.named_children())))


class LossOptions(TypedDict, total=False):
    """Keywords of `tempplug.ContrastiveLoss` that methods pass on: terms on negatives, candidates of all processes, engine."""

    negatives: str | NegativeTerm | Sequence[NegativeTerm] | None
    gather: bool
    engine: EngineName


class WithSoftmax(StepModule):
    """Base of the methods with a contrastive loss.

    Args:
        backbone: and both heads as in `StepModule`.
        strategy: spec string or instance; ``uncertainty`` only where the method has a head for it.
        objective: spec string or instance.
        **options: of `LossOptions`.

    Attributes:
        layout: of the loss.
        title: of the method, for messages.
        uncertain: whether strategy ``uncertainty`` (TaU) has a form here.
        uncertainty_head: the linear layer from representations to its scalar, else None.

    Raises:
        ConfigError: as in `StepModule`, or an option is not allowed.
        UnknownNameError: no such strategy, objective or option.
    """

    layout: ClassVar[LayoutName]
    title: ClassVar[str]
    uncertain: ClassVar[bool] = False
    loss_fn: ContrastiveLoss

    def __init__(
        self,
        backbone: nn.Module,
        projection_head: nn.Module,
        strategy: str | Strategy = "fixed",
        objective: ObjectiveName | Objective = "infonce",
        *,
        prediction_head: nn.Module | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(backbone, projection_head, prediction_head)
        self.loss_fn = ContrastiveLoss(strategy, objective, self.layout, **options)
        uncertain = isinstance(self.loss_fn.strategy, Uncertainty)
        if uncertain and not self.uncertain:
            raise ConfigError(
                f"strategy 'uncertainty' needs a head for its scalars, which {self.title} does not have: use SimCLR."
            )
        self.uncertainty_head = nn.Linear(self.dimension, 1) if uncertain else None

    def check_small_crops(self, small: Sequence[Tensor]) -> None:
        """Raises `ConfigError` for small crops where the loss has a state of each image, which a step must update once."""
        if small and "index" in self.loss_fn.takes:
            raise ConfigError(
                "small crops are compared in several losses a step, and this loss has a state of each image (index=), which a "
                "step must update once: use another strategy, objective and terms, or an augmentation without small crops."
            )


class WithoutSoftmax(StepModule):
    """Base of SimSiam and Barlow Twins, which have no temperature but AMCL's.

    AMCL's regulariser Ω(τ) = (D/2)·ln τ + 1/τ has its minimum at 2/D, a thousandth for D = 2048. A softmax compares the Ω of
    positives with that of negatives; without one, Ω stands alone. Both methods therefore measure temperatures in units of 2/D
    and Ω in units of D/2, where it is ln u + 1/u.

    Args:
        backbone: and both heads as in `StepModule`.
        strategy: ``amcl:dimension=…`` or an instance of it; None for the plain method.

    Attributes:
        title: of the method, for messages.
        strategy: AMCL, or None.

    Raises:
        ConfigError: any other strategy, or as in `StepModule`.
    """

    title: ClassVar[str]

    def __init__(
        self, backbone: nn.Module, projection_head: nn.Module, strategy: object, prediction_head: nn.Module | None = None
    ) -> None:
        super().__init__(backbone, projection_head, prediction_head)
        self.strategy = checked_amcl(self.title, strategy)
        self.loss_fn = None
        self._temperatures: list[Tensor] = []

    def forward(self, view_a: Tensor, view_b: Tensor, *, index: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Returns the loss, [].

        Args:
            view_a: [B, 3, H, W].
            view_b: [B, 3, H, W], another view of the same images.
            index: unused, since every method takes it.
            labels: unused, likewise.

        Raises:
            ShapeError: AMCL's dimension does not fit the method, or Barlow Twins has a single image.
        """
        self._temperatures.clear()
        return self.loss(self.embed(view_a), self.embed(view_b))

    def loss(self, embeddings_a: list[Tensor], embeddings_b: list[Tensor]) -> Tensor:
        """Returns the loss, [], of the embeddings [B, D] of each head."""
        raise NotImplementedError

    def measure(self) -> dict[str, float]:
        """Returns the temperatures of the last call; empty without AMCL. Warns once if nearly all are at AMCL's bounds."""
        if self.strategy is None or not self._temperatures:
            return {}
        found = describe_temperatures(self.strategy, torch.cat(self._temperatures))
        return {name.removesuffix("_mean"): float(value) for name, value in found.items()}


def checked_amcl(method: str, strategy: object) -> AMCL | None:
    """Returns the strategy of a method without a softmax, None where none was given.

    Args:
        method: for the message.
        strategy: spec string, instance or None.

    Raises:
        ConfigError: it is another strategy than ``amcl``, or an option of that is not allowed.
    """
    if isinstance(strategy, str) and parse_spec(strategy)[0] == "amcl":
        strategy = create_strategy(strategy)
    if strategy is None or isinstance(strategy, AMCL):
        return strategy
    name = parse_spec(strategy)[0] if isinstance(strategy, str) else getattr(strategy, "name", type(strategy).__name__)
    raise ConfigError(
        f"strategy '{name}' does not apply: {method} has no softmax to put a temperature in. Only 'amcl' has a form for it: "
        "pass strategy='amcl:dimension=…', or leave the strategy out."
    )


def heads_of(head: nn.Module) -> list[nn.Module]:
    """Returns the heads of an `nn.ModuleList`, or the one head."""
    return list(head) if isinstance(head, nn.ModuleList) else [head]


def project(projection_head: nn.Module, representations: Tensor) -> list[Tensor]:
    """Returns the embeddings [B, D] of each head from representations [B, F]."""
    return [head(representations) for head in heads_of(projection_head)]


def predict(prediction_head: nn.Module, embeddings: list[Tensor]) -> list[Tensor]:
    """Returns the predictions [B, D] of each prediction head from the embeddings of its projection head."""
    return [head(each) for head, each in zip(heads_of(prediction_head), embeddings, strict=True)]
