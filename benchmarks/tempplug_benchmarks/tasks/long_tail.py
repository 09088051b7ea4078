"""The suite ``long-tail``: SimCLR on long-tailed images, a fixed temperature against schedules and coarse supervision.

Importing this loads no framework.

Each seed is a split: which classes are the large ones, which images a class keeps, and everything else that is random. What is
measured is the backbone after its last epoch, where Kukleva et al. choose an epoch on the validation images of their first
split. A schedule of whole periods ends at its highest temperature; they advise to stop 0.3 periods before that, as the arm with
the longer period does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tempplug_adapters.vision.recipes import SIMCLR
from tempplug_benchmarks.arm import UNTRAINED, arms
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task
from tempplug_benchmarks.tasks.images import QUICK, SMALL, read_images

BASELINE = "fixed:temperature=0.2+infonce"
_SCORES = {
    "kNN@1": ("knn@1", "class of the nearest training image"),
    "kNN@10": ("knn@10", "majority of the ten nearest training images"),
    "FS LP": ("few-shot", "a linear machine trained on as many images of each class as the smallest has"),
    "LT LP": ("long-tail", "a linear machine trained on the whole long-tailed set"),
}
_GROUPS = {"head": ("head", "the largest"), "mid": ("middle", "the middle"), "tail": ("tail", "the smallest")}
METRICS = tuple(
    Metric(name=name, figure=figure, summary=f"{summary}: test accuracy in %, mean over classes")
    for name, (figure, summary) in _SCORES.items()
) + tuple(
    Metric(name=f"{name} {group}", figure=f"{_SCORES[name][0]} {figure}", summary=f"the same over {which} classes")
    for name in ("kNN@1", "kNN@10")
    for group, (figure, which) in _GROUPS.items()
)
_VALIDATION = Metric(
    name="validation",
    figure="validation knn@10",
    summary="kNN@10 of the images that are held out of the long-tailed set, as many of each class",
)
STOP = 0.3
"""Of a period before the end of one: where the paper advises to stop."""


def _profile(
    dataset: str,
    source: str,
    changes: Mapping[str, Any],
    *,
    periods: int = 5,
    classes: bool = True,
    reported: Mapping[str, tuple[PaperRow, ...]] | None = None,
    reading: Mapping[str, Any],
    **more: Any,
) -> Profile:
    """Returns a profile.

    Args:
        dataset: in words.
        source: its name.
        changes: to the recipe of Kukleva et al.
        periods: of a schedule; the paper has periods of 400 epochs, five where it trains for 2000, which is what a schedule has
            by itself. In a few epochs five would be too short to pass through the temperatures between.
        classes: whether there is an arm that knows how large the classes are.
        reported: rows of paper tables that an arm answers, by its label.
        reading: options of `read_images`.
        **more: of the profile.
    """
    recipe = SIMCLR.recipe("long-tail", evaluations=("long-tail",), **changes)
    epochs = recipe.num_train_epochs
    whole = "schedule" if periods == 5 else f"schedule:period={epochs / periods:g}"
    own = arms(
        "fixed:temperature=0.1+infonce",
        BASELINE,
        "fixed:temperature=0.5+infonce",
        "fixed:temperature=1+infonce",
        f"{whole}+infonce",
        f"schedule:period={epochs / (periods - STOP):g}+infonce",
        *(("head-tail+infonce",) if classes else ()),
        "macl+infonce",
        "dystress+infonce",
        reported={label.replace("schedule", whole): rows for label, rows in (reported or {}).items()},
    )
    return Profile(
        dataset=dataset,
        source=source,
        recipe=recipe,
        arms=(*own, UNTRAINED),
        metrics=(*METRICS, _VALIDATION) if recipe.held_out else METRICS,
        primary="kNN@10",
        validation=_VALIDATION.name if recipe.held_out else "",
        load=partial(read_images, method=SIMCLR, splits=True, **reading),
        **more,
    )


def _reported(dataset: str, groups: str, overall: str = "1", dystress: bool = True) -> dict[str, tuple[PaperRow, ...]]:
    """Returns the rows of the paper's tables of a data set: overall accuracies and those of the groups of classes."""
    rows = {
        label: tuple(PaperRow("temperature-schedules", table, method, dataset) for table in (overall, groups))
        for label, method in ((BASELINE, "SimCLR"), ("schedule+infonce", "SimCLR + TS"))
    }
    return rows | ({"dystress+infonce": (PaperRow("dystress", "4", "DySTreSS", dataset),)} if dystress else {})


