"""What the papers set for molecules, as data: pre-training, fine-tuning, and options of the strategies."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tempplug.errors import ConfigError
from tempplug_adapters.training.seeds import check_seed

LAYOUT = "cross-view"
"""From the first view of a molecule to the second views of all, one way."""

# GraphCL's code leaves the positive out of the denominator. Then the loss falls without end as a temperature falls, so that one
# that is learned by gradient keeps the positive in.
OBJECTIVE = "dcl"
OBJECTIVES = {"learnable": "infonce"}
"""The objective of a strategy where the flags give none; `OBJECTIVE` for the others."""

# GraphCL's code for molecules trains with 0.1; Huang et al. 2023 (MACL), appendix B.5, around it. No paper has the others for
# molecules: they stand around 0.1 as their own papers' ranges stand around the fixed temperature of their baselines.
OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"temperature": 0.1},
    "learnable": {"initial_temperature": 0.1},
    "macl": {"base_temperature": 0.1, "alpha": 0.5, "threshold": 0.0},
    "dystress": {"temperature_min": 0.05, "temperature_max": 0.1},
    "schedule": {"temperature_min": 0.05, "temperature_max": 0.2},
    "uncertainty": {"base_temperature": 0.1},
    "individual": {"temperature_init": 0.1},
}


def known_options(strategy: str, epochs: int, molecules: int, dimension: int) -> dict[str, Any]:
    """Returns the options of a strategy that the recipe and the data decide.

    Args:
        strategy: name of the strategy.
        epochs: of the pre-training; a schedule's period is a fifth of them.
        molecules: that are pre-trained on: how many items a per-item strategy keeps.
        dimension: of the embeddings.
    """
    options = {"size": molecules, "dimension": dimension, **OPTIONS.get(strategy, {})}
    if strategy == "schedule":
        options["period"] = epochs / 5
    return options


def _setting(default: float, low: float | None, text: str, below: float | None = None) -> Any:
    return field(default=default, metadata={"help": text, "low": low, "below": below})


@dataclass(frozen=True, kw_only=True)
class MoleculeSettings:
    """How molecules are pre-trained on and fine-tuned; the defaults are those of GraphCL's code, which MACL follows.

    Each field's metadata hold its bounds and the help of its flag.

    Attributes:
        layers: of the encoder.
        width: of the encoder.
        pretrain_epochs: 0 trains from scratch; the papers take the encoder after 80.
        pretrain_batch_size: molecules a step, each other's negatives.
        pretrain_learning_rate: of Adam.
        view_ratio: fraction of the atoms that a view loses.
        finetune_epochs: of every data set.
        finetune_batch_size: molecules a step.
        finetune_learning_rate: of Adam.
        dropout: after each layer, while fine-tuning.
        bf16: trains with bfloat16 products, two to three times as fast where the processor has them; figures are measured
            without.
        seed: from 0 to 2**63 - 1; everything random follows from it.

    Raises:
        ConfigError: a setting is out of range.

    Source: You et al. 2020 (GraphCL), section 5 and code; Hu et al. 2020, section 5.1 and code.
    """

    layers: int = _setting(5, 1, "layers of the encoder")
    width: int = _setting(300, 1, "width of the encoder")
    pretrain_epochs: int = _setting(80, 0, "epochs of pre-training; 0 trains from scratch")
    pretrain_batch_size: int = _setting(256, 2, "molecules a step of pre-training")
    pretrain_learning_rate: float = _setting(1e-3, 0, "of Adam, while pre-training")
    view_ratio: float = _setting(0.2, 0, "fraction of the atoms that a view loses", below=1)
    finetune_epochs: int = _setting(100, 0, "epochs of fine-tuning, for every data set")
    finetune_batch_size: int = _setting(32, 2, "molecules a step of fine-tuning")
    finetune_learning_rate: float = _setting(1e-3, 0, "of Adam, while fine-tuning")
    dropout: float = _setting(0.5, 0, "after each layer, while fine-tuning", below=1)
    bf16: bool = _setting(False, None, "train with bfloat16 products")
    seed: int = _setting(0, None, "everything random follows from it")

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)
        for name, each in self.__dataclass_fields__.items():
            value, low, below = getattr(self, name), each.metadata["low"], each.metadata["below"]
            if low is not None and not value >= low:
                raise ConfigError(f"{name}={value} must be at least {low}.")
            if below is not None and not value < below:
                raise ConfigError(f"{name}={value} must be less than {below}.")

    def pretraining(self) -> dict[str, Any]:
        """Returns what a pre-trained encoder depends on."""
        common = ("layers", "width", "view_ratio", "bf16", "seed")
        return {name: value for name, value in asdict(self).items() if name.startswith("pretrain_") or name in common}
