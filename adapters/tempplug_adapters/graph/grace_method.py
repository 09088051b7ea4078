"""GRACE as a method: a graph of nodes, of which a step contrasts all, or some with a sampled part of the graph around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from tempplug import ContrastiveLoss
from tempplug_adapters.graph.gcn import View
from tempplug_adapters.graph.grace import GRACE, corrupt
from tempplug_adapters.graph.grace_recipe import GraceRecipe
from tempplug_adapters.graph.node_batches import NodeSampler
from tempplug_adapters.graph.node_data import check_graph, load_graph
from tempplug_adapters.graph.node_evaluation import check_evaluation, evaluate_nodes
from tempplug_adapters.graph.node_features import NodeFeatures
from tempplug_adapters.storage.tensors import write_tensors
from tempplug_adapters.training.method import Method, Run, Source

REPRESENTATIONS_FILE = "representations.pt"
"""Of all nodes, [N, hidden], in the output folder."""


class Nodes:
    """A graph as long as it has nodes, with a sampler of its neighbourhoods.

    Args:
        graph: any PyTorch Geometric graph with node features; see `check_graph`.
        name: what messages call it.

    Raises:
        DataError: it cannot be trained on.
    """

    def __init__(self, graph: Data, name: str = "graph") -> None:
        check_graph(graph, name)
        self.x, self.edge_index, self.labels = graph.x.float(), graph.edge_index, graph.y
        self.edge_weight = graph.get("edge_weight")
        masks = [graph.get(name) for name in ("train_mask", "val_mask", "test_mask")]
        self.masks = None if any(each is None for each in masks) else masks
        self.sampler = NodeSampler(self.edge_index, len(self))

    def __len__(self) -> int:
        return int(self.x.shape[0])


class GraceModule(nn.Module):
    """Two views of nodes to the loss."""

    def __init__(self, recipe: GraceRecipe, data: Nodes, loss_fn: ContrastiveLoss) -> None:
        super().__init__()
        self.features = NodeFeatures(data.x)
        self.grace = GRACE(self.features.columns, recipe.hidden, recipe.projection, recipe.layers, recipe.activation)
        self.loss_fn = loss_fn

    @property
    def encoder(self) -> nn.Module:
        """The graph convolutions, whose representations are kept."""
        return self.grace.encoder

    def forward(self, views: Sequence[View], nodes: Tensor | None, seeds: Tensor) -> Tensor:
        """Returns the loss in nats, [].

        Args:
            views: two, which number the nodes as they stand in ``nodes``.
            nodes: [n] positions in the graph; None where the views number all.
            seeds: [s] positions of the nodes to contrast, which come first.
        """
        device = seeds.device
        features, views = self.features.to(device), [view.to(device) for view in views]
        view_a, view_b = self.grace(features, views, nodes, None if nodes is None else len(seeds))
        loss: Tensor = self.loss_fn(view_a, view_b, **self.loss_fn.taken(index=seeds))
        return loss


class GraceMethod(Method[GraceRecipe, Nodes]):
    """Both views' nodes are anchors, and of every other node both views are negatives.

    Source: Zhu et al. 2020, Deep Graph Contrastive Representation Learning.
    """

    def load(self, recipe: GraceRecipe, source: Source) -> Nodes:
        """Returns a citation graph, or the graph of a file."""
        graph = load_graph(source.dataset, source.data_dir, source.cache_dir, normalize=not recipe.raw_features)
        nodes = Nodes(graph, source.dataset)
        if nodes.labels is not None and source.evaluated:  # said now, what has no figure in the end
            check_evaluation(nodes.labels, recipe.protocols, nodes.masks)
        return nodes

    def describe(self, data: Nodes) -> str:
        """Returns the numbers of nodes, edges and features."""
        return f"{len(data)} nodes, {data.edge_index.shape[1]} edges, {data.x.shape[1]} features"

    def known(self, recipe: GraceRecipe, data: Nodes) -> dict[str, Any]:
        """Returns the number of nodes and the width of the embeddings."""
        return {"size": len(data), "dimension": recipe.hidden}

    def build(self, recipe: GraceRecipe, data: Nodes, loss: Any) -> GraceModule:
        """Returns the model with random weights."""
        return GraceModule(recipe, data, loss)

    def collate(self, recipe: GraceRecipe, data: Nodes, index: Tensor) -> dict[str, Any]:
        """Returns two corrupted views of the graph, or of the part around some nodes.

        The whole graph keeps the order of its nodes: where all are contrasted, that of the anchors is of no consequence.
        """
        reach: tuple[int, ...] = ()
        if len(index) == len(data):
            edges, weight, nodes, seeds = data.edge_index, data.edge_weight, None, torch.arange(len(data))
        else:
            part = data.sampler.around(index, recipe.neighbours, recipe.layers)
            edges, nodes, seeds, reach = part.edge_index, part.nodes, part.nodes[: part.seeds], part.reach
            weight = None if data.edge_weight is None else data.edge_weight[part.edges]
        shares = zip(_both(recipe.edge_removal), _both(recipe.feature_masking), strict=True)
        views = [replace(corrupt(edges, data.x.shape[1], *each, weight), reach=reach) for each in shares]
        return {"views": views, "nodes": nodes, "seeds": seeds}

    def evaluate(self, recipe: GraceRecipe, module: nn.Module, data: Nodes, run: Run) -> dict[str, float]:
        """Returns F1-micro and F1-macro × 100 by protocol (see `evaluate_nodes`), nothing where the graph has no classes."""
        if data.labels is None:
            return {}
        scores = evaluate_nodes(
            self.representations(module, data),
            data.labels,
            recipe.protocols,
            recipe.seed,
            splits=recipe.splits,
            strengths=recipe.l2,
            masks=data.masks,
            progress=run.progress,
        )
        return {f"f1_{name} {protocol}": value for protocol, each in scores.items() for name, value in asdict(each).items()}

    @torch.no_grad()
    def representations(self, module: Any, data: Nodes) -> Tensor:
        """Returns the representations of all nodes of the graph as it is, [N, hidden], on the CPU."""
        device = next(module.parameters()).device
        weight = None if data.edge_weight is None else data.edge_weight.to(device)
        rows: Tensor = module.encoder.of_graph(module.features.to(device), data.edge_index.to(device), weight).cpu()
        return rows

    def save(self, recipe: GraceRecipe, module: nn.Module, data: Nodes, output_dir: Path) -> None:
        """Writes the encoder's weights, and the representations of all nodes."""
        super().save(recipe, module, data, output_dir)
        rows = self.representations(module, data)
        write_tensors(output_dir / REPRESENTATIONS_FILE, rows)


def _both(shares: tuple[float, ...]) -> tuple[float, float]:
    return shares[0], shares[-1]