def _cifar10() -> dict[str, Profile]:
    plain = {"optimizer": "adam", "learning_rate": 1e-3, "warmup_steps": 0}
    split = {"imbalance_ratio": 100, "held_out": 5000, "largest_class": 4500}
    images, drawn = 11_165, "11,165 training images in classes of 4,500 to 45"
    return {
        "quick": _profile(
            "scikit-learn's digits, classes of 100 to 10",
            "digits",
            {**QUICK, **plain, "imbalance_ratio": 10, "held_out": 100, "largest_class": 100},
            reading={},
        ),
        "small": _profile(
            f"CIFAR-10-LT of JPEG copies, whose accuracies lie below the original's: {drawn}",
            "cifar10",
            {**SMALL, **plain, **split, "per_device_train_batch_size": 256, "weight_decay": 1e-6},
            periods=2,
            reading={"copies": True, "wanted": images},
            needs=("vision/cifar10_train_jpeg.npz", "vision/cifar10_test_jpeg.npz"),
        ),
        "paper": _profile(
            f"CIFAR-10-LT: {drawn}",
            "cifar10",
            split,
            reported=_reported("CIFAR-10-LT", "7"),
            reading={"wanted": images},
        ),
    }


def _cifar100() -> Profile:
    return _profile(
        "CIFAR-100-LT: 9,754 training images in classes of 450 to 4",
        "cifar100",
        {"imbalance_ratio": 100, "held_out": 5000, "largest_class": 450},
        classes=False,
        reported=_reported("CIFAR-100-LT", "8"),
        reading={"wanted": 9_754},
    )


def _imagenet100() -> Profile:
    changes = {
        "head_above": 100,
        "tail_below": 20,
        "backbone": "resnet50",
        "stem": "imagenet",
        "image_size": 224,
        "load_size": 256,
        # the crops, changes of colour and blur of this recipe; the paper's own has no name of its own
        "augmentation": "amcl-abcde",
        "num_train_epochs": 800,
        "warmup_steps": 10 / 800,
        "per_device_train_batch_size": 256,
    }
    return _profile(
        "ImageNet-100-LT: 12,205 training images in classes of 1,280 to 6, as SDCLR lists them, in the folder imagenet-100-lt",
        "imagenet-100-lt",
        changes,
        periods=2,
        classes=False,
        reported=_reported("ImageNet-100-LT", "9", "3", dystress=False),
        reading={"wanted": 12_205, "folder": "imagenet-100-lt"},
        needs=("imagenet-100-lt",),
        training={"dataloader_num_workers": 8},
    )


def _task(name: str, summary: str, profiles: Mapping[str, Profile]) -> Task:
    return Task(
        name=name,
        summary=f"{summary}; trained without classes on few images of some of them, measured on as many of each",
        method=SIMCLR,
        baseline=BASELINE,
        papers="long_tail",
        profiles=profiles,
    )


SUITE = Suite(
    "long-tail",
    "SimCLR on long-tailed images, measured on large and small classes",
    (
        _task("cifar10-lt", "CIFAR-10 with an imbalance of 100", _cifar10()),
        _task("cifar100-lt", "CIFAR-100 with an imbalance of 100", {"paper": _cifar100()}),
        _task("imagenet-100-lt", "100 classes of ImageNet with an imbalance of 213", {"paper": _imagenet100()}),
    ),
)
