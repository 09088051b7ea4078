"""GRACE as a method on one graph; a step contrasts all nodes, or some nodes with a sampled neighbourhood."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import dropout_edge, mask_feature

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.graph.classes import classes_in
from tempplug_adapters.graph.evaluation import check_evaluation, evaluate_nodes
from tempplug_adapters.graph.gcn import GCN, NodeFeatures, View
from tempplug_adapters.graph.node_data import checked_graph, files_of, is_table, load_graph, scaled_features
from tempplug_adapters.graph.node_tables import read_tables
from tempplug_adapters.graph.nodes import Nodes, one_graph
from tempplug_adapters.graph.projection_heads import projection_head
from tempplug_adapters.graph.recipes import GraceRecipe
from tempplug_adapters.graph.user_modules import (
    Augmentation,
    UserEncoder,
    UserMethod,
    augmented,
    corrupted,
    create_encoder,
    pyg_card,
    warn_of_unused,
)
from tempplug_adapters.quoting import code
from tempplug_adapters.storage.fingerprint import grouped
from tempplug_adapters.storage.tensors import write_tensors
from tempplug_adapters.training.method import Card, Inputs, Run, Source, load_weights


def corrupt(
    edge_index: Tensor, columns: int, edge_removal: float, feature_masking: float, edge_weight: Tensor | None = None
) -> View:
    """Returns a view with random directed edges and random feature columns removed."""
    kept_edges, kept = dropout_edge(edge_index, p=edge_removal)
    shown, _ = mask_feature(torch.ones(1, columns, device=edge_index.device), p=feature_masking, mode="col")
    return View(kept_edges, shown[0], None if edge_weight is None else edge_weight[kept])


class GRACE(nn.Module):
    """The encoder, whose representations are saved, and the projection head, which is used only by the loss.

    Args:
        encoder: a `GCN`; or a module that maps a graph to representations [N, width], such as a `UserEncoder`.
        width: width of the representations.
        projection: hidden width of the projection head.
        embedding: width of the embeddings; None for that of the representations.
        last_batch_norm: whether batch normalisation, without weights, follows the head's last layer.

    >>> from tempplug_adapters.graph.gcn import GCN
    >>> graph = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> views = [corrupt(graph, 3, 0.3, 0.3) for _ in range(2)]
    >>> view_a, view_b = GRACE(GCN(3))(views, NodeFeatures(torch.eye(3)))
    >>> view_a.shape
    torch.Size([3, 32])
    """

    def __init__(
        self,
        encoder: nn.Module,
        width: int = 32,
        projection: int = 32,
        embedding: int | None = None,
        last_batch_norm: bool | None = None,
    ) -> None:
        super().__init__()
        self.encoder: Any = encoder
        outwards = width if embedding is None else embedding
        self.projection_head = projection_head(width, projection, outwards, nn.ELU(), last_batch_norm)

    def forward(
        self,
        views: Sequence[View | Data],
        features: NodeFeatures | None = None,
        nodes: Tensor | None = None,
        first: int | None = None,
    ) -> list[Tensor]:
        """Returns the embeddings [N, embedding] of each view, of its ``first`` nodes; a `View` needs a `GCN` and features."""
        hidden = self.encoder.of_views(features, views, nodes) if features is not None else map(self.encoder, views)
        return [self.projection_head(each[:first]) for each in hidden]


REPRESENTATIONS_FILE = "representations.pt"
"""Of all nodes, [N, width], in the output folder."""

_WHOLE = 2**26  # numbers that an encoder of the user's may make of all edges at once, for representations of the whole graph


class GraceModule(nn.Module):
    """Maps two views of nodes to the loss.

    Args:
        recipe: recipe of the training.
        columns: number of features of a node.
        loss_fn: loss of the embeddings; None where nothing is trained.
        encoder: the user's encoder; None for a `GCN`.
        width: of its representations.
        features: those of the graph, if views are not graphs, which needs a `GCN`.

    Attributes:
        columns: as given.
        scaled: see `Nodes`.
    """

    scaled = False
    loss_fn: Any

    def __init__(
        self,
        recipe: GraceRecipe,
        columns: int,
        loss_fn: ContrastiveLoss | None,
        encoder: UserEncoder | None = None,
        width: int = 0,
        features: NodeFeatures | None = None,
    ) -> None:
        super().__init__()
        self.features, self.columns = features, columns
        if encoder is None:
            own = GCN(columns, recipe.hidden, recipe.layers, recipe.activation)
            self.grace = GRACE(own, recipe.hidden, recipe.projection, last_batch_norm=recipe.last_batch_norm)
        else:
            self.grace = GRACE(encoder, width, recipe.projection, recipe.hidden, recipe.last_batch_norm)
        self.loss_fn = loss_fn

    @property
    def encoder(self) -> nn.Module:
        """The encoder that is evaluated and saved: the graph convolutions, or the user's module."""
        own: nn.Module = self.grace.encoder
        return own.module if isinstance(own, UserEncoder) else own

    def forward(self, views: Sequence[View | Data], nodes: Tensor | None, seeds: Tensor) -> Tensor:
        """Returns the loss [] of two views that number the nodes [n] of the graph (None: all), the seeds [s] first."""
        device = seeds.device
        features = None if self.features is None else self.features.to(device)
        moved = [view.to(device) for view in views]
        view_a, view_b = self.grace(moved, features, nodes, None if nodes is None else len(seeds))
        loss: Tensor = self.loss_fn(view_a, view_b, **self.loss_fn.accepted(index=seeds))
        return loss


