"""Graphs as GraphCL trains on them: a data set with cached batches, and encoders and augmentations of the user."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.graph.augmentation import keep
from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet
from tempplug_adapters.graph.user_modules import Augmentation, UserEncoder, augmented, takes_batch


class Graphs:
    """A data set with cached batches, because selecting a batch and creating its sparse patterns takes as long as a step.

    Args:
        graphs: a `GraphSet`; or a data set of PyTorch Geometric, a list of its graphs, or a loader of either. Labels are used
            only by the evaluation.

    Raises:
        DataError: they cannot be used for training.
    """

    def __init__(self, graphs: GraphSet | Iterable[Data]) -> None:
        if isinstance(graphs, torch.utils.data.DataLoader):
            graphs = cast("Iterable[Data]", graphs.dataset)
        if not isinstance(graphs, GraphSet | Iterable) or isinstance(graphs, Data):
            raise DataError(f"graphs must be a data set, a list or a loader of graphs, not {type(graphs).__name__}.")
        self._given = None if isinstance(graphs, GraphSet) else list(graphs)
        self.all = graphs if isinstance(graphs, GraphSet) else GraphSet.from_graphs(self._given or ())
        self._kept: dict[tuple[Any, ...], Any] = {}

    def __len__(self) -> int:
        return len(self.all)

    @cached_property
    def each(self) -> list[Data]:
        """All graphs separately with all their attributes; graphs without features get a constant feature 1."""
        graphs = self.all.graphs() if self._given is None else [each.clone() for each in self._given]
        everywhere = set[str].intersection(*(set(graph.keys()) for graph in graphs))
        for graph in graphs:
            for name in {*graph.keys()} - everywhere - {"x", "edge_index"}:
                del graph[name]
            if graph.x is None:
                graph.x = torch.ones(int(graph.num_nodes or 0), 1)
            elif graph.x.ndim == 1:
                graph.x = graph.x[:, None]
            if graph.edge_index is None:
                graph.edge_index = torch.zeros(2, 0, dtype=torch.int64)
        return graphs

    def batch(self, index: Tensor) -> GraphBatch:
        """Returns the graphs at positions [B]; the object is cached."""
        found: GraphBatch = self._once("ours", index, self.all.batch)
        return found

    def pyg_batch(self, index: Tensor) -> Batch:
        """Returns the graphs at positions [B] as a batch of PyTorch Geometric."""
        return self._once("theirs", index, lambda wanted: Batch.from_data_list([self.each[place] for place in wanted.tolist()]))

    def _once(self, kind: str, index: Tensor, cut: Callable[[Tensor], Any]) -> Any:
        key = (kind, *index.tolist())
        if key not in self._kept:
            self._kept[key] = cut(index)
        return self._kept[key]


class UserGraphEncoder(nn.Module):
    """Calls a user's encoder with graphs and sums representations of nodes, as GraphCL's encoder does.

    Integer features are converted to floating point unless the encoder takes them, as embeddings do.

    Args:
        module: see `UserEncoder`.
        like: a graph of the data with two nodes or more, for a trial call; or the ``known`` of an earlier one.

    Attributes:
        width: of the representations.
        known: what the trial call found, as JSON data.

    Raises:
        ShapeError: it returns neither one row for each node nor one for each graph.
    """

    def __init__(self, module: nn.Module, like: Data | Sequence[Any]) -> None:
        super().__init__()
        self.own, self._as_floats = UserEncoder(module), False
        if not isinstance(like, Data):
            self.width, self._as_floats, self._of_nodes = like
            return
        graphs, nodes = Batch.from_data_list([like, like]), int(like.num_nodes or 0)
        try:
            found = self.own.probe(graphs)
        except ConfigError as error:  # by PyTorch's error for a wrong dtype
            self._as_floats = isinstance(error.__cause__, RuntimeError) and not graphs.x.is_floating_point()
            if not self._as_floats:
                raise
            found = self.own.probe(self._ready(graphs))
        if len(found) not in (2, 2 * nodes):
            raise ShapeError(
                f"encoder {type(module).__name__} returned {len(found)} representations of 2 graphs with {nodes} nodes each: "
                "it must return one for each graph or one for each node."
            )
        self.width, self._of_nodes = found.shape[1], len(found) != 2

    @property
    def known(self) -> list[Any]:
        """What the trial call found."""
        return [self.width, self._as_floats, self._of_nodes]

    def forward(self, graphs: Batch) -> Tensor:
        """Returns the representations, [B, width]."""
        found: Tensor = self.own(self._ready(graphs))
        return global_add_pool(found, graphs.batch, graphs.num_graphs) if self._of_nodes else found

    def _ready(self, graphs: Batch) -> Batch:
        if self._as_floats:
            graphs = copy.copy(graphs)
            graphs.x = graphs.x.float()
        return graphs


def user_views(graphs: Sequence[Data], pool: Sequence[str | Augmentation]) -> Batch:
    """Returns a view of each graph by an augmentation drawn from the pool with PyTorch's global generator.

    Args:
        graphs: not changed.
        pool: names of `AUGMENTATIONS`, and callables from a ``Data`` to one; or a single callable with an argument annotated
            as ``Batch``, which returns a batch of as many graphs.

    Raises:
        ConfigError: an augmentation returns another type, needs other features, or takes a batch in a pool of several.
    """
    for each in pool:
        if not isinstance(each, str) and takes_batch(each):
            if len(pool) > 1:
                raise ConfigError(f"augmentation {each!r} takes a whole batch, and so must be the only one.")
            view = augmented(Batch.from_data_list(list(graphs)), each)
            if getattr(view, "num_graphs", None) != len(graphs):
                raise ConfigError(f"augmentation {each!r} must return a Batch of {len(graphs)} graphs.")
            return view
    choice = torch.randint(len(pool), (len(graphs),))
    chosen = [pool[place] for place in choice.tolist()]
    made = [graph if isinstance(each, str) else augmented(graph, each) for graph, each in zip(graphs, chosen, strict=True)]
    batch, names = Batch.from_data_list(made), [each if isinstance(each, str) else "" for each in pool]
    return _kept(batch, names, choice) if any(names) else batch


def _kept(batch: Batch, names: Sequence[str], choice: Tensor) -> Batch:
    """Returns the views by built-in augmentations, with all attributes of nodes and edges."""
    masked = "mask-attributes" in names
    if masked and not (batch.x is not None and batch.x.is_floating_point()):
        raise ConfigError("augmentation 'mask-attributes' puts noise in place of features, which must be floating point.")
    left = keep(GraphBatch.of(batch), names, choice)
    of_node = batch.batch[left.nodes]
    sizes = torch.bincount(of_node, minlength=batch.num_graphs)
    view = Batch(batch=of_node, ptr=torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))
    for name in batch.keys():  # noqa: SIM118 (a Batch is no dictionary)
        if name == "edge_index":
            view.edge_index = (left.nodes.cumsum(0) - 1)[batch.edge_index[:, left.edges]]
        elif name == "x":
            view.x = (left.x if masked else batch.x)[left.nodes]
        elif name not in ("batch", "ptr", "num_nodes"):
            kept = left.nodes if batch.is_node_attr(name) else left.edges if batch.is_edge_attr(name) else None
            view[name] = batch[name] if kept is None else batch[name][kept]
    if batch.x is None:
        view.num_nodes = len(of_node)
    return view
