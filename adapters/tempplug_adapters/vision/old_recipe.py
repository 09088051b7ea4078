"""The settings of a training of images, checked. It must not know data, methods' modules or temperatures."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field, fields
from typing import Any

from tempplug.errors import ConfigError
from tempplug_adapters.training.seeds import HIGHEST_SEED

METHODS = ("simclr", "moco", "nnclr", "simsiam", "barlow-twins")
OPTIMIZERS = ("sgd", "lars", "adam")
SCALINGS = ("none", "linear", "linear-above-256", "square-root")
LEARNING_RATE_SCHEDULES = ("cosine", "constant")
PRECISIONS = ("float32", "bf16")


def _setting(
    default: Any,
    text: str,
    *,
    kind: type | None = None,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    methods: tuple[str, ...] = METHODS,
) -> Any:
    bounds = {"low": low, "above": above, "high": high, "below": below, "choices": choices}
    return field(default=default, metadata={"help": text, "kind": kind or type(default), "methods": methods, **bounds})


@dataclass(frozen=True, kw_only=True)
class VisionSettings:
    """How a backbone is trained on images; `tempplug_adapters.vision.recipes` has the papers' settings.

    Each field's metadata hold its bounds, the help of its flag, and which methods have it.

    Attributes:
        recipe: name of the recipe that the settings come from; a strategy takes from it the options that nobody gives.
        backbone: name of a network, as `tempplug_adapters.images.backbones.create_backbone` takes it.
        stem: of a ResNet of ours: ``cifar`` or ``imagenet``; None where the backbone is another.
        width: of a ResNet of ours: channels of its first stage; None likewise.
        zero_init_residual: of a ResNet of ours: each block begins as the identity.
        heads: projection heads, whose losses are summed; AMCL has three.
        head_layers: linear layers of a head.
        hidden_dimension: width inside a head; None: that of the method (the representations' in SimCLR and MoCo, 2048 in
            NNCLR, the embeddings' in SimSiam). NNCLR's prediction head is twice as wide.
        embedding_dimension: D of the embeddings.
        image_size: pixels of each side of a view.
        augmentation: recipe of the views, as `tempplug_adapters.images.augmentation.create_augmentation` takes it.
        epochs: 0 leaves the backbone untrained, for comparison.
        batch_size: images a step, of all processes together.
        optimizer: ``sgd``, ``lars`` or ``adam``.
        learning_rate: before scaling, and at its highest.
        learning_rate_scaling: ``linear`` multiplies it by batch_size / 256, ``linear-above-256`` does so for larger batches
            alone, ``square-root`` by the root of batch_size.
        bias_learning_rate: of biases and normalisation, scaled likewise; None: the same.
        momentum: of SGD and LARS; β₁ of Adam.
        weight_decay: never of temperatures.
        spare_norms: no weight decay of biases and normalisation; LARS never has it.
        warmup_epochs: over which the learning rate rises from zero, step by step.
        learning_rate_schedule: after that: ``cosine`` falls to zero, ``constant`` stays.
        queue_size: of MoCo's queue or NNCLR's support set.
        encoder_momentum: of MoCo's momentum encoder.
        symmetric: MoCo averages both directions.
        redundancy_weight: λ of Barlow Twins.
        precision: ``float32``, or ``bf16`` for autocast where the processor has it.
        channels_last: memory format of images and weights; often faster.
        sync_batch_norm: across processes, normalise over the batches of all; GPUs only.
        seed: everything random follows from it.

    Raises:
        ConfigError: a setting is out of range.
    """

    recipe: str = _setting("dystress-cifar", "where the settings that are not given come from")
    backbone: str = _setting("resnet18", "resnet18 to resnet152, vit-tiny to vit-base, timm:NAME, transformers:NAME, ...")
    stem: str | None = _setting("cifar", "first layers of a ResNet: cifar for small images, or imagenet")
    width: int | None = _setting(64, "channels of a ResNet's first stage", low=1)
    zero_init_residual: bool = _setting(False, "each block of a ResNet begins as the identity")
    heads: int = _setting(1, "projection heads, whose losses are summed", low=1)
    head_layers: int = _setting(2, "linear layers of a head", low=1, methods=("simclr", "moco", "simsiam"))
    hidden_dimension: int | None = _setting(
        None, "width inside a head", kind=int, low=1, methods=("simclr", "moco", "nnclr", "simsiam")
    )
    embedding_dimension: int = _setting(128, "width of the embeddings", low=1)
    image_size: int = _setting(32, "pixels of each side of a view", low=1)
    augmentation: str = _setting("simclr-cifar", "recipe of the views")
    epochs: int = _setting(200, "0 leaves the backbone untrained", low=0)
    batch_size: int = _setting(128, "images a step, of all processes together", low=2)
    optimizer: str = _setting("sgd", "sgd, lars or adam", choices=OPTIMIZERS)
    learning_rate: float = _setting(0.06, "before scaling", above=0)
    learning_rate_scaling: str = _setting(
        "none",
        "linear: times batch_size / 256; linear-above-256: so for larger batches alone; square-root: times its root",
        choices=SCALINGS,
    )
    bias_learning_rate: float | None = _setting(None, "of biases and normalisation, if another", kind=float, above=0)
    momentum: float = _setting(0.9, "of the optimizer", low=0, below=1)
    weight_decay: float = _setting(5e-4, "of weights, never of temperatures", low=0)
    spare_norms: bool = _setting(False, "no weight decay of biases and normalisation; lars never has it")
    warmup_epochs: int = _setting(0, "over which the learning rate rises", low=0)
    learning_rate_schedule: str = _setting("cosine", "after the warm-up", choices=LEARNING_RATE_SCHEDULES)
    queue_size: int = _setting(4096, "of MoCo's queue or NNCLR's support set", low=1, methods=("moco", "nnclr"))
    encoder_momentum: float = _setting(0.999, "of the momentum encoder", low=0, high=1, methods=("moco",))
    symmetric: bool = _setting(False, "average both directions", methods=("moco",))
    redundancy_weight: float = _setting(5e-3, "of correlations between features", low=0, methods=("barlow-twins",))
    precision: str = _setting("float32", "bf16: autocast, where the processor has it", choices=PRECISIONS)
    channels_last: bool = _setting(True, "memory format, often faster")
    sync_batch_norm: bool = _setting(False, "across processes, normalise over the batches of all; GPUs only")
    seed: int = _setting(0, "everything random follows from it", low=0, high=HIGHEST_SEED)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                _check(each.name, value, each.metadata)

    def check_method(self, method: str) -> None:
        """Makes sure that no setting was changed that the method has not.

        Args:
            method: one of `METHODS`.

        Raises:
            ConfigError: there is no such method, or one was changed.
        """
        if method not in METHODS:
            raise ConfigError(f"method='{method}' must be one of {', '.join(METHODS)}.")
        for each in fields(self):
            if method not in each.metadata["methods"] and getattr(self, each.name) != each.default:
                raise ConfigError(
                    f"{each.name}={getattr(self, each.name)} is no setting of {method}, but of "
                    f"{', '.join(each.metadata['methods'])}: leave it out."
                )

    @property
    def scale(self) -> float:
        """What `learning_rate` is multiplied by for this batch size."""
        scales = {
            "none": 1.0,
            "linear": self.batch_size / 256,
            "linear-above-256": max(1.0, self.batch_size / 256),
            "square-root": math.sqrt(self.batch_size),
        }
        return scales[self.learning_rate_scaling]


def _check(name: str, value: Any, bounds: Any) -> None:
    if bounds["choices"] and value not in bounds["choices"]:
        raise ConfigError(f"{name}='{value}' must be one of {', '.join(bounds['choices'])}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name}={value} must be finite.")
    for word, bound, kept in (
        ("at least", bounds["low"], operator.ge),
        ("greater than", bounds["above"], operator.gt),
        ("at most", bounds["high"], operator.le),
        ("less than", bounds["below"], operator.lt),
    ):
        if bound is not None and not kept(value, bound):
            raise ConfigError(f"{name}={value} must be {word} {bound}.")
