"""The settings of a method as published in papers: values with their ranges, temperatures and objectives.

A field of a recipe defines a check, a flag with its help, and an entry of the run's record. Settings that also exist in
`transformers.TrainingArguments` have the same names and meanings. This module does not need torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from tempplug.arguments import parse_spec
from tempplug.errors import UnknownNameError, listed, nearest
from tempplug.options import Choice, Flag, Kind, Number, Text, Words, options_of
from tempplug_adapters.contexts import Temperatures

if TYPE_CHECKING:
    from tempplug.types import LayoutName

HIGHEST_SEED = 2**32 - 1
"""Largest seed of NumPy's generator, which the Trainer seeds."""
OPTIMIZERS = ("adam", "adamw", "sgd", "lars")
SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")
# Settings with defaults that other recipes change.
Optimizer = Annotated[str, Choice(OPTIMIZERS, help="optimizer of the weights; --optim names one of transformers' instead")]
Schedule = Annotated[str, Choice(SCHEDULES, help="of the learning rate, after the warm-up")]
GradientNorm = Annotated[float, Number(at_least=0, help="norm to which gradients are clipped; 0: no clipping")]
ImageColumns = Annotated[
    tuple[str, ...],
    Words(help="of a table of images: role=column, role one of image, label, split, id; none: by their usual names"),
]
OwnModel = Annotated[
    str | None,
    Text(optional=True, help="MODULE:NAME[:key=value,...] that makes the model of model, the pretrained one, or config"),
]
DropLast = Annotated[bool, Flag(help="leave out an incomplete last batch of an epoch")]
LastBatchNorm = Annotated[
    bool | None,
    Flag(optional=True, help="end the projection head with batch normalisation, which centres embeddings; none: the paper's"),
]
TRAINING = (
    "num_train_epochs",
    "per_device_train_batch_size",
    "learning_rate",
    "weight_decay",
    "warmup_steps",
    "lr_scheduler_type",
    "max_grad_norm",
    "dataloader_drop_last",
    "bf16",
    "seed",
)
"""Settings that exist in `transformers.TrainingArguments` under the same name."""


def integer(help: str = "", at_least: int = 1) -> Number:
    """Returns a setting that is an integer."""
    return Number(at_least=at_least, integer=True, help=help)


def integer_or_none(help: str, at_least: int = 1) -> Number:
    """Returns a setting that is an integer, or None."""
    return Number(at_least=at_least, integer=True, optional=True, help=help)


def around(temperature: float, **own: Mapping[str, Any]) -> Temperatures:
    """Returns options of every strategy relative to a method's fixed temperature, in the proportions of their papers.

    DySTreSS's range ends at this temperature and has a ratio of two; schedules and TempNet go from half to twice of it; MACL
    has its slope and threshold for images and graphs.

    Args:
        temperature: fixed temperature of the method's paper, greater than 0.
        **own: options by strategy, for strategies with published values for this method.

    >>> around(0.2)["dystress"]
    {'temperature_min': 0.1, 'temperature_max': 0.2}
    >>> around(0.05)["mm-ts"]["amplitude"]  # ten digits, without the rounding error of 0.8 * 0.05
    0.04
    """
    half, twice, most = (float(f"{share * temperature:.10g}") for share in (0.5, 2, 0.8))
    return {
        "fixed": {"temperature": temperature},
        "learnable": {"initial_temperature": temperature},
        "macl": {"base_temperature": temperature, "alpha": 0.5, "threshold": 0.0},
        "dystress": {"temperature_min": half, "temperature_max": temperature},
        "schedule": {"temperature_min": half, "temperature_max": twice},
        "uncertainty": {"base_temperature": temperature},
        "tempnet": {"temperature_min": half, "temperature_max": twice},
        # proportions of the paper's example, whose fixed temperature is taken to be 0.1
        "mm-ts": {"temperature_min": half, "temperature_max": twice, "amplitude": most},
        # iSogCLR's lowest temperature, or half of the method's if that is lower, so that it can decrease
        "individual": {"temperature_init": temperature, "temperature_min": min(0.05, half)},
        **own,
    }


