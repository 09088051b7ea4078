"""The methods of vision: which step module each has, with which heads, and what is its own in the training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from torch import distributed as processes
from torch import nn

from tempplug import distributed
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.images.backbones import Backbone
from tempplug_adapters.training.method import Source
from tempplug_adapters.training.optimizer import Treatment
from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.moco import MoCo
from tempplug_adapters.vision.nnclr import NNCLR
from tempplug_adapters.vision.projection_heads import (
    ProjectionHead,
    barlow_twins_projection_head,
    moco_projection_head,
    nnclr_prediction_head,
    nnclr_projection_head,
    projection_heads,
    simclr_projection_head,
    simsiam_prediction_head,
    simsiam_projection_head,
)
from tempplug_adapters.vision.recipe import BarlowTwinsRecipe, MoCoRecipe, NNCLRRecipe, SimCLRRecipe, SimSiamRecipe
from tempplug_adapters.vision.simclr import SimCLR
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.supcon import SupCon
from tempplug_adapters.vision.vision_images import VisionImages
from tempplug_adapters.vision.vision_method import V, VisionMethod
from tempplug_adapters.vision.without_softmax import amcl_or_none


def _heads(recipe: V, make: Callable[..., ProjectionHead], dimension: int, **options: Any) -> nn.ModuleList:
    """Returns as many heads as the recipe has, of what its settings and the options say.

    Args:
        recipe: of the training.
        make: makes one head.
        dimension: of what goes in.
        **options: of ``make``; None leaves its default.
    """
    given = {name: value for name, value in options.items() if value is not None}
    return projection_heads(recipe.heads or 1, lambda: make(dimension, **given))


class SimCLRMethod(VisionMethod[SimCLRRecipe]):
    """See `SimCLR`."""

    module: ClassVar[type[SimCLR]] = SimCLR

    def step(self, recipe: SimCLRRecipe, backbone: Backbone, loss: Any) -> SimCLR:
        """Returns the module."""
        head = _heads(
            recipe,
            simclr_projection_head,
            backbone.dimension,
            hidden_dimension=recipe.hidden_dimension,
            out_dimension=recipe.embedding_dimension,
            layers=recipe.head_layers,
        )
        return self.module(backbone, head, loss.strategy, loss.objective, gather=loss.gather)


class MoCoMethod(VisionMethod[MoCoRecipe]):
    """See `MoCo`."""

    def step(self, recipe: MoCoRecipe, backbone: Backbone, loss: Any) -> MoCo:
        """Returns the module."""
        size = recipe.embedding_dimension
        head = _heads(
            recipe,
            moco_projection_head,
            backbone.dimension,
            hidden_dimension=recipe.hidden_dimension,
            out_dimension=size,
            layers=recipe.head_layers,
        )
        return MoCo(
            backbone,
            head,
            loss.strategy,
            loss.objective,
            embedding_dimension=size,
            queue_size=recipe.queue_size,
            momentum=recipe.encoder_momentum,
            symmetric=recipe.symmetric,
            gather=loss.gather,
        )


class NNCLRMethod(VisionMethod[NNCLRRecipe]):
    """See `NNCLR`."""

    def step(self, recipe: NNCLRRecipe, backbone: Backbone, loss: Any) -> NNCLR:
        """Returns the module; a prediction head is twice as wide inside as a projection head."""
        size, inside = recipe.embedding_dimension, recipe.hidden_dimension
        wide = None if inside is None else 2 * inside
        return NNCLR(
            backbone,
            _heads(recipe, nnclr_projection_head, backbone.dimension, hidden_dimension=inside, out_dimension=size),
            _heads(recipe, nnclr_prediction_head, size, hidden_dimension=wide),
            loss.strategy,
            loss.objective,
            embedding_dimension=size,
            queue_size=recipe.queue_size,
            gather=loss.gather,
        )


class _WithoutSoftmax(VisionMethod[V]):
    """A method without a softmax has no place for a temperature but AMCL's."""

    title: ClassVar[str]

    def create_loss(self, recipe: V, data: VisionImages, temperature: TemperatureArguments, *, gather: bool = False) -> Any:
        """Returns AMCL's strategy, or None for the method as it is.

        Raises:
            ConfigError: another strategy was given, or an objective, or options of no strategy.
        """
        given = temperature.temperature_strategy
        if temperature.contrastive_objective is not None:
            raise ConfigError(
                f"objective '{temperature.contrastive_objective}' does not apply: {self.title} has no softmax and so no "
                "contrastive objective. Leave it out."
            )
        if given is None and temperature.temperature_args:
            raise ConfigError(
                f"temperature_args={' '.join(temperature.temperature_args)} are options of no strategy: name it with "
                "--temperature-strategy amcl."
            )
        if given is None:
            return None
        if parse_spec(given)[0] != "amcl":
            amcl_or_none(self.title, given)  # which raises
        return super().create_loss(recipe, data, temperature).strategy

    def specs(self, module: Any) -> dict[str, str | None]:
        """Returns the resolved spec of AMCL's strategy where there is one."""
        strategy = module.step.strategy
        return {"strategy": None if strategy is None else strategy.spec(), "objective": None}


