"""The suite ``long-tail``: SimCLR on long-tailed images, comparing a fixed temperature, schedules and coarse supervision.

MoCo, other imbalances and DySTreSS's recipe run only if they are named. Each seed is a split, which determines the sizes of the
classes and the images of each class. The backbone is evaluated after its last epoch, whereas Kukleva et al. choose an epoch on
validation images of their first split. A schedule of whole periods ends at its highest temperature; they recommend stopping
0.3 periods earlier, as the arm with the longer period does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.vision.recipe import VisionRecipe
from tempplug_adapters.vision.recipes import MOCO, SIMCLR
from tempplug_benchmarks.arm import UNTRAINED, arms, fixed
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import PROFILES, Metric, Profile
from tempplug_benchmarks.resources import GPU
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
    Metric(name=name, figure=figure, summary=f"{summary}: test accuracy in %, mean over classes", smallest_difference=0.1)
    for name, (figure, summary) in _SCORES.items()
) + tuple(
    Metric(name=f"{name} {group}", figure=f"{_SCORES[name][0]} {figure}", summary=f"the same over {which} classes")
    for name in _SCORES
    for group, (figure, which) in _GROUPS.items()
)
_COPIES = "CIFAR-10-LT of JPEG copies, whose accuracies lie below the original's"
_VALIDATION = Metric(
    name="validation",
    figure="validation knn@10",
    summary="kNN@10 of the images that are held out of the long-tailed set, as many of each class",
)
STOP = 0.3
"""Of a period before the end of one: where the paper advises to stop."""


@dataclass(frozen=True)
class _Draw:
    """Class sizes of a long-tailed subset of CIFAR.

    Attributes:
        classes: 10 or 100.
        ratio: size of the largest class divided by that of the smallest.
        largest: images in the largest class.
        smallest: images in the smallest class.
        images: images in all classes.
        held_out: validation images.
    """

    classes: int
    ratio: int
    largest: int
    smallest: int
    images: int
    held_out: int = 5000


# Kukleva et al., table 2 and 10; DySTreSS's code holds nothing out.
DRAWS = {
    "cifar10-lt": _Draw(10, 100, 4500, 45, 11_165),
    "cifar100-lt": _Draw(100, 100, 450, 4, 9_754),
    "cifar10-lt-50": _Draw(10, 50, 4500, 90, 12_596),
    "cifar100-lt-50": _Draw(100, 50, 450, 9, 11_349),
    "cifar10-lt-150": _Draw(10, 150, 4500, 30, 10_496),
    "cifar100-lt-150": _Draw(100, 150, 450, 3, 9_011),
    "cifar10-uniform": _Draw(10, 1, 4500, 4500, 45_000),
    "cifar10-lt-whole": _Draw(10, 100, 5000, 50, 12_406, 0),
    "cifar100-lt-whole": _Draw(100, 100, 500, 5, 10_847, 0),
}
# Ten times the paper's imbalance: nearest neighbours rarely predict classes of 45 images after a short training.
REDUCED = {
    100: _Draw(10, 10, 2000, 200, 8_169),
    50: _Draw(10, 5, 2000, 400, 10_166),
    150: _Draw(10, 15, 2000, 133, 7_313),
    1: _Draw(10, 1, 2000, 2000, 20_000),
}


def _split(draw: _Draw) -> dict[str, Any]:
    return {"imbalance_ratio": draw.ratio, "held_out": draw.held_out, "largest_class": draw.largest}


def _drawn(draw: _Draw) -> str:
    return f"{draw.images:,} training images in classes of {draw.largest:,} to {draw.smallest:,}"


def _profile(
    dataset: str,
    source: str,
    changes: Mapping[str, Any],
    *,
    periods: int = 5,
    classes: bool = True,
    reported: Mapping[str, tuple[PaperRow, ...]] | None = None,
    reading: Mapping[str, Any],
    method: MethodInfo = SIMCLR,
    recipe: str = "long-tail",
    **more: Any,
) -> Profile:
    """Returns a profile; ``periods`` of the schedule are scaled to its epochs, ``reading`` are options of `read_images`."""
    settings = method.recipe(recipe, evaluations=("long-tail",), **changes)
    epochs, held_out = settings.num_train_epochs, settings.values()["held_out"]
    whole = "schedule" if periods == 5 else f"schedule:period={epochs / periods:g}"
    own = arms(
        *fixed("infonce", 0.1, 0.2, 0.5, 1),
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
        recipe=settings,
        arms=(*own, UNTRAINED),
        metrics=(*METRICS, _VALIDATION) if held_out else METRICS,
        primary="kNN@10",
        validation=_VALIDATION.name if held_out else "",
        load=partial(read_images, method=method, splits=True, **reading),
        **more,
    )


def _reported(dataset: str, groups: str, overall: str = "1", dystress: bool = True) -> dict[str, tuple[PaperRow, ...]]:
    """Returns the rows of the paper's tables of a data set: overall accuracies and those of the groups of classes."""
    rows = {
        label: tuple(PaperRow("temperature-schedules", table, method, dataset) for table in (overall, groups))
        for label, method in ((BASELINE, "SimCLR"), ("schedule+infonce", "SimCLR + TS"))
    }
    return rows | ({"dystress+infonce": (PaperRow("dystress", "4", "DySTreSS", dataset),)} if dystress else {})


