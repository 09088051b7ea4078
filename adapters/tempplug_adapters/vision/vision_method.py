"""Training on images: computes two views of every image on the device and passes them to a step module with its loss.

`DESIGNS` defines the differences between methods: the module, its heads and their settings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed as processes, nn

from tempplug import distributed
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.images.augmentation import create_augmentation, create_small_crops
from tempplug_adapters.images.backbones import Backbone, create_backbone, is_own
from tempplug_adapters.images.image_data import as_images, find_images, notes_of, tables_of
from tempplug_adapters.images.networks import VITS
from tempplug_adapters.images.representations import represent
from tempplug_adapters.images.trained_backbone import how_to_open, load_backbone, save_backbone
from tempplug_adapters.quoting import code
from tempplug_adapters.training.method import Card, Inputs, Method, Restored, Run, Source
from tempplug_adapters.training.optimizer import Treatment
from tempplug_adapters.vision import projection_heads as heads, vision_images
from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.evaluation.evaluations import Evaluation
from tempplug_adapters.vision.moco import MoCo
from tempplug_adapters.vision.nnclr import NNCLR
from tempplug_adapters.vision.simclr import SimCLR
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.step_module import StepModule, WithoutSoftmax
from tempplug_adapters.vision.supcon import SupCon
from tempplug_adapters.vision.vision_images import VisionImages, evaluation_settings, load_vision, loaded_size, read_images

HEADS = {"amcl": 3}
"""Projection heads by strategy if the recipe sets no number; one for the others."""
_WITHOUT_BF16 = ("DEFAULT", "NO AVX", "AVX2")


@dataclass(frozen=True)
class Design:
    """The definition of a method.

    Attributes:
        module: its step module.
        head: its projection head.
        prediction: creates its prediction head from the embedding width and the setting ``hidden_dimension``; or None.
        settings: arguments of the module, by settings of the recipe.
    """

    module: type[StepModule]
    head: Callable[..., nn.Module]
    prediction: Callable[[int, int | None], nn.Module] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


_WITH_QUEUE = {"embedding_dimension": "embedding_dimension", "queue_size": "queue_size"}
DESIGNS: Mapping[str, Design] = {
    "simclr": Design(SimCLR, heads.simclr_projection_head),
    "moco": Design(
        MoCo, heads.moco_projection_head, settings={**_WITH_QUEUE, "encoder_momentum": "momentum", "symmetric": "symmetric"}
    ),
    "nnclr": Design(
        NNCLR,
        heads.nnclr_projection_head,
        # twice as wide inside as the projection head
        lambda size, inside: heads.nnclr_prediction_head(size, hidden_dimension=None if inside is None else 2 * inside),
        _WITH_QUEUE,
    ),
    "simsiam": Design(SimSiam, heads.simsiam_projection_head, lambda size, inside: heads.simsiam_prediction_head(size)),
    "barlow-twins": Design(
        BarlowTwins, heads.barlow_twins_projection_head, settings={"redundancy_weight": "redundancy_weight"}
    ),
    # The paper names no normalisation in the head. SimCLR's head has it: without it, ResNets give all images nearly the same
    # embedding at first, where this loss is flat (CIFAR-10, 5,000 images, ResNet-18, width 16, 6 epochs: knn 24 and 35 %).
    "supcon": Design(SupCon, heads.simclr_projection_head),
}
"""By the name of the method."""


class TwoViews(nn.Module):
    """Images to the loss of a step module: two views of every image, drawn together, which is faster than one by one.

    Args:
        step: of two views.
        augmentation: images [B, 3, H, W] in [0, 1] to views, without parameters.
        channels_last: memory format of the views.
        small_crops: of `create_small_crops`, or None.
    """

    def __init__(
        self, step: StepModule, augmentation: nn.Module, channels_last: bool, small_crops: tuple[int, nn.Module] | None = None
    ) -> None:
        super().__init__()
        self.step, self.augmentation, self.channels_last = step, augmentation, channels_last
        small: tuple[int, nn.Module | None] = small_crops or (0, None)
        self.small, self.crop = small

    @property
    def encoder(self) -> nn.Module:
        """The backbone, which is saved."""
        return self.step.backbone

    @property
    def loss_fn(self) -> Any:
        """The loss; None where the method has no softmax."""
        return self.step.loss_fn

    def measure(self) -> dict[str, float]:
        """Returns the numbers of the last batch."""
        return self.step.measure()

    def forward(self, index: Tensor, pixels: Tensor, labels: Tensor | None = None) -> Tensor:
        """Returns the loss, [].

        Args:
            index: [B] positions of the images in the data set.
            pixels: [B, 3, H, W] uint8.
            labels: [B] their classes, where they have any.
        """
        images = pixels.float() / 255
        view_a, view_b = self._views(self.augmentation, images, 2)
        more = {} if self.crop is None else {"small": self._views(self.crop, images, self.small)}
        loss: Tensor = self.step(view_a, view_b, index=index, labels=labels, **more)
        return loss

    def _views(self, augmentation: nn.Module, images: Tensor, count: int) -> tuple[Tensor, ...]:
        views: Tensor = augmentation(torch.cat([images] * count))
        if self.channels_last:
            views = views.contiguous(memory_format=torch.channels_last)
        return views.chunk(count)


class VisionMethod(Method[Any, VisionImages]):
    """A method with a step module for two views of images, defined in `DESIGNS`."""

    @property
    def design(self) -> Design:
        """The definition of the method."""
        return DESIGNS[self.info.name]

    def step(self, recipe: Any, backbone: Backbone, loss: Any) -> StepModule:
        """Returns backbone and heads with the loss of `create_loss`, random weights drawn from PyTorch's global generator."""
        design, count, size = self.design, recipe.heads or 1, recipe.embedding_dimension
        given = {"hidden_dimension": getattr(recipe, "hidden_dimension", None), "out_dimension": size}
        if recipe.last_batch_norm is not None:
            given["last_batch_norm"] = recipe.last_batch_norm
        if recipe.last_batch_norm is False:
            given["last_affine"] = True  # SimSiam's False belongs to the normalisation
        if hasattr(recipe, "head_layers"):
            given["layers"] = recipe.head_layers
        made: list[Any] = [nn.ModuleList(design.head(backbone.dimension, **given) for _ in range(count))]
        if design.prediction is not None:
            made.append(nn.ModuleList(design.prediction(size, given["hidden_dimension"]) for _ in range(count)))
        options = {argument: getattr(recipe, setting) for setting, argument in design.settings.items()}
        if issubclass(design.module, WithoutSoftmax):
            made.append(loss)
            if design.module is BarlowTwins:  # features are correlated over the images of all processes
                options["gather"] = True
        else:
            made += [loss.strategy, loss.objective]
            options |= {"gather": loss.gather, "negatives": loss.terms}
        return design.module(backbone, *made, **options)

    def load(self, recipe: Any, source: Source) -> VisionImages:
        """Returns training images, and labelled images for evaluations if there are any."""
        create_augmentation(recipe.augmentation, recipe.image_size)  # reports a misspelled name before images are read
        if create_small_crops(recipe.augmentation, recipe.image_size) and not self.design.module.takes_small_crops:
            raise ConfigError(
                f"augmentation='{recipe.augmentation}' makes small crops, but a step of {self.info.name} takes two views of "
                "one size: use simclr, supcon or moco, or leave the options out."
            )
        data = load_vision(recipe, source.dataset, source.data_dir, evaluated=source.evaluated)
        if self.design.module is SupCon and data.train.labels is None:
            remedy = "use SimCLR, or put the images in a folder for each class, in a folder train"
            raise DataError(f"SupCon needs the class of every image, which the set '{data.train.name}' lacks: {remedy}.")
        return data

    def files(self, recipe: Any, source: Source, data: VisionImages) -> dict[str, Path | str]:
        """Returns the files of the images to train on and of those of the evaluations."""
        return vision_images.vision_files(recipe, source.dataset, source.data_dir, data)

    def describe(self, data: VisionImages) -> str:
        """Returns the numbers of images."""
        bare = " without classes" if data.train.labels is None else ""
        tested = "" if data.test is None else f", {len(data.test)} to be measured with"
        return f"{len(data)} images{bare}{tested}{notes_of(data.train)}"

    def tables(self, data: VisionImages) -> Sequence[Assigned]:
        """Returns the table of the training images, if there is one."""
        return tables_of(data.train)

    def known(self, recipe: Any, data: VisionImages) -> dict[str, Any]:
        """Returns the number of images, the dimension of AMCL's input, and the number of images of each class."""
        labels, dimension = data.train.labels, recipe.embedding_dimension
        counts = {} if labels is None else {"class_counts": labels.bincount(minlength=len(data.train.classes)).tolist()}
        if self.design.module is BarlowTwins:  # AMCL's input is a feature over the batch of all processes
            dimension = recipe.per_device_train_batch_size * (processes.get_world_size() if distributed.active() else 1)
        return {"size": len(data), "dimension": dimension, **counts}

    def offered(self, data: VisionImages) -> frozenset[str]:
        """Returns ``index``, and where images have classes these as ``keys``; nothing for MoCo, whose queue has neither."""
        if self.design.module is MoCo:
            return frozenset()
        return frozenset({"index"} if data.train.labels is None else {"index", "keys"})

    def recipe_of(self, recipe: Any, strategy: str, dataset: str) -> Any:
        """Returns the recipe with the number of heads of the strategy's paper, unless it sets one."""
        return recipe if recipe.heads is not None else recipe.changed(heads=HEADS.get(strategy, 1))

    def create_loss(self, recipe: Any, data: VisionImages, temperature: TemperatureArguments, *, gather: bool = False) -> Any:
        """Returns the loss of the flags; for a method without a softmax, AMCL's strategy, or None for the plain method.

        Raises:
            ConfigError: such a method got an objective or terms on negatives, or options without a strategy.
            DataError: strategy ``head-tail`` needs images with labels.
        """
        given = temperature.temperature_strategy
        if issubclass(self.design.module, WithoutSoftmax):
            title = self.design.module.title
            objective, negatives = temperature.contrastive_objective, temperature.contrastive_negatives
            for value, said in ((objective, "objective '{}' does"), (negatives, "negatives '{}' do")):
                if value is not None:
                    raise ConfigError(f"{said.format(value)} not apply: {title} has no softmax. Leave that out.")
            if given is None and (words := " ".join(temperature.temperature_args)):
                raise ConfigError(f"temperature_args={words} are options of no strategy: add --temperature-strategy amcl.")
            if given is None:
                return None
            return super().create_loss(recipe, data, temperature).strategy
        if data.train.labels is None and parse_spec(given or recipe.loss.strategy)[0] == "head-tail":
            raise DataError(f"strategy 'head-tail' needs the class of every image, which the set '{data.train.name}' lacks.")
        return super().create_loss(recipe, data, temperature, gather=gather)

    def specs(self, module: Any) -> dict[str, str | None]:
        """Returns the resolved specs; without a softmax, AMCL's or no strategy, and no objective."""
        if not isinstance(module.step, WithoutSoftmax):
            return super().specs(module)
        strategy = module.step.strategy
        return {"strategy": None if strategy is None else strategy.spec(), "objective": None}

    def build(self, recipe: Any, data: VisionImages, loss: Any) -> TwoViews:
        """Returns the module with random weights."""
        if recipe.bf16 and not torch.accelerator.is_available():
            _warn_of_slow_products()
        backbone = create_backbone(
            recipe.backbone,
            stem=recipe.stem,
            width=recipe.width,
            zero_init_residual=recipe.zero_init_residual,
            image_size=recipe.image_size if recipe.backbone in VITS or is_own(recipe.backbone) else None,
        )
        step = self.step(recipe, backbone, loss)
        if recipe.sync_batch_norm and distributed.active():
            if "nccl" not in processes.get_backend():
                raise ConfigError("sync_batch_norm=true needs GPUs: leave it out on the CPU (--no-sync-batch-norm).")
            step = nn.SyncBatchNorm.convert_sync_batchnorm(step)  # type: ignore[no-untyped-call]
        if recipe.channels_last:
            _refuse_broken_convolutions(step)
            step = step.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        views = recipe.augmentation, recipe.image_size
        return TwoViews(step, create_augmentation(*views), recipe.channels_last, create_small_crops(*views))

    def collate(self, recipe: Any, data: VisionImages, index: Tensor) -> dict[str, Any]:
        """Returns unmodified images as bytes, with positions and labels."""
        labels = data.train.labels
        return {"index": index, "pixels": data.train.batch(index), "labels": None if labels is None else labels[index]}

    def treatment(self, recipe: Any, name: str, parameter: nn.Parameter) -> Treatment:
        """Returns the optimizer settings of a matrix or kernel, or of a bias or normalisation weight."""
        # SimSiam's prediction head keeps its learning rate (Chen and He 2021, section 4.1)
        constant = self.design.module is SimSiam and name.startswith("step.prediction_head.")
        if parameter.ndim > 1:
            return Treatment(constant=constant)
        spared = recipe.spare_norms or recipe.optimizer == "lars"
        rate = 1.0 if recipe.bias_learning_rate is None else recipe.bias_learning_rate / recipe.learning_rate
        return Treatment(decays=not spared, adapts=False, rate=rate, constant=constant)

    def evaluate(self, recipe: Any, module: nn.Module, data: VisionImages, run: Run) -> dict[str, float]:
        """Returns the figures of the recipe's evaluations by name; none without labelled test images.

        Percentages are ``knn``, ``linear``, ``svc`` and, as means over classes, ``knn@1``, ``knn@10``, ``few-shot`` and
        ``long-tail``, each also of its ``head``, ``middle`` and ``tail``; ``knn top-5`` and ``linear top-5``; and those with
        ``10 labels`` to ``500 labels`` of each class. ``alignment``, ``uniformity``, ``tolerance`` and
        ``interclass_uniformity`` describe the geometry. For choosing settings there are ``knn validation``, the accuracy on a
        tenth of the training images with the others as bank, and ``validation knn@1`` and ``validation knn@10``, the accuracy
        on images held out of a long-tailed training set.
        """
        if data.bank is None or data.test is None:
            return {}
        linear = bool({"linear-probe", "top-5"} & set(recipe.evaluations))
        pieces = 2 + 2 * ("report" in recipe.evaluations) + linear + (data.held_out is not None)
        begun: dict[str, None] = {}

        def report(fraction: float, stage: str) -> None:
            begun.setdefault(stage)
            run.progress((len(begun) - 1 + fraction) / pieces)

        encoder: Any = module.encoder
        device = next(module.parameters()).device
        evaluation = Evaluation(encoder, data.bank, data.test, evaluation_settings(recipe), device, report, data.held_out)
        return {
            figure: value for name in recipe.evaluations for figure, value in figures(name, evaluation.measure(name)).items()
        }

    def save(self, recipe: Any, module: Any, data: VisionImages, output_dir: Path) -> None:
        """Writes the backbone, see `save_backbone`."""
        save_backbone(module.encoder, output_dir, recipe.image_size)

    def kept(self, recipe: Any, module: Any, data: VisionImages) -> dict[str, Any]:
        """Returns the preprocessing of images, and the names of their classes, if they have any."""
        backbone = module.encoder
        mean, std = (getattr(backbone, name).flatten().tolist() for name in ("mean", "std"))
        sizes = {"image_size": recipe.image_size, "load_size": loaded_size(recipe)}
        return {"labels": list(data.train.classes), "preprocessing": {"range": [0, 1], "mean": mean, "std": std, **sizes}}

    def named_module(self, recipe: Any) -> str | None:
        """Returns the name of the backbone if it is a module of the user."""
        return recipe.backbone if is_own(recipe.backbone) else None

    def restore(self, recipe: Any, kept: Mapping[str, Any], folder: Path) -> Restored:
        """Returns the backbone of the folder, in the memory format of the training."""
        backbone = load_backbone(folder, recipe.backbone)
        if recipe.channels_last:
            backbone = backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return Restored(backbone)

    def read(self, recipe: Any, source: Source, split: Any) -> Inputs:
        """Returns image files, or a split of a data set."""
        word, given = source.dataset, {name: getattr(recipe, name) for name in ("image_size", "load_size", "columns")}
        return Inputs(*find_images(word, loaded_size(recipe), lambda: read_images(word, split, source.data_dir, **given)))

    def embed(self, recipe: Any, module: Any, given: Any) -> Tensor:
        """Returns the representations of images, [n, F], as the evaluations see them."""
        return represent(module.encoder, as_images(given, loaded_size(recipe)), size=recipe.image_size)

    def card(self, recipe: Any, module: Any, data: VisionImages, results: Mapping[str, Any]) -> Card:
        """Returns the text on image encoders."""
        pretrained = recipe.backbone.partition(":")[2] if recipe.backbone.startswith("transformers:") else None
        return Card(
            about=f"An image encoder, {code(recipe.backbone)}: an image has a vector of {module.encoder.dimension} numbers.",
            example='["image.jpg"]',
            use=how_to_open(recipe.backbone, module.encoder, recipe.stem),
            base=pretrained,
            metadata={"pipeline_tag": "image-feature-extraction"},
        )