class SimSiamMethod(_WithoutSoftmax[SimSiamRecipe]):
    """See `SimSiam`."""

    title = "SimSiam"

    def step(self, recipe: SimSiamRecipe, backbone: Backbone, loss: Any) -> SimSiam:
        """Returns the module."""
        size = recipe.embedding_dimension
        head = _heads(
            recipe,
            simsiam_projection_head,
            backbone.dimension,
            hidden_dimension=recipe.hidden_dimension,
            out_dimension=size,
            layers=recipe.head_layers,
        )
        return SimSiam(backbone, head, _heads(recipe, simsiam_prediction_head, size), loss)

    def treatment(self, recipe: SimSiamRecipe, name: str, parameter: nn.Parameter) -> Treatment:
        """Returns that of all methods; the prediction head keeps its learning rate (Chen and He 2021, section 4.1)."""
        usual = super().treatment(recipe, name, parameter)
        return replace(usual, constant=name.startswith("step.prediction_head."))


class BarlowTwinsMethod(_WithoutSoftmax[BarlowTwinsRecipe]):
    """See `BarlowTwins`; features are correlated over the images of all processes."""

    title = "Barlow Twins"

    def known(self, recipe: BarlowTwinsRecipe, data: VisionImages) -> dict[str, Any]:
        """Returns the size of a batch as the dimension: what AMCL sees are the values of a feature over the batch."""
        world = processes.get_world_size() if distributed.active() else 1
        return {**super().known(recipe, data), "dimension": recipe.per_device_train_batch_size * world}

    def step(self, recipe: BarlowTwinsRecipe, backbone: Backbone, loss: Any) -> BarlowTwins:
        """Returns the module."""
        size = recipe.embedding_dimension
        head = _heads(recipe, barlow_twins_projection_head, backbone.dimension, out_dimension=size)
        return BarlowTwins(backbone, head, loss, redundancy_weight=recipe.redundancy_weight, gather=True)


class SupConMethod(SimCLRMethod):
    """See `SupCon`.

    The paper does not say whether its head normalises. SimCLR's does: without, ResNets give all images nearly one embedding at
    first, where this loss is flat (CIFAR-10, 5,000 images, ResNet-18 of width 16, 6 epochs: 24 % of neighbours' votes are
    right, and 35 % with it).
    """

    module = SupCon

    def load(self, recipe: SimCLRRecipe, source: Source) -> VisionImages:
        """Returns labelled images.

        Raises:
            DataError: they have no labels.
        """
        data = super().load(recipe, source)
        if data.train.labels is None:
            raise DataError(f"SupCon needs the class of every image, which the set '{data.train.name}' has not: use SimCLR.")
        return data
