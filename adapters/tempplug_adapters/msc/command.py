"""``tempplug train msc``: flags to a fine-tuned network, its ROC-AUC before and after, and a folder with all of it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from tqdm.auto import tqdm

import tempplug
from tempplug.errors import TempplugError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_files import ImageFiles
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.msc.one_class import OneClassData, one_class
from tempplug_adapters.msc.pretrained import MOBILENET, MOBILENET_FILE, load_backbone
from tempplug_adapters.msc.recipe import OPTIMIZERS, RECIPES, MSCSettings
from tempplug_adapters.msc.train import RESULTS_FILE, train_msc
from tempplug_adapters.training.checkpoint import resume_point
from tempplug_adapters.training.command_line import choose_device, data_folder, plain_warnings, write_metrics

DESCRIPTION = (
    "Fine-tune a pretrained network on the images of one class with the mean-shifted contrastive loss (MSC) and any "
    "temperature strategy, and measure how well distances tell that class from all others. Options that are not given come "
    "from the recipe. "
    "The network must not have been trained with labels of the data set's classes: that would leak the answer."
)


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status: 0, or 2 where the input is at fault.

    Args:
        arguments: the words after ``tempplug train msc``.
    """
    options = _parser().parse_args(arguments)
    try:
        with plain_warnings():
            metrics = run(options)
    except TempplugError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"ROC-AUC    {metrics['roc_auc_before']:.2f} before fine-tuning, {metrics['roc_auc_after']:.2f} after")
    return 0


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Trains and measures what the flags say, writes the folder, and returns what ``metrics.json`` holds.

    Raises:
        TempplugError: flags, data or checkpoint are at fault.
    """
    resume_point(options.output_dir, options.resume_from_checkpoint)
    settings = settings_of(options)
    temperature = TemperatureArguments(options.temperature_strategy, options.temperature_args, options.contrastive_objective)
    device, data_dir = choose_device(options.device), data_folder(options.data_dir)
    backbone = load_backbone(options.backbone, options.weights, data_dir)
    train, test = (
        _large_enough(load_images(options.dataset, split, data_dir), settings.image_size) for split in ("train", "test")
    )
    data = one_class(train, test, options.normal_class, train_images=settings.train_images, test_images=settings.test_images)
    with tqdm(total=settings.epochs, desc="train", unit="epoch", disable=None) as bar:

        def begin(specs: dict[str, str]) -> None:
            print(
                f"strategy {specs['strategy']}\nobjective {specs['objective']}\n{_describe(options.dataset, data)}", flush=True
            )

        def advance(epoch: int, mean: float) -> None:
            bar.set_postfix(loss=f"{mean:.4f}", refresh=False)
            bar.update(epoch - bar.n)

        metrics = train_msc(
            backbone,
            data,
            temperature,
            settings,
            options.output_dir,
            about={"backbone": options.backbone},
            resume_from_checkpoint=options.resume_from_checkpoint,
            device=device,
            begin=begin,
            progress=advance,
        )
    metrics = {"dataset": options.dataset, "backbone": options.backbone, **metrics}
    write_metrics(Path(options.output_dir) / RESULTS_FILE, metrics)
    return metrics


def settings_of(options: argparse.Namespace) -> MSCSettings:
    """Returns the settings of the recipe, with the flags that were given in place of its own."""
    given = {each.name: getattr(options, each.name) for each in fields(MSCSettings)}
    return replace(RECIPES[options.recipe], **{name: value for name, value in given.items() if value is not None})


def _large_enough(images: ImageSet, size: int) -> ImageSet:
    """Returns the set with no side smaller than what the network sees, where images are decoded anew each time."""
    return ImageFiles(images.encoded, size) if isinstance(images, ImageFiles) and images.size < size else images


def _describe(dataset: str, data: OneClassData) -> str:
    anomalies = int(data.anomalous.sum())
    return (
        f"{dataset}: {len(data.train)} training images of class {data.normal_class}, {len(data.test)} test images of which "
        f"{anomalies} are anomalies"
    )


_SETTINGS: Final[dict[str, tuple[type, str]]] = {
    "epochs": (int, "passes over the normal images"),
    "batch_size": (int, "images a step"),
    "optimizer": (str, " or ".join(OPTIMIZERS)),
    "learning_rate": (float, "of the optimizer, the same in all epochs"),
    "momentum": (float, "of sgd"),
    "weight_decay": (float, "of the network; temperatures are spared"),
    "image_size": (int, "pixels of each side"),
    "frozen_blocks": (int, "how many of the network's first blocks are left as they are"),
    "angular": (bool, "add the angular loss, which pulls the class together"),
    "neighbours": (int, "nearest normal images that make a score"),
    "bf16": (bool, "train in bfloat16"),
    "train_images": (int, "normal images at most"),
    "test_images": (int, "test images at most, as many of each class"),
    "seed": (int, "everything random follows from it"),
}
"""Flags of the settings: their types and what they are."""

_WITHOUT = {
    "frozen_blocks": "those up to an eighth of the image's side, as in the paper",
    "train_images": "all",
    "test_images": "all",
}


def _defaults(name: str) -> str:
    values = {recipe: getattr(settings, name) for recipe, settings in RECIPES.items()}
    told = {recipe: _WITHOUT[name] if value is None else _word(value) for recipe, value in values.items()}
    if len(set(told.values())) == 1:
        return f"default: {next(iter(told.values()))}"
    return f"default: {'; '.join(f'{recipe}: {word}' for recipe, word in told.items())}"


def _word(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tempplug train msc", description=DESCRIPTION)
    parser.add_argument(
        "--normal-class", required=True, metavar="CLASS", help="name or number; all other classes are anomalies"
    )
    parser.add_argument("--output-dir", required=True, metavar="DIR", help="for checkpoint, network and metrics.json")
    parser.add_argument("--dataset", default="cifar10", metavar="NAME", help="data set or folder (default: %(default)s)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder of real data (default: TEMPPLUG_DATA)")
    parser.add_argument(
        "--backbone",
        default=MOBILENET,
        metavar="NAME",
        help=f"{MOBILENET}, a folder or hub name of transformers, timm:NAME or torchvision:NAME (default: %(default)s)",
    )
    parser.add_argument("--weights", metavar="FILE", help=f"of {MOBILENET} (default: {MOBILENET_FILE} of the data folder)")
    parser.add_argument(
        "--recipe",
        choices=RECIPES,
        default="paper",
        help="where the settings below come from: the paper's, or small ones for a processor (default: %(default)s)",
    )
    for name, (kind, text) in _SETTINGS.items():
        flag, told = f"--{name.replace('_', '-')}", f"{text} ({_defaults(name)})"
        if kind is bool:
            parser.add_argument(flag, action="store_const", const=True, help=told)
        else:
            parser.add_argument(flag, type=kind, metavar="NAME" if kind is str else None, help=told)
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one (default: auto)")
    parser.add_argument(
        "--resume-from-checkpoint",
        metavar="auto|FILE",
        help="go on where a killed run stopped; auto: with the checkpoint of the output folder where it has one",
    )
    tempplug.add_temperature_arguments(parser)
    return parser