def _paper(name: str, *, classes: bool = False, **more: Any) -> Profile:
    """Returns the paper profile of one of `DRAWS`."""
    draw = DRAWS[name]
    data = f"CIFAR-{draw.classes}{'-LT' if draw.ratio > 1 else ''}: {_drawn(draw)}"
    reading = {"wanted": draw.images}
    return _profile(data, f"cifar{draw.classes}", _split(draw), classes=classes, reading=reading, **more)


def _cifar10() -> dict[str, Profile]:
    plain = {"optimizer": "adam", "learning_rate": 1e-3, "warmup_steps": 0}
    fewer = REDUCED[100]
    return {
        "quick": _profile(
            "scikit-learn's digits, classes of 100 to 10",
            "digits",
            {**QUICK, **plain, "imbalance_ratio": 10, "held_out": 100, "largest_class": 100},
            reading={},
            stands_in="digits",
        ),
        "small": _profile(
            f"{_COPIES}: {_drawn(fewer)}",
            "cifar10",
            {**plain, **SMALL, **_split(fewer), "per_device_train_batch_size": 256, "weight_decay": 1e-6},
            periods=2,
            reading={"copies": True, "wanted": fewer.images},
            needs=("vision/cifar10_train_jpeg.npz", "vision/cifar10_test_jpeg.npz"),
        ),
        "paper": _paper("cifar10-lt", classes=True, reported=_reported("CIFAR-10-LT", "7")),
    }


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


_CIFAR10 = _cifar10()
_CIFAR100 = _paper("cifar100-lt", reported=_reported("CIFAR-100-LT", "8"))


def _stand_ins(ratio: int = 100, method: MethodInfo = SIMCLR, recipe: str = "long-tail") -> dict[str, Profile]:
    """Returns the quick and small profiles of CIFAR-10-LT for another method, recipe or imbalance."""
    found = {}
    for name in PROFILES[:2]:
        profile = _CIFAR10[name]
        shared = {setting: getattr(profile.recipe, setting) for setting in VisionRecipe.kinds()}
        shared["imbalance_ratio"] = max(1.0, shared["imbalance_ratio"] * ratio / 100)
        same = replace(profile, recipe=method.recipe(recipe).changed(**shared))
        if name == "small":
            draw = REDUCED[ratio]
            load = partial(read_images, method=SIMCLR, splits=True, copies=True, wanted=draw.images)
            same = replace(same, load=load, dataset=f"{_COPIES}: {_drawn(draw)}")
        elif ratio != 100:
            same = replace(same, dataset=f"scikit-learn's digits, imbalance {shared['imbalance_ratio']:g}")
        found[name] = same
    return found


def _by_name(task: str, name: str, summary: str, method: MethodInfo, recipe: str = "long-tail") -> Task:
    """Returns a task on one of `DRAWS` that only reproduces a table of a paper."""
    paper = _paper(name, method=method, recipe=recipe)
    return _task(task, summary, {**_stand_ins(DRAWS[name].ratio, method, recipe), "paper": paper}, method, PROFILES)


def _task(
    name: str, summary: str, profiles: Mapping[str, Profile], method: MethodInfo = SIMCLR, by_name: tuple[str, ...] = ()
) -> Task:
    return Task(
        name=name,
        summary=f"{summary}; trained without classes on few images of some of them, measured on as many of each",
        method=method,
        baseline=BASELINE,
        papers="long_tail",
        by_name=by_name,
        resources={"paper": GPU},
        profiles=profiles,
    )


SUITE = Suite(
    "long-tail",
    "SimCLR on long-tailed images, measured on large and small classes",
    (
        _task("cifar10-lt", "long-tailed CIFAR-10", _CIFAR10),
        _task("cifar100-lt", "CIFAR-100 with an imbalance of 100", {**_stand_ins(), "paper": _CIFAR100}, by_name=PROFILES[:2]),
        _task(
            "imagenet-100-lt",
            "100 classes of ImageNet with an imbalance of 213",
            {**_stand_ins(), "paper": _imagenet100()},
            by_name=PROFILES[:2],
        ),
        *(
            _by_name(f"{name}-moco", name, f"MoCo on CIFAR-{draw.classes} with an imbalance of {draw.ratio}", MOCO)
            for name, draw in DRAWS.items()
            if draw.held_out
        ),
        *(
            _by_name(
                f"cifar{classes}-lt-dystress",
                f"cifar{classes}-lt-whole",
                f"CIFAR-{classes} with an imbalance of 100 by DySTreSS's recipe, nothing held out",
                SIMCLR,
                "dystress-cifar",
            )
            for classes in (10, 100)
        ),
    ),
)
