"""The suite ``long-tail``: SimCLR on long-tailed images, a fixed temperature against schedules and coarse supervision.

Declares tasks, recipes and arms; `long_tail_runs` executes them. Importing this loads no framework.

Each seed is a split: which classes are the large ones, which images a class keeps, and everything else that is random. What is
measured is the backbone after its last epoch, where Kukleva et al. choose an epoch on the validation images of their first
split. A schedule of whole periods ends at its highest temperature; they advise to stop 0.3 periods before that, as
``schedule-early`` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Arm, Metric, Profile, Recipe, Task
from tempplug_benchmarks.tasks.long_tail_runs import GROUPED, GROUPS, SCORES, train_long_tail
from tempplug_benchmarks.tasks.vision_recipes import QUICK, SMALL, recipe_of
from tempplug_benchmarks.tasks.vision_runs import RANDOM

BASELINE = "fixed-0.2"
_SUMMARIES = {
    "kNN@1": "class of the nearest training image",
    "kNN@10": "majority of the ten nearest training images",
    "FS LP": "a linear machine trained on as many images of each class as the smallest has",
    "LT LP": "a linear machine trained on the whole long-tailed set",
}
_GROUP_NAMES = {"head": "the largest", "mid": "the middle", "tail": "the smallest"}
METRICS = tuple(
    Metric(name=name, summary=f"{_SUMMARIES[name]}: test accuracy in %, mean over classes") for name in SCORES
) + tuple(
    Metric(name=f"{name} {group}", summary=f"the same over {_GROUP_NAMES[group]} classes")
    for name in GROUPED
    for group in GROUPS
)

STOP = 0.3
"""Of a period before the end of one: where the paper advises to stop."""

# Sizes of classes from the largest to the smallest, floor(n_max * ratio^(-k / (C - 1))): the arm that is told them cannot wait
# for the draw. A test compares them with what is drawn.
SIZES: Mapping[str, Sequence[int]] = {
    "digits": (100, 77, 59, 46, 35, 27, 21, 16, 12, 10),
    "cifar10": (4500, 2697, 1617, 969, 581, 348, 208, 125, 75, 45),
}


def _arms(
    recipe: Recipe,
    sizes: Sequence[int] = (),
    reported: Mapping[str, tuple[PaperRow, ...]] | None = None,
    periods: int = 5,
) -> tuple[Arm, ...]:
    """Returns the arms of a profile.

    Args:
        recipe: its settings.
        sizes: of the classes, largest first, for the arm that knows them; none leaves it out.
        reported: rows of paper tables that an arm answers, by its label.
        periods: of a schedule; the paper has periods of 400 epochs, five where it trains for 2000. In a few epochs five would
            be too short to pass through the temperatures between.
    """
    epochs = float(recipe["epochs"] or 0)
    schedule = "schedule:temperature_min=0.1,temperature_max=1,period="
    head_tail = f"head-tail:class_counts={'/'.join(map(str, sizes))},temperature_head=1,temperature_tail=0.1"
    specs = (
        ("fixed-0.1", "fixed:temperature=0.1", "infonce"),
        (BASELINE, "fixed:temperature=0.2", "infonce"),
        ("fixed-1", "fixed:temperature=1", "infonce"),
        ("schedule", f"{schedule}{epochs / periods:g}", "infonce"),
        ("schedule-early", f"{schedule}{epochs / (periods - STOP):g}", "infonce"),
        *((("head-tail", head_tail, "infonce"),) if sizes else ()),
        ("macl", "macl:base_temperature=0.1,alpha=0.5,threshold=0", "infonce"),
        ("dystress", "dystress:temperature_min=0.07,temperature_max=0.2", "infonce"),
        (RANDOM, "fixed:temperature=1", "dcl"),
    )
    rows = reported or {}
    return tuple(Arm(label, strategy, objective, rows.get(label, ())) for label, strategy, objective in specs)


def _recipe(dataset: str, **changes: Any) -> Recipe:
    """Returns the settings of Kukleva et al., some of them changed, and those of the split."""
    split = {"held_out": 0, "imbalance_ratio": None, "largest_class": None, "head_above": None, "tail_below": None}
    return recipe_of(dataset, "long-tail", **{**split, **changes})


def _profile(dataset: str, recipe: Recipe, arms: tuple[Arm, ...], needs: tuple[str, ...] = ()) -> Profile:
    return Profile(dataset=dataset, recipe=recipe, arms=arms, metrics=METRICS, primary="kNN@10", needs=needs)


def _reported(dataset: str, groups: str, overall: str = "1", dystress: bool = True) -> dict[str, tuple[PaperRow, ...]]:
    """Returns the rows of the paper's tables of a data set: overall accuracies and those of the groups of classes."""
    rows = {
        label: tuple(PaperRow("temperature-schedules", table, method, dataset) for table in (overall, groups))
        for label, method in ((BASELINE, "SimCLR"), ("schedule", "SimCLR + TS"))
    }
    return rows | ({"dystress": (PaperRow("dystress", "4", "DySTreSS", dataset),)} if dystress else {})


