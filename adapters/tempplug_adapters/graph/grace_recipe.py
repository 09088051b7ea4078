"""The settings of GRACE's training, and the options that a strategy gets where the flags do not give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tempplug.errors import ConfigError
from tempplug_adapters.training.seeds import check_seed


@dataclass(frozen=True, kw_only=True)
class GraceSettings:
    """How GRACE is trained. The defaults are the recipe of "Temperature-Free Loss Function for Contrastive Learning", table 3.

    That is PyGCL's example with 1,000 epochs; Zhu et al. 2020 train CiteSeer with hidden 256, prelu, learning rate 1e-3, weight
    decay 1e-5, 200 epochs, edges 0.2/0.0, features 0.3/0.2 and temperature 0.9.

    Attributes:
        epochs: at least 1.
        hidden: width of the representations, at least 1.
        projection: width inside the projection head, at least 1.
        layers: graph convolutions, at least 1.
        activation: of the encoder: relu, prelu or elu.
        learning_rate: of Adam, greater than 0.
        weight_decay: of the model, at least 0; strategies have none.
        edge_removal: probability that an edge is removed from view a and from view b, in [0, 1).
        feature_masking: probability that a column of the features is hidden in view a and in view b, in [0, 1).
        batch_size: nodes a step, at least 2; None contrasts all nodes of the graph at once.
        neighbours: with a batch size: how many neighbours of a node are followed a layer, at least 1.
        seed: from 0 to 2**63 - 1; everything random follows from it.

    Raises:
        ConfigError: a setting is out of range.
    """

    epochs: int = 1000
    hidden: int = 32
    projection: int = 32
    layers: int = 2
    activation: str = "relu"
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    edge_removal: tuple[float, float] = (0.3, 0.3)
    feature_masking: tuple[float, float] = (0.3, 0.3)
    batch_size: int | None = None
    neighbours: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        at_least = {"epochs": 1, "hidden": 1, "projection": 1, "layers": 1, "weight_decay": 0, "neighbours": 1}
        for name, bound in at_least.items():
            if not getattr(self, name) >= bound:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least {bound}.")
        check_seed("seed", self.seed)
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate={self.learning_rate} must be greater than 0.")
        if self.batch_size is not None and self.batch_size < 2:
            raise ConfigError(f"batch_size={self.batch_size} must be at least 2.")
        for name in ("edge_removal", "feature_masking"):
            if not all(0 <= share < 1 for share in getattr(self, name)):
                raise ConfigError(f"{name}={getattr(self, name)} must be two numbers, each at least 0 and less than 1.")


# 0.5 is the best of the four temperatures of table 3. No paper has the others on nodes: they keep their own shape and range
# around it (MACL's slope for graphs, DySTreSS's ratio of two between its ends), and the schedule goes from half to twice.
OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"temperature": 0.5},
    "learnable": {"initial_temperature": 0.5},
    "macl": {"base_temperature": 0.5, "alpha": 0.5, "threshold": 0.0},
    "dystress": {"temperature_min": 0.25, "temperature_max": 0.5},
    "schedule": {"temperature_min": 0.25, "temperature_max": 1.0},
    "uncertainty": {"base_temperature": 0.5},
    "individual": {"temperature_init": 0.5},
}


def known_options(strategy: str, epochs: int, nodes: int, dimension: int) -> dict[str, Any]:
    """Returns the options of a strategy that the recipe and the graph decide.

    Args:
        strategy: name of the strategy.
        epochs: of the training; a schedule's period is a fifth of them.
        nodes: of the graph: how many items a per-item strategy keeps.
        dimension: of the embeddings.
    """
    options = {"size": nodes, "dimension": dimension, **OPTIONS.get(strategy, {})}
    if strategy == "schedule":
        options["period"] = epochs / 5
    return options
