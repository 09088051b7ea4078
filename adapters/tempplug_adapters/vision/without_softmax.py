"""SimSiam and Barlow Twins have no softmax, so no temperature but AMCL's, which has a form for each of them."""

from __future__ import annotations

from tempplug import create_strategy
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError
from tempplug.strategies.amcl import AMCL


def amcl_or_none(method: str, strategy: object) -> AMCL | None:
    """Returns the strategy of a method without a softmax, None where none was given.

    Args:
        method: for the message.
        strategy: spec string, instance or None.

    Raises:
        ConfigError: it is something else than ``amcl``, or an option of that is not allowed.
    """
    if strategy is None or isinstance(strategy, AMCL):
        return strategy
    name = parse_spec(strategy)[0] if isinstance(strategy, str) else getattr(strategy, "name", type(strategy).__name__)
    if name == "amcl" and isinstance(strategy, str):
        created = create_strategy(strategy)
        if isinstance(created, AMCL):
            return created
    raise ConfigError(
        f"strategy '{name}' does not apply: {method} has no softmax to put a temperature in. Only 'amcl' has a form for it: "
        "pass strategy='amcl:dimension=…', or leave the strategy out."
    )