@dataclass(frozen=True, kw_only=True)
class LossRecipe:
    """Defaults of the loss for flags that are not given.

    Attributes:
        layout: layout of the loss.
        strategy: default spec string.
        temperatures: options by strategy, see `around`; other strategies have their own defaults.
        objective: default for strategies that are not in ``objectives``.
        symmetric: for ``cross-view``: average both directions.
        negatives: default spec of the terms on negatives; None for no terms.
        objectives: by strategy. MACL's paper reweights, and AMCL's NT-Xent form leaves the positive out of the denominator.
    """

    layout: LayoutName | str = "two-view"
    strategy: str = "fixed"
    temperatures: Temperatures = field(default_factory=lambda: around(0.1))
    objective: str = "infonce"
    symmetric: bool = False
    negatives: str | None = None
    objectives: Mapping[str, str] = field(default_factory=lambda: {"macl": "reweighted", "amcl": "dcl"})

    def objective_of(self, strategy: str) -> str:
        """Returns the default objective of a strategy, given its spec string."""
        return self.objectives.get(parse_spec(strategy)[0], self.objective)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a training. Subclasses add settings of a method and set defaults.

    Raises:
        ConfigError: a setting is out of range; the message gives its name, its value and the range.
    """

    loss: LossRecipe = LossRecipe()

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the data, may be a fraction; 0: no training")] = 100
    per_device_train_batch_size: Annotated[int | None, integer_or_none("items per step and process; none: all items", 2)] = 128
    learning_rate: Annotated[float, Number(above=0, help="highest learning rate")] = 0.01
    weight_decay: Annotated[float, Number(at_least=0, help="weight decay, except of temperatures")] = 0.0
    optimizer: Optimizer = "adam"
    momentum: Annotated[float, Number(at_least=0, below=1, help="momentum of sgd and lars; β₁ of adam and adamw")] = 0.9
    warmup_steps: Annotated[
        float, Number(at_least=0, help="steps over which the learning rate rises; below 1: a fraction of the training")
    ] = 0.0
    lr_scheduler_type: Schedule = "constant"
    max_grad_norm: GradientNorm = 0.0
    dataloader_drop_last: DropLast = False
    bf16: Annotated[bool, Flag(help="compute in bfloat16, faster on processors that support it")] = False
    seed: Annotated[int, Number(at_least=0, at_most=HIGHEST_SEED, integer=True, help="seed of all random numbers")] = 0

    running: ClassVar[Mapping[str, Any]] = {}
    """Defaults of `TrainingArguments` that are not settings, such as when to save, log and evaluate."""

    def __post_init__(self) -> None:
        for name, kind in self.kinds().items():
            object.__setattr__(self, name, kind.check(f"{name}={_written(getattr(self, name))}", getattr(self, name)))

    @classmethod
    def kinds(cls) -> dict[str, Kind]:
        """Returns the declarations of the settings by name."""
        return {each.name: each.kind for each in options_of(cls) if each.kind is not None}

    def values(self) -> dict[str, Any]:
        """Returns the settings by name as JSON data."""
        found = {name: getattr(self, name) for name in self.kinds()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    def training(self) -> dict[str, Any]:
        """Returns the settings that `transformers.TrainingArguments` accepts."""
        return {name: value for name in TRAINING if (value := getattr(self, name)) is not None}

    def changed(self, **changes: Any) -> Self:
        """Returns a copy with changed settings; raises UnknownNameError and ConfigError, which name the setting."""
        known = self.kinds()
        for name in changes:
            if name not in known:
                raise UnknownNameError(f"no setting '{name}'.{nearest(name, known)} Known: {listed(known)}.")
        return replace(self, **changes)

    def learning_rate_factor(self, batch_size: int) -> float:
        """Returns the factor of the learning rate for the batch of all processes; 1 unless a recipe scales it."""
        return 1.0


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return f"'{value}'" if isinstance(value, str) else str(value)
