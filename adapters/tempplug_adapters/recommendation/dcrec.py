"""DCRec (Yang et al. 2023): a transformer over histories, two graphs of items, and two weighted contrastive terms.

Details that the paper does not give are those of the authors' code. As a method, it builds the graphs from the training
histories, and at evaluation from the histories of the split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tempplug import ContrastiveLoss
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.measurements import numbers_of
from tempplug_adapters.recommendation.interactions import Interactions
from tempplug_adapters.recommendation.item_graphs import GraphEncoder, ItemGraph, ItemGraphs, OwnEdges
from tempplug_adapters.recommendation.method import Ranker, RecommendationMethod, sequence_encoder
from tempplug_adapters.recommendation.recipes import DCRecRecipe
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
        without_own = self.graph_output(co_interaction, own)[last]
        weights = conformity_weights(output, without_own, *neighbours, lengths, self.conformity_mean)
        first, second = (
            bounded(loss_fn(one, other, **loss_fn.accepted(index=index + offset, keys=last)))
            for one, other, offset in ((view, output, 0), (output, alike, self.examples))
        )
        sample = torch.normal(self.conformity_mean, self.conformity_deviation, weights.shape, device=weights.device)
        next_item = self.encoder.loss(self.fused([state, output, alike]), targets)
        contrastive = (weights * first + (weights.max() - weights) * second).mean()
        return Terms(next_item, contrastive, weight_divergence(weights, sample.to(weights.dtype)), weights)


class DCRecModule(nn.Module):
    """Maps histories to the loss.

    Attributes:
        model: encoders and fusion.
        loss_fn: of both contrastive terms.
        graphs: of items. They are not part of the state, since the data determine them.
    """

    def __init__(self, recipe: DCRecRecipe, data: Interactions, loss_fn: Any) -> None:
        super().__init__()
        dropped = {name: getattr(recipe, name) for name in ("dropout", "edge_dropout", "edge_dropout_at_evaluation")}
        graph_encoder = GraphEncoder(recipe.hidden, recipe.graph_layers, **dropped)
        conformity = recipe.conformity_mean, recipe.conformity_deviation
        self.model = DCRec(sequence_encoder(recipe, data), graph_encoder, *conformity, len(data))
        self.loss_fn = loss_fn
        self.contrastive_weight, self.divergence_weight = recipe.contrastive_weight, recipe.divergence_weight
        self.graphs = ItemGraphs(data, recipe.similarity_graph, recipe.similar_items)
        self.train_graphs = self.graphs.of("train")
        self.own_edges = OwnEdges(self.train_graphs[0], data.items, data.histories("train"))
        self._terms: Terms | None = None

    @property
    def encoder(self) -> nn.Module:
        """The saved part: embeddings, encoders and fusion."""
        return self.model

    def forward(self, histories: Tensor, lengths: Tensor, targets: Tensor, index: Tensor, users: Tensor) -> Tensor:
        """Returns the loss [] in nats of histories [B, L], padded with 0, and targets [B], at positions [B] of users [B]."""
        device = histories.device
        co_interaction, similarity = self.train_graphs = self.train_graphs[0].to(device), self.train_graphs[1].to(device)
        edges = self.own_edges(users.cpu()).to(device)
        terms = self.model.terms(histories, lengths, targets, index, edges, co_interaction, similarity, self.loss_fn)
        self._terms = terms
        return terms.next_item + self.contrastive_weight * terms.contrastive + self.divergence_weight * terms.divergence

    def measure(self) -> dict[str, float]:
        """Returns the numbers of the last batch: those of the second contrastive term, and the terms of the loss."""
        own = {f"{each.name}_term": float(getattr(self._terms, each.name).detach().mean()) for each in fields(Terms)}
        return {**numbers_of(self.loss_fn.record), **own}


class DCRecMethod(RecommendationMethod[DCRecRecipe]):
    """The negatives are the graph outputs for the last items of all other histories of the batch.

    Histories with the same last item have the same graph output, so that these negatives equal the positive: the term
    ``same-key`` leaves them out.

    Source: Yang et al. 2023, Debiased Contrastive Learning for Sequential Recommendation.
    """

    def known(self, recipe: DCRecRecipe, data: Interactions) -> dict[str, Any]:
        """Returns the number of anchors, one for each example and term, and the width of the embeddings."""
        return {"size": 2 * len(data), "dimension": recipe.hidden}

    def offered(self, data: Interactions) -> frozenset[str]:
        """Returns ``index``, and ``keys``: the last items of the histories."""
        return frozenset({"index", "keys"})

    def create_loss(
        self, recipe: DCRecRecipe, data: Interactions, temperature: TemperatureArguments, *, gather: bool = False
    ) -> Any:
        """Returns the loss of the flags with one value for each anchor."""
        loss = super().create_loss(recipe, data, temperature, gather=gather)
        loss.reduction = "none"
        return loss

    def build(self, recipe: DCRecRecipe, data: Interactions, loss: Any) -> DCRecModule:
        """Returns the model with random weights, and the graphs of the training's histories."""
        return DCRecModule(recipe, data, loss)

    def collate(self, recipe: DCRecRecipe, data: Interactions, index: Tensor) -> dict[str, Any]:
        """Returns histories, next items and users."""
        examples = data.train[index.numpy()]
        histories, lengths, targets = data.batch(examples)
        users = torch.from_numpy(examples.users)
        return {"histories": histories, "lengths": lengths, "targets": targets, "index": index, "users": users}

    def scorer(self, module: Any) -> Any:
        """Returns the transformer, whose embeddings of items give the scores."""
        return module.model.encoder

    def states(self, recipe: DCRecRecipe, module: Any, data: Interactions, split: str) -> Ranker:
        """Returns a function from histories to their states, with the graphs of the histories of a split."""
        model, device = module.model, next(module.parameters()).device
        outputs = [model.graph_output(graph.to(device)) for graph in module.graphs.of(split)]

        def states(histories: Tensor, lengths: Tensor) -> Tensor:
            histories, lengths = histories.to(device), lengths.to(device)
            last = histories.gather(1, lengths.clamp(min=1)[:, None] - 1)[:, 0]
            fused: Tensor = model.fused([model.encoder(histories, lengths), *(output[last] for output in outputs)])
            return fused

        return states
