"""`CachedTemperatureRankingLoss`: the same loss by GradCache, for batches with activations that do not fit into memory.

The library embeds in mini-batches, twice. This module adds gradients of the loss's own parameters, scaled like the model's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tempplug import Objective, Strategy
from tempplug.errors import ConfigError
from tempplug.types import ObjectiveName
from tempplug_adapters.huggingface.parameters import trainable
from tempplug_adapters.sentence_transformers.columns import take_named
from tempplug_adapters.sentence_transformers.library import CachedLossMixin, has_static_embedding_input
from tempplug_adapters.sentence_transformers.loss import TemperatureRankingLoss


class CachedTemperatureRankingLoss(TemperatureRankingLoss, CachedLossMixin):
    """`TemperatureRankingLoss` with memory bounded by ``mini_batch_size``, at the cost of a second forward pass.

    Statistics of a strategy (MACL's mean similarity) and terms on negatives see the whole batch, not a mini-batch.

    Args:
        model: a SentenceTransformer that does not start with a StaticEmbedding, whose inputs cannot be split.
        strategy: as in `TemperatureRankingLoss`.
        objective: as in `TemperatureRankingLoss`.
        mini_batch_size: rows embedded at a time, at least 1; affects only speed and memory.
        mini_batch_num_tokens: replaces it: maximum number of tokens of a mini-batch without padding, at least 1.
        show_progress_bar: whether to show the progress of embedding.
        options: other options of `TemperatureRankingLoss`.

    Raises:
        ConfigError: as in `TemperatureRankingLoss`; the model starts with a StaticEmbedding, or a size is less than 1;
            ``mini_batch_num_tokens`` with sentence-transformers before 5.7.

    Source: sentence-transformers 6.2, ``CachedMultipleNegativesRankingLoss``; Gao et al. 2021 (GradCache).
    """

    def __init__(
        self,
        model: Any,
        strategy: str | Strategy | None = None,
        objective: ObjectiveName | Objective = "infonce",
        *,
        mini_batch_size: int = 32,
        mini_batch_num_tokens: int | None = None,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> None:
        if has_static_embedding_input(model):
            raise ConfigError("model starts with a StaticEmbedding, whose inputs cannot be split: use TemperatureRankingLoss.")
        for name, value in (("mini_batch_size", mini_batch_size), ("mini_batch_num_tokens", mini_batch_num_tokens)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} must be at least 1.")
        if mini_batch_num_tokens is not None and not hasattr(CachedLossMixin, "mini_batch_num_tokens"):
            raise ConfigError("mini_batch_num_tokens needs sentence-transformers 5.7 or newer: pass mini_batch_size.")
        super().__init__(model, strategy, objective, **options)
        self.mini_batch_size = mini_batch_size
        self.mini_batch_num_tokens = mini_batch_num_tokens
        self.show_progress_bar = show_progress_bar

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch; its backward pass embeds again, and also reaches the parameters of the loss."""
        first, *others = sentence_features
        features = [dict(first), *others]  # a copy, which the backward pass embeds again without the named columns
        self._of_rows = self._read(features, labels, take_named(features[0]))
        decorated, totals = self.calculate_loss, []

        # `forward_cached` detaches the total, and MatryoshkaLoss replaces `calculate_loss` by a weighted sum of calls. The
        # total is recorded between the two, so that its gradient has these weights and the scale of the later steps.
        def caught(*args: Any, **kwargs: Any) -> Tensor:
            totals.append(decorated(*args, **kwargs))
            return totals[-1]

        replaced = self.__dict__.get("calculate_loss")
        self.calculate_loss = caught  # type: ignore[method-assign]
        try:
            loss: Tensor = self.forward_cached(features, labels)
        finally:
            self._of_rows = {}
            del self.__dict__["calculate_loss"]
            if replaced is not None:
                self.calculate_loss = replaced  # type: ignore[method-assign]
        (total,) = totals
        if loss.requires_grad and total.requires_grad and total is not loss:
            loss.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: torch.autograd.backward(total, gradient, retain_graph=True)
            )
        return loss

    def calculate_loss(self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False) -> Tensor:
        """Returns the loss of the whole batch.

        Args:
            reps: embeddings by column and mini-batch, leaves of the graph.
            labels: not used.
            with_backward: whether to store gradients in the embeddings; the returned loss then depends only on the parameters
                of the loss.
        """
        loss = self.compute_loss_from_embeddings([torch.cat(column) for column in reps], labels)
        if not with_backward:
            return loss
        leaves, own = [leaf for column in reps for leaf in column], trainable(self.contrastive_loss)
        gradients = torch.autograd.grad(loss, [*leaves, *own], allow_unused=True)
        for leaf, gradient in zip(leaves, gradients[: len(leaves)], strict=True):
            leaf.grad = gradient
        total = loss.detach()
        for parameter, gradient in zip(own, gradients[len(leaves) :], strict=True):
            if gradient is not None:
                # a term of value 0 with this gradient
                total = total + ((parameter - parameter.detach()) * gradient).sum()
        return total

    def get_config_dict(self) -> dict[str, Any]:
        """Returns the settings for the model card."""
        sizes = {"mini_batch_size": self.mini_batch_size, "mini_batch_num_tokens": self.mini_batch_num_tokens}
        return {**super().get_config_dict(), **sizes}