def figures(evaluation: str, found: dict[str, Any]) -> dict[str, float]:
    """Returns the numbers of an evaluation by their names in ``metrics.json``.

    Args:
        evaluation: one of `tempplug_adapters.vision.evaluation.settings.EVALUATIONS`.
        found: what `Evaluation.measure` returned.

    >>> figures("knn", {"accuracy": 61.5, "validation": 60.0, "k": 200})
    {'knn': 61.5, 'knn validation': 60.0}
    """
    if "accuracy" in found:
        name = evaluation.removesuffix("-probe")
        return {name: found["accuracy"]} | ({f"{name} validation": found["validation"]} if "validation" in found else {})
    if evaluation in ("report", "top-5", "few-labels"):
        return {name: value for name, value in found.items() if isinstance(value, float)}
    flat: dict[str, float] = {}
    for name, score in found.items():
        if name.startswith("validation"):
            flat[name] = score
        if isinstance(score, dict):
            flat[name] = score["overall"]
            groups = {f"{name} {group}": score[group] for group in ("head", "middle", "tail")}
            flat |= {group: value for group, value in groups.items() if value is not None}
    return flat


def _refuse_broken_convolutions(module: nn.Module) -> None:
    """Raises ConfigError for convolutions that write out of bounds in PyTorch 2.13 (AVX2, backward pass)."""
    for each in module.modules():
        if (
            not torch.accelerator.is_available()
            and isinstance(each, nn.Conv2d)
            and each.kernel_size == (1, 1)
            and max(each.stride) > 1
            and each.in_channels < 8
        ):
            raise ConfigError(
                f"channels_last=true breaks 1x1 convolutions of {each.in_channels} channels and stride {each.stride[0]} in "
                "PyTorch on the CPU: leave it out (--no-channels-last), or give the backbone at least 8 channels (--width 8)."
            )


def _warn_of_slow_products() -> None:
    if torch.backends.cpu.get_cpu_capability() in _WITHOUT_BF16:
        warnings.warn("bf16 on a processor without bfloat16 instructions is several times slower than float32.", stacklevel=3)
