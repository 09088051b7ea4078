"""The suite ``recommendation``, declared in ``recommendation.toml``, and its generated users."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tempplug_adapters.recommendation.recipes import DCREC as METHOD, SASREC
from tempplug_benchmarks.run_method import RunContext, run_method
from tempplug_benchmarks.suite_file import make_suite, read_file

if TYPE_CHECKING:
    from tempplug_adapters.recommendation.interactions import Interactions
    from tempplug_adapters.recommendation.recipes import DCRecRecipe
    from tempplug_adapters.training.method import Source

VERSION = 1
"""Any change of the generated data must increment it; it is part of every result's identity."""
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
    return recipe, METHOD.load().load(recipe, replace(source, dataset=f"{source.data_dir}/recsys/ml-20m/ratings.csv"))


SUITE = make_suite(read_file("recommendation"), METHOD, generated_users, movielens, run_recommender, version=VERSION)