_SPLIT = {"imbalance_ratio": 100, "held_out": 5000}


def _cifar10() -> dict[str, Profile]:
    quick = _recipe(
        "digits",
        **{**QUICK, "optimizer": "adam", "learning_rate": 1e-3, "warmup_epochs": 0},
        imbalance_ratio=10,
        held_out=100,
        largest_class=100,
    )
    split = {**_SPLIT, "images": 50_000, "largest_class": 4500}
    small = _recipe(
        "cifar10",
        **{
            **SMALL,
            **split,
            "folder": "vision",
            "save_epochs": 1,
            "batch_size": 256,
            "optimizer": "adam",
            "learning_rate": 1e-3,
            "weight_decay": 1e-6,
            "warmup_epochs": 0,
        },
    )
    paper = _recipe("cifar10", **split)
    drawn = f"{sum(SIZES['cifar10']):,} training images in classes of 4,500 to 45"
    return {
        "quick": _profile("scikit-learn's digits, classes of 100 to 10", quick, _arms(quick, SIZES["digits"])),
        "small": _profile(
            f"CIFAR-10-LT of JPEG copies, whose accuracies lie below the original's: {drawn}",
            small,
            _arms(small, SIZES["cifar10"], periods=2),
            ("vision/cifar10_train_jpeg.npz", "vision/cifar10_test_jpeg.npz"),
        ),
        "paper": _profile(f"CIFAR-10-LT: {drawn}", paper, _arms(paper, SIZES["cifar10"], _reported("CIFAR-10-LT", "7"))),
    }


def _cifar100() -> Profile:
    recipe = _recipe("cifar100", **_SPLIT, images=50_000, largest_class=450)
    data = "CIFAR-100-LT: 9,754 training images in classes of 450 to 4"
    return _profile(data, recipe, _arms(recipe, reported=_reported("CIFAR-100-LT", "8")))


def _imagenet100() -> Profile:
    recipe = _recipe(
        "imagenet-100-lt/",
        images=12_205,
        head_above=100,
        tail_below=20,
        backbone="resnet50",
        stem="imagenet",
        image_size=224,
        load_size=256,
        # the crops, changes of colour and blur of this recipe; the paper's own has no name of its own
        augmentation="amcl-abcde",
        epochs=800,
        batch_size=256,
        workers=8,
    )
    data = (
        "ImageNet-100-LT: 12,205 training images in classes of 1,280 to 6, as SDCLR lists them, in the folder imagenet-100-lt"
    )
    reported = _reported("ImageNet-100-LT", "9", "3", dystress=False)
    return _profile(data, recipe, _arms(recipe, reported=reported, periods=2), ("imagenet-100-lt",))


def _task(name: str, summary: str, profiles: Mapping[str, Profile]) -> Task:
    return Task(
        name=name,
        summary=f"{summary}; trained without classes on few images of some of them, measured on as many of each",
        baseline=BASELINE,
        papers="long_tail",
        train=train_long_tail,
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
