"""``tempplug train msc``: flags to a fine-tuned network, its ROC-AUC before and after, and a folder with all of it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

import tempplug
from tempplug.errors import TempplugError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.msc.one_class import OneClassData, one_class
from tempplug_adapters.msc.pretrained import MOBILENET, MOBILENET_FILE, load_backbone
from tempplug_adapters.msc.recipe import OPTIMIZERS, RECIPES, MSCSettings
from tempplug_adapters.msc.train import RESULTS_FILE, train_msc
from tempplug_adapters.training.checkpoint import resume_point
from tempplug_adapters.training.command_line import choose_device, data_folder, write_metrics

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
    train, test = (load_images(options.dataset, split, data_dir) for split in ("train", "test"))
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


def _describe(dataset: str, data: OneClassData) -> str:
    anomalies = int(data.anomalous.sum())
    return (
        f"{dataset}: {len(data.train)} training images of class {data.normal_class}, {len(data.test)} test images of which "
        f"{anomalies} are anomalies"
    )


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
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int, help="images a step")
    parser.add_argument("--optimizer", metavar="NAME", help=" or ".join(OPTIMIZERS))
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--momentum", type=float, help="of sgd")
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument("--image-size", type=int, help="pixels of each side")
    parser.add_argument("--frozen-blocks", type=int, help="how many of the network's first blocks are left as they are")
    parser.add_argument(
        "--angular", action="store_const", const=True, help="add the angular loss, which pulls the class together"
    )
    parser.add_argument("--neighbours", type=int, help="nearest normal images that make a score")
    parser.add_argument("--bf16", action="store_const", const=True, help="train in bfloat16")
    parser.add_argument("--train-images", type=int, help="normal images at most")
    parser.add_argument("--test-images", type=int, help="test images at most, as many of each class")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one (default: auto)")
    parser.add_argument(
        "--resume-from-checkpoint",
        nargs="?",
        const="auto",
        metavar="FILE",
        help="go on with a checkpoint; auto: with that of the output folder where it has one",
    )
    tempplug.add_temperature_arguments(parser)
    return parser
