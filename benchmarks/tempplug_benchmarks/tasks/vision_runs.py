"""One run of the suite ``vision``: reads images, trains with `tempplug_adapters.vision`, measures the frozen backbone.

What the other suites of images share with it is here too: reading, settings, training. It must not know how arms are compared.
Importing this loads no framework.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tempplug.arguments import parse_spec
from tempplug.errors import DataError
from tempplug_benchmarks.task import Recipe, RunContext

if TYPE_CHECKING:
    import torch

    from tempplug_adapters.images.backbones import Backbone
    from tempplug_adapters.images.image_set import ImageSet
    from tempplug_adapters.vision.recipe import VisionSettings

RANDOM = "random"
"""Label of the arm whose backbone is not trained; its strategy and objective go unused."""
ALIGNED_IMAGES = 2000
"""Test images at most of which two views are compared: the same for every arm and seed."""
VOTE_TEMPERATURE = 0.1
"""Of the neighbours' vote, in all papers."""

TRAINING = 0.9
"""Share of a run's progress that training is given; the rest is the evaluation."""

# How the lossy copies of a data set are called, by its name.
_COPIES = {"cifar10": "cifar10", "imagenette": "imagenette224", "tiny-imagenet": "tiny_imagenet_c100"}


def train_images(context: RunContext) -> dict[str, float]:
    """Trains on images without their classes and returns how well classes are told apart by what was learnt, and its shape."""
    recipe, size = context.recipe, load_size(context.recipe)
    images = read_images(str(recipe["dataset"]), "train", context, size=size, count=recipe["drawn"], wanted=recipe["images"])
    if recipe["dataset"] == recipe["labelled"]:
        bank = images
    else:
        bank = read_images(str(recipe["labelled"]), "train", context, size=size)
    test = read_images(str(recipe["labelled"]), "test", context, size=size)
    return _measure(train_backbone(context, images), bank, test, context)


def read_images(
    dataset: str,
    split: Literal["train", "test"],
    context: RunContext,
    *,
    size: int | None = None,
    count: Any = None,
    wanted: Any = None,
) -> ImageSet:
    """Returns a data set of images as `tempplug_adapters.images.image_data.load_images` does, and nothing in its place.

    A recipe with a ``folder`` reads that folder of the data; without one a data set may lie where the user has it, or come from
    the Hugging Face hub, but lossy copies or a part of it are refused.

    Args:
        dataset: name, or a folder below the data folder, ending in ``/``.
        split: ``train`` or ``test``.
        context: of the run.
        size: side to which images are brought; None leaves them.
        count: read that many only, always the same, drawn at random; None reads all.
        wanted: how many there must be; None is any number.

    Raises:
        DataError: there is no such data set, it is a copy, or has another number of images.
    """
    from tempplug_adapters.images.image_data import load_images

    folder = context.data_dir
    if folder is not None and context.recipe["folder"] is not None:
        folder = folder / str(context.recipe["folder"])
    elif folder is not None:
        _refuse_copies(dataset, folder)
    if dataset.endswith("/"):
        if folder is None:
            raise DataError(f"profile '{context.profile}' needs the folder {dataset}: pass --data-dir or set TEMPPLUG_DATA.")
        dataset = str(folder / dataset)
    images = load_images(dataset, split, folder, size=size, count=count)
    if wanted is not None and len(images) != wanted:
        raise DataError(
            f"the set '{images.name}' has {len(images):,} images, but profile '{context.profile}' is about {wanted:,}: pass "
            "the whole data set, or run another profile."
        )
    return images


def load_size(recipe: Recipe) -> int | None:
    """Returns the side to which images are brought before views of them are drawn."""
    side = recipe["load_size"]
    return None if side is None else int(side)


def settings_of(context: RunContext) -> VisionSettings:
    """Returns how the arm is trained: as all others, but with the heads that its strategy has in its paper."""
    from tempplug_adapters.vision.recipe import VisionSettings
    from tempplug_adapters.vision.recipes import HEADS

    values: dict[str, Any] = {
        each.name: context.recipe[each.name] for each in fields(VisionSettings) if each.name in context.recipe
    }
    settings = VisionSettings(seed=context.seed, heads=HEADS.get(parse_spec(context.arm.strategy)[0], 1), **values)
    return replace(settings, epochs=0) if context.arm.label == RANDOM else settings


