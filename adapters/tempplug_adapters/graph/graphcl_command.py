"""``tempplug train graphcl``: flags to a trained graph encoder, its accuracy, and a folder with all of it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

import tempplug
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, TempplugError
from tempplug_adapters.graph.augmentation import AUGMENTATIONS
from tempplug_adapters.graph.graph_data import GraphSet, load_tu
from tempplug_adapters.graph.graphcl_recipe import OBJECTIVE, GraphCLSettings, augmentations_for, known_options
from tempplug_adapters.graph.graphcl_train import LAYOUT, represent, specs, train_graphcl
from tempplug_adapters.graph.svm import evaluate_svm
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.checkpoint import resume_point
from tempplug_adapters.training.command_line import choose_device, data_folder, plain_warnings, write_metrics

METRICS_FILE = "metrics.json"
ENCODER_FILE = "encoder.pt"
FOLDS = 10
DESCRIPTION = (
    "Train a graph encoder with GraphCL and any temperature strategy, and measure it with a support vector machine. Options "
    "that are not given come from the recipe of GraphCL's code for the TU data sets, temperatures and objective included."
)


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status: 0, or 2 where the input is at fault.

    Args:
        arguments: the words after ``tempplug train graphcl``.
    """
    options = _parser().parse_args(arguments)
    try:
        with plain_warnings():
            metrics = run(options)
    except TempplugError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if "accuracy" in metrics:
        print(f"accuracy   {metrics['accuracy']:.2f} (support vector machine, {len(metrics['folds'])} folds)")
    return 0


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Trains and measures what the flags say, writes the folder, and returns what ``metrics.json`` holds.

    Raises:
        TempplugError: flags, data or checkpoint are at fault.
    """
    output = Path(options.output_dir)
    checkpoint = resume_point(output, options.resume_from_checkpoint)
    settings = GraphCLSettings(
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        hidden=options.hidden,
        layers=options.layers,
        augmentations=tuple(options.augmentations or augmentations_for(options.dataset)),
        seed=options.seed,
    )
    temperature = TemperatureArguments(options.temperature_strategy, options.temperature_args, options.contrastive_objective)
    graphs = load_tu(options.dataset, Path(options.cache_dir or output / "data"), data_folder(options.data_dir))
    loss = create_loss(temperature, settings, len(graphs))
    resolved = specs(loss)
    print(
        f"strategy {resolved['strategy']}\nobjective {resolved['objective']}\n{describe(options.dataset, graphs)}", flush=True
    )
    started = time.perf_counter()
    with tqdm(total=settings.epochs, desc="train", unit="epoch", disable=None) as bar:

        def advance(epoch: int, mean: float) -> None:
            bar.set_postfix(loss=f"{mean:.4f}", refresh=False)
            bar.update(epoch - bar.n)

        model, history = train_graphcl(
            graphs, loss, settings, checkpoint=checkpoint, device=choose_device(options.device), progress=advance
        )
    seconds = time.perf_counter() - started
    metrics: dict[str, Any] = {"dataset": options.dataset, "graphs": len(graphs), **resolved, **settings.values()}
    metrics |= {"loss": history[-1] if history else None, "seconds": round(seconds, 3), "epochs_now": len(history)}
    torch.save(model.encoder.state_dict(), output / ENCODER_FILE)
    if options.evaluate:
        if graphs.labels is None:
            raise ConfigError(f"dataset '{options.dataset}' has no labels to measure with: pass --no-evaluate.")
        with tqdm(total=FOLDS, desc="evaluate", unit="fold", disable=None) as bar:
            score = evaluate_svm(
                represent(model, graphs), graphs.labels, seed=settings.seed, folds=FOLDS, progress=lambda _: _one_more(bar)
            )
        metrics |= {"accuracy": score.accuracy, "folds": list(score.folds)}
    write_metrics(output / METRICS_FILE, metrics)
    return metrics


def create_loss(temperature: TemperatureArguments, settings: GraphCLSettings, graphs: int) -> tempplug.ContrastiveLoss:
    """Returns GraphCL's loss: one way from the graphs to their views, the recipe's options where the flags give none.

    Args:
        temperature: the flags.
        settings: of the training.
        graphs: in the data set.
    """
    name, _ = parse_spec(temperature.temperature_strategy or "fixed")
    known = known_options(name, settings.epochs, graphs, settings.layers * settings.hidden)
    return temperature.create_loss(LAYOUT, **known)


def describe(dataset: str, graphs: GraphSet) -> str:
    """Returns the size of a data set in words."""
    edges = graphs.edge_index.shape[1]
    return f"{dataset}: {len(graphs)} graphs, {len(graphs.x)} nodes, {edges} directed edges, {graphs.x.shape[1]} features"


def _parser() -> argparse.ArgumentParser:
    recipe = GraphCLSettings()
    parser = argparse.ArgumentParser(prog="tempplug train graphcl", description=DESCRIPTION)
    parser.add_argument("--dataset", required=True, metavar="NAME", help="data set of the TU collection, for example MUTAG")
    parser.add_argument("--output-dir", required=True, metavar="DIR", help="for checkpoint, encoder and metrics.json")
    parser.add_argument("--data-dir", metavar="DIR", help="has graph/tu/NAME.tar.xz (default: TEMPPLUG_DATA, else a download)")
    parser.add_argument("--cache-dir", metavar="DIR", help="where data are unpacked (default: data in the output folder)")
    parser.add_argument("--epochs", type=int, default=recipe.epochs, help="(default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=recipe.batch_size, help="graphs a step (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=recipe.learning_rate, help="of Adam (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=recipe.hidden, help="width of a layer (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=recipe.layers, help="of the encoder (default: %(default)s)")
    parser.add_argument(
        "--augmentations",
        nargs="+",
        metavar="NAME",
        help=f"one is drawn for each graph: {', '.join(AUGMENTATIONS)} (default: the recipe's for the data set)",
    )
    parser.add_argument("--seed", type=int, default=recipe.seed, help="(default: %(default)s)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one (default: auto)")
    parser.add_argument(
        "--resume-from-checkpoint",
        metavar="auto|FILE",
        help="go on where a killed run stopped; auto: with the checkpoint of the output folder where it has one",
    )
    parser.add_argument(
        "--no-evaluate", dest="evaluate", action="store_false", help="leave out the support vector machine at the end"
    )
    tempplug.add_temperature_arguments(parser)
    parser.set_defaults(contrastive_objective=OBJECTIVE)
    return parser


def _one_more(bar: tqdm[Any]) -> None:
    bar.update()
