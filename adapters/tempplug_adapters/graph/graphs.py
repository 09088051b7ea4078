"""The data set of GraphCL's training, which caches its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from tempplug.errors import DataError
from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet


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
