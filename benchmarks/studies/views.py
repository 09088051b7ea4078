"""Images and the nodes of a graph for `studies.train_cells`: two views of each are a pair; the figure is kNN accuracy × 100."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from studies.texts import device, hard_rows
from tempplug.errors import DataError
from tempplug_adapters.graph.gcn import GCN, NodeFeatures, View
from tempplug_adapters.graph.grace_method import GRACE, corrupt
from tempplug_adapters.graph.node_data import load_graph
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.images.representations import represent
from tempplug_adapters.modes import evaluating
from tempplug_adapters.vision.evaluation.classifiers import accuracy, knn_votes
from tempplug_adapters.vision.projection_heads import ProjectionHead

NEIGHBOURS = 20
MEASURED, TESTED = 4000, 2500
"""Images that are held out, and images of the test set."""
LOADED = 32
"""Pixels of an image's side."""
SIZE, CHANNELS = 16, 8
"""Pixels of a view's side, and channels of the first stage of the ResNet-18 that sees them."""
LABELLED, EPOCHS, AT_ONCE = 5000, 5, 128
"""Images, epochs and batch of the pretraining with labels."""
WIDTH = 128
HIDDEN_PART = 0.3
"""Share of the edges and of the feature columns that a view of a graph lacks."""
BANK, HELD_OUT = 0.2, 0.2
"""Shares of the nodes that are neighbours, and that are held out; the others are the test."""


class Network(nn.Module):
    """A backbone and a projection head, for images."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = ProjectionHead(backbone.dimension, WIDTH, WIDTH)

    def forward(self, images: Tensor) -> Tensor:
        """Returns the embeddings [B, WIDTH] of views."""
        embeddings: Tensor = self.head(self.backbone(images))
        return embeddings


@dataclass(frozen=True, slots=True)
class Images:
    """Images with what is measured; see `train_cells.Data`.

    Attributes:
        trained: the n images to train on, which are also the neighbours.
        measured: ``held_out`` and ``test``.
        hard: [n] the image that is the hard negative of each, by the pretrained network.
        backbone: the pretrained one.
        augmentation: of a batch of pixels.
    """

    rate: ClassVar = 3e-3
    starts: ClassVar = ("pretrained", "random")

    trained: ImageSet
    measured: Mapping[str, ImageSet]
    hard: Tensor
    backbone: Backbone
    augmentation: nn.Module

    def __len__(self) -> int:
        return len(self.trained)

    def model(self, start: str, generator: torch.Generator) -> Network:
        """Returns the network before the training."""
        return Network(copy.deepcopy(self.backbone) if start == "pretrained" else _network()).to(device())

    def inputs(self, rows: Tensor, copied: Tensor, hard: bool, generator: torch.Generator) -> dict[str, Tensor]:
        """Returns random views of a batch."""
        of = {"view_a": rows, "view_b": rows} | ({"hard_negatives": self.hard[rows]} if hard else {})
        return {name: self.augmentation(self.trained.batch(each).to(device()).float() / 255) for name, each in of.items()}

    def known(self, takes: Iterable[str], rows: Tensor, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns nothing: no image has a key."""
        return {}

    def targets(self, kind: str, rows: Tensor) -> dict[str, Any]:
        """Returns nothing; raises `DataError` for a kind, as texts alone have targets."""
        return no_targets(kind)

    def figures(self, model: nn.Module) -> dict[str, float]:
        """Returns the accuracy of kNN × 100 on held-out images and on those of the test set."""
        network: Any = model
        bank = represent(network.backbone, self.trained, size=SIZE)
        found = {}
        for name, each in self.measured.items():
            votes = knn_votes(bank, _labels(self.trained), represent(network.backbone, each, size=SIZE), k=NEIGHBOURS)
            found[name] = accuracy(_labels(each), votes.argmax(1))
        return found


@cache
def load_image_views(name: str, other: str, data_dir: Path, most: int, guide: str = "") -> Images:
    """Returns ``most`` images of ``name`` and 4,000 held out, and 2,500 of the test images; ``guide`` is unused.

    The network is pretrained with the labels of ``other``.
    """
    images = load_images(name, "train", data_dir, size=LOADED, count=most + MEASURED)
    trained, held_out = (images.subset(each) for each in torch.split(torch.arange(len(images)), [most, MEASURED]))
    measured = {"held_out": held_out, "test": load_images(name, "test", data_dir, size=LOADED, count=TESTED)}
    backbone = _pretrained(load_images(other, "train", data_dir, size=LOADED, count=LABELLED))
    seen = represent(backbone, trained, size=SIZE)
    hard = hard_rows(seen, seen, torch.arange(most))
    return Images(trained, measured, hard, backbone, create_augmentation("simclr-cifar", SIZE))


