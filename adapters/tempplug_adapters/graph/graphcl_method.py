"""GraphCL as a method: graphs as they are against one augmented view of each, in batches that are the same in every epoch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss
from tempplug_adapters.graph.augmentation import augment
from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet
from tempplug_adapters.graph.graphcl import GraphCL
from tempplug_adapters.graph.graphcl_recipe import GraphCLRecipe
from tempplug_adapters.graph.svm import check_classes, evaluate_svm
from tempplug_adapters.graph.tu_files import load_tu
from tempplug_adapters.training.method import Method, Run, Source

_AT_ONCE = 128  # graphs whose representations are computed together


class Graphs:
    """A data set whose batches are kept: cutting them, and turning their edges into sparse patterns, takes as long as a step.

    Args:
        graphs: of which labels are looked at by the evaluation alone.
    """

    def __init__(self, graphs: GraphSet) -> None:
        self.all = graphs
        self._kept: dict[tuple[int, ...], GraphBatch] = {}

    def __len__(self) -> int:
        return len(self.all)

    def batch(self, index: Tensor) -> GraphBatch:
        """Returns some of the graphs, [B] positions; the same object where it was asked for these before."""
        key = tuple(index.tolist())
        if key not in self._kept:
            self._kept[key] = self.all.batch(index)
        return self._kept[key]


class GraphCLModule(nn.Module):
    """Graphs and their views to the loss."""

    def __init__(self, recipe: GraphCLRecipe, features: int, loss_fn: ContrastiveLoss) -> None:
        super().__init__()
        self.graphcl = GraphCL(features, recipe.hidden, recipe.layers)
        self.loss_fn = loss_fn

    @property
    def encoder(self) -> nn.Module:
        """The graph convolutions, whose representations are measured."""
        return self.graphcl.encoder

    def forward(self, graphs: GraphBatch, views: GraphBatch, index: Tensor) -> Tensor:
        """Returns the loss in nats, [].

        Args:
            graphs: B as they are.
            views: one of each.
            index: [B] their positions in the data set.
        """
        device = index.device
        embeddings = self.graphcl(graphs.to(device)), self.graphcl(views.to(device))
        loss: Tensor = self.loss_fn(*embeddings, **self.loss_fn.taken(index=index))
        return loss


class GraphCLMethod(Method[GraphCLRecipe, Graphs]):
    """One way from the graphs to their views: a graph's negatives are the views of the others.

    Source: You et al. 2020 (GraphCL), and its code, which shuffles before the first epoch only.
    """

    reshuffled = False

    def load(self, recipe: GraphCLRecipe, source: Source) -> Graphs:
        """Returns a data set of the TU collection."""
        graphs = load_tu(source.dataset, source.cache_dir, source.data_dir)
        if graphs.labels is not None and source.evaluated:
            check_classes(graphs.labels, recipe.folds)  # refuses now what has no figure in the end
        return Graphs(graphs)

    def recipe_of(self, recipe: GraphCLRecipe, strategy: str, dataset: str) -> GraphCLRecipe:
        """Returns the recipe with the augmentations for the data set, where it names none."""
        return recipe.changed(augmentations=recipe.pool(dataset))

    def describe(self, data: Graphs) -> str:
        """Returns the numbers of graphs, nodes, edges and features."""
        nodes, features = data.all.x.shape
        return f"{len(data)} graphs, {nodes} nodes, {data.all.edge_index.shape[1]} directed edges, {features} features"

    def known(self, recipe: GraphCLRecipe, data: Graphs) -> dict[str, Any]:
        """Returns the number of graphs and the width of the embeddings."""
        return {"size": len(data), "dimension": recipe.layers * recipe.hidden}

    def build(self, recipe: GraphCLRecipe, data: Graphs, loss: Any) -> GraphCLModule:
        """Returns the model with random weights."""
        return GraphCLModule(recipe, data.all.x.shape[1], loss)

    def collate(self, recipe: GraphCLRecipe, data: Graphs, index: Tensor) -> dict[str, Any]:
        """Returns graphs and a view of each."""
        graphs = data.batch(index)
        return {"graphs": graphs, "views": augment(graphs, recipe.augmentations), "index": index}

    def evaluate(self, recipe: GraphCLRecipe, module: nn.Module, data: Graphs, run: Run) -> dict[str, float]:
        """Returns the accuracy in % of a support vector machine, mean over the folds; nothing where graphs have no classes."""
        if data.all.labels is None:
            return {}
        rows = self.representations(module, data)
        score = evaluate_svm(rows, data.all.labels, recipe.seed, recipe.folds, run.progress)
        return {"accuracy": score.accuracy}

    @torch.no_grad()
    def representations(self, module: Any, data: Graphs) -> Tensor:
        """Returns the representations of all graphs, without the projection head, [G, layers · hidden], on the CPU.

        Args:
            module: in evaluation mode.
            data: in the order of the result.
        """
        device = next(module.parameters()).device
        parts = torch.split(torch.arange(len(data)), _AT_ONCE)
        return torch.cat([module.encoder(data.all.batch(part).to(device)).cpu() for part in parts])
