"""One run of the suite ``long-tail``: draws a long-tailed part of a data set, trains on it, measures head, middle and tail.

Its seed is that of the split too: a paper's splits are seeds. It must not know how arms are compared. Importing this loads no
framework.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tempplug.arguments import parse_spec
from tempplug.errors import DataError
from tempplug_benchmarks.task import RunContext
from tempplug_benchmarks.tasks.vision_runs import load_size, read_images, represented, train_backbone

if TYPE_CHECKING:
    from tempplug_adapters.images.image_set import ImageSet

SCORES = {"kNN@1": "knn@1", "kNN@10": "knn@10", "FS LP": "few-shot", "LT LP": "long-tail"}
"""What a metric's evaluation is called in `tempplug_adapters.vision.evaluation.long_tail`."""
GROUPS = {"head": "head", "mid": "middle", "tail": "tail"}
GROUPED = ("kNN@1", "kNN@10")
"""Metrics that are also given for each of the groups."""


def train_long_tail(context: RunContext) -> dict[str, float]:
    """Trains on a long-tailed set without its classes and returns how well neighbours and linear machines tell them apart."""
    from tempplug_adapters.vision.evaluation.long_tail import long_tail_evaluation

    recipe: dict[str, Any] = dict(context.recipe)
    size = load_size(recipe)
    images = long_tailed(read_images(recipe["dataset"], "train", context, size=size, wanted=recipe["images"]), context)
    test = read_images(recipe["dataset"], "test", context, size=size)
    if images.labels is None or test.labels is None:
        raise DataError(f"the sets '{images.name}' and '{test.name}' must both have labels to be measured with.")
    backbone = train_backbone(replace(context, arm=replace(context.arm, strategy=strategy_of(context, images))), images)
    scores = long_tail_evaluation(
        represented(backbone, images, context, (0, 0.3)),
        images.labels,
        represented(backbone, test, context, (0.3, 0.6)),
        test.labels,
        head_above=recipe["head_above"],
        tail_below=recipe["tail_below"],
    )
    found = {metric: scores[name].overall for metric, name in SCORES.items()}
    for metric in GROUPED:
        found |= {f"{metric} {group}": getattr(scores[SCORES[metric]], name) for group, name in GROUPS.items()}
    return found


def long_tailed(images: ImageSet, context: RunContext) -> ImageSet:
    """Returns the long-tailed part of a balanced set that the seed draws, or the set where it is one already.

    Args:
        images: the whole training set.
        context: of the run. With an ``imbalance_ratio``, the recipe's ``held_out`` images are taken away first, as many of each
            class, and the largest class then keeps ``largest_class``.
    """
    from tempplug_adapters.images.long_tail import hold_out, long_tail_indices

    recipe: dict[str, Any] = dict(context.recipe)
    if recipe["imbalance_ratio"] is None:
        return images
    if images.labels is None:
        raise DataError(f"the set '{images.name}' has no labels, so it has no long tail.")
    kept, _ = hold_out(images.labels, recipe["held_out"], context.seed)
    drawn = long_tail_indices(images.labels[kept], recipe["imbalance_ratio"], recipe["largest_class"], context.seed)
    return images.subset(kept[drawn])


def strategy_of(context: RunContext, images: ImageSet) -> str:
    """Returns the arm's strategy, the class counts of ``head-tail`` in the order that the classes have in this split.

    An arm holds one spec for all seeds, so its counts are from the largest to the smallest; which class is how large, the seed
    draws.

    Args:
        context: of the run.
        images: that are trained on.

    Raises:
        DataError: they have other counts.
    """
    from tempplug import create_strategy

    name, options = parse_spec(context.arm.strategy)
    if name != "head-tail" or images.labels is None:
        return context.arm.strategy
    counts = images.labels.bincount(minlength=len(images.classes)).tolist()
    if sorted(counts) != sorted(options["class_counts"]):
        raise DataError(
            f"class_counts={options['class_counts']} of strategy 'head-tail' are not those of the set '{images.name}', "
            f"{counts}: name the counts of this profile, in any order."
        )
    return create_strategy(name, **{**options, "class_counts": counts}).spec()
