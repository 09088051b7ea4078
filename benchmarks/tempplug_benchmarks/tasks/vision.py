"""The suite ``vision``: SimCLR with every temperature strategy, measured on the frozen backbone.

Declares tasks, recipes and arms; `vision_runs` executes them. Importing this loads no framework.

The baseline of CIFAR-10 is temperature 0.1 in all profiles, as in MACL: its paper alone prints recipe, temperatures, neighbours
and linear probe of NT-Xent beside DCL and MACL, each of which then changes one thing of the baseline. SimCLR's code has 0.5 for
CIFAR, Kukleva et al. have 0.2: both are arms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Arm, Metric, Profile, Recipe, Task
from tempplug_benchmarks.tasks.vision_papers import PAPERS, PaperProfile
from tempplug_benchmarks.tasks.vision_recipes import QUICK, SMALL, SMALL_IMAGES, recipe_of
from tempplug_benchmarks.tasks.vision_runs import RANDOM, train_images

METRICS = (
    Metric(name="kNN", summary="test accuracy in %, vote of the most similar training images, weights exp(similarity / 0.1)"),
    Metric(
        name="linear",
        summary="test accuracy in % of a linear classifier after its last epoch, on representations of plain training images",
    ),
    Metric(
        name="alignment",
        summary="mean squared distance of the representations of two views of a test image",
        higher_is_better=False,
        decimals=3,
    ),
    Metric(
        name="uniformity",
        summary="ln of the mean of exp(-2 ‖x - y‖²) over pairs of test images; lower is more spread",
        higher_is_better=False,
        decimals=3,
    ),
    Metric(name="tolerance", summary="mean cosine similarity of two test images of a class", decimals=3),
    Metric(
        name="interclass uniformity",
        summary="uniformity of the means of the classes; lower is further apart",
        higher_is_better=False,
        decimals=3,
    ),
)


def _arms(
    recipe: Recipe,
    *,
    baseline: float = 0.1,
    fixed: tuple[float, ...] = (0.1, 0.2, 0.5),
    threshold: float = 0,
    periods: int = 5,
    more: tuple[tuple[str, str, str], ...] = (),
    reported: Mapping[str, tuple[PaperRow, ...]] | None = None,
) -> tuple[Arm, ...]:
    """Returns the arms of a profile.

    Args:
        recipe: its settings; DySTreSS has a lower range for small images.
        baseline: the fixed temperature that others are compared with.
        fixed: all fixed temperatures, the baseline's among them.
        threshold: of MACL.
        periods: of a schedule.
        more: label, strategy and objective of further arms.
        reported: by label.
    """
    macl = f"macl:base_temperature=0.1,alpha=0.5,threshold={threshold:g}"
    period = float(recipe["epochs"] or 0) / periods
    lowest = 0.07 if int(recipe["image_size"] or 0) <= 64 else 0.1
    specs = (
        *((f"fixed-{value:g}", f"fixed:temperature={value:g}", "infonce") for value in fixed),
        ("macl", macl, "infonce"),
        ("macl-reweighted", macl, "reweighted"),
        ("dcl", f"fixed:temperature={baseline:g}", "dcl"),
        ("dystress", f"dystress:temperature_min={lowest:g},temperature_max=0.2", "infonce"),
        ("temperature-free", "temperature-free", "infonce"),
        ("schedule", f"schedule:temperature_min=0.1,temperature_max=1,period={period:g}", "infonce"),
        ("amcl", f"amcl:dimension={recipe['embedding_dimension']}", "dcl"),
        *more,
        (RANDOM, "fixed:temperature=1", "dcl"),
    )
    rows = reported or {}
    return tuple(Arm(label, strategy, objective, rows.get(label, ())) for label, strategy, objective in specs)


def _recipe(dataset: str, base: str, **changes: Any) -> Recipe:
    """Returns the settings of a profile, those of the evaluation among them."""
    return recipe_of(dataset, base, **{"labelled": dataset, "neighbours": 200, "probe": "lightly", **changes})


def _profile(dataset: str, recipe: Recipe, arms: tuple[Arm, ...], needs: tuple[str, ...] = ()) -> Profile:
    return Profile(dataset=dataset, recipe=recipe, arms=arms, metrics=METRICS, primary="kNN", needs=needs)


def _paper(each: PaperProfile) -> Profile:
    recipe = _recipe(each.dataset, each.base, **{"images": each.images, **each.changes})
    return _profile(f"{each.dataset}, all of it ({each.summary})", recipe, _arms(recipe, **each.arms, reported=each.reported))


def _reduced() -> dict[str, Profile]:
    """Returns the profiles quick and small of CIFAR-10."""
    quick = _recipe("digits", "macl-cifar", **{**QUICK, "images": 512, "drawn": 512, "neighbours": 20})
    small = _recipe(
        "cifar10",
        "macl-cifar",
        **{
            **SMALL,
            "folder": "vision",
            "images": SMALL_IMAGES,
            "drawn": SMALL_IMAGES,
            "save_epochs": 1,
            "probe": "macl-cifar10",
        },
    )
    return {
        "quick": _profile("scikit-learn's digits: 512 to train on, 360 to test on, 8 x 8", quick, _arms(quick)),
        "small": _profile(
            f"CIFAR-10 as JPEG copies, whose accuracies lie below the original's: {SMALL_IMAGES:,} training images, the same "
            "in every run, and all 10,000 test images",
            small,
            _arms(small, periods=2),
            ("vision/cifar10_train_jpeg.npz", "vision/cifar10_test_jpeg.npz"),
        ),
    }


SUITE = Suite(
    "vision",
    "SimCLR image representations, measured by neighbours and a linear classifier",
    tuple(
        Task(
            name=each.task,
            summary=f"{each.summary}; two views of an image are a positive pair, all other views of the batch negatives",
            baseline=each.baseline,
            papers="vision",
            train=train_images,
            profiles={**(_reduced() if each.task == "cifar10" else {}), "paper": _paper(each)},
        )
        for each in PAPERS
    ),
)
