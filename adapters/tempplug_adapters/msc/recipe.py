"""What the papers set for MSC, as data: training, and options of the strategies where the flags give none."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from tempplug.errors import ConfigError
from tempplug_adapters.msc.blocks import blocks_of
from tempplug_adapters.training.seeds import check_seed

# Reiss & Hoshen 2023 train with 0.25, Kim & Kim 2025 (temperature-free) with 0.1 to 1 around it. No paper has the others for
# MSC: they stand around 0.25 as their own papers' ranges stand around the fixed temperature of their baselines.
OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"temperature": 0.25},
    "learnable": {"initial_temperature": 0.25},
    "macl": {"base_temperature": 0.25, "alpha": 0.5, "threshold": 0.0},
    "dystress": {"temperature_min": 0.125, "temperature_max": 0.25},
    "schedule": {"temperature_min": 0.125, "temperature_max": 0.5},
    "individual": {"temperature_init": 0.25},
}

_STEM_AND_TWO_STAGES = ("conv1", "bn1", "layer1", "layer2")
AUGMENTATION = "msc"
OPTIMIZERS = ("sgd", "adamw")


@dataclass(frozen=True, kw_only=True)
class MSCSettings:
    """How MSC is trained; the defaults are those of Kim & Kim 2025 for CIFAR-10 with a ResNet-152.

    Args:
        epochs: at least 1.
        batch_size: images a step, at least 2.
        optimizer: one of `OPTIMIZERS`.
        learning_rate: finite, greater than 0.
        momentum: of ``sgd``, in [0, 1).
        weight_decay: finite, at least 0; temperatures are spared.
        image_size: pixels of each side of what the network sees, at least 1.
        frozen_blocks: how many of the network's first blocks are left as they are, see `tempplug_adapters.msc.blocks`; None
            takes `default_frozen_blocks`.
        angular: add the angular loss.
        neighbours: how many nearest normal images an anomaly score is made of, at least 1.
        bf16: train in bfloat16 where autocast allows; representations for scores are always in float32.
        train_images: how many normal images to train on at most; None takes all.
        test_images: how many images to test on at most; None takes all.
        seed: from 0 to 2**63 - 1; everything random follows from it.

    Raises:
        ConfigError: a setting is out of range.
    """

    epochs: int = 25
    batch_size: int = 32
    optimizer: str = "sgd"
    learning_rate: float = 1e-5
    momentum: float = 0.0
    weight_decay: float = 5e-5
    image_size: int = 224
    frozen_blocks: int | None = None
    angular: bool = False
    neighbours: int = 2
    bf16: bool = False
    train_images: int | None = None
    test_images: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        lowest = (("epochs", 1), ("batch_size", 2), ("image_size", 1), ("neighbours", 1), ("weight_decay", 0))
        for name, low in lowest:
            if not getattr(self, name) >= low:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least {low}.")
        check_seed("seed", self.seed)
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate={self.learning_rate} must be greater than 0.")
        for name in ("learning_rate", "weight_decay"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"{name}={getattr(self, name)} must be finite.")
        if self.optimizer not in OPTIMIZERS:
            raise ConfigError(f"optimizer='{self.optimizer}' must be one of {', '.join(OPTIMIZERS)}.")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum={self.momentum} must be in [0, 1).")
        if self.momentum and self.optimizer != "sgd":
            raise ConfigError(f"momentum={self.momentum} is of optimizer 'sgd', not of '{self.optimizer}'.")

    def values(self) -> dict[str, Any]:
        """Returns the settings by name."""
        return asdict(self)


RECIPES: dict[str, MSCSettings] = {
    "paper": MSCSettings(),
    "cpu": MSCSettings(epochs=2, learning_rate=3e-4, image_size=128, frozen_blocks=11, train_images=1000, test_images=1000),
}
"""By name. ``cpu`` is for MobileNetV2: a run of about two minutes on one core."""


def known_options(strategy: str, epochs: int, images: int, dimension: int) -> dict[str, Any]:
    """Returns the options of a strategy that the recipe and the data decide.

    Args:
        strategy: name of the strategy.
        epochs: of the training; a schedule's period is a fifth of them.
        images: that are trained on: how many items a per-item strategy keeps.
        dimension: of the representations.
    """
    options = {"size": images, "dimension": dimension, **OPTIONS.get(strategy, {})}
    if strategy == "schedule":
        options["period"] = epochs / 5
    return options


def default_frozen_blocks(network: nn.Module) -> int:
    """Returns how many blocks the paper freezes: those up to an eighth of the image's side; 0 for a network it says nothing of.

    The authors freeze a ResNet's stem and its first two stages. MobileNetV2's layers of the same resolutions are its first six
    blocks.

    Args:
        network: a ResNet of transformers, or one with the names of torchvision's and timm's (``conv1``, ``bn1``, ``layer1``,
            ``layer2``); a MobileNetV2 of transformers; or any other.
    """
    config: Any = getattr(network, "config", None)
    kind = getattr(config, "model_type", None)
    if kind == "resnet":
        return 1 + sum(int(blocks) for blocks in config.depths[:2])
    if kind == "mobilenet_v2":
        return 6
    parts = [getattr(network, name, None) for name in _STEM_AND_TWO_STAGES]
    early = {id(inner) for part in parts if isinstance(part, nn.Module) for inner in part.modules()}
    return sum(id(block) in early for block in blocks_of(network)) if all(isinstance(part, nn.Module) for part in parts) else 0