def train_backbone(context: RunContext, images: ImageSet) -> Backbone:
    """Returns the backbone of the arm, trained on the images, on a GPU where there is one; a killed run goes on.

    Args:
        context: of the run.
        images: to train on.
    """
    from tempplug_adapters.huggingface import TemperatureArguments
    from tempplug_adapters.training.checkpoint import CHECKPOINT
    from tempplug_adapters.training.command_line import choose_device
    from tempplug_adapters.vision.checkpoint_backbone import load_backbone
    from tempplug_adapters.vision.train import train_vision

    recipe: dict[str, Any] = dict(context.recipe)
    settings, device = settings_of(context), choose_device("auto")
    train_vision(
        images,
        recipe["method"],
        TemperatureArguments(context.arm.strategy, contrastive_objective=context.arm.objective),
        settings,
        context.work_dir,
        resume_from_checkpoint="auto",
        save_epochs=recipe["save_epochs"],
        workers=recipe["workers"],
        device=device,
        progress=lambda done, loss: context.progress(
            TRAINING * done / settings.epochs, f"epoch {done} of {settings.epochs}, loss {loss:.3f}"
        ),
    )
    return load_backbone(context.work_dir / CHECKPOINT).to(device)


def represented(
    backbone: Backbone,
    images: ImageSet,
    context: RunContext,
    part: tuple[float, float],
    augmentation: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Returns the representations of all images, on the device of the backbone, and says how far it is.

    Args:
        backbone: trained.
        images: at least one.
        context: of the run.
        part: of the evaluation's progress that this is, from and to, in [0, 1].
        augmentation: for a random view of each.
    """
    from tempplug_adapters.images.representations import represent

    low, high = part
    rows = represent(
        backbone,
        images,
        size=int(context.recipe["image_size"] or 0),
        augmentation=augmentation,
        progress=lambda done: context.progress(TRAINING + (1 - TRAINING) * (low + (high - low) * done), "evaluating"),
    )
    return rows.to(next(backbone.parameters()).device)


def _measure(backbone: Backbone, bank: ImageSet, test: ImageSet, context: RunContext) -> dict[str, float]:
    from tempplug_adapters.vision.evaluation.knn import knn_accuracy
    from tempplug_adapters.vision.evaluation.linear_probe import linear_probe_accuracy
    from tempplug_adapters.vision.evaluation.report import representation_report
    from tempplug_adapters.vision.evaluation.settings import PROBES

    if bank.labels is None or test.labels is None:
        raise DataError(f"the sets '{bank.name}' and '{test.name}' must both have labels to be measured with.")
    recipe: dict[str, Any] = dict(context.recipe)
    learned, asked = represented(backbone, bank, context, (0, 0.4)), represented(backbone, test, context, (0.4, 0.7))
    labels, classes = bank.labels, len(bank.classes)
    report = representation_report(asked, None, test.labels)
    probe = replace(PROBES[recipe["probe"]], seed=context.seed)
    return {
        "kNN": knn_accuracy(
            learned, labels, asked, test.labels, k=recipe["neighbours"], temperature=VOTE_TEMPERATURE, classes=classes
        ),
        "linear": linear_probe_accuracy(learned, labels, asked, test.labels, probe, classes=classes),
        "alignment": _alignment(backbone, test, context),
        "uniformity": report["uniformity"],
        "tolerance": report["tolerance"],
        "interclass uniformity": report["interclass_uniformity"],
    }


def _alignment(backbone: Backbone, test: ImageSet, context: RunContext) -> float:
    """Returns the mean squared distance of two views, drawn alike for every arm of a seed."""
    import torch

    from tempplug import metrics
    from tempplug_adapters.images.augmentation import create_augmentation

    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:ALIGNED_IMAGES]
    settings = settings_of(context)
    augmentation = create_augmentation(settings.augmentation, settings.image_size)
    torch.manual_seed(context.seed)
    views = [represented(backbone, test.subset(chosen), context, part, augmentation) for part in ((0.7, 0.85), (0.85, 1))]
    return metrics.alignment(*views).item()


def _refuse_copies(dataset: str, folder: Path) -> None:
    for place in (folder, folder / "vision"):
        copy = place / f"{_COPIES.get(dataset, dataset)}_train_jpeg.npz"
        if copy.exists():
            raise DataError(
                f"{copy} holds lossy copies of images, which are no {dataset}: put the original data set into another folder "
                "and pass that one, or pass none to load it from the Hugging Face hub."
            )