class GraceMethod(UserMethod[GraceRecipe, Nodes]):
    """Both views' nodes are anchors, and of every other node both views are negatives.

    Augmentations of the user, one for both views or one for each, replace the removal of edges and the masking of features.
    They keep all nodes, and are random by PyTorch's global generator.

    Source: Zhu et al. 2020, Deep Graph Contrastive Representation Learning.
    """

    def load(self, recipe: GraceRecipe, source: Source) -> Nodes:
        """Returns a public graph, or a graph from files, after checking the user's encoder and augmentations."""
        self.of_user(recipe)
        name, tables = source.dataset, None
        features, labels = (None if each is None else Path(each) for each in (recipe.node_features, recipe.node_labels))
        if is_table(name):
            tables = read_tables(Path(name), features, labels, recipe.columns)
            graph = checked_graph(tables.graph, name, not recipe.raw_features)
        elif features or labels or recipe.columns:
            flags = "--node-features, --node-labels and --columns"
            raise ConfigError(f"{flags} belong to a table of edges, not to dataset='{name}'.")
        else:
            graph = load_graph(name, source.data_dir, source.cache_dir, not recipe.raw_features)
        nodes = Nodes(graph, name, source.evaluated, tables)
        nodes.scaled = not recipe.raw_features
        if nodes.labels is not None:  # fail before training if the evaluation is impossible
            check_evaluation(nodes.labels, recipe.protocols, nodes.masks)
        return nodes

    def files(self, recipe: GraceRecipe, source: Source, data: Nodes) -> dict[str, Path | str]:
        """Returns the file of the graph or the tables, or the files of a public graph."""
        files = grouped("dataset", files_of(source.dataset, source.data_dir, source.cache_dir))
        tables = {"node_features": recipe.node_features, "node_labels": recipe.node_labels}
        return {**files, **{name: Path(file) for name, file in tables.items() if file is not None}}

    def tables(self, data: Nodes) -> Sequence[Assigned]:
        """Returns the tables of edges, features and labels."""
        return () if data.tables is None else data.tables.tables

    def describe(self, data: Nodes) -> str:
        """Returns the numbers of nodes, edges, features and classes, and whether nodes are the rows of a table."""
        sizes = f"{len(data)} nodes, {data.edge_index.shape[1]} edges, {data.x.shape[1]} features{classes_in(data.labels)}"
        counted = data.tables is not None and data.tables.ids is None
        return sizes + "; nodes are the rows of the features, counted from 0" * counted

    def known(self, recipe: GraceRecipe, data: Nodes) -> dict[str, Any]:
        """Returns the number of nodes and the width of the embeddings."""
        return {"size": len(data), "dimension": recipe.hidden}

    def build(self, recipe: GraceRecipe, data: Nodes, loss: Any) -> GraceModule:
        """Returns the randomly initialised model, with the user's encoder if given."""
        given, augmentations = self.of_user(recipe)
        columns = data.x.shape[1]
        if given is None:
            warn_of_unused(data.graph, ("edge_weight",), "GCN")
            if data.edge_weight is not None and bool((data.edge_weight < 0).any()):
                raise DataError("edge_weight must be at least 0 for the GCN, which divides by the roots of sums of weights.")
            return GraceModule(recipe, columns, loss, features=None if augmentations else NodeFeatures(data.x))
        encoder = UserEncoder(create_encoder(given, columns, recipe.hidden, recipe.layers))
        encoder.warn_of_unused(data.graph)
        width = encoder.probe(data.part(torch.arange(2), 1, recipe.layers)).shape[1]
        return GraceModule(recipe, columns, loss, encoder, width)

    def collate(self, recipe: GraceRecipe, data: Nodes, index: Tensor) -> dict[str, Any]:
        """Returns two corrupted views of the graph, which keeps the order of its nodes, or of the part around some nodes."""
        whole = len(index) == len(data)
        encoder, augmentations = self.of_user(recipe)
        shares = list(zip(_both(recipe.edge_removal), _both(recipe.feature_masking), strict=True))
        if encoder is not None or augmentations:
            graph = data.graph if whole else data.part(index, recipe.neighbours, recipe.layers)
            plain = [_same_nodes(graph, each) for each in _both(augmentations)] if augmentations else []
            nodes = None if whole else graph.n_id
            seeds = torch.arange(len(data)) if nodes is None else nodes[: len(index)]
            return {"views": plain or [corrupted(graph, *each) for each in shares], "nodes": nodes, "seeds": seeds}
        edges, weight, nodes, seeds = data.edge_index, data.edge_weight, None, torch.arange(len(data))
        reach: tuple[int, ...] = ()
        if not whole:
            part = data.sampler.around(index, recipe.neighbours, recipe.layers)
            edges, nodes, seeds, reach = part.edge_index, part.nodes, part.nodes[: part.seeds], part.reach
            weight = None if weight is None else weight[part.edges]
        views = [replace(corrupt(edges, data.x.shape[1], *each, weight), reach=reach) for each in shares]
        return {"views": views, "nodes": nodes, "seeds": seeds}

    def evaluate(self, recipe: GraceRecipe, module: nn.Module, data: Nodes, run: Run) -> dict[str, float]:
        """Returns F1-micro, F1-macro and that of validation × 100 by protocol (`evaluate_nodes`); nothing without classes."""
        if data.labels is None:
            return {}
        rows, options = self.representations(recipe, module, data), {"splits": recipe.splits, "strengths": recipe.l2}
        more: dict[str, Any] = {**options, "masks": data.masks, "progress": run.progress}
        scores = evaluate_nodes(rows, data.labels, recipe.protocols, recipe.seed, **more)
        return {f"f1_{name} {protocol}": value for protocol, each in scores.items() for name, value in asdict(each).items()}

    @torch.no_grad()
    def representations(self, recipe: GraceRecipe, module: Any, data: Nodes) -> Tensor:
        """Returns the representations of all nodes of the uncorrupted graph, [N, width], on the CPU.

        A user's encoder receives the whole graph. If training uses batches and the graph has too many edges for that, it
        receives batches of nodes with all neighbours within as many steps as the recipe has layers.
        """
        device = next(module.parameters()).device
        encoder, size = module.grace.encoder, recipe.per_device_train_batch_size
        if isinstance(encoder, GCN):
            features = NodeFeatures(data.x) if module.features is None else module.features
            weight = None if data.edge_weight is None else data.edge_weight.to(device)
            return encoder.of_graph(features.to(device), data.edge_index.to(device), weight).cpu()
        if size is None or data.edge_index.shape[1] * recipe.hidden <= _WHOLE:
            whole: Tensor = encoder(copy.copy(data.graph).to(device)).cpu()  # an in-place move would affect the data
            return whole
        parts = torch.arange(len(data)).split(size)  # type: ignore[no-untyped-call]
        return torch.cat([encoder(data.part(each, None, recipe.layers).to(device))[: len(each)].cpu() for each in parts])

    def save(self, recipe: GraceRecipe, module: nn.Module, data: Nodes, output_dir: Path) -> None:
        """Writes the encoder's weights, and the representations of all nodes."""
        super().save(recipe, module, data, output_dir)
        rows = self.representations(recipe, module, data)
        write_tensors(output_dir / REPRESENTATIONS_FILE, rows)

    def kept(self, recipe: GraceRecipe, module: Any, data: Nodes) -> dict[str, Any]:
        """Returns the number of features, whether those of a node are scaled to the sum 1, and the width of an own encoder."""
        encoder = module.grace.encoder
        own = {"own_encoder": module.grace.projection_head[0].in_features} if isinstance(encoder, UserEncoder) else {}
        return {"preprocessing": {"features": module.columns, "rows_scaled_to_sum_1": data.scaled}, **own}

    def restore(self, recipe: GraceRecipe, kept: Mapping[str, Any], folder: Path) -> GraceModule:
        """Returns the encoder of the folder; raises ConfigError if it came from Python and was not given again."""
        columns = kept["preprocessing"]["features"]
        own = self.restored(recipe, kept, folder)
        module = GraceModule(recipe, columns, None, None if own is None else UserEncoder(own), kept.get("own_encoder", 0))
        module.scaled = kept["preprocessing"]["rows_scaled_to_sum_1"]
        load_weights(module.encoder, folder)
        return module

    def read(self, recipe: GraceRecipe, source: Source, split: str) -> Inputs:
        """Returns the nodes of a public graph, or of a graph from files."""
        nodes = self.load(recipe, replace(source, evaluated=False))
        ids = None if nodes.tables is None else nodes.tables.ids
        return Inputs(nodes, columns={} if ids is None else {"id": ids})

    def embed(self, recipe: GraceRecipe, module: Any, given: Any) -> Tensor:
        """Returns the representations of all nodes of a graph, [N, width]."""
        if not isinstance(given, Nodes):
            given = Nodes(one_graph(given, "graph"), measured=False)
            given = Nodes(scaled_features(given.graph), measured=False) if module.scaled else given
        if (own := given.x.shape[1]) != module.columns:
            raise DataError(f"the graph has {own} features a node, but the encoder was trained with {module.columns}.")
        return self.representations(recipe, module, given)

    def card(self, recipe: GraceRecipe, module: Any, data: Nodes, results: Mapping[str, Any]) -> Card:
        """Returns the text on encoders of nodes."""
        about = f"An encoder of the nodes of a graph with {module.columns} features a node, in PyTorch Geometric."
        vectors = f"`{REPRESENTATIONS_FILE}` the vectors of all nodes of the training"
        return pyg_card(about, "{}", module.columns, f"{code(type(module.encoder).__name__)}, {vectors}")

    def of_user(self, recipe: GraceRecipe) -> tuple[Any, tuple[Augmentation, ...]]:
        """Returns the user's encoder or its constructor, and augmentations, imported where they are given by name."""
        encoder, augmentations = super().of_user(recipe)
        if len(augmentations) > 2:
            raise ConfigError(f"{len(augmentations)} augmentations must be one for both views, or one for each.")
        return encoder, augmentations


def _same_nodes(graph: Data, augmentation: Augmentation) -> Data:
    view = augmented(graph, augmentation)
    if view.num_nodes != graph.num_nodes:
        wanted = f"keep all {graph.num_nodes} nodes, which are contrasted with themselves"
        remedy = "hide features or edges of a node instead"
        raise ConfigError(f"augmentation {augmentation!r} must {wanted}, but left {view.num_nodes}: {remedy}.")
    if view.get("num_sampled_edges") is not None:
        del view.num_sampled_edges  # augmentations may change the edges and their order
    return view


def _both(each: Sequence[Any]) -> tuple[Any, Any]:
    return each[0], each[-1]
