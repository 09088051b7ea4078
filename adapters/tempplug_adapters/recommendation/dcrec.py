"""DCRec (Yang et al. 2023): a transformer over histories, two graphs of items, and two weighted contrastive terms.

Details that the paper does not give are those of the authors' code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tempplug import ContrastiveLoss
from tempplug_adapters.recommendation.graph_encoder import GraphEncoder, ItemGraph
from tempplug_adapters.recommendation.sequence_encoder import HistoryEncoder
from tempplug_adapters.sparse_sums import ranges

_FLOOR = 1e-8
"""Added to a probability before its logarithm, and the lower bound of the sampled weights."""
_ONE_ITEM_WEIGHT = 0.5
"""The weight of a history of one item, which has no conformity."""
_DEVIATION = 0.02


@dataclass(frozen=True)
class Terms:
    """The terms of the loss.

    Attributes:
        next_item: mean cross-entropy, [].
        contrastive: mean weighted sum of both terms, [].
        divergence: of the conformity weights, [].
        conformity: [B] weights.
    """

    next_item: Tensor
    contrastive: Tensor
    divergence: Tensor
    conformity: Tensor


def neighbour_means(graph: ItemGraph, own: Tensor, nodes: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the mean features [B, D] of the neighbours of nodes [B] along own edges [E], and along all others; 0 of none.

    The authors' code uses a random sample of ten of each kind.
    """
    first, count = graph.starts[nodes], graph.starts[nodes + 1] - graph.starts[nodes]
    row = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), count)
    edges = ranges(first, count)
    means = []
    for mask in (own[edges], ~own[edges]):
        where, neighbours = row[mask], graph.targets[edges[mask]]
        sums = features.new_zeros(len(nodes), features.shape[1]).index_add(0, where, features[neighbours])
        means.append(sums / where.bincount(minlength=len(nodes)).clamp(min=1)[:, None])
    return means[0], means[1]


def conformity_weights(
    output: Tensor, without_own: Tensor, own: Tensor, foreign: Tensor, lengths: Tensor, mean: float
) -> Tensor:
    """Returns the conformity of each history, [B]: σ of the mean of three cosines, min-max scaled, of given mean.

    Histories of one item get 0.5 after that. If all others are equal, as in a batch of one, their weight is the mean.

    Args:
        output: [B, D] of the co-interaction graph.
        without_own: [B, D] of that graph without own edges.
        own: [B, D] mean of the neighbours along own edges.
        foreign: [B, D] mean of the others.
        lengths: [B] of the histories.
        mean: mean of the weights before that.
    """
    pairs = ((output, without_own), (output, foreign), (own, foreign))
    agreement = sum(functional.cosine_similarity(*pair, eps=1e-12) for pair in pairs) / 3
    agreement = torch.sigmoid(torch.as_tensor(agreement))
    low, high = agreement.min(), agreement.max()
    flat = high == low
    scaled = (agreement - low) / torch.where(flat, 1.0, high - low)
    weights = torch.where(flat, mean, scaled * (mean / torch.where(flat, 1.0, scaled.mean())))
    return torch.where(lengths <= 1, _ONE_ITEM_WEIGHT, weights)


def weight_divergence(weights: Tensor, sample: Tensor) -> Tensor:
    """Returns Σ p·(ln p − ln q) / B between weights [B] and a sample [B] of their target distribution, both sorted."""
    expected = (sample.sort()[0].clamp(min=_FLOOR) + _FLOOR).log()
    return functional.kl_div(weights.sort()[0].log_softmax(0), expected, reduction="batchmean", log_target=True)


def bounded(row_losses: Tensor) -> Tensor:
    """Returns −ln(1e-8 + p) for losses −ln p, [B]: the authors' code adds 1e-8, so that no loss is above 18.4 nats."""
    return -torch.logaddexp(-row_losses, row_losses.new_tensor(math.log(_FLOOR)))


class DCRec(nn.Module):
    """Maps histories to the terms of the loss and to the states for the prediction of the next item.

    Args:
        encoder: of histories, with the embeddings of items.
        graph_encoder: of both graphs.
        conformity_mean: of the weights.
        conformity_deviation: of their target distribution.
        examples: N, the number of examples. In strategies with values for each anchor, those of the second term start at N.
    """

    def __init__(
        self,
        encoder: HistoryEncoder,
        graph_encoder: GraphEncoder,
        conformity_mean: float = 0.4,
        conformity_deviation: float = 0.1,
        examples: int = 0,
    ) -> None:
        super().__init__()
        self.encoder, self.graph_encoder = encoder, graph_encoder
        self.conformity_mean, self.conformity_deviation, self.examples = conformity_mean, conformity_deviation, examples
        width = encoder.items.embedding_dim
        self.fusion = nn.Parameter(torch.randn(width, width) * _DEVIATION)
        self.attention = nn.Parameter(torch.randn(width) * _DEVIATION)

    def graph_output(self, graph: ItemGraph, removed: Tensor | None = None) -> Tensor:
        """Returns the output of the graph encoder for all items, [I + 1, D], without the ``removed`` edges [E]."""
        out: Tensor = self.graph_encoder(self.encoder.items.weight, graph, removed)
        return out

    def fused(self, views: list[Tensor]) -> Tensor:
        """Returns the sum of views [B, D] weighted by attention, softmax over Σ (xW)∘a."""
        stacked = torch.stack(views)
        shares = ((stacked @ self.fusion) * self.attention).sum(-1).softmax(0)
        return (stacked * shares[..., None]).sum(0)

    def terms(
        self,
        histories: Tensor,
        lengths: Tensor,
        targets: Tensor,
        index: Tensor,
        own: Tensor,
        co_interaction: ItemGraph,
        similarity: ItemGraph,
        loss_fn: ContrastiveLoss,
    ) -> Terms:
        """Returns the terms of the loss.

        Args:
            histories: [B, L] items, padded with 0.
            lengths: [B], at least 1.
            targets: [B] items.
            index: [B] positions of the examples.
            own: [E] edges of the co-interaction graph that occur in the users' own histories.
            co_interaction: graph of items that follow each other.
            similarity: graph of items with the same users.
            loss_fn: of layout ``cross-view``, one way, ``reduction="none"``, for both terms.
        """
        last = histories.gather(1, lengths[:, None] - 1)[:, 0]
        every, alike = self.graph_output(co_interaction), self.graph_output(similarity)[last]
        output = every[last]
        state = self.encoder(histories, lengths)
        view = self.encoder(histories, lengths)  # with another dropout mask
        neighbours = neighbour_means(co_interaction, own, last, every)
        weights = conformity_weights(
            output, self.graph_output(co_interaction, own)[last], *neighbours, lengths, self.conformity_mean
        )
        first, second = (
            bounded(loss_fn(one, other, **loss_fn.accepted(index=index + offset, keys=last)))
            for one, other, offset in ((view, output, 0), (output, alike, self.examples))
        )
        sample = torch.normal(self.conformity_mean, self.conformity_deviation, weights.shape, device=weights.device)
        return Terms(
            self.encoder.loss(self.fused([state, output, alike]), targets),
            (weights * first + (weights.max() - weights) * second).mean(),
            weight_divergence(weights, sample.to(weights.dtype)),
            weights,
        )
