"""GraphCL as a method: contrasts graphs with one augmented view of each, in the same batches every epoch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from tempplug import ContrastiveLoss
from tempplug.errors import DataError
from tempplug_adapters.graph.augmentation import augment, check_pool, user_views
from tempplug_adapters.graph.classes import classes_in
from tempplug_adapters.graph.evaluation import check_classes, evaluate_labels, evaluate_svm, measurable_labels
from tempplug_adapters.graph.graph_data import GraphBatch, Graphs
from tempplug_adapters.graph.graph_files import find_tu, load_ogb, load_tu, ogb_files, read_graphs
from tempplug_adapters.graph.projection_heads import projection_head
from tempplug_adapters.graph.recipes import GraphCLRecipe
from tempplug_adapters.graph.user_modules import (
    Augmentation,
    UserGraphEncoder,
    UserMethod,
    create_encoder,
    pyg_card,
    warn_of_unused,
)
from tempplug_adapters.quoting import code
from tempplug_adapters.storage.fingerprint import files_below, grouped
from tempplug_adapters.training.method import Card, Inputs, Run, Source, load_weights

if TYPE_CHECKING:
    from torch_geometric.data import Data


class GINEncoder(nn.Module):
    """Turns graphs into representations [B, layers · hidden]; a graph without nodes becomes zero.

    Args:
        features: width of the node features, at least 1.
        hidden: width of every layer, at least 1.
        layers: number of layers, at least 1.

    Source: Xu et al. 2019 (GIN), eq. 4.1 with ε = 0; You et al. 2020 normalise after the ReLU and concatenate the sums over
    nodes of all layers.

    >>> graphs = GraphBatch(torch.ones(3, 2), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1]), num_graphs=2)
    >>> GINEncoder(features=2, hidden=4, layers=3)(graphs).shape
    torch.Size([2, 12])
    """

    def __init__(self, features: int, hidden: int = 32, layers: int = 3) -> None:
        super().__init__()
        widths = [features, *[hidden] * layers]
        self.updates = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden)) for width in widths[:-1]
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers))
        self.width = layers * hidden

    def forward(self, graphs: GraphBatch | Data) -> Tensor:
        """Returns the representations, [B, layers · hidden], also of a ``Data`` or ``Batch`` of PyTorch Geometric."""
        graphs = GraphBatch.of(graphs)
        x, pooled = graphs.x, []
        for update, norm in zip(self.updates, self.norms, strict=True):
            x = norm(torch.relu(update(x + graphs.neighbours(x))))
            pooled.append(graphs.members(x))
        return torch.cat(pooled, 1)


class GraphCL(nn.Module):
    """Turns graphs into embeddings for a contrastive loss; ``encoder`` gives the representations that are evaluated.

    Args:
        features: width of the node features.
        hidden: width of every layer.
        layers: of the encoder; an embedding has layers · hidden numbers.
        encoder: replaces GIN; maps graphs to representations [B, ``encoder.width``]. Its initial weights are kept.
        last_batch_norm: whether batch normalisation, without weights, follows the head's last layer.

    Source: You et al. 2020, figure 1; widths and initial weights (Xavier, no bias) are those of the authors' code.
    """

    def __init__(
        self, features: int, hidden: int = 32, layers: int = 3, encoder: Any = None, last_batch_norm: bool | None = None
    ) -> None:
        super().__init__()
        self.encoder = GINEncoder(features, hidden, layers) if encoder is None else encoder
        width = layers * hidden
        self.projection_head = projection_head(self.encoder.width, width, width, nn.ReLU(), last_batch_norm)
        for module in (self if encoder is None else self.projection_head).modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, graphs: GraphBatch | Data) -> Tensor:
        """Returns the embeddings, [B, layers · hidden]."""
        embeddings: Tensor = self.projection_head(self.encoder(graphs))
        return embeddings


_AT_ONCE = 128  # batch size for computing representations


class GraphCLModule(nn.Module):
    """Maps graphs and their views to the loss.

    Args:
        recipe: recipe of the training.
        features: width of the node features.
        loss_fn: loss of the embeddings; None where nothing is trained.
        encoder: the user's encoder; None for GIN.

    Attributes:
        features: as given.
    """

    loss_fn: Any

    def __init__(
        self, recipe: GraphCLRecipe, features: int, loss_fn: ContrastiveLoss | None, encoder: UserGraphEncoder | None = None
    ) -> None:
        super().__init__()
        self.features = features
        self.graphcl = GraphCL(features, recipe.hidden, recipe.layers, encoder, recipe.last_batch_norm)
        self.loss_fn = loss_fn

    @property
    def encoder(self) -> nn.Module:
        """The encoder that is evaluated: the graph convolutions, or the user's module."""
        encoder = self.graphcl.encoder
        return encoder.own.module if isinstance(encoder, UserGraphEncoder) else encoder

    def forward(self, graphs: GraphBatch | Batch, views: GraphBatch | Batch, index: Tensor) -> Tensor:
        """Returns the loss [] in nats of B graphs and a view of each, at positions [B] of the data set."""
        device = index.device
        embeddings = self.graphcl(graphs.to(device)), self.graphcl(views.to(device))
        loss: Tensor = self.loss_fn(*embeddings, **self.loss_fn.accepted(index=index))
        return loss


