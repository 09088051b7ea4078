"""Generated users for profile ``quick`` of the suite ``recommendation``: walks along a ring of items in steps of 1 or 2.

Any change of the generated data must increment `VERSION`, which is part of every result's identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tempplug_adapters.recommendation.dcrec_recipe import DCRecRecipe
    from tempplug_adapters.recommendation.interactions import Interactions
    from tempplug_adapters.training.method import Source

VERSION = 1
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
