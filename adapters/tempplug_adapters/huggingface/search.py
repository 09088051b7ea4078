"""A strategy's search space beside that of the Trainer's arguments, for `transformers.Trainer.hyperparameter_search`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tempplug


def joint_space(
    space: tempplug.SearchSpace, hp_space: Callable[[Any], dict[str, Any]] | None = None
) -> Callable[[Any], dict[str, Any]]:
    """Returns the ``hp_space`` of a Trainer that searches a strategy too.

    Optuna's trials are asked for the strategy's parameters, which stay with the trial; Ray Tune gets their distributions.

    Args:
        space: of the strategy.
        hp_space: of the Trainer's arguments, if they are searched.
    """

    def joint(trial: Any) -> dict[str, Any]:
        found = {} if hp_space is None else dict(hp_space(trial))
        if trial is not None:
            space.suggest(trial)
            return found
        from ray import tune  # the Trainer asks without a trial for Ray alone

        return {**found, **space.ray(tune)}

    return joint
