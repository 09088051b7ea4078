"""The features of a graph's nodes, multiplied by weights in the cheapest way."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from tempplug_adapters.sparse_sums import RowSums

# A nonzero costs a sparse product about as much as four numbers cost a dense one (CiteSeer, 0.9 % nonzeros: 30 times as quick).
_NONZERO_COST = 4
# And a number that is summed over edges about as much as 20 of a dense product.
_EDGE_COST = 20


class NodeFeatures:
    """The features of all nodes, which no training step changes.

    Args:
        x: [N, F].
    """

    def __init__(self, x: Tensor) -> None:
        self.dense = (x if x.layout == torch.strided else x.to_dense()).float()
        self.nodes, self.columns = self.dense.shape
        self._nonzeros = int(torch.count_nonzero(self.dense))
        self._sparse: RowSums | None = None
        self._elsewhere: dict[torch.device, NodeFeatures] = {}
        if self._sparse_is_quicker(self.nodes):
            self._sparse = RowSums(_compressed(self.dense), lambda: _compressed(self.dense.T.contiguous()))

    def to(self, device: torch.device) -> NodeFeatures:
        """Returns the features on a device; they are brought to it once."""
        if self.dense.device == device:
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = NodeFeatures(self.dense.to(device))
        return self._elsewhere[device]

    def product(self, weight: Tensor, nodes: Tensor | None = None) -> Tensor:
        """Returns x·weightᵀ [N, O] for a weight [O, F], or its rows of ``nodes`` [n]."""
        wanted = self.nodes if nodes is None else len(nodes)
        # For some nodes, too, all rows of a sparse product may be had for less than some rows of a dense one.
        if self._sparse is not None and self._sparse_is_quicker(wanted):
            product = self._sparse(weight.T.contiguous())
            return product if nodes is None else product[nodes]
        return (self.dense if nodes is None else self.dense[nodes]) @ weight.T

    def _sparse_is_quicker(self, wanted: int) -> bool:
        return _NONZERO_COST * self._nonzeros < wanted * self.columns

    def rows(self, nodes: Tensor | None = None) -> Tensor:
        """Returns the features of ``nodes`` as they are, [n, F]; of all for None."""
        return self.dense if nodes is None else self.dense[nodes]

    def sums_first(self, wanted: int, results: int, edges: int, width: int) -> bool:
        """Returns whether summing the features of neighbours before the product costs less than summing products [width]."""
        sparse = self._sparse is not None and self._sparse_is_quicker(wanted)
        products = (_NONZERO_COST * self._nonzeros if sparse else wanted * self.columns) * width
        # Features are constant: their sums need no gradient, unlike those of products.
        return _EDGE_COST * edges * self.columns + results * self.columns * width < products + 2 * _EDGE_COST * edges * width


def _compressed(dense: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return dense.to_sparse_csr()
