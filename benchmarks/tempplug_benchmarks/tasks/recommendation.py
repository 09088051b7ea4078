"""The suite ``recommendation``: DCRec with every temperature strategy, its transformer alone, and the most popular items.

An arm without a strategy is the transformer alone (``sasrec``), trained with the settings that it shares with DCRec. The score
of the most popular items is a metric of every run. Of our data sets the paper only has MovieLens-20M, without its preparation;
here every rating is an interaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tempplug_adapters.recommendation.dcrec_recipe import METHOD
from tempplug_adapters.recommendation.recipe import METHOD as SASREC, RANKINGS
from tempplug_benchmarks.arm import UNTRAINED, Arm, arms, fixed
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.resources import GPU
from tempplug_benchmarks.run_method import RunContext, run_method
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task

if TYPE_CHECKING:
    from tempplug_adapters.recommendation.dcrec_recipe import DCRecRecipe
    from tempplug_adapters.recommendation.interactions import Interactions
    from tempplug_adapters.training.method import Source

BASELINE = "fixed:temperature=0.8+infonce"
_AMONG = {"full": "all items but those of the history", "sampled": "100 items drawn by popularity, as DCRec samples them"}
METRICS = (
    *(
        Metric(
            name=f"{kind.upper()}@{k} {ranking}",
            figure=f"{kind}@{k} {ranking}",
            summary=f"× 100 of the test target among {_AMONG[ranking]}",
            smallest_difference=0.1,
        )
        for ranking in RANKINGS
        for kind in ("hr", "ndcg")
        for k in (1, 5, 10)
    ),
    *(
        Metric(
            name=f"popularity {kind.upper()}@10 {ranking}",
            figure=f"popularity {kind}@10 {ranking}",
            summary=f"{kind.upper()}@10 × 100 of the most popular items among {_AMONG[ranking]}, equal for all arms",
        )
        for ranking in RANKINGS
        for kind in ("hr", "ndcg")
    ),
    Metric(
        name="validation",
        figure="validation ndcg@10",
        summary=f"NDCG@10 × 100 of the targets held out to validate, among {_AMONG[RANKINGS[0]]}",
    ),
)
_ARMS = (
    *(*fixed("infonce", 0.2, 0.4, 0.8, 1.6), "temperature-free+infonce"),
    *("macl+reweighted", "macl+infonce", "dystress+infonce"),
)
_REPORTED = {
    BASELINE: (PaperRow("temperature-free", "6", "Baseline", "MovieLens-20M"),),
    "temperature-free+infonce": (PaperRow("temperature-free", "6", "Ours", "MovieLens-20M"),),
}
_RATINGS = "recsys/ml-20m/ratings.csv"


VERSION = 1
"""Grows with every change of what is generated, so that results of different data are kept apart."""
_USERS, _ITEMS = 400, 60


def generated_users(recipe: DCRecRecipe, source: Source) -> tuple[DCRecRecipe, Interactions]:
    """Returns the recipe and the users, which are the same for every seed."""
    import numpy as np

    from tempplug_adapters.recommendation.interactions import Interactions

    chance = np.random.default_rng(0)
    sequences = []
    for _ in range(_USERS):
        steps = chance.choice([1, 1, 1, 2], size=chance.integers(2, 8))
        sequences.append((chance.integers(_ITEMS) + np.concatenate([[0], np.cumsum(steps)])) % _ITEMS + 1)
    return recipe, Interactions(sequences, _ITEMS, recipe.max_length, recipe.validation_share)


def run_recommender(context: RunContext) -> dict[str, float]:
    """Trains DCRec, or only the transformer for an arm without a strategy, and returns the metrics."""
    if context.strategy is None:
        kinds = SASREC.recipe().kinds()
        shared = {name: value for name, value in context.recipe.values().items() if name in kinds}
        context = replace(context, method=SASREC, recipe=SASREC.recipe(**shared))
    return run_method(context)


def movielens(recipe: DCRecRecipe, source: Source) -> tuple[DCRecRecipe, Interactions]:
    """Returns the recipe and MovieLens-20M, which the user must download."""
    return recipe, METHOD.load().load(recipe, replace(source, dataset=f"{source.data_dir}/{_RATINGS}"))


def _profile(dataset: str, source: str = "", *, reported: Mapping[str, Any] | None = None, **more: Any) -> Profile:
    fields = {name: more.pop(name) for name in ("load", "needs", "stands_in") if name in more}
    return Profile(
        dataset=dataset,
        source=source,
        recipe=METHOD.recipe(rankings=RANKINGS, **more),
        arms=(
            *arms(*_ARMS, reported=reported),
            Arm("sasrec", changes={"contrastive_weight": 0.0, "divergence_weight": 0.0}),
            UNTRAINED,
        ),
        metrics=METRICS,
        primary="NDCG@10 full",
        validation="validation",
        **fields,
    )


def _real(name: str, size: str, **changes: Any) -> Profile:
    return _profile(f"{name} ({size}), in DCRec's split", name, needs=(f"recsys/{name}.tar.xz",), **changes)


_QUICK = _profile(
    f"generated users on a ring of items, version {VERSION}",
    load=generated_users,
    stands_in="generated users",
    num_train_epochs=5,
    per_device_train_batch_size=128,
    learning_rate=0.02,
    hidden=16,
    inner=32,
)
_REDDIT = "14,486 users, 15,416 items"
_SMALL = _real("reddit", _REDDIT, num_train_epochs=2, max_length=20)
_BEAUTY = "56,848 users, 41,532 items"


def _task(name: str, summary: str, profiles: dict[str, Profile], **more: Any) -> Task:
    shared: dict[str, Any] = {"method": METHOD, "baseline": BASELINE, "train": run_recommender, "resources": {"paper": GPU}}
    return Task(name=name, summary=summary, profiles=profiles, **shared, **more)


_OWN = _profile(
    "MovieLens-20M (the user's own ratings.csv), every rating an interaction, the newest 51 of a user",
    load=movielens,
    needs=(_RATINGS,),
    reported=_REPORTED,
    columns=("userId", "movieId", "timestamp"),
)
SUITE = Suite(
    "recommendation",
    "DCRec sequential recommendation, the next item ranked among all or sampled items",
    (
        _task(
            "reddit",
            "the community that a user goes to next",
            {"quick": _QUICK, "small": _SMALL, "paper": _real("reddit", _REDDIT)},
        ),
        _task(
            "beauty",
            "the product that a user reviews next",
            {"small": _real("beauty", _BEAUTY, num_train_epochs=1, max_length=20), "paper": _real("beauty", _BEAUTY)},
        ),
        _task(
            "ml-20m",
            "the film that a user rates next; the smaller profiles are those of reddit",
            {"quick": _QUICK, "small": replace(_SMALL, stands_in="reddit"), "paper": _OWN},
            papers="recommendation",
            by_name=("quick", "small"),
        ),
    ),
)
