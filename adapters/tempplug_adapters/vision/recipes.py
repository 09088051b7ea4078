"""The vision methods with the recipes of their papers, stored in `recipes.toml`; importing this loads no framework.

If a paper has no settings for small images, the recipe names its source. The batch size of a paper is that of all devices
together: divide it by the number of processes (``--per-device-train-batch-size``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LossRecipe, around
from tempplug_adapters.vision.recipe import (
    BarlowTwinsRecipe,
    MoCoRecipe,
    NNCLRRecipe,
    SimCLRRecipe,
    SimSiamRecipe,
    VisionRecipe,
)

if TYPE_CHECKING:
    from tempplug.types import LayoutName

_TABLES: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
AMCL_OPTIONS: Mapping[str, Mapping[str, Any]] = _TABLES["amcl"]
"""Options of strategy ``amcl`` by method that differ from its own defaults."""

_DATASETS = (
    "cifar10, cifar10-lossless4k, cifar100, digits, imagenet, imagenet-100, imagenette, stl10, stl10-unlabeled, tiny-imagenet, "
    "or a folder with train and test or val, a folder of images without classes, or the tars of a webdataset"
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
