"""``tempplug train simclr`` and its siblings: flags to `train_vision`, one parser for all methods.

A setting that is not given comes from the recipe. Under torchrun the processes train together, and the first one speaks.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

import tempplug
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, DataError, TempplugError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.image_data import DATASETS, load_images
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.images.long_tail import long_tail_part
from tempplug_adapters.training.checkpoint import resume_point
from tempplug_adapters.training.command_line import choose_device, data_folder, plain_warnings
from tempplug_adapters.training.seeds import check_seed
from tempplug_adapters.vision import processes
from tempplug_adapters.vision.methods import WITHOUT_SOFTMAX
from tempplug_adapters.vision.old_recipe import METHODS, VisionSettings
from tempplug_adapters.vision.old_recipes import HEADS, RECIPES, recipe_settings
from tempplug_adapters.vision.train import train_vision

DESCRIPTION = (
    "Train a backbone on images with {method} and {strategy}, and measure it by the neighbours of test images. Settings that "
    "are not given come from the recipe{temperatures}."
)


def main(method: str, arguments: list[str]) -> int:
    """Runs the command of a method and returns its exit status: 0, or 2 where the input is at fault.

    Args:
        method: one of `METHODS`.
        arguments: the words after ``tempplug train METHOD``.
    """
    given = build_parser(method).parse_args(arguments)
    try:
        with plain_warnings(), processes.process_group(choose_device(given.device)) as device:
            results = _train(method, given, device)
            first = not processes.rank()
    except TempplugError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if first and results["knn"] is not None:
        print(f"kNN accuracy {results['knn']['accuracy']:.2f} (k={results['knn']['k']})")
    return 0


main_simclr = partial(main, "simclr")
main_moco = partial(main, "moco")
main_nnclr = partial(main, "nnclr")
main_simsiam = partial(main, "simsiam")
main_barlow_twins = partial(main, "barlow-twins")


def build_parser(method: str) -> argparse.ArgumentParser:
    """Returns the parser of a method's flags: what it has no use for is no flag of it.

    Args:
        method: one of `METHODS`.
    """
    softmax = method not in WITHOUT_SOFTMAX
    description = DESCRIPTION.format(
        method=method,
        strategy="any temperature strategy" if softmax else "no temperature, or AMCL's",
        temperatures=", temperatures and objective included" if softmax else "",
    )
    parser = argparse.ArgumentParser(prog=f"tempplug train {method}", description=description)
    _add_data_flags(parser.add_argument_group("data"))
    recipes = RECIPES[method]
    default = next(iter(recipes.values()))
    training = parser.add_argument_group("training")
    training.add_argument(
        "--recipe", metavar="NAME", help=f"the settings of a paper: {', '.join(recipes)} (default: {default.recipe})"
    )
    for each in fields(VisionSettings):
        if each.name != "recipe" and method in each.metadata["methods"]:
            _add_setting(training, each.name, each.metadata, getattr(default, each.name))
    running = parser.add_argument_group("running")
    running.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one (default: auto)")
    running.add_argument("--workers", type=int, default=0, help="processes that read images beside the training (default: 0)")
    running.add_argument("--save-epochs", type=int, default=10, help="epochs between two checkpoints (default: 10)")
    running.add_argument("--evaluate-epochs", type=int, help="measure also after every so many epochs (default: at the end)")
    running.add_argument("--no-evaluate", dest="evaluate", action="store_false", help="measure nothing; needs no test images")
    running.add_argument("--resume-from-checkpoint", metavar="auto|FILE", help="go on where a killed run stopped")
    tempplug.add_temperature_arguments(parser, default="fixed" if softmax else None)
    # None tells "not given" from "given", so that the recipe can fill it
    parser.set_defaults(contrastive_objective=None)
    return parser


def _add_data_flags(data: Any) -> None:
    data.add_argument("--dataset", required=True, help=f"{', '.join(DATASETS)}, or a folder with train and test or val")
    data.add_argument("--data-dir", help="folder of data (default: TEMPPLUG_DATA; without it, the Hugging Face hub)")
    data.add_argument("--output-dir", type=Path, required=True, help="for checkpoint.pt and metrics.json")
    data.add_argument("--count", type=int, help="train on so many images, drawn at random (default: all)")
    data.add_argument("--load-size", type=int, help="side to which images are brought before views (default: the image size)")
    data.add_argument(
        "--imbalance-ratio", type=float, help="train on a long-tailed part: its largest class over its smallest (default: all)"
    )
    data.add_argument(
        "--largest-class", type=int, help="images of the largest class then (default: nine tenths of the smallest there is)"
    )
    data.add_argument("--split-seed", type=int, default=0, help="of the drawn images; training has its own (default: 0)")


def _add_setting(group: Any, name: str, about: Any, default: Any) -> None:
    flag = f"--{name.replace('_', '-')}"
    text = f"{about['help']} (default: {'of the method' if default is None else default})"
    if about["kind"] is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
    else:
        choices = about["choices"] or None
        group.add_argument(flag, type=about["kind"], choices=choices, help=text)


def _train(method: str, given: argparse.Namespace, device: Any) -> dict[str, Any]:
    temperature = TemperatureArguments(given.temperature_strategy, given.temperature_args, given.contrastive_objective)
    settings = _settings(method, given)
    check_seed("split_seed", given.split_seed)
    resume_point(given.output_dir, given.resume_from_checkpoint)  # images may take minutes
    images, test, about = _load(given, settings)
    first = not processes.rank()
    with tqdm(total=settings.epochs, unit="epoch", desc="train", disable=None if first else True) as bar:

        def begin(specs: dict[str, str | None]) -> None:
            if first:
                lines = [f"{kind} {spec or 'none'}" for kind, spec in specs.items()]
                lines.append(f"{images.name}: {len(images)} images, recipe {settings.recipe}, {processes.world()} process(es)")
                bar.write("\n".join(lines))

        def progress(done: int, loss: float) -> None:
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            bar.update(done - bar.n)

        return train_vision(
            images,
            method,
            temperature,
            settings,
            given.output_dir,
            test=test,
            about=about,
            resume_from_checkpoint=given.resume_from_checkpoint,
            save_epochs=given.save_epochs,
            evaluate_epochs=given.evaluate_epochs,
            workers=given.workers,
            device=device,
            begin=begin,
            progress=progress,
        )


def _settings(method: str, given: argparse.Namespace) -> VisionSettings:
    names = (each.name for each in fields(VisionSettings) if each.name != "recipe")
    changes = {name: value for name in names if (value := getattr(given, name, None)) is not None}
    strategy = parse_spec(given.temperature_strategy)[0] if given.temperature_strategy else ""
    if strategy in HEADS:
        changes.setdefault("heads", HEADS[strategy])
    return recipe_settings(method, given.recipe, **changes)


def _load(given: argparse.Namespace, settings: VisionSettings) -> tuple[ImageSet, ImageSet | None, dict[str, Any]]:
    """Returns what is trained on, what is measured with, and what decides which images these are."""
    folder = data_folder(given.data_dir)
    size = settings.image_size if given.load_size is None else given.load_size
    images = load_images(given.dataset, "train", folder, size=size, count=given.count, seed=given.split_seed)
    drawn = given.count is not None or given.imbalance_ratio is not None
    about = {
        "load_size": size,
        "count": given.count,
        "imbalance_ratio": given.imbalance_ratio,
        "largest_class": given.largest_class,
        "split_seed": given.split_seed if drawn else None,
    }
    if given.imbalance_ratio is not None:
        if images.labels is None:
            raise DataError(f"imbalance_ratio needs the class of every image, which the set '{images.name}' has not.")
        part, about["largest_class"] = long_tail_part(
            images.labels, images.classes, given.imbalance_ratio, given.largest_class, given.split_seed
        )
        images = images.subset(part)
    elif given.largest_class is not None:
        raise ConfigError(f"largest_class={given.largest_class} belongs to a long-tailed part: give imbalance_ratio, too.")
    if not given.evaluate or images.labels is None:
        if given.evaluate_epochs is not None:
            raise ConfigError(f"evaluate_epochs={given.evaluate_epochs}, but there is nothing to measure with: leave it out.")
        return images, None, about
    try:
        test = load_images(given.dataset, "test", folder, size=size)
        test.batch(torch.tensor([0]))  # read now, where the set is on disk: it is measured with after the training
    except DataError as error:
        raise DataError(f"{error} Or pass --no-evaluate to train without measuring.") from error
    return images, test, about


__all__ = ["METHODS", "build_parser", "main", "main_barlow_twins", "main_moco", "main_nnclr", "main_simclr", "main_simsiam"]
