"""Settings of the suites that train on images, as data: those of the papers, and what the smaller profiles change in them.

It must not know tasks or arms, and imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tempplug_benchmarks.task import Recipe

_CIFAR: Recipe = {
    "method": "simclr",
    "recipe": "dystress-cifar",
    "backbone": "resnet18",
    "stem": "cifar",
    "width": 64,
    "zero_init_residual": False,
    "embedding_dimension": 128,
    "image_size": 32,
    "augmentation": "simclr-cifar",
    "epochs": 200,
    "batch_size": 128,
    "optimizer": "sgd",
    "learning_rate": 0.06,
    "learning_rate_scaling": "none",
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "spare_norms": False,
    "warmup_epochs": 0,
    "learning_rate_schedule": "cosine",
    "precision": "float32",
    "channels_last": True,
}
BASES: Mapping[str, Recipe] = {
    "dystress-cifar": _CIFAR,
    "macl-cifar": {
        **_CIFAR,
        "recipe": "macl-cifar",
        "batch_size": 256,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "learning_rate_scaling": "linear-above-256",
        "weight_decay": 1e-6,
    },
    "amcl": {**_CIFAR, "recipe": "amcl", "augmentation": "amcl-abcde", "epochs": 1000, "batch_size": 512},
    "imagenette": {
        **_CIFAR,
        "recipe": "imagenette",
        "stem": "imagenet",
        "image_size": 128,
        "augmentation": "amcl-abcde",
        "epochs": 800,
        "batch_size": 256,
    },
    "macl-imagenet": {
        **_CIFAR,
        "recipe": "macl-imagenet",
        "backbone": "resnet50",
        "stem": "imagenet",
        "zero_init_residual": True,
        "image_size": 224,
        "augmentation": "simclr",
        "batch_size": 256,
        "optimizer": "lars",
        "learning_rate": 0.3,
        "learning_rate_scaling": "linear",
        "weight_decay": 1e-6,
        "spare_norms": True,
        "warmup_epochs": 10,
    },
    "long-tail": {
        **_CIFAR,
        "recipe": "long-tail",
        "augmentation": "long-tail",
        "epochs": 2000,
        "batch_size": 512,
        "learning_rate": 0.5,
        "weight_decay": 1e-4,
        "warmup_epochs": 10,
    },
}
"""Settings of the adapter's recipes of these names, spelled out so that results hold them."""

QUICK: Recipe = {
    "width": 8,
    "embedding_dimension": 32,
    "image_size": 8,
    # its crops keep a fifth of the eight pixels' square at least
    "augmentation": "moco-v2",
    "epochs": 2,
    "batch_size": 128,
    "channels_last": False,
}
SMALL: Recipe = {"stem": "imagenet", "width": 16, "embedding_dimension": 64, "epochs": 6}
"""What the small profile changes in MACL's recipe, chosen with the baseline: about two minutes a run on one slow core."""
SMALL_IMAGES = 10_000


def recipe_of(dataset: str, base: str, **changes: Any) -> Recipe:
    """Returns the settings of a profile: of reading and of the training.

    Those of reading are the ``folder`` of the data (None: where the user has the data set, or the Hugging Face hub), how many
    training ``images`` there must be (None: any number), how many of them are ``drawn`` (None: all), the ``load_size`` to which
    they are brought before views are drawn (None: they stay), and ``workers`` that read them beside the training.

    Args:
        dataset: name, as `tempplug_adapters.images.image_data.load_images` takes it.
        base: one of `BASES`.
        **changes: of any of them, and whatever else a suite measures with.
    """
    return {
        "dataset": dataset,
        "folder": None,
        "images": None,
        "drawn": None,
        "load_size": None,
        **BASES[base],
        "save_epochs": 10,
        "workers": 0,
        **changes,
    }
