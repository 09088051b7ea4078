"""GRACE as a method: a graph of nodes, of which a step contrasts all, or some with a sampled part of the graph around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from tempplug import ContrastiveLoss
from tempplug_adapters.graph.grace import GRACE, NodeFeatures, View, corrupt
from tempplug_adapters.graph.grace_recipe import GraceRecipe
from tempplug_adapters.graph.node_batches import NodeBatch, NodeSampler
from tempplug_adapters.graph.node_data import check_graph, load_graph
from tempplug_adapters.graph.node_evaluation import PROTOCOLS, evaluate_nodes
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
        return Nodes(graph, source.dataset)

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
        if len(index) == len(data):
            part, nodes = NodeBatch(torch.arange(len(data)), data.edge_index, len(data)), None
        else:
            part = data.sampler.around(index, recipe.neighbours, recipe.layers)
            nodes = part.nodes
        shares = zip(_both(recipe.edge_removal), _both(recipe.feature_masking), strict=True)
        views = [corrupt(part.edge_index, data.x.shape[1], *each) for each in shares]
        return {"views": views, "nodes": nodes, "seeds": part.nodes[: part.seeds]}

    def evaluate(self, recipe: GraceRecipe, module: nn.Module, data: Nodes, run: Run) -> dict[str, float]:
        """Returns F1-micro and F1-macro × 100 by protocol (see `PROTOCOLS`), nothing where the graph has no classes."""
        if data.labels is None:
            return {}
        rows = self.representations(module, data)
        found: dict[str, float] = {}
        for number, protocol in enumerate(PROTOCOLS, 1):
            scores = asdict(evaluate_nodes(rows, data.labels, protocol, recipe.seed))
            found |= {f"f1_{name} {protocol}": value for name, value in scores.items()}
            run.progress(number / len(PROTOCOLS))
        return found

    @torch.no_grad()
    def representations(self, module: Any, data: Nodes) -> Tensor:
        """Returns the representations of all nodes of the graph as it is, [N, hidden], on the CPU."""
        device = next(module.parameters()).device
        rows: Tensor = module.grace.representations(module.features.to(device), data.edge_index.to(device)).cpu()
        return rows

    def save(self, recipe: GraceRecipe, module: nn.Module, data: Nodes, output_dir: Path) -> None:
        """Writes the encoder's weights, and the representations of all nodes."""
        super().save(recipe, module, data, output_dir)
        rows = self.representations(module, data)
        write_tensors(output_dir / REPRESENTATIONS_FILE, rows)


def _both(shares: tuple[float, ...]) -> tuple[float, float]:
    return shares[0], shares[-1]
