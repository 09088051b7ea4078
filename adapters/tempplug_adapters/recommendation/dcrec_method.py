"""DCRec as a method; its graphs are built from the training histories, and at evaluation from the histories of the split."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.measurements import numbers_of
from tempplug_adapters.recommendation.dcrec import DCRec, Terms
from tempplug_adapters.recommendation.dcrec_recipe import DCRecRecipe
from tempplug_adapters.recommendation.evaluation import Ranker
from tempplug_adapters.recommendation.graph_encoder import GraphEncoder
from tempplug_adapters.recommendation.interactions import Interactions
from tempplug_adapters.recommendation.item_graphs import ItemGraphs, OwnEdges
from tempplug_adapters.recommendation.method import RecommendationMethod, sequence_encoder


class DCRecModule(nn.Module):
    """Maps histories to the loss.

    Attributes:
        model: encoders and fusion.
        loss_fn: of both contrastive terms.
        graphs: of items. They are not part of the state, since the data determine them.
    """

    def __init__(self, recipe: DCRecRecipe, data: Interactions, loss_fn: Any) -> None:
        super().__init__()
        graph_encoder = GraphEncoder(
            recipe.hidden,
            recipe.graph_layers,
            recipe.dropout,
            recipe.edge_dropout,
            edge_dropout_at_evaluation=recipe.edge_dropout_at_evaluation,
        )
        self.model = DCRec(
            sequence_encoder(recipe, data), graph_encoder, recipe.conformity_mean, recipe.conformity_deviation, len(data)
        )
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
