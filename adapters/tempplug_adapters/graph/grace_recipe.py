"""GRACE's settings and ``tempplug train grace``, as data: importing this loads no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tempplug.options import Choice, Flag, Number, Numbers, Text, Words
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around, integer, integer_or_none

ACTIVATIONS = ("relu", "prelu", "elu")
PROTOCOLS: dict[str, tuple[float, float]] = {"10/80/10": (0.1, 0.8), "10/10/80": (0.1, 0.1)}
"""Shares of the nodes for training and validation by name; the rest is the test set.

PyGCL's ``get_split(train_ratio=0.1, test_ratio=0.8)`` returns the 80 % as validation nodes and the last 10 % as test nodes:
``10/80/10`` is what it measures, ``10/10/80`` what the names of its arguments mean.
"""
PUBLIC = "public"
"""The protocol whose splits are the masks of the data set."""
_LOSS = LossRecipe(layout="two-view", temperatures=around(0.5))
_SHARE = Number(at_least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class GraceRecipe(Recipe):
    """The settings of GRACE. The defaults are from "Temperature-Free Loss Function for Contrastive Learning", table 3.

    They equal PyGCL's example with 1,000 epochs; Zhu et al. 2020 train CiteSeer with hidden 256, prelu, learning rate 1e-3,
    weight decay 1e-5, 200 epochs, edges 0.2/0.0, features 0.3/0.2 and temperature 0.9. 0.5 is the best temperature of the
    table. Without a batch size, all nodes of the graph are contrasted at once.
    """

    loss: LossRecipe = _LOSS

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the nodes")] = 1000
    per_device_train_batch_size: Annotated[
        int | None, integer_or_none("nodes a step, with sampled neighbours; none: all", 2)
    ] = None
    hidden: Annotated[int, integer("width of the representations")] = 32
    projection: Annotated[int, integer("width inside the projection head")] = 32
    layers: Annotated[int, integer("graph convolutions")] = 2
    activation: Annotated[str, Choice(ACTIVATIONS, help="of the encoder")] = "relu"
    encoder: Annotated[
        str | None,
        Text(optional=True, help="MODULE:NAME[:key=value,...] of a module, class or function, such as torch_geometric.nn:GAT"),
    ] = None
    augmentations: Annotated[
        tuple[str, ...], Words(help="one or two of MODULE:NAME, called with a Data; none: edges removed and features masked")
    ] = ()
    edge_removal: Annotated[tuple[float, ...], Numbers(_SHARE, 1, 2, help="share of edges removed, one or one a view")] = (0.3,)
    feature_masking: Annotated[tuple[float, ...], Numbers(_SHARE, 1, 2, help="share of columns hidden, likewise")] = (0.3,)
    neighbours: Annotated[int, integer("sampled a node and layer, with a batch size")] = 15
    raw_features: Annotated[bool, Flag(help="do not scale the features of a node to the sum 1")] = False
    node_features: Annotated[str | None, Text(optional=True, help="file with a row a node, for a table of edges")] = None
    node_labels: Annotated[str | None, Text(optional=True, help="file with a class a node, or several of 0 and 1")] = None
    protocols: Annotated[
        tuple[str, ...],
        Words((*PROTOCOLS, PUBLIC), 1, help=f"% of nodes for training, validation and test; {PUBLIC}: the data set's masks"),
    ] = tuple(PROTOCOLS)
    splits: Annotated[int, integer("random ones of each protocol, averaged")] = 1
    l2: Annotated[
        tuple[float, ...], Numbers(Number(at_least=0), help="weight decays of the regression; the best in validation is used")
    ] = (0.0,)


METHOD = MethodInfo(
    name="grace",
    summary="Train node representations with GRACE and any temperature strategy, and classify nodes by them.",
    target="tempplug_adapters.graph.grace_method:GraceMethod",
    recipes={"temperature-free": GraceRecipe()},
    datasets="graph of Planetoid (Cora), CitationFull (CitationFull/Cora), Coauthor (CS), Amazon (Photo) or OGB (ogbn-arxiv); "
    "a .pt file with a Data of PyTorch Geometric or its (data, slices); or a table of edges (.csv, .tsv, .txt, .npy)",
)
