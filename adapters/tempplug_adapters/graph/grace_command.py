"""``tempplug train grace``: flags to `train_grace`, and a table of what came out."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

import tempplug
from tempplug.errors import ConfigError, TempplugError
from tempplug_adapters.graph.grace import ACTIVATIONS
from tempplug_adapters.graph.grace_recipe import GraceSettings
from tempplug_adapters.graph.grace_train import train_grace
from tempplug_adapters.graph.node_data import DATASETS, load_graph
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.command_line import plain_warnings

DESCRIPTION = (
    "Train node representations with GRACE and any temperature strategy, and classify nodes by them. "
    "Options that are not given come from the recipe, temperatures included."
)


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command's flags; its defaults are those of `GraceSettings`."""
    parser = argparse.ArgumentParser(prog="tempplug train grace", description=DESCRIPTION)
    data = parser.add_argument_group("data")
    data.add_argument("--dataset", required=True, help=f"{', '.join(DATASETS)}, or a .pt file with a PyTorch Geometric Data")
    data.add_argument("--data-dir", help="folder of data (default: TEMPPLUG_DATA; without it, PyTorch Geometric downloads)")
    data.add_argument(
        "--raw-features", action="store_true", help="leave the features of a node as they are, not scaled to sum 1"
    )
    data.add_argument("--output-dir", type=Path, required=True, help="for checkpoint, representations and numbers")
    training = parser.add_argument_group("training")
    flag = training.add_argument
    recipe = GraceSettings()
    flag("--epochs", type=int, default=recipe.epochs)
    flag("--hidden", type=int, default=recipe.hidden, help="width of the representations")
    flag("--projection", type=int, default=recipe.projection, help="width inside the projection head")
    flag("--layers", type=int, default=recipe.layers, help="graph convolutions")
    flag("--activation", choices=tuple(ACTIVATIONS), default=recipe.activation)
    flag("--learning-rate", type=float, default=recipe.learning_rate)
    flag("--weight-decay", type=float, default=recipe.weight_decay)
    each: dict[str, Any] = {"type": float, "nargs": "+", "metavar": "P"}
    flag("--edge-removal", **each, default=recipe.edge_removal, help="share of edges removed: of both views, or of a and of b")
    flag("--feature-masking", **each, default=recipe.feature_masking, help="share of feature columns hidden, likewise")
    flag("--batch-size", type=int, help="nodes a step, around them a sampled part of the graph (default: the whole graph)")
    flag("--neighbours", type=int, default=recipe.neighbours, help="with --batch-size: neighbours followed, a node and layer")
    flag("--seed", type=int, default=recipe.seed)
    flag("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="(default: cuda where there is a GPU)")
    flag("--save-epochs", type=int, default=100, help="epochs between two checkpoints")
    flag("--resume-from-checkpoint", metavar="auto|FILE", help="go on where a killed run stopped")
    tempplug.add_temperature_arguments(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status: 0, or 2 where the input is at fault.

    Args:
        arguments: the words after ``tempplug train grace``.
    """
    given = build_parser().parse_args(arguments)
    try:
        with plain_warnings():
            results = _train(given)
    except TempplugError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for protocol, scores in results["evaluation"].items():
        print(f"train/valid/test {protocol}  F1-micro {scores['micro']:6.2f}  F1-macro {scores['macro']:6.2f}")
    return 0


def _train(given: argparse.Namespace) -> dict[str, Any]:
    for name in ("edge_removal", "feature_masking"):
        setattr(given, name, _pair(name, getattr(given, name)))
    if given.save_epochs < 1:
        raise ConfigError(f"save_epochs={given.save_epochs} must be at least 1.")
    settings = GraceSettings(**{each.name: getattr(given, each.name) for each in fields(GraceSettings)})
    temperature = TemperatureArguments(given.temperature_strategy, given.temperature_args, given.contrastive_objective)
    data_dir = given.data_dir or os.environ.get("TEMPPLUG_DATA") or None
    graph = load_graph(given.dataset, data_dir, given.output_dir / "data", normalize=not given.raw_features)
    with tqdm(total=settings.epochs, unit="epoch", desc="train", disable=None) as bar:

        def begin(specs: dict[str, str]) -> None:
            bar.write(f"strategy {specs['strategy']}\nobjective {specs['objective']}")

        def progress(done: int, loss: float) -> None:
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            bar.update(done - bar.n)

        return train_grace(
            graph,
            temperature,
            settings,
            given.output_dir,
            dataset=given.dataset,
            resume_from_checkpoint=given.resume_from_checkpoint,
            save_epochs=given.save_epochs,
            device=given.device,
            begin=begin,
            progress=progress,
        )


def _pair(name: str, values: list[float] | tuple[float, ...]) -> tuple[float, float]:
    if len(values) > 2:
        raise ConfigError(f"{name} takes one number for both views or two, not {len(values)}.")
    return values[0], values[-1]
