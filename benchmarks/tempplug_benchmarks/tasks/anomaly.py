"""The suite ``anomaly``: MSC with every temperature strategy, one task for each normal class of CIFAR-10.

The small profile has three classes, without ``cat``, which was used to choose its settings. There is no validation metric,
because the training data contain a single class and only the anomalies of the test set could rank temperatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tempplug_adapters.msc.recipe import METHOD
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.arm import UNTRAINED, arms
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.resources import GPU
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task
from tempplug_benchmarks.tasks.images import read_images

if TYPE_CHECKING:
    from tempplug_adapters.msc.method import Anomalies
    from tempplug_adapters.msc.recipe import MSCRecipe
    from tempplug_adapters.training.method import Source

BASELINE = "fixed:temperature=0.25+infonce"
METRICS = (
    Metric(
        name="ROC-AUC",
        figure="roc_auc",
        summary="× 100 of test images of all classes after fine-tuning, by squared distances to the two nearest normal ones",
        decimals=3,
        smallest_difference=0.1,
    ),
    Metric(
        name="before",
        figure="roc_auc_before",
        summary="the same of the pretrained network, equal for all arms and seeds",
        decimals=3,
    ),
    Metric(name="gain", summary="the first minus the second", decimals=3),
)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
REDUCED = ("airplane", "bird", "ship")
"""Classes that also have the profiles quick and small."""
_ROWS = {f"fixed:temperature={value}+infonce": f"temperature {value}" for value in ("0.1", "0.25", "0.5", "1")}
_ROWS["temperature-free+infonce"] = "temperature free"
_ARMS = (*_ROWS, "macl+infonce")


TINY = "tiny"
"""The ``backbone`` of a recipe that has a small network with random weights, always the same, in place of a pretrained one."""


def digit_anomalies(recipe: MSCRecipe, source: Source) -> tuple[MSCRecipe, Anomalies]:
    """Returns the recipe, and scikit-learn's digits with one normal class and the small network."""
    import torch

    from tempplug_adapters.images.backbones import create_backbone
    from tempplug_adapters.images.image_data import load_images
    from tempplug_adapters.msc.method import Anomalies
    from tempplug_adapters.msc.one_class import one_class

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = create_backbone("resnet18", stem="cifar", width=8)
    train, test = load_images(source.dataset, "train", None), load_images(source.dataset, "test", None)
    return recipe, Anomalies(one_class(train, test, recipe.normal_class or ""), backbone)


def _profile(dataset: str, recipe: Recipe, source: str, row: str = "", **more: Any) -> Profile:
    reported = {label: (PaperRow("temperature-free", "4", method, row),) for label, method in _ROWS.items()} if row else {}
    return Profile(
        dataset=dataset,
        recipe=recipe,
        arms=(*arms(*_ARMS, reported=reported), UNTRAINED),
        metrics=METRICS,
        primary="ROC-AUC",
        source=source,
        **more,
    )


def _profiles(name: str) -> dict[str, Profile]:
    profiles = {
        "paper": _profile(
            f"CIFAR-10, class {name} normal; ResNet-152 pretrained on ImageNet",
            METHOD.recipe("paper", normal_class=name),
            "cifar10",
            name,
            load=partial(read_images, method=METHOD, wanted=5_000),
        )
    }
    if name not in REDUCED:
        return profiles
    digit = str(CLASSES.index(name))
    tiny: Mapping[str, Any] = {"num_train_epochs": 2, "learning_rate": 1e-3, "image_size": 8, "frozen_blocks": 2}
    # less than two and a half minutes a run on one slow core
    small = METHOD.recipe("cpu", normal_class=name, num_train_epochs=4, train_images=None, test_images=None)
    return {
        "quick": _profile(
            f"scikit-learn's digits, digit {digit} normal; a small network with random weights",
            METHOD.recipe(normal_class=digit, backbone=TINY, **tiny),
            "digits",
            load=digit_anomalies,
            stands_in="digits",
        ),
        "small": _profile(
            f"the first 4,000 training images of CIFAR-10, a fixed fifth of them to test on, class {name} normal; MobileNetV2 "
            "pretrained on ImageNet",
            small,
            "cifar10-lossless4k",
            needs=("vision/cifar10_lossless4k.npz", "vision/mobilenet_v2_imagenet.pth"),
        ),
        **profiles,
    }


SUITE = Suite(
    "anomaly",
    "MSC anomaly detection with a pretrained network, one class of CIFAR-10 being normal",
    tuple(
        Task(
            name=name,
            summary=f"images of class {name} are normal and trained on, those of the nine others are anomalies",
            method=METHOD,
            baseline=BASELINE,
            family="all classes",
            papers="anomaly",
            resources={"paper": GPU},
            profiles=_profiles(name),
        )
        for name in CLASSES
    ),
)
