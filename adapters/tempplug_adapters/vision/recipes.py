"""The vision methods, their settings, and the recipes of their papers in `recipes.toml`; importing this loads no framework.

If a paper has no settings for small images, the recipe names its source. The batch size of a paper is that of all devices
together: divide it by the number of processes (``--per-device-train-batch-size``).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from tempplug.options import Choice, Flag, Number, Text, Words
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import ImageColumns, LastBatchNorm, LossRecipe, Recipe, around, integer, integer_or_none
from tempplug_adapters.vision.evaluation.settings import EVALUATIONS, IMBALANCE, PROBES, seed_range

SCALINGS = ("none", "linear", "linear-above-256", "square-root")
STEMS = ("cifar", "imagenet")


@dataclass(frozen=True, kw_only=True)
class VisionRecipe(Recipe):
    """Settings of a training on images and its evaluation; `recipes.toml` contains those of papers."""

    per_device_train_batch_size: Annotated[int, integer("images per step and process", 2)] = 128
    learning_rate_scaling: Annotated[
        str,
        Choice(
            SCALINGS,
            help="factor of the learning rate; linear: the images of a step, of all processes, over 256; "
            "linear-above-256: the same above 256; square-root: their root",
        ),
    ] = "none"
    bias_learning_rate: Annotated[
        float | None, Number(above=0, optional=True, help="of biases and normalisation, scaled the same way; none: the same")
    ] = None
    spare_norms: Annotated[bool, Flag(help="no weight decay of biases and normalisation; never with lars")] = False

    backbone: Annotated[
        str, Text(help="resnet18 to resnet152, vit-tiny to vit-base, timm:NAME, MODULE:NAME[:key=value,...], ...")
    ] = "resnet18"
    stem: Annotated[str | None, Choice(STEMS, optional=True, help="first layers of a ResNet; cifar: small images")] = "cifar"
    width: Annotated[int | None, integer_or_none("channels of a ResNet's first stage")] = 64
    zero_init_residual: Annotated[bool, Flag(help="each block of a ResNet is initially the identity")] = False
    heads: Annotated[int | None, integer_or_none("projection heads with summed losses; none: 3 with amcl, else 1")] = None
    embedding_dimension: Annotated[int, integer("width of the embeddings")] = 128
    last_batch_norm: LastBatchNorm = None
    channels_last: Annotated[bool, Flag(help="memory format of images and weights, often faster")] = True
    sync_batch_norm: Annotated[bool, Flag(help="normalise over the batches of all processes; GPUs only")] = False

    image_size: Annotated[int, integer("pixels of each side of a view")] = 32
    augmentation: Annotated[
        str, Text(help="recipe of the views; simclr:small=6,size=96 adds small crops (simclr, supcon, moco)")
    ] = "simclr-cifar"
    load_size: Annotated[
        int | None,
        integer_or_none("pixels of each side before cropping; none: unchanged, or 8/7 of a view for images of many sizes"),
    ] = None
    columns: ImageColumns = ()
    count: Annotated[int | None, integer_or_none("images to train on, drawn at random; none: all")] = None
    imbalance_ratio: Annotated[float | None, IMBALANCE] = None
    largest_class: Annotated[int | None, integer_or_none("images of its largest class; none: 9/10 of the smallest")] = None
    held_out: Annotated[int, integer("images, the same number of each class, left out of it for validation", 0)] = 0
    split_seed: Annotated[int, seed_range("of the drawn images")] = 0

    evaluations: Annotated[tuple[str, ...], Words(EVALUATIONS, help="evaluations of the backbone")] = ("knn",)
    evaluation_dataset: Annotated[
        str | None, Text(optional=True, help="labelled images for evaluations; none: those of the training, and their test set")
    ] = None
    neighbours: Annotated[int, integer("neighbours that vote in knn")] = 200
    probe: Annotated[str, Choice(tuple(PROBES), help="recipe of linear-probe")] = "lightly"
    head_above: Annotated[int | None, integer_or_none("larger classes are head in long-tail; none: thirds of the classes")] = (
        None
    )
    tail_below: Annotated[int | None, integer_or_none("smaller classes are tail in long-tail; none: thirds of the classes")] = (
        None
    )

    def changed(self, **changes: Any) -> Self:
        """Returns the recipe with changed settings; backbones other than our ResNets have no settings of a ResNet."""
        if not changes.get("backbone", self.backbone).startswith("resnet"):
            changes = {"stem": None, "width": None, "zero_init_residual": False, **changes}
        return super().changed(**changes)

    def learning_rate_factor(self, batch_size: int) -> float:
        """Returns the factor of the learning rate for the batch of all processes."""
        linear = batch_size / 256
        factors = {"none": 1.0, "linear": linear, "linear-above-256": max(1.0, linear), "square-root": math.sqrt(batch_size)}
        return factors[self.learning_rate_scaling]


@dataclass(frozen=True, kw_only=True)
class SimCLRRecipe(VisionRecipe):
    """SimCLR's and SupCon's settings, those of the head among them."""

    head_layers: Annotated[int, integer("linear layers of a head")] = 2
    hidden_dimension: Annotated[int | None, integer_or_none("width inside a head; none: that of the representations")] = None


@dataclass(frozen=True, kw_only=True)
class MoCoRecipe(SimCLRRecipe):
    """MoCo's settings, those of queue and momentum encoder among them."""

    queue_size: Annotated[int, integer("keys of past batches")] = 4096
    encoder_momentum: Annotated[float, Number(at_least=0, at_most=1, help="of the momentum encoder")] = 0.999
    symmetric: Annotated[bool, Flag(help="average both directions")] = False


