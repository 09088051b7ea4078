"""From settings and temperature flags to the module that a training loop trains. It must not know optimizers or files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

import tempplug
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.images.vit import VITS
from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.moco import MoCo
from tempplug_adapters.vision.nnclr import NNCLR
from tempplug_adapters.vision.old_recipe import VisionSettings
from tempplug_adapters.vision.old_recipes import OBJECTIVES, known_options
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
from tempplug_adapters.vision.simclr import SimCLR
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.step_module import StepModule
from tempplug_adapters.vision.without_softmax import amcl_or_none

WITHOUT_SOFTMAX = {"simsiam": "SimSiam", "barlow-twins": "Barlow Twins"}
"""Methods that have no place for a temperature but AMCL's, as messages call them."""


def create_method(
    method: str, images: ImageSet, temperature: TemperatureArguments, settings: VisionSettings, *, gather: bool = False
) -> StepModule:
    """Returns a method with random weights, from PyTorch's global generator.

    Args:
        method: one of `tempplug_adapters.vision.recipe.METHODS`.
        images: that will be trained on; strategies may need how many there are, and of which class.
        temperature: the flags; the recipe's options and objective are used where they give none. Of a method without a
            softmax the strategy may only be None or ``amcl``.
        settings: of the training.
        gather: negatives of all processes.

    Raises:
        ConfigError: a setting is none of this method's, or an option or the strategy does not fit.
        DataError: the strategy needs labels, and the images have none.
        UnknownNameError: no such backbone, strategy or objective.
        MissingDependencyError: the backbone is of a package that is not installed.
    """
    settings.check_method(method)
    strategy, objective = _temperature(method, images, temperature, settings)
    backbone = _backbone(settings)
    size, hidden = settings.embedding_dimension, settings.hidden_dimension
    inside = {} if hidden is None else {"hidden_dimension": hidden}
    layers = settings.head_layers

    def heads(make: Callable[..., ProjectionHead], *inputs: int, **options: Any) -> nn.ModuleList:
        return projection_heads(settings.heads, lambda: make(*inputs, **options))

    width = backbone.dimension
    match method:
        case "simclr":
            head = heads(simclr_projection_head, width, **inside, out_dimension=size, layers=layers)
            return SimCLR(backbone, head, strategy, objective, gather=gather)
        case "moco":
            head = heads(moco_projection_head, width, **inside, out_dimension=size, layers=layers)
            return MoCo(
                backbone,
                head,
                strategy,
                objective,
                embedding_dimension=size,
                queue_size=settings.queue_size,
                momentum=settings.encoder_momentum,
                symmetric=settings.symmetric,
                gather=gather,
            )
        case "nnclr":
            head = heads(nnclr_projection_head, width, **inside, out_dimension=size)
            wide = {} if hidden is None else {"hidden_dimension": 2 * hidden}
            predictor = heads(nnclr_prediction_head, size, **wide)
            return NNCLR(
                backbone,
                head,
                predictor,
                strategy,
                objective,
                embedding_dimension=size,
                queue_size=settings.queue_size,
                gather=gather,
            )
        case "simsiam":
            head = heads(simsiam_projection_head, width, **inside, out_dimension=size, layers=layers)
            return SimSiam(backbone, head, heads(simsiam_prediction_head, size), strategy)
        case _:
            head = heads(barlow_twins_projection_head, width, out_dimension=size)
            return BarlowTwins(backbone, head, strategy, redundancy_weight=settings.redundancy_weight, gather=gather)


def specs(module: StepModule) -> dict[str, str | None]:
    """Returns the resolved specs of a method: ``strategy`` and ``objective``, None where it has none.

    Args:
        module: of `create_method`.
    """
    if module.loss_fn is not None:
        return {"strategy": module.loss_fn.strategy.spec(), "objective": module.loss_fn.objective.spec()}
    strategy = getattr(module, "strategy", None)
    return {"strategy": None if strategy is None else strategy.spec(), "objective": None}


def _backbone(settings: VisionSettings) -> Backbone:
    return create_backbone(
        settings.backbone,
        stem=settings.stem,
        width=settings.width,
        zero_init_residual=settings.zero_init_residual,
        image_size=settings.image_size if settings.backbone in VITS else None,
    )


def _temperature(method: str, images: ImageSet, temperature: TemperatureArguments, settings: VisionSettings) -> tuple[Any, Any]:
    """Returns strategy and objective, both None where a method without a softmax is trained as it is."""
    given = temperature.temperature_strategy
    name = parse_spec(given or "fixed")[0]
    if method in WITHOUT_SOFTMAX:
        if temperature.contrastive_objective is not None:
            raise ConfigError(
                f"objective '{temperature.contrastive_objective}' does not apply: {WITHOUT_SOFTMAX[method]} has no softmax "
                "and so no contrastive objective. Leave it out."
            )
        if given is None and temperature.temperature_args:
            raise ConfigError(
                f"temperature_args={' '.join(temperature.temperature_args)} are options of no strategy: name it with "
                "--temperature-strategy amcl."
            )
        if given is None:
            return None, None
        if name != "amcl":
            amcl_or_none(WITHOUT_SOFTMAX[method], given)  # which raises
    known = known_options(method, name, settings, len(images))
    if name == "head-tail":
        if images.labels is None:
            raise DataError(f"strategy 'head-tail' needs the class of every image, which the set '{images.name}' has not.")
        known["class_counts"] = torch.bincount(images.labels, minlength=len(images.classes)).tolist()
    objective = temperature.contrastive_objective or OBJECTIVES.get(name, "infonce")
    loss_fn: tempplug.ContrastiveLoss = replace(temperature, contrastive_objective=objective).create_loss(gather=False, **known)
    return loss_fn.strategy, loss_fn.objective
