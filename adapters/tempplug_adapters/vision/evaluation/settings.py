"""How representations are measured: the options of the evaluations and of the linear probe, with ranges and help.

One line of a settings class is the check at construction and the flag of ``tempplug eval vision``. Importing this module loads
no torch, so that ``--help`` comes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tempplug.options import Choice, Number, Text, check_fields
from tempplug_adapters.training.recipe import HIGHEST_SEED

EVALUATIONS = ("knn", "linear-probe", "top-5", "svc-probe", "few-labels", "long-tail", "report")
"""Names of the evaluations."""
SCHEDULES = ("cosine", "constant")
PLOT_METHODS = ("tsne", "pca")

_Count = Annotated[int, Number(at_least=1, integer=True)]
_Seed = Annotated[int, Number(at_least=0, at_most=HIGHEST_SEED, integer=True)]


@dataclass(frozen=True)
class LinearProbeSettings:
    """How a linear classifier is trained; the defaults are lightly's, which DySTreSS uses on ImageNet.

    Attributes:
        epochs: at least 1.
        batch_size: representations a step, at least 1.
        learning_rate: of SGD at the start, greater than 0; not scaled here by the batch size.
        momentum: from 0, less than 1.
        weight_decay: at least 0.
        schedule: of the learning rate: ``cosine`` to 0 by step, or ``constant``.
        seed: of the initial weights and the order of the batches.

    Raises:
        ConfigError: one of them is out of range.
    """

    epochs: _Count = 90
    batch_size: _Count = 256
    learning_rate: Annotated[float, Number(above=0)] = 0.1
    momentum: Annotated[float, Number(at_least=0, below=1)] = 0.9
    weight_decay: Annotated[float, Number(at_least=0)] = 0.0
    schedule: Annotated[str, Choice(SCHEDULES)] = "cosine"
    seed: _Seed = 0

    def __post_init__(self) -> None:
        check_fields(self, "the linear probe")


def lightly_settings(batch_size: int = 256) -> LinearProbeSettings:
    """Returns lightly's recipe, its learning rate 0.1 · batch size / 256.

    Args:
        batch_size: representations a step.

    >>> lightly_settings(512).learning_rate
    0.2
    """
    return LinearProbeSettings(batch_size=batch_size, learning_rate=0.1 * batch_size / 256)


MACL_CIFAR10 = LinearProbeSettings(epochs=100, batch_size=128, learning_rate=0.02, schedule="constant")
"""MACL's recipe for CIFAR-10; the paper names no decay of the learning rate."""

PROBES = {"lightly": lightly_settings(), "macl-cifar10": MACL_CIFAR10}
"""Recipes of the linear probe by name."""


@dataclass(frozen=True)
class EvaluationSettings:
    """How representations are measured; each setting's help says what it is.

    Raises:
        ConfigError: a setting is out of range.
        UnknownNameError: there is no such augmentation.
    """

    k: Annotated[int, Number(at_least=1, integer=True, help="neighbours that vote")] = 200
    vote_temperature: Annotated[float, Number(above=0, help="of their vote")] = 0.1
    probe: Annotated[str, Choice(tuple(PROBES), help="recipe of the linear probe")] = "lightly"
    imbalance_ratio: Annotated[
        float | None,
        Number(
            at_least=1,
            optional=True,
            help="of the long-tailed bank: images of its largest class over those of its smallest; none: all training images",
        ),
    ] = 100.0
    largest_class: Annotated[
        int | None,
        Number(
            at_least=1,
            integer=True,
            optional=True,
            help="images of its largest class; none: nine tenths of the smallest class",
        ),
    ] = None
    held_out: Annotated[
        int,
        Number(at_least=0, integer=True, help="training images, as many of each class, that its draw leaves for validation"),
    ] = 0
    head_above: Annotated[
        int | None,
        Number(at_least=1, integer=True, optional=True, help="larger classes of it are head; none: a third of the classes"),
    ] = None
    tail_below: Annotated[
        int | None, Number(at_least=1, integer=True, optional=True, help="smaller classes of it are tail; none: likewise")
    ] = None
    split_seed: Annotated[int, Number(at_least=0, at_most=HIGHEST_SEED, integer=True, help="of the drawn images")] = 0
    image_size: Annotated[
        int | None,
        Number(
            at_least=1,
            integer=True,
            optional=True,
            help="pixels of each side that the backbone sees; none: the images' own",
        ),
    ] = None
    views: Annotated[str, Text(help="augmentation that makes two views of each test image")] = "simclr-cifar"
    view_images: Annotated[
        int | None,
        Number(at_least=1, integer=True, optional=True, help="test images at most of which views are made; none: all"),
    ] = None
    plot_method: Annotated[str, Choice(PLOT_METHODS, help="how representations come into the plane")] = "tsne"
    batch_size: Annotated[int, Number(at_least=1, integer=True, help="images at once")] = 256
    seed: Annotated[
        int, Number(at_least=0, at_most=HIGHEST_SEED, integer=True, help="of views, linear probe and plotted images")
    ] = 0

    def __post_init__(self) -> None:
        from tempplug_adapters.images.augmentation import create_augmentation

        check_fields(self)
        create_augmentation(self.views, 32)