def no_targets(kind: str) -> dict[str, Any]:
    """Returns nothing; raises `DataError` for a kind of targets."""
    if kind:
        raise DataError(f"targets={kind!r} of a cell must be empty: texts alone have targets.")
    return {}


def _labels(images: ImageSet) -> Tensor:
    if images.labels is None:
        raise DataError(f"the set '{images.name}' has no classes, by which kNN is measured.")
    return images.labels


def _network() -> Backbone:
    return create_backbone("resnet18", stem="cifar", width=CHANNELS)


def _pretrained(images: ImageSet) -> Backbone:
    """Returns a network trained to tell the classes of images from random views."""
    torch.manual_seed(0)
    backbone, augmentation = _network(), create_augmentation("simclr-cifar", SIZE)
    model = nn.Sequential(backbone, nn.Linear(backbone.dimension, len(images.classes))).to(device()).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(images)), AT_ONCE):
            views = augmentation(images.batch(rows).to(device()).float() / 255)
            loss = functional.cross_entropy(model(views), _labels(images)[rows].to(device()))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return backbone


@dataclass(frozen=True, slots=True)
class SomeNodes:
    """Nodes of a view of a graph; ``again`` is the view that shows those that are ``copied``, if any are."""

    view: View
    again: View | None
    rows: Tensor
    copied: Tensor


class NodeNetwork(nn.Module):
    """GRACE's encoder and projection head."""

    def __init__(self, features: NodeFeatures) -> None:
        super().__init__()
        self.grace = GRACE(GCN(features.columns, WIDTH), WIDTH, WIDTH)
        self.features = features

    def forward(self, given: SomeNodes) -> Tensor:
        """Returns the embeddings of the nodes, [n, WIDTH]."""
        found = [self.grace([each], self.features)[0][given.rows] for each in (given.view, given.again) if each is not None]
        return torch.where(given.copied[:, None], found[-1], found[0])


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a graph with what is measured; see `train_cells.Data`.

    Attributes:
        features: of the n nodes.
        edges: [2, E].
        labels: [n].
        parts: the nodes that are neighbours, ``held_out`` and ``test``.
        hard: [n] the node that is the hard negative of each, by its features.
    """

    rate: ClassVar = 5e-4
    starts: ClassVar = ("random",)

    features: NodeFeatures
    edges: Tensor
    labels: Tensor
    parts: Mapping[str, Tensor]
    hard: Tensor

    def __len__(self) -> int:
        return self.features.nodes

    def model(self, start: str, generator: torch.Generator) -> NodeNetwork:
        """Returns the network before the training."""
        return NodeNetwork(self.features).to(device())

    def inputs(self, rows: Tensor, copied: Tensor, hard: bool, generator: torch.Generator) -> dict[str, SomeNodes]:
        """Returns random views of the graph with the nodes of a batch; copies are seen in two others."""
        views = [corrupt(self.edges, self.features.columns, HIDDEN_PART, HIDDEN_PART) for _ in range(4 if copied.any() else 2)]
        rows, copied = rows.to(device()), copied.to(device())
        found = {
            f"view_{name}": SomeNodes(views[place], views[place + 2] if len(views) > 2 else None, rows, copied)
            for place, name in enumerate("ab")
        }
        return found | ({"hard_negatives": SomeNodes(views[1], None, self.hard[rows], copied)} if hard else {})

    def known(self, takes: Iterable[str], rows: Tensor, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns nothing: no node has a key."""
        return {}

    def targets(self, kind: str, rows: Tensor) -> dict[str, Any]:
        """Returns nothing; raises `DataError` for a kind, as texts alone have targets."""
        return no_targets(kind)

    @torch.no_grad()
    def figures(self, model: nn.Module) -> dict[str, float]:
        """Returns the accuracy of kNN × 100 on held-out nodes and on the test."""
        network: Any = model
        with evaluating(network):
            (found,) = network.grace.encoder.of_views(self.features, [View(self.edges)])
        bank = self.parts["bank"]
        votes = {
            name: knn_votes(found[bank], self.labels[bank], found[part], k=NEIGHBOURS)
            for name, part in self.parts.items()
            if part is not bank
        }
        return {name: accuracy(self.labels[self.parts[name]].cpu(), each.argmax(1)) for name, each in votes.items()}


@cache
def load_nodes(name: str, other: str, data_dir: Path, most: int, guide: str = "") -> Nodes:
    """Returns the nodes of a graph that `load_graph` knows; the others are unused."""
    graph = load_graph(name, data_dir, data_dir).to(device())
    count = len(graph.x)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).to(device())
    first, second = round(BANK * count), round((BANK + HELD_OUT) * count)
    parts = {"bank": order[:first], "held_out": order[first:second], "test": order[second:]}
    features = NodeFeatures(graph.x)
    hard = hard_rows(features.dense, features.dense, torch.arange(count, device=device()))
    return Nodes(features, graph.edge_index, graph.y, parts, hard)
