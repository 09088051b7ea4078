"""What the papers set for SimCSE: options that a strategy gets where the flags do not give them."""

from __future__ import annotations

from typing import Any

# Gao et al. 2021 train with 0.05; MACL's and DySTreSS's own SimCSE settings are Huang et al. 2023, appendix B.4, and
# DySTreSS, section 4. No paper has a schedule for sentences: ours goes from half to twice SimCSE's temperature.
OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"temperature": 0.05},
    "learnable": {"initial_temperature": 0.05},
    "macl": {"base_temperature": 0.05, "alpha": 2.0, "threshold": 0.8},
    "dystress": {"temperature_min": 0.03, "temperature_max": 0.05},
    "schedule": {"temperature_min": 0.025, "temperature_max": 0.1},
    "uncertainty": {"base_temperature": 0.05},
}


def known_options(strategy: str, epochs: float) -> dict[str, Any]:
    """Returns the options of the recipe for a strategy.

    Args:
        strategy: name of the strategy.
        epochs: of the training; a schedule's period is a fifth of them.
    """
    options = dict(OPTIONS.get(strategy, {}))
    if strategy == "schedule":
        options["period"] = epochs / 5
    return options
