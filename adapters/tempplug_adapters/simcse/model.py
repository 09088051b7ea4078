"""The SimCSE model: an encoder, a pooler, and heads that are used only in training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface import loading
from tempplug_adapters.huggingface.masked_tokens import NOT_PREDICTED, masked_loss_sum
from tempplug_adapters.huggingface.pooling import LAYER_POOLINGS, pool

# With NLI pairs of one width, half of the tokens are padding: four groups of 32 rows take 65 % of the CPU time of one, and
# more groups save no more. On a GPU the batch stays whole, because each call has an overhead and reading lengths synchronises.
GROUPS = 4
FEWEST_ROWS = 16


def load_config(name: str, dropout: float | None = None) -> Any:
    """Returns the configuration of a pretrained encoder.

    Args:
        name: a folder or a name on the Hugging Face hub.
        dropout: dropout rate of hidden states and attention; None for the model's own.

    Raises:
        ConfigError: it cannot be loaded, or has no configurable dropout rate.
    """
    config = loading.load_config(name)
    if dropout is not None:
        rates = [key for key in ("hidden_dropout_prob", "attention_probs_dropout_prob") if hasattr(config, key)]
        if not rates:
            raise ConfigError(f"dropout={dropout}: a {config.model_type} model has no dropout rate of BERT's names.")
        for key in rates:
            setattr(config, key, dropout)
    return config


class SimCSEModel(nn.Module):
    """Encodes a batch to sentence embeddings; views are grouped by length in one forward pass.

    Args:
        encoder: a transformers encoder, with a masked language modelling head if ``mlm_loss`` is used. Its pooler is replaced.
        pooling: of `pooling.POOLINGS`; the MLP of ``cls`` is randomly initialised.
        mlp_only_train: whether to leave that MLP out of the encoder that is evaluated and saved.

    Attributes:
        pooling: pooling of the encoder that is evaluated and saved.

    Raises:
        ConfigError: the MLP should be kept in the encoder's own pooler, but its architecture has no such pooler.

    Source: SimCSE (Gao et al. 2021), section 3 and appendix, and its code: without labels the MLP after [CLS] is left out of
    evaluation, with labels it is kept; the published models have it in BERT's own pooler.
    """

    def __init__(self, encoder: Any, pooling: str = "cls", *, mlp_only_train: bool = True) -> None:
        super().__init__()
        self.encoder = encoder
        self.head: nn.Module = nn.Identity()
        width = encoder.config.hidden_size
        kept = None
        if pooling == "cls" and mlp_only_train:
            self.pooling, self.head = "cls_before_pooler", nn.Sequential(nn.Linear(width, width), nn.Tanh())
            initialise(self.head[0], encoder.config)
        else:
            self.pooling = pooling
            kept = _own_pooler(encoder.config) if pooling == "cls" else None
        # An unused pooler gets no gradient, which DistributedDataParallel would wait for.
        if kept is not None or getattr(encoder.base_model, "pooler", None) is not None:
            encoder.base_model.pooler = kept

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        pooling: str = "cls",
        *,
        mlp_only_train: bool = True,
        config: Any = None,
        mlm: bool = False,
        own: str | None = None,
    ) -> SimCSEModel:
        """Returns the model for a pretrained encoder (folder or hub name), or for what `loading.own_model` makes from it.

        ``mlm`` keeps its token prediction head.
        """
        encoder = loading.load_pretrained(AutoModelForMaskedLM if mlm else AutoModel, name, config=config or load_config(name))
        return cls(loading.own_model(encoder, own), pooling, mlp_only_train=mlp_only_train)

    @property
    def config(self) -> Any:
        """The configuration of the encoder."""
        return self.encoder.config

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        mlm_input_ids: Tensor | None = None,
        mlm_labels: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Returns ``embedding`` [n, D], and ``mlm_loss`` [] if masked tokens are given.

        Args:
            input_ids: [n, T] tokens of all views, concatenated.
            attention_mask: [n, T], non-zero for real tokens.
            mlm_input_ids: [n, T] the same tokens, some of them masked.
            mlm_labels: [n, T] the masked tokens, `NOT_PREDICTED` elsewhere; without masked tokens, ``mlm_loss`` is 0.
        """
        rows, vectors, mlm_losses = [], [], []
        for group, width in length_groups(attention_mask):
            mask = attention_mask[group, :width]
            outputs = self.encoder.base_model(
                input_ids=input_ids[group, :width],
                attention_mask=mask,
                output_hidden_states=self.pooling in LAYER_POOLINGS,
            )
            rows.append(group)
            vectors.append(self.head(pool(outputs, mask, self.pooling)))
            if mlm_input_ids is not None and mlm_labels is not None:
                masked = mlm_input_ids[group, :width], mask, mlm_labels[group, :width]
                mlm_losses.append(masked_loss_sum(self.encoder, *masked))
        found = {"embedding": torch.cat(vectors)[torch.cat(rows).argsort()]}
        if mlm_labels is not None:
            found["mlm_loss"] = torch.stack(mlm_losses).sum() / (mlm_labels != NOT_PREDICTED).sum().clamp(min=1)
        return found


def _own_pooler(config: Any) -> nn.Module:
    """Returns the randomly initialised pooler of an architecture: a linear layer and tanh over the first token."""
    with torch.device("meta"):
        model: Any = AutoModel.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    pooler: Any = getattr(model, "pooler", None)
    dense = getattr(pooler, "dense", None)
    if not isinstance(dense, nn.Linear) or not isinstance(pooler.activation, nn.Tanh):
        raise ConfigError(
            f"pooling=cls with mlp_only_train=False keeps the MLP in the encoder's own pooler, and a {config.model_type} model "
            "has none of that form. Choose --mlp-only-train, or --pooling cls_before_pooler or avg."
        )
    initialise(dense.to_empty(device="cpu").float(), config)
    kept: nn.Module = pooler
    return kept


def initialise(layer: Any, config: Any) -> None:
    """Draws the weights of a linear layer with the standard deviation of a configuration; biases are 0."""
    nn.init.normal_(layer.weight, std=getattr(config, "initializer_range", 0.02))
    nn.init.zeros_(layer.bias)


def length_groups(attention_mask: Tensor) -> list[tuple[Tensor, int]]:
    """Returns the rows of each group, longest sentences first, and the maximum number of tokens of each group.

    Args:
        attention_mask: [n, T], non-zero at real tokens, which come before the padding.
    """
    rows, width = attention_mask.shape
    groups = min(GROUPS, rows // FEWEST_ROWS)
    if attention_mask.device.type != "cpu" or groups < 2:
        return [(torch.arange(rows, device=attention_mask.device), width)]
    lengths = attention_mask.sum(1)
    order = lengths.argsort(descending=True, stable=True)
    return [(group, int(lengths[group[0]])) for group in order.tensor_split(groups)]
