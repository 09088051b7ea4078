"""The methods of vision with their papers' recipes, temperatures included, as data: importing this loads no framework.

Where a paper has no number for a method on small images, the recipe says whose it takes instead. A paper's batch is that of all
its devices: on several processes give each its share (``--per-device-train-batch-size``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LossRecipe, around
from tempplug_adapters.vision.amcl_defaults import AMCL_OPTIONS
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

_DATASETS = (
    "cifar10, cifar10-lossless4k, cifar100, digits, imagenet, imagenet-100, imagenette, stl10, stl10-unlabeled, tiny-imagenet, "
    "or a folder with train and test or val"
)
_MODULE = "tempplug_adapters.vision.methods"


def _loss(
    temperature: float,
    layout: LayoutName = "two-view",
    *,
    amcl: str = "simclr",
    large: bool = False,
    macl: float = 0.1,
    threshold: float = 0.0,
) -> LossRecipe:
    """Returns the loss of a recipe: a fixed temperature, and each strategy as its own paper has it with the method.

    Args:
        temperature: fixed.
        layout: of the loss.
        amcl: the method whose options AMCL has.
        large: whether it is for images of ImageNet's size, which have another range in DySTreSS's paper.
        macl: base temperature of MACL (Huang et al. 2023, section 5.1).
        threshold: of MACL, likewise.
    """
    return LossRecipe(
        layout=layout,
        temperatures=around(
            temperature,
            amcl=AMCL_OPTIONS[amcl],
            macl={"base_temperature": macl, "alpha": 0.5, "threshold": threshold},
            # Manna et al. (DySTreSS), section 4
            dystress={"temperature_min": 0.1 if large else 0.07, "temperature_max": 0.2},
            # Kukleva et al. 2023, section 4, once an epoch as in their code
            schedule={"temperature_min": 0.1, "temperature_max": 1.0, "granularity": "epoch"},
        ),
    )


_SMALL: dict[str, Any] = {
    "num_train_epochs": 200,
    "per_device_train_batch_size": 128,
    "optimizer": "sgd",
    "learning_rate": 0.06,
    "weight_decay": 5e-4,
    "lr_scheduler_type": "cosine",
    "dataloader_drop_last": True,
}
_LARGE: dict[str, Any] = {
    **_SMALL,
    "backbone": "resnet50",
    "stem": "imagenet",
    "image_size": 224,
    "load_size": 256,
    "augmentation": "simclr",
    "num_train_epochs": 100,
    "per_device_train_batch_size": 256,
    "optimizer": "lars",
    "learning_rate": 0.3,
    "learning_rate_scaling": "linear",
    "weight_decay": 1e-6,
    "spare_norms": True,
    "warmup_steps": 10 / 100,
}
_LONG_TAIL: dict[str, Any] = {
    **_SMALL,
    "augmentation": "long-tail",
    "num_train_epochs": 2000,
    "per_device_train_batch_size": 512,
    "learning_rate": 0.5,
    "weight_decay": 1e-4,
    "warmup_steps": 10 / 2000,
}
_AMCL: dict[str, Any] = {
    **_SMALL,
    "augmentation": "amcl-abcde",
    "num_train_epochs": 1000,
    "per_device_train_batch_size": 512,
}
_MOCO_V2: dict[str, Any] = {
    **_LARGE,
    "augmentation": "moco-v2",
    "num_train_epochs": 200,
    "optimizer": "sgd",
    "learning_rate": 0.03,
    "learning_rate_scaling": "none",
    "weight_decay": 1e-4,
    "spare_norms": False,
    "warmup_steps": 0.0,
}

_SIMCLR: Mapping[str, SimCLRRecipe] = {
    # Manna et al. (DySTreSS), CIFAR; its text, where its code passes no momentum
    "dystress-cifar": SimCLRRecipe(loss=_loss(0.1), **_SMALL),
    # Huang et al. 2023 (MACL), appendix B.3; above 256 images a step its rate grows with the batch
    "macl-cifar": SimCLRRecipe(
        loss=_loss(0.1),
        **{
            **_SMALL,
            "per_device_train_batch_size": 256,
            "optimizer": "adam",
            "learning_rate": 1e-3,
            "learning_rate_scaling": "linear-above-256",
            "weight_decay": 1e-6,
        },
    ),
    # Wang et al. 2024 (AMCL)
    "amcl": SimCLRRecipe(loss=_loss(0.5), **_AMCL),
    # Kukleva et al. 2023 (temperature schedules), CIFAR-LT
    "long-tail": SimCLRRecipe(loss=_loss(0.2), **_LONG_TAIL),
    # Kim and Kim (temperature-free), Imagenette; its colours change half as much as SimCLR's
    "imagenette": SimCLRRecipe(
        loss=_loss(0.5, large=True),
        **{
            **_SMALL,
            "stem": "imagenet",
            "image_size": 128,
            "load_size": 160,
            "augmentation": "amcl-abcde",
            "num_train_epochs": 800,
            "per_device_train_batch_size": 256,
        },
    ),
    # Chen et al. 2020, with the epochs that its code has by default; the paper trains up to 1000
    "google": SimCLRRecipe(
        loss=_loss(0.1, large=True), **{**_LARGE, "per_device_train_batch_size": 4096, "zero_init_residual": True}
    ),
    # Manna et al., ImageNet
    "dystress-imagenet": SimCLRRecipe(
        loss=_loss(0.1, large=True),
        **{**_LARGE, "learning_rate": 0.075, "learning_rate_scaling": "square-root", "bf16": True},
    ),
    # Huang et al. 2023, ImageNet, the smallest batch and shortest training of its tables
    "macl-imagenet": SimCLRRecipe(
        loss=_loss(0.1, large=True),
        **{**_LARGE, "num_train_epochs": 200, "warmup_steps": 10 / 200, "zero_init_residual": True},
    ),
}

_IN_MOCO: dict[str, Any] = {"amcl": "moco", "macl": 0.15, "threshold": 0.2}
_MOCO: Mapping[str, MoCoRecipe] = {
    # the base of Wang et al. 2024 (AMCL): lightly's, in both directions
    "amcl": MoCoRecipe(
        loss=_loss(0.1, "queue", **_IN_MOCO),
        **{**_AMCL, "learning_rate": 0.08, "encoder_momentum": 0.99, "symmetric": True},
    ),
    # Kukleva et al. 2023; the batch is not said: SimCLR's
    "long-tail": MoCoRecipe(loss=_loss(0.2, "queue", **_IN_MOCO), **{**_LONG_TAIL, "head_layers": 1, "queue_size": 10000}),
    # Chen et al. 2020 (MoCo v2)
    "moco-v2": MoCoRecipe(loss=_loss(0.2, "queue", large=True, **_IN_MOCO), **{**_MOCO_V2, "queue_size": 65536}),
    # Huang et al. 2023, ImageNet-100
    "macl-imagenet-100": MoCoRecipe(
        loss=_loss(0.2, "queue", large=True, **_IN_MOCO),
        **{**_MOCO_V2, "queue_size": 65536, "learning_rate": 0.3, "warmup_steps": 10 / 200},
    ),
}

_NNCLR: Mapping[str, NNCLRRecipe] = {
    # no paper trains it on CIFAR: the paper's heads, otherwise as SimCLR there, with lightly's support set
    "cifar": NNCLRRecipe(
        loss=_loss(0.1, "cross-view", amcl="nnclr"),
        **{**_SMALL, "per_device_train_batch_size": 256, "embedding_dimension": 256},
    ),
    # Dwibedi et al. 2021
    "nnclr": NNCLRRecipe(
        loss=_loss(0.1, "cross-view", amcl="nnclr", large=True),
        **{
            **_LARGE,
            "num_train_epochs": 1000,
            "per_device_train_batch_size": 4096,
            "warmup_steps": 10 / 1000,
            "embedding_dimension": 256,
            "queue_size": 98304,
        },
    ),
    # Huang et al. 2023, ImageNet-100
    "macl-imagenet-100": NNCLRRecipe(
        loss=_loss(0.1, "cross-view", amcl="nnclr", large=True),
        **{
            **_LARGE,
            "per_device_train_batch_size": 512,
            "learning_rate": 0.8,
            "learning_rate_scaling": "none",
            "embedding_dimension": 256,
            "queue_size": 98304,
        },
    ),
}

_IN_SIMSIAM = LossRecipe(temperatures={"amcl": AMCL_OPTIONS["simsiam"]})
_SIMSIAM: Mapping[str, SimSiamRecipe] = {
    # Chen and He 2021, appendix D
    "cifar": SimSiamRecipe(
        loss=_IN_SIMSIAM,
        **{
            **_SMALL,
            "head_layers": 2,
            "embedding_dimension": 2048,
            "num_train_epochs": 800,
            "per_device_train_batch_size": 512,
            "learning_rate": 0.03,
            "learning_rate_scaling": "linear",
        },
    ),
    # Chen and He 2021, section 4
    "simsiam": SimSiamRecipe(
        loss=_IN_SIMSIAM,
        **{
            **_MOCO_V2,
            "zero_init_residual": True,
            "head_layers": 3,
            "embedding_dimension": 2048,
            "num_train_epochs": 100,
            "per_device_train_batch_size": 512,
            "learning_rate": 0.05,
            "learning_rate_scaling": "linear",
        },
    ),
}

_IN_BARLOW_TWINS = LossRecipe(temperatures={"amcl": AMCL_OPTIONS["barlow-twins"]})
_BARLOW_TWINS: Mapping[str, BarlowTwinsRecipe] = {
    # the base of Wang et al. 2024 (AMCL)
    "amcl": BarlowTwinsRecipe(loss=_IN_BARLOW_TWINS, **{**_AMCL, "learning_rate": 0.11, "embedding_dimension": 2048}),
    # Zbontar et al. 2021 with its code's λ, but SimCLR's views: the code's own have half the jitter, bicubic crops and
    # other blur in each, and some of the second views are solarised
    "barlow-twins": BarlowTwinsRecipe(
        loss=_IN_BARLOW_TWINS,
        **{
            **_LARGE,
            "zero_init_residual": True,
            "embedding_dimension": 8192,
            "num_train_epochs": 1000,
            "per_device_train_batch_size": 2048,
            "warmup_steps": 10 / 1000,
            "learning_rate": 0.2,
            "bias_learning_rate": 0.0048,
            "redundancy_weight": 0.0051,
        },
    ),
}

_SUPCON: Mapping[str, SimCLRRecipe] = {
    # Khosla et al. 2020, with the rate, batch and decay of the code that they point to for CIFAR, whose crops keep a fifth of
    # the area at least
    "cifar": SimCLRRecipe(
        # most objectives beside these have no form for several positives: MACL keeps the plain one
        loss=replace(_loss(0.1, "labels"), objectives={"amcl": "dcl"}),
        **{
            **_SMALL,
            "backbone": "resnet50",
            "num_train_epochs": 1000,
            "per_device_train_batch_size": 1024,
            "learning_rate": 0.5,
            "weight_decay": 1e-4,
            "warmup_steps": 10 / 1000,
        },
    ),
}


def _method(
    name: str, title: str, kind: str, recipes: Mapping[str, VisionRecipe], strategy: str = "any temperature strategy"
) -> MethodInfo:
    return MethodInfo(
        name=name,
        summary=f"Train a backbone on images with {title} and {strategy}, and measure it on test images.",
        target=f"{_MODULE}:{kind}Method",
        recipes=recipes,
        datasets=_DATASETS,
    )


_AMCL_ALONE = "no temperature, or AMCL's"
SIMCLR = _method("simclr", "SimCLR", "SimCLR", _SIMCLR)
MOCO = _method("moco", "MoCo v2", "MoCo", _MOCO)
NNCLR = _method("nnclr", "NNCLR", "NNCLR", _NNCLR)
SIMSIAM = _method("simsiam", "SimSiam", "SimSiam", _SIMSIAM, _AMCL_ALONE)
BARLOW_TWINS = _method("barlow-twins", "Barlow Twins", "BarlowTwins", _BARLOW_TWINS, _AMCL_ALONE)
SUPCON = _method("supcon", "SupCon (labelled images)", "SupCon", _SUPCON)
METHODS: Mapping[str, MethodInfo] = {each.name: each for each in (SIMCLR, MOCO, NNCLR, SIMSIAM, BARLOW_TWINS, SUPCON)}
"""By name."""
