"""What `TemperatureRankingLoss` refuses: settings that contradict each other, and training without a Trainer of ours."""

from __future__ import annotations

from tempplug import ContrastiveLoss, NegativeTerm, Strategy
from tempplug.call.scores import refuse_cosines_only
from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.parameters import trainable


def refuse(argument: str, value: object, wrong: bool, wanted: str) -> None:
    """Raises ConfigError if a value is wrong."""
    if wrong:
        raise ConfigError(f"{argument}={value!r} {wanted}.")


def refuse_cosines(loss: ContrastiveLoss, given: str) -> None:
    """Raises ConfigError if a part of the loss is for cosines alone, where a setting gives scores."""
    try:
        refuse_cosines_only(loss.parts)
    except ConfigError as error:
        raise ConfigError(f"{given}: {error}") from error


def managed_parts(loss: ContrastiveLoss) -> list[str]:
    """Returns what of a loss a Trainer must manage, in words."""
    strategy = loss.strategy
    does = [
        ("learns", bool(trainable(strategy))),
        ("counts", type(strategy).observe is not Strategy.observe),
        ("follows a schedule", type(strategy).set_progress is not Strategy.set_progress),
    ]
    reasons = " and ".join(verb for verb, true in does if true)
    parts = [f"strategy '{strategy.name}' {reasons}"] if reasons else []
    if trainable(loss.objective):
        parts.append(f"objective '{loss.objective.name}' learns")
    counting = (each for each in loss.terms if type(each).observe is not NegativeTerm.observe)
    return parts + [f"negative term '{each.name}' counts" for each in counting]
