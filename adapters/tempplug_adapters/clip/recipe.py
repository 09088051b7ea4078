"""The settings of ``tempplug train clip``, as data: importing this loads no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from tempplug.options import Choice, Number, Text, Words
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import (
    ImageColumns,
    LossRecipe,
    Optimizer,
    OwnModel,
    Recipe,
    Schedule,
    integer,
    integer_or_none,
)

BATCH_SAMPLERS: Final = ("random", "no_duplicates")
_LOSS = LossRecipe(layout="cross-view", strategy="learnable", symmetric=True)


@dataclass(frozen=True, kw_only=True)
class ClipRecipe(Recipe):
    """How a pretrained dual encoder is fine-tuned on image–text pairs; temperatures begin at that of its checkpoint.

    A checkpoint with a bias of its logits (SigLIP) is trained with ``sigmoid`` by default.

    Source: Radford et al. 2021 (CLIP), section 2.5: a learned temperature, both directions, no decay of gains and biases; the
    other settings are those of Goyal et al. 2023 (Finetune Like You Pretrain) for CLIP on ImageNet, except that the learning
    rate rises over a tenth of the training instead of 500 steps.
    """

    loss: LossRecipe = _LOSS

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the images, fractions allowed")] = 10
    per_device_train_batch_size: Annotated[int | None, integer("images per step and process, each with one caption", 2)] = 512
    learning_rate: Annotated[float, Number(above=0, help="highest value")] = 1e-5
    weight_decay: Annotated[float, Number(at_least=0, help="of weights, not of temperatures, gains and biases")] = 0.1
    optimizer: Optimizer = "adamw"
    warmup_steps: Annotated[
        float, Number(at_least=0, help="steps of the rising learning rate; below 1 a share of the training")
    ] = 0.1
    lr_scheduler_type: Schedule = "cosine"
    model_name_or_path: Annotated[
        str, Text(help="CLIP, SigLIP or another dual encoder of transformers: a folder or a name on the Hugging Face hub")
    ] = "openai/clip-vit-base-patch32"
    encoder: OwnModel = None
    templates: Annotated[
        tuple[str, ...], Words(minimum_length=1, help="captions of images that have a class, {} for its name")
    ] = ("a photo of a {}.",)
    caption_column: Annotated[
        str | None, Text(optional=True, help="of captions in a table; none: caption, text, captions, sentences, txt or title")
    ] = None
    columns: ImageColumns = ()
    max_length: Annotated[int | None, integer_or_none("most tokens of a caption; none: the model's limit", 3)] = None
    count: Annotated[int | None, integer_or_none("images to train on, drawn at random; none: all", 2)] = None
    test_count: Annotated[int | None, integer_or_none("test images, likewise; none: all")] = None
    batch_sampler: Annotated[
        str, Choice(BATCH_SAMPLERS, help="no_duplicates: no batch has a caption twice, which would be its own negative")
    ] = "random"

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The columns of a table by role, that of the captions among them."""
        return self.columns if self.caption_column is None else (*self.columns, f"caption={self.caption_column}")


METHOD = MethodInfo(
    name="clip",
    summary="Fine-tune CLIP or another dual encoder with any temperature strategy; measure retrieval and zero-shot accuracy.",
    target="tempplug_adapters.clip.method:ClipMethod",
    recipes={"finetune": ClipRecipe()},
    datasets=(
        "cifar10, imagenette or another set of images with classes, whose names are the captions (see simclr); a folder of "
        "images with metadata.jsonl or metadata.csv (file_name, text), a table of images or of their paths, or tars of a "
        "webdataset, for train and test; or OWNER/NAME on the Hugging Face hub"
    ),
)
