"""Options of the evaluations and of the linear probe, with ranges and help.

Each field defines a check and a flag of ``tempplug eval vision``. Importing this module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tempplug.options import Choice, Number, Text, check_fields
from tempplug_adapters.training.recipe import HIGHEST_SEED, integer, integer_or_none

EVALUATIONS = ("knn", "linear-probe", "top-5", "svc-probe", "few-labels", "long-tail", "report")
"""Names of the evaluations."""
SCHEDULES = ("cosine", "constant")
IMBALANCE = Number(at_least=1, optional=True, help="largest over smallest class of a long-tailed part; none: all images")
PLOT_METHODS = ("tsne", "pca")


def seed_range(what: str) -> Number:
    """Returns the range of a seed, with its help."""
    return Number(at_least=0, at_most=HIGHEST_SEED, integer=True, help=what)


@dataclass(frozen=True)
class LinearProbeSettings:
    """Settings of the linear probe; the defaults are lightly's, which DySTreSS uses on ImageNet.

    Attributes:
        batch_size: representations per step.
        learning_rate: initial one of SGD, not scaled by the batch size.
        schedule: of the learning rate: ``cosine`` to 0 by step, or ``constant``.
        seed: of the initial weights and the order of the batches.

    Raises:
        ConfigError: one of them is out of range.
    """

    epochs: Annotated[int, integer()] = 90
    batch_size: Annotated[int, integer()] = 256
    learning_rate: Annotated[float, Number(above=0)] = 0.1
    momentum: Annotated[float, Number(at_least=0, below=1)] = 0.9
    weight_decay: Annotated[float, Number(at_least=0)] = 0.0
    schedule: Annotated[str, Choice(SCHEDULES)] = "cosine"
    seed: Annotated[int, seed_range("")] = 0

    def __post_init__(self) -> None:
        check_fields(self, "the linear probe")


MACL_CIFAR10 = LinearProbeSettings(epochs=100, batch_size=128, learning_rate=0.02, schedule="constant")
"""MACL's recipe for CIFAR-10; the paper has no decay of the learning rate."""

PROBES = {"lightly": LinearProbeSettings(), "macl-cifar10": MACL_CIFAR10}
"""Recipes of the linear probe by name."""


@dataclass(frozen=True)
class EvaluationSettings:
    """Settings of the evaluations, described by their help.

    Raises:
        ConfigError: a setting is out of range.
        UnknownNameError: there is no such augmentation.
    """

    neighbours: Annotated[int, integer("neighbours that vote")] = 200
    vote_temperature: Annotated[float, Number(above=0, help="temperature of their vote")] = 0.1
    probe: Annotated[str, Choice(tuple(PROBES), help="recipe of the linear probe")] = "lightly"
    imbalance_ratio: Annotated[float | None, IMBALANCE] = 100.0
    largest_class: Annotated[int | None, integer_or_none("images of its largest class; none: 9/10 of the smallest")] = None
    held_out: Annotated[int, integer("training images, the same number of each class, left out of it for validation", 0)] = 0
    head_above: Annotated[int | None, integer_or_none("larger classes of it are head; none: a third of the classes")] = None
    tail_below: Annotated[int | None, integer_or_none("smaller classes of it are tail; none: a third of the classes")] = None
    split_seed: Annotated[int, seed_range("of the draw of images")] = 0
    image_size: Annotated[int | None, integer_or_none("pixels of each side for the backbone; none: the images' own")] = None
    augmentation: Annotated[str, Text(help="recipe that makes two views of each test image")] = "simclr-cifar"
    view_images: Annotated[int | None, integer_or_none("most test images that views are made of; none: all")] = None
    plot_method: Annotated[str, Choice(PLOT_METHODS, help="projection of representations to two dimensions")] = "tsne"
    batch_size: Annotated[int, integer("images per forward pass")] = 256
    seed: Annotated[int, seed_range("of views, linear probe and plotted images")] = 0

    def __post_init__(self) -> None:
        from tempplug_adapters.images.augmentation import create_augmentation

        check_fields(self)
        create_augmentation(self.augmentation, 32)
