"""Images and the nodes of a graph for `temperature_law`: two views of each are a pair; measured by the accuracy of kNN × 100."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import MobileNetV2Model

from tempplug_adapters.graph.gcn import GCN, NodeFeatures, View
from tempplug_adapters.graph.grace_method import GRACE, corrupt
from tempplug_adapters.graph.node_data import load_graph
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.backbones import Backbone
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.images.representations import represent
from tempplug_adapters.modes import evaluating
from tempplug_adapters.msc.model import load_backbone
from tempplug_adapters.msc.recipe import MOBILENET
from tempplug_adapters.vision.evaluation.classifiers import accuracy, knn_votes
from tempplug_adapters.vision.projection_heads import ProjectionHead
from tempplug_benchmarks.temperature_law_texts import device, hard_rows

NEIGHBOURS = 20
MEASURED = 2000
"""Images that are held out, and images of the test set."""
SIZE = 48
"""Pixels of a view's side."""
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
        for each in self.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.momentum = 0.1  # MobileNetV2's own, 0.003, needs more steps than a training here has

    def forward(self, images: Tensor) -> Tensor:
        """Returns the embeddings [B, WIDTH] of views."""
        embeddings: Tensor = self.head(self.backbone(images))
        return embeddings


@dataclass(frozen=True, slots=True)
class Images:
    """Images with what is measured; see `temperature_law.Data`.

    Attributes:
        trained: the n images to train on, which are also the neighbours.
        measured: ``held_out`` and ``test``.
        hard: [n] the image that is the hard negative of each, by the pretrained network.
        backbone: the pretrained MobileNetV2.
        augmentation: of a batch of pixels.
    """

    rate: ClassVar = 5e-4
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
        backbone = copy.deepcopy(self.backbone)
        if start == "random":
            backbone = Backbone(MobileNetV2Model(backbone.module.config), dimension=backbone.dimension)
        return Network(backbone).to(device())

    def inputs(self, rows: Tensor, copied: Tensor, hard: bool, generator: torch.Generator) -> dict[str, Tensor]:
        """Returns random views of a batch."""
        of = {"view_a": rows, "view_b": rows} | ({"hard_negatives": self.hard[rows]} if hard else {})
        return {name: self.augmentation(self.trained.batch(each).to(device()).float() / 255) for name, each in of.items()}

    def known(self, takes: Iterable[str], rows: Tensor, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns nothing: no image has a key."""
        return {}

    def figures(self, model: nn.Module) -> dict[str, float]:
        """Returns the accuracy of kNN × 100 on held-out images and on those of the test set."""
        network: Any = model
        bank = represent(network.backbone, self.trained, size=SIZE)
        found = {}
        for name, each in self.measured.items():
            votes = knn_votes(bank, self.trained.labels, represent(network.backbone, each, size=SIZE), k=NEIGHBOURS)
            found[name] = accuracy(each.labels, votes.argmax(1))
        return found


@cache
def load_image_views(name: str, test: str, data_dir: Path, most: int, guide: str = "") -> Images:
    """Returns ``most`` images of ``name`` and 2,000 held out, and 2,000 of the test images; ``test`` and ``guide`` are unused."""
    images = load_images(name, "train", data_dir, count=most + MEASURED)
    rows = torch.arange(len(images)).split([most, MEASURED])
    trained, held_out = (images.subset(each) for each in rows)
    measured = {"held_out": held_out, "test": load_images(name, "test", data_dir, count=MEASURED)}
    backbone = load_backbone(MOBILENET, data_dir=data_dir)
    seen = represent(backbone, trained, size=SIZE, device=device())
    hard = hard_rows(seen, seen, torch.arange(most))
    return Images(trained, measured, hard, backbone, create_augmentation("simclr-cifar", SIZE))


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
    """The nodes of a graph with what is measured; see `temperature_law.Data`.

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
        views = [
            corrupt(self.edges, self.features.columns, HIDDEN_PART, HIDDEN_PART) for _ in range(4 if copied.any() else 2)
        ]
        rows, copied = rows.to(device()), copied.to(device())
        found = {
            f"view_{name}": SomeNodes(views[place], views[place + 2] if len(views) > 2 else None, rows, copied)
            for place, name in enumerate("ab")
        }
        return found | ({"hard_negatives": SomeNodes(views[1], None, self.hard[rows], copied)} if hard else {})

    def known(self, takes: Iterable[str], rows: Tensor, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns nothing: no node has a key."""
        return {}

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
def load_nodes(name: str, test: str, data_dir: Path, most: int, guide: str = "") -> Nodes:
    """Returns the nodes of a graph that `load_graph` knows; ``test``, ``most`` and ``guide`` are unused."""
    graph = load_graph(name, data_dir, data_dir).to(device())
    count = len(graph.x)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).to(device())
    first, second = round(BANK * count), round((BANK + HELD_OUT) * count)
    parts = {"bank": order[:first], "held_out": order[first:second], "test": order[second:]}
    features = NodeFeatures(graph.x)
    hard = hard_rows(features.dense, features.dense, torch.arange(count, device=device()))
    return Nodes(features, graph.edge_index, graph.y, parts, hard)
