"""The settings of a training of images, as data: what is common to all methods, and what each has for itself.

A recipe also says which images are trained on and how the backbone is measured, so that commands and suites ask for the same
thing in the same words. It must not know data, networks or temperatures' numbers, and importing it loads no framework.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Self

from tempplug.options import Choice, Flag, Number, Text, Words
from tempplug_adapters.training.recipe import HIGHEST_SEED, Recipe
from tempplug_adapters.vision.evaluation.settings import EVALUATIONS, PROBES

SCALINGS = ("none", "linear", "linear-above-256", "square-root")

_Optional = int | None


def _count(help: str) -> Number:
    return Number(at_least=1, integer=True, optional=True, help=help)


@dataclass(frozen=True, kw_only=True)
class VisionRecipe(Recipe):
    """How a backbone is trained on images and measured; `tempplug_adapters.vision.recipes` has the papers' settings."""

    per_device_train_batch_size: Annotated[int, Number(at_least=2, integer=True, help="images a step and process")] = 128
    learning_rate_scaling: Annotated[
        str,
        Choice(
            SCALINGS,
            help="what batches of all processes multiply the learning rate by; linear: their images over 256; "
            "linear-above-256: so for larger batches alone; square-root: the root of their images",
        ),
    ] = "none"
    bias_learning_rate: Annotated[
        float | None, Number(above=0, optional=True, help="of biases and normalisation, scaled likewise; none: the same")
    ] = None
    spare_norms: Annotated[bool, Flag(help="no weight decay of biases and normalisation; lars never has it")] = False

    backbone: Annotated[str, Text(help="resnet18 to resnet152, vit-tiny to vit-base, timm:NAME, transformers:NAME, ...")] = (
        "resnet18"
    )
    stem: Annotated[
        str | None, Choice(("cifar", "imagenet"), optional=True, help="first layers of a ResNet; cifar is for small images")
    ] = "cifar"
    width: Annotated[_Optional, _count("channels of a ResNet's first stage")] = 64
    zero_init_residual: Annotated[bool, Flag(help="each block of a ResNet begins as the identity")] = False
    heads: Annotated[_Optional, _count("projection heads, whose losses are summed; none: three with amcl, else one")] = None
    embedding_dimension: Annotated[int, Number(at_least=1, integer=True, help="width of the embeddings")] = 128
    channels_last: Annotated[bool, Flag(help="memory format of images and weights, often faster")] = True
    sync_batch_norm: Annotated[bool, Flag(help="normalise over the batches of all processes; GPUs only")] = False

    image_size: Annotated[int, Number(at_least=1, integer=True, help="pixels of each side of a view")] = 32
    augmentation: Annotated[str, Text(help="recipe of the views")] = "simclr-cifar"
    load_size: Annotated[
        _Optional,
        _count(
            "pixels of each side to which images are brought before views are cropped; none: they stay as they are, and where "
            "they come in many sizes are brought to 8/7 of a view"
        ),
    ] = None
    count: Annotated[_Optional, _count("images to train on, drawn at random; none: all")] = None
    imbalance_ratio: Annotated[
        float | None,
        Number(
            at_least=1, optional=True, help="of a long-tailed part to train on: its largest class over its smallest; none: all"
        ),
    ] = None
    largest_class: Annotated[
        _Optional, _count("images of its largest class; none: nine tenths of the smallest class that there is")
    ] = None
    held_out: Annotated[
        int, Number(at_least=0, integer=True, help="images, as many of each class, that its draw leaves for validation")
    ] = 0
    split_seed: Annotated[
        int, Number(at_least=0, at_most=HIGHEST_SEED, integer=True, help="of drawn images; training has its own")
    ] = 0

    evaluations: Annotated[tuple[str, ...], Words(EVALUATIONS, help="what the backbone is measured by")] = ("knn",)
    evaluation_dataset: Annotated[
        str | None, Text(optional=True, help="labelled images to measure with; none: those that are trained on, and their test")
    ] = None
    neighbours: Annotated[int, Number(at_least=1, integer=True, help="that vote in knn")] = 200
    probe: Annotated[str, Choice(tuple(PROBES), help="recipe of linear-probe")] = "lightly"
    head_above: Annotated[
        _Optional, _count("images of a class that is head in long-tail, exceeded; none: thirds of the classes")
    ] = None
    tail_below: Annotated[_Optional, _count("images of a class that is tail, not reached; none likewise")] = None

    def changed(self, **changes: Any) -> Self:
        """Returns the recipe with some settings changed; another backbone than a ResNet of ours loses what only those have.

        Raises:
            UnknownNameError: a name is no setting; the nearest is in the message.
            ConfigError: a setting is out of range.
        """
        if not changes.get("backbone", self.backbone).startswith("resnet"):
            changes = {"stem": None, "width": None, "zero_init_residual": False, **changes}
        return super().changed(**changes)

    def learning_rate_factor(self, batch_size: int) -> float:
        """Returns what the learning rate is multiplied by for a batch of all processes."""
        factors = {
            "none": 1.0,
            "linear": batch_size / 256,
            "linear-above-256": max(1.0, batch_size / 256),
            "square-root": math.sqrt(batch_size),
        }
        return factors[self.learning_rate_scaling]


@dataclass(frozen=True, kw_only=True)
class SimCLRRecipe(VisionRecipe):
    """SimCLR's and SupCon's settings, those of the head among them."""

    head_layers: Annotated[int, Number(at_least=1, integer=True, help="linear layers of a head")] = 2
    hidden_dimension: Annotated[_Optional, _count("width inside a head; none: that of the representations")] = None


@dataclass(frozen=True, kw_only=True)
class MoCoRecipe(SimCLRRecipe):
    """MoCo's settings, those of queue and momentum encoder among them."""

    queue_size: Annotated[int, Number(at_least=1, integer=True, help="keys of past batches")] = 4096
    encoder_momentum: Annotated[float, Number(at_least=0, at_most=1, help="of the momentum encoder")] = 0.999
    symmetric: Annotated[bool, Flag(help="average both directions")] = False


@dataclass(frozen=True, kw_only=True)
class NNCLRRecipe(VisionRecipe):
    """NNCLR's settings, that of the support set among them."""

    hidden_dimension: Annotated[
        _Optional, _count("width inside a projection head, half of that in a prediction head; none: 2048")
    ] = None
    queue_size: Annotated[int, Number(at_least=1, integer=True, help="embeddings of the support set")] = 4096


@dataclass(frozen=True, kw_only=True)
class SimSiamRecipe(VisionRecipe):
    """SimSiam's settings, those of the projection head among them."""

    head_layers: Annotated[int, Number(at_least=1, integer=True, help="linear layers of a projection head")] = 2
    hidden_dimension: Annotated[_Optional, _count("width inside a projection head; none: that of the embeddings")] = None


@dataclass(frozen=True, kw_only=True)
class BarlowTwinsRecipe(VisionRecipe):
    """Barlow Twins' settings."""

    redundancy_weight: Annotated[float, Number(at_least=0, help="of correlations between features")] = 5e-3