@dataclass(frozen=True, kw_only=True)
class NNCLRRecipe(VisionRecipe):
    """NNCLR's settings, that of the support set among them."""

    hidden_dimension: Annotated[
        int | None, integer_or_none("width in a projection head, half a prediction head's; none: 2048")
    ] = None
    queue_size: Annotated[int, integer("embeddings of the support set")] = 4096


@dataclass(frozen=True, kw_only=True)
class SimSiamRecipe(VisionRecipe):
    """SimSiam's settings, those of the projection head among them."""

    head_layers: Annotated[int, integer("linear layers of a projection head")] = 2
    hidden_dimension: Annotated[int | None, integer_or_none("width in a projection head; none: that of the embeddings")] = None


@dataclass(frozen=True, kw_only=True)
class BarlowTwinsRecipe(VisionRecipe):
    """Barlow Twins' settings."""

    redundancy_weight: Annotated[float, Number(at_least=0, help="of correlations between features")] = 5e-3


if TYPE_CHECKING:
    from tempplug.types import LayoutName

_TABLES: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
AMCL_OPTIONS: Mapping[str, Mapping[str, Any]] = _TABLES["amcl"]
"""Options of strategy ``amcl`` by method that differ from its own defaults."""

_DATASETS = (
    "cifar10, cifar10-lossless4k, cifar100, digits, imagenet, imagenet-100, imagenette, stl10, stl10-unlabeled, tiny-imagenet, "
    "or a folder with train and test or val, a folder of images without classes, a table of images or of their paths "
    "(parquet, CSV), or the tars of a webdataset"
)


def _loss(method: str, layout: LayoutName, settings: dict[str, Any]) -> LossRecipe:
    """Returns the loss of a recipe: a fixed temperature, and each strategy with its own paper's options for the method."""
    if "temperature" not in settings:  # of methods without a softmax
        return LossRecipe(temperatures={"amcl": AMCL_OPTIONS[method]})
    large, in_moco = settings.get("stem") == "imagenet", method == "moco"
    temperatures = around(
        settings.pop("temperature"),
        amcl=AMCL_OPTIONS["simclr" if method == "supcon" else method],
        # Huang et al. 2023, section 5.1
        macl={"base_temperature": 0.15 if in_moco else 0.1, "alpha": 0.5, "threshold": 0.2 if in_moco else 0.0},
        # Manna et al. (DySTreSS), section 4, with another range for images of ImageNet's size
        dystress={"temperature_min": 0.1 if large else 0.07, "temperature_max": 0.2},
        # Kukleva et al. 2023, section 4, once an epoch as in their code
        schedule={"temperature_min": 0.1, "temperature_max": 1.0, "granularity": "epoch"},
    )
    loss = LossRecipe(layout=layout, temperatures=temperatures)
    # Most objectives have no form for several positives, so MACL keeps the plain one in SupCon.
    return replace(loss, objectives={"amcl": "dcl"}) if layout == "labels" else loss


def _settings(table: Mapping[str, Any]) -> dict[str, Any]:
    own = dict(table)
    base = own.pop("base", None)
    return own if base is None else _settings(_TABLES["base"][base]) | own


def _method(
    name: str, title: str, kind: type[VisionRecipe], layout: LayoutName = "two-view", strategy: str = "any temperature strategy"
) -> MethodInfo:
    recipes = {}
    for recipe, table in _TABLES[name].items():
        settings = _settings(table)
        recipes[recipe] = kind(loss=_loss(name, layout, settings), **settings)
    return MethodInfo(
        name=name,
        summary=f"Train a backbone on images with {title} and {strategy}, and measure it on test images.",
        target="tempplug_adapters.vision.vision_method:VisionMethod",
        recipes=recipes,
        datasets=_DATASETS,
    )


SIMCLR = _method("simclr", "SimCLR", SimCLRRecipe)
MOCO = _method("moco", "MoCo v2", MoCoRecipe, "queue")
NNCLR = _method("nnclr", "NNCLR", NNCLRRecipe, "cross-view")
SIMSIAM = _method("simsiam", "SimSiam", SimSiamRecipe, strategy="no temperature, or AMCL's")
BARLOW_TWINS = _method("barlow-twins", "Barlow Twins", BarlowTwinsRecipe, strategy="no temperature, or AMCL's")
SUPCON = _method("supcon", "SupCon (labelled images)", SimCLRRecipe, "labels")
METHODS: Mapping[str, MethodInfo] = {each.name: each for each in (SIMCLR, MOCO, NNCLR, SIMSIAM, BARLOW_TWINS, SUPCON)}
"""By name."""
