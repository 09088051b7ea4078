"""`train_grace`: from a graph and a temperature strategy to node representations and their scores.

Everything random follows from the seed through PyTorch's global generator, which the checkpoint holds: a killed run goes on to
the same weights, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

import tempplug
from tempplug.arguments import parse_spec
from tempplug_adapters.graph.grace import GRACE, NodeFeatures, corrupt
from tempplug_adapters.graph.grace_recipe import GraceSettings, known_options
from tempplug_adapters.graph.node_batches import NodeBatch, NodeBatches
from tempplug_adapters.graph.node_data import check_graph
from tempplug_adapters.graph.node_evaluation import PROTOCOLS, evaluate_nodes
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.checkpoint import CHECKPOINT, Settings, load_checkpoint, resume_point, save_checkpoint
from tempplug_adapters.training.command_line import write_metrics

RESULTS_FILE = "metrics.json"
REPRESENTATIONS_FILE = "representations.pt"


def create_loss(temperature: TemperatureArguments, settings: GraceSettings, nodes: int) -> tempplug.ContrastiveLoss:
    """Returns GRACE's loss: both views' nodes are anchors, and of every other node both views are negatives.

    Args:
        temperature: the flags; the recipe's options are used where they give none.
        settings: of the training.
        nodes: of the graph.
    """
    name, _ = parse_spec(temperature.temperature_strategy or "fixed")
    return temperature.create_loss("two-view", **known_options(name, settings.epochs, nodes, settings.hidden))


def train_grace(
    graph: Data,
    temperature: TemperatureArguments,
    settings: GraceSettings,
    output_dir: str | Path,
    *,
    dataset: str = "graph",
    resume_from_checkpoint: str | None = None,
    save_epochs: int = 100,
    device: str = "cpu",
    begin: Callable[[dict[str, str]], None] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> dict[str, Any]:
    """Trains, writes the representations of all nodes, and classifies the nodes by them where the graph has classes.

    Args:
        graph: any PyTorch Geometric graph with node features; see `check_graph`.
        temperature: which strategy and objective.
        settings: how.
        output_dir: folder for checkpoint, representations and numbers.
        dataset: what messages and results call the graph.
        resume_from_checkpoint: ``auto`` goes on with the checkpoint of the folder where there is one; or a file.
        save_epochs: epochs between two checkpoints, at least 1; the last epoch always writes one.
        device: where to train, e.g. ``cpu`` or ``cuda``.
        begin: called with the resolved specs of strategy and objective.
        progress: called after every epoch with the number of epochs done and the mean loss of the epoch.

    Returns:
        ``dataset``, ``nodes``, ``edges``, ``strategy`` and ``objective`` (resolved specs), ``settings``, ``loss`` (of the last
        epoch), ``seconds_per_epoch`` (both None where no epoch was left to train), and ``evaluation``: micro and macro F1 × 100
        by protocol (see `PROTOCOLS`), empty where the graph has no classes. Also written as ``metrics.json``;
        ``representations.pt`` has the representations [N, hidden].

    Raises:
        DataError: the graph cannot be trained on, or the checkpoint is damaged.
        ConfigError: options do not fit, or the folder holds the checkpoint of another run.
        UnknownNameError: no such strategy or objective.
    """
    check_graph(graph, dataset)
    output = Path(output_dir)
    torch.manual_seed(settings.seed)
    features, edge_index = NodeFeatures(graph.x.float().to(device)), graph.edge_index.to(device)
    loss_fn = create_loss(temperature, settings, features.nodes).to(device)
    specs = {"strategy": loss_fn.strategy.spec(), "objective": loss_fn.objective.spec()}
    if begin is not None:
        begin(specs)
    widths = settings.hidden, settings.projection, settings.layers, settings.activation
    model = GRACE(features.columns, *widths).to(device)
    # A strategy's parameters are temperatures, which weight decay would pull to zero.
    groups = [
        {"params": list(model.parameters()), "weight_decay": settings.weight_decay},
        {"params": list(loss_fn.parameters()), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.Adam([group for group in groups if group["params"]], lr=settings.learning_rate)
    recipe = {"dataset": dataset, "nodes": features.nodes, **specs, **asdict(settings)}
    state = {"settings": Settings(recipe), "model": model, "loss": loss_fn, "optimizer": optimizer}
    start = load_checkpoint(resume_point(output, resume_from_checkpoint), **state)
    batches: Iterable[NodeBatch] = [NodeBatch(torch.arange(features.nodes, device=device), edge_index, features.nodes)]
    whole = settings.batch_size is None or settings.batch_size >= features.nodes
    if not whole:
        batches = NodeBatches(edge_index, features.nodes, settings.batch_size or 0, settings.neighbours, settings.layers)
    loss, began = None, time.perf_counter()
    for epoch in range(start, settings.epochs):
        loss_fn.set_progress(epoch)
        losses = []
        for batch in batches:
            pairs = zip(settings.edge_removal, settings.feature_masking, strict=True)
            views = [corrupt(batch.edge_index, features.columns, *shares) for shares in pairs]
            view_a, view_b = model(features, views, None if whole else batch.nodes, batch.seeds)
            optimizer.zero_grad()
            value = loss_fn(view_a, view_b, index=batch.nodes[: batch.seeds])
            value.backward()
            optimizer.step()
            losses.append(value.detach())
        loss = float(torch.stack(losses).mean())
        if (epoch + 1) % save_epochs == 0 or epoch + 1 == settings.epochs:
            save_checkpoint(output / CHECKPOINT, epoch + 1, **state)
        if progress is not None:
            progress(epoch + 1, loss)
    trained = settings.epochs - start
    seconds = (time.perf_counter() - began) / trained if trained else None
    representations = model.representations(features, edge_index).cpu()
    results = {
        "dataset": dataset,
        "nodes": features.nodes,
        "edges": int(edge_index.shape[1]),
        **specs,
        "settings": asdict(settings),
        "loss": loss,
        "seconds_per_epoch": seconds,
        "evaluation": {} if graph.y is None else _scores(representations, graph.y, settings.seed),
    }
    output.mkdir(parents=True, exist_ok=True)
    torch.save(representations, output / REPRESENTATIONS_FILE)
    write_metrics(output / RESULTS_FILE, results)
    return results


def _scores(representations: torch.Tensor, labels: Any, seed: int) -> dict[str, dict[str, float]]:
    return {protocol: asdict(evaluate_nodes(representations, labels, protocol, seed)) for protocol in PROTOCOLS}
