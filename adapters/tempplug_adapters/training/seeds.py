"""Which numbers are seeds. It must not know what is drawn."""

from __future__ import annotations

from typing import Final

from tempplug.errors import ConfigError

HIGHEST_SEED: Final = 2**63 - 1
"""The largest that every generator of PyTorch takes."""


def check_seed(name: str, value: int) -> None:
    """Makes sure that a number is a seed.

    Args:
        name: of the argument, for the message.
        value: what should be from 0 to `HIGHEST_SEED`.

    Raises:
        ConfigError: it is not.
    """
    if not 0 <= value <= HIGHEST_SEED:
        raise ConfigError(f"{name}={value} must be from 0 to {HIGHEST_SEED} (2**63 - 1).")