class GraphCLMethod(UserMethod[GraphCLRecipe, Graphs]):
    """One way from the graphs to their views: a graph's negatives are the views of the others.

    One of the augmentations is drawn for each graph, see `user_views`.

    Source: You et al. 2020 (GraphCL), and its code, which shuffles before the first epoch only.
    """

    reshuffled = False
    builtin = True

    def load(self, recipe: GraphCLRecipe, source: Source) -> Graphs:
        """Returns a data set of the TU collection or of OGB, or the graphs of a file."""
        self.of_user(recipe)
        graphs = _load(source)
        labels = graphs.all.labels
        if labels is not None and source.evaluated:  # fail before training if the evaluation is impossible
            if labels.ndim == 2:
                measurable_labels(labels, recipe.folds)
            else:
                check_classes(labels[labels >= 0], recipe.folds)
        return graphs

    def files(self, recipe: GraphCLRecipe, source: Source, data: Graphs) -> dict[str, Path | str]:
        """Returns the file of the graphs, or the files of a data set of OGB or of the TU collection."""
        name, folder = source.dataset, source.data_dir
        if name.endswith(".pt"):
            return {"dataset": Path(name)}
        if name.lower().startswith("ogbg-"):
            return grouped("dataset", ogb_files(name, folder))
        return grouped("dataset", files_below(find_tu(name, source.cache_dir, folder)))

    def recipe_of(self, recipe: GraphCLRecipe, strategy: str, dataset: str) -> GraphCLRecipe:
        """Returns the recipe with the default augmentations for the data set if it has none."""
        return recipe.changed(augmentations=recipe.pool(dataset))

    def describe(self, data: Graphs) -> str:
        """Returns the numbers of graphs, nodes, edges, features and classes."""
        nodes, features = data.all.x.shape
        sizes = f"{len(data)} graphs, {nodes} nodes, {data.all.edge_index.shape[1]} directed edges, {features} features"
        return sizes + classes_in(data.all.labels)

    def known(self, recipe: GraphCLRecipe, data: Graphs) -> dict[str, Any]:
        """Returns the number of graphs and the width of the embeddings."""
        return {"size": len(data), "dimension": recipe.layers * recipe.hidden}

    def build(self, recipe: GraphCLRecipe, data: Graphs, loss: Any) -> GraphCLModule:
        """Returns the randomly initialised model, with the user's encoder if given."""
        features, encoder = data.all.x.shape[1], self.of_user(recipe)[0]
        if encoder is None:
            warn_of_unused(data.each[0], (), "GIN")
            return GraphCLModule(recipe, features, loss)
        like = next((graph for graph in data.each if int(graph.num_nodes or 0) > 1), data.each[0])
        own = UserGraphEncoder(create_encoder(encoder, features, recipe.hidden, recipe.layers), like)
        own.own.warn_of_unused(like)
        return GraphCLModule(recipe, features, loss, own)

    def collate(self, recipe: GraphCLRecipe, data: Graphs, index: Tensor) -> dict[str, Any]:
        """Returns graphs and a view of each."""
        encoder, pool = self.of_user(recipe)
        names = [each for each in pool if isinstance(each, str)]
        if encoder is None and len(names) == len(pool):
            graphs = data.batch(index)
            return {"graphs": graphs, "views": augment(graphs, names), "index": index}
        views = user_views([data.each[place] for place in index.tolist()], pool)
        return {"graphs": data.pyg_batch(index), "views": views, "index": index}

    def evaluate(self, recipe: GraphCLRecipe, module: nn.Module, data: Graphs, run: Run) -> dict[str, float]:
        """Returns the mean accuracy of a support vector machine over the folds, in %, and its ``validation_accuracy``.

        The latter is measured on the data held out to choose the penalty. Without classes the result is empty; with several
        labels, it is that of `evaluate_labels`.
        """
        labels = data.all.labels
        if labels is None:
            return {}
        if labels.ndim == 2:
            return evaluate_labels(self.representations(module, data), labels, recipe.seed, recipe.folds, run.progress)
        labelled = labels >= 0
        rows = self.representations(module, data)[labelled]
        score = evaluate_svm(rows, labels[labelled], recipe.seed, recipe.folds, run.progress)
        return {"accuracy": score.accuracy, "validation_accuracy": score.validation}

    @torch.no_grad()
    def representations(self, module: Any, data: Graphs) -> Tensor:
        """Returns the representations [G, width] of all graphs without the projection head, on the CPU; for evaluation mode."""
        device, encoder = next(module.parameters()).device, module.graphcl.encoder
        own = isinstance(encoder, UserGraphEncoder)
        parts = torch.split(torch.arange(len(data)), _AT_ONCE)
        batches = (copy.copy(data.pyg_batch(part)) if own else data.all.batch(part) for part in parts)
        return torch.cat([encoder(batch.to(device)).cpu() for batch in batches])

    def kept(self, recipe: GraphCLRecipe, module: Any, data: Graphs) -> dict[str, Any]:
        """Returns the number of features of a node, and what is known of a user's encoder."""
        encoder = module.graphcl.encoder
        own = {"own_encoder": encoder.known} if isinstance(encoder, UserGraphEncoder) else {}
        return {"preprocessing": {"features": module.features}, **own}

    def restore(self, recipe: GraphCLRecipe, kept: Mapping[str, Any], folder: Path) -> GraphCLModule:
        """Returns the encoder of the folder; raises ConfigError if it came from Python and was not given again."""
        features = kept["preprocessing"]["features"]
        own = self.restored(recipe, kept, folder)
        module = GraphCLModule(recipe, features, None, None if own is None else UserGraphEncoder(own, kept["own_encoder"]))
        load_weights(module.encoder, folder)
        return module

    def read(self, recipe: GraphCLRecipe, source: Source, split: str) -> Inputs:
        """Returns the graphs of a data set or of a file."""
        return Inputs(_load(source))

    def embed(self, recipe: GraphCLRecipe, module: Any, given: Any) -> Tensor:
        """Returns the representations of graphs, [G, width]."""
        graphs = given if isinstance(given, Graphs) else Graphs(given)
        features, own = module.features, graphs.all.x.shape[1]
        if own != features:
            raise DataError(f"the graphs have {own} features a node, but the encoder was trained with {features}.")
        return self.representations(module, graphs)

    def card(self, recipe: GraphCLRecipe, module: Any, data: Graphs, results: Mapping[str, Any]) -> Card:
        """Returns the text on encoders of graphs."""
        about = f"An encoder of graphs with {module.features} features a node, in PyTorch Geometric: one vector for each."
        return pyg_card(about, "[{}]", module.features, code(type(module.encoder).__name__))

    def of_user(self, recipe: GraphCLRecipe) -> tuple[Any, tuple[str | Augmentation, ...]]:
        """Returns the user's encoder or its constructor, and all augmentations, imported where they are given by name."""
        encoder, pool = super().of_user(recipe)
        if names := [each for each in pool if isinstance(each, str)]:
            check_pool(names)
        return encoder, pool


def _load(source: Source) -> Graphs:
    """Returns the graphs of a file, of OGB, or of the TU collection."""
    name = source.dataset
    if name.endswith(".pt"):
        return Graphs(read_graphs(Path(name)))
    if name.lower().startswith("ogbg-"):
        return Graphs(load_ogb(name, source.data_dir))
    return Graphs(load_tu(name, source.cache_dir, source.data_dir))
