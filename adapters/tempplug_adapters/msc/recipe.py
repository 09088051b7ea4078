"""MSC's settings and ``tempplug train msc``, as data: importing this loads no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tempplug.errors import ConfigError
from tempplug.options import Flag, Number, Text
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import ImageColumns, LossRecipe, Optimizer, Recipe, around, integer, integer_or_none

AUGMENTATION = "msc"
MOBILENET = "mobilenet-v2"
MOBILENET_FILE = "mobilenet_v2_imagenet.pth"
"""Where no weights are named: this file of the data folder, itself or below ``vision``."""

# Reiss & Hoshen 2023 train with 0.25, Kim & Kim 2025 (temperature-free) with 0.1 to 1 around it.
_LOSS = LossRecipe(layout="two-view", temperatures=around(0.25))


@dataclass(frozen=True, kw_only=True)
class MSCRecipe(Recipe):
    """The settings of MSC; the defaults are those of Kim & Kim 2025 for CIFAR-10.

    Raises:
        ConfigError: a setting is out of range, or ``momentum`` is 0 for an optimizer that uses it as β₁.
    """

    loss: LossRecipe = _LOSS

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the normal images")] = 25
    per_device_train_batch_size: Annotated[int | None, integer("images a step and process", 2)] = 32
    learning_rate: Annotated[float, Number(above=0, help="at its highest")] = 1e-5
    weight_decay: Annotated[float, Number(at_least=0, help="of weights, never of temperatures")] = 5e-5
    optimizer: Optimizer = "sgd"
    momentum: Annotated[float, Number(at_least=0, below=1, help="of sgd and lars; β₁ of adam and adamw")] = 0.0
    normal_class: Annotated[
        str | None, Text(optional=True, help="name or number; images of others are anomalies; none: images without classes")
    ] = None
    backbone: Annotated[
        str,
        Text(help=f"{MOBILENET}, a folder or hub name of transformers, timm:NAME, torchvision:NAME or MODULE:NAME[:key=value]"),
    ] = "microsoft/resnet-152"
    weights: Annotated[str | None, Text(optional=True, help=f"of {MOBILENET}; none: {MOBILENET_FILE} of --data-dir")] = None
    image_size: Annotated[int, integer("pixels of each side")] = 224
    columns: ImageColumns = ()
    frozen_blocks: Annotated[int | None, integer_or_none("first blocks not trained; none: the paper's", 0)] = None
    angular: Annotated[bool, Flag(help="add the angular loss, which pulls the class together")] = False
    neighbours: Annotated[int, integer("number of nearest normal images in a score")] = 2
    train_images: Annotated[int | None, integer_or_none("most normal images", 2)] = None
    test_images: Annotated[int | None, integer_or_none("most test images")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer.startswith("adam") and not self.momentum:
            raise ConfigError(f"momentum=0 would be β₁ of optimizer '{self.optimizer}': set momentum, too, usually to 0.9.")


METHOD = MethodInfo(
    name="msc",
    summary=(
        "Fine-tune a pretrained network on the images of one class with the mean-shifted contrastive loss (MSC) and any "
        "temperature strategy, and measure how well distances tell that class from all others. The network must not have been "
        "trained with labels of the data set's classes: that would leak the answer."
    ),
    target="tempplug_adapters.msc.method:MSCMethod",
    recipes={
        "paper": MSCRecipe(),
        # for MobileNetV2: a run of about two minutes on one core
        "cpu": MSCRecipe(
            num_train_epochs=2,
            learning_rate=3e-4,
            backbone=MOBILENET,
            image_size=128,
            frozen_blocks=11,
            train_images=1000,
            test_images=1000,
        ),
    },
    datasets="data set of images with classes, by name, or a folder; or a folder of normal images alone",
    default_dataset="cifar10",
)
