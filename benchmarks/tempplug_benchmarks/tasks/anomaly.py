"""The suite ``anomaly``: MSC with every temperature strategy, one task for each class of CIFAR-10 that is normal.

Declares tasks, recipes and arms; `anomaly_runs` executes them. Importing this loads no framework.

The small profile has three classes. ``cat`` is none of them: on it the settings of the small recipe were chosen.
"""

from __future__ import annotations

from typing import Any

from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Arm, Metric, Profile, Recipe, Task
from tempplug_benchmarks.tasks.anomaly_runs import TINY, train_anomaly

BASELINE = "fixed-0.25"
METRICS = (
    Metric(
        name="ROC-AUC",
        summary="× 100 of test images of all classes after fine-tuning, by squared distances to the two nearest normal ones",
        decimals=3,
    ),
    Metric(name="before", summary="the same of the pretrained network, equal for all arms and seeds", decimals=3),
    Metric(name="gain", summary="the first minus the second", decimals=3),
)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
REDUCED = ("airplane", "bird", "ship")
"""Classes that also have the profiles quick and small."""

# The recipe of Kim & Kim 2025; a test compares it with the adapter's.
_PAPER: Recipe = {
    "epochs": 25,
    "batch_size": 32,
    "optimizer": "sgd",
    "learning_rate": 1e-5,
    "momentum": 0.0,
    "weight_decay": 5e-5,
    "image_size": 224,
    "frozen_blocks": None,
    "angular": False,
    "neighbours": 2,
    "bf16": False,
}
SMALL: Recipe = {"epochs": 4, "learning_rate": 3e-4, "image_size": 128, "frozen_blocks": 11}
"""What the small profile changes: less than two and a half minutes a run on one slow core."""


def _arms(row: str = "") -> tuple[Arm, ...]:
    """Returns the arms of a profile.

    Args:
        row: the class by which the paper's table is asked; none where it answers another question.
    """
    fixed = ("0.1", "0.25", "0.5", "1")
    specs = (
        *((f"fixed-{value}", f"fixed:temperature={value}", f"temperature {value}") for value in fixed),
        ("temperature-free", "temperature-free", "temperature free"),
        ("macl", "macl:base_temperature=0.25,alpha=0.5,threshold=0", ""),
    )
    return tuple(
        Arm(label, strategy, reported=(PaperRow("temperature-free", "4", method, row),) if row and method else ())
        for label, strategy, method in specs
    )


def _recipe(dataset: str, backbone: str, normal_class: str, **changes: Any) -> Recipe:
    reading = {"folder": None, "train_total": None, "test_total": None}
    return {"dataset": dataset, "backbone": backbone, "normal_class": normal_class, **reading, **_PAPER, **changes}


def _profile(dataset: str, recipe: Recipe, row: str = "", needs: tuple[str, ...] = ()) -> Profile:
    return Profile(dataset=dataset, recipe=recipe, arms=_arms(row), metrics=METRICS, primary="ROC-AUC", needs=needs)


def _profiles(name: str) -> dict[str, Profile]:
    paper = _recipe("cifar10", "microsoft/resnet-152", name, train_total=50_000, test_total=10_000)
    profiles = {"paper": _profile(f"CIFAR-10, class {name} normal; ResNet-152 pretrained on ImageNet", paper, name)}
    if name not in REDUCED:
        return profiles
    digit = str(CLASSES.index(name))
    quick = {"epochs": 2, "learning_rate": 1e-3, "image_size": 8, "frozen_blocks": 2}
    small = _recipe("cifar10-lossless4k", "mobilenet-v2", name, folder="vision", **SMALL)
    return {
        "quick": _profile(
            f"scikit-learn's digits, digit {digit} normal; a small network with random weights",
            _recipe("digits", TINY, digit, **quick),
        ),
        "small": _profile(
            f"the first 4,000 training images of CIFAR-10, a fixed fifth of them to test on, class {name} normal; MobileNetV2 "
            "pretrained on ImageNet",
            small,
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
            baseline=BASELINE,
            papers="anomaly",
            train=train_anomaly,
            profiles=_profiles(name),
        )
        for name in CLASSES
    ),
)
