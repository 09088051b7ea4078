"""What this package registers."""

from __future__ import annotations

from tempplug.plugins import StrategyInfo, hookimpl


@hookimpl
def tempplug_register_strategies() -> list[StrategyInfo]:
    """Returns the declaration of the strategy."""
    target, summary = "tempplug_target_probability.strategy:TargetProbability", "keeps the mean probability of the positives"
    return [StrategyInfo(name="target-probability", target=target, summary=summary)]
