"""What the papers set for GraphCL on the TU data sets, as data: training, augmentations, and options of the strategies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tempplug.errors import ConfigError
from tempplug_adapters.training.seeds import check_seed

OBJECTIVE = "dcl"
"""GraphCL's code leaves the positive out of the denominator."""

# You et al. 2020 train with 0.2, Huang et al. 2023 (MACL), appendix B.5, around it. No paper has the others for graphs: they
# stand around 0.2 as their own papers' ranges stand around the fixed temperature of their baselines.
OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"temperature": 0.2},
    "learnable": {"initial_temperature": 0.2},
    "macl": {"base_temperature": 0.2, "alpha": 0.5, "threshold": 0.0},
    "dystress": {"temperature_min": 0.1, "temperature_max": 0.2},
    "schedule": {"temperature_min": 0.1, "temperature_max": 0.4},
    "uncertainty": {"base_temperature": 0.2},
    "individual": {"temperature_init": 0.2},
}

MOLECULES = ("drop-nodes", "neighbourhood")
SOCIAL = ("drop-nodes", "neighbourhood", "drop-edges")
PROTEINS = ("drop-nodes", "neighbourhood", "drop-edges", "mask-attributes")
# The pools of the authors' code (random2, random3, random4), chosen by the findings of their section 4.2: edges are left
# alone in molecules, attributes are masked only where there are some.
AUGMENTATIONS: dict[str, tuple[str, ...]] = {
    "MUTAG": MOLECULES,
    "NCI1": MOLECULES,
    "PROTEINS": PROTEINS,
    "DD": PROTEINS,
    "IMDB-BINARY": SOCIAL,
    "REDDIT-BINARY": SOCIAL,
}


def known_options(strategy: str, epochs: int, graphs: int, dimension: int) -> dict[str, Any]:
    """Returns the options of a strategy that the recipe and the data decide.

    Args:
        strategy: name of the strategy.
        epochs: of the training; a schedule's period is a fifth of them.
        graphs: in the data set: how many items a per-item strategy keeps.
        dimension: of the embeddings.
    """
    options = {"size": graphs, "dimension": dimension, **OPTIONS.get(strategy, {})}
    if strategy == "schedule":
        options["period"] = epochs / 5
    return options


def augmentations_for(dataset: str) -> tuple[str, ...]:
    """Returns the pool for a data set; one that GraphCL's authors did not use is treated like a social network."""
    return AUGMENTATIONS.get(dataset, SOCIAL)


@dataclass(frozen=True, kw_only=True)
class GraphCLSettings:
    """How GraphCL is trained; the defaults are those of its code for the TU data sets.

    Args:
        epochs: at least 1.
        batch_size: graphs a step, at least 2.
        learning_rate: of Adam, greater than 0.
        hidden: width of the encoder's layers, at least 1.
        layers: of the encoder, at least 1.
        augmentations: names of `tempplug_adapters.graph.augmentation.AUGMENTATIONS`; one is drawn for each graph and step.
        seed: from 0 to 2**63 - 1; everything random follows from it.

    Raises:
        ConfigError: a number is out of range.
    """

    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 0.01
    hidden: int = 32
    layers: int = 3
    augmentations: tuple[str, ...] = SOCIAL
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("epochs", 1), ("batch_size", 2), ("hidden", 1), ("layers", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least {low}.")
        check_seed("seed", self.seed)
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate={self.learning_rate} must be greater than 0.")

    def values(self) -> dict[str, Any]:
        """Returns the settings as plain numbers and words."""
        return {**asdict(self), "augmentations": " ".join(self.augmentations)}
