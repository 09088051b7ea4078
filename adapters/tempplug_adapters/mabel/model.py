"""The MABEL model: a masked language model with its own head, and a projection of [CLS] that is used in training only.

It must not know the contrastive loss, the data files or the Trainer.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AutoModelForMaskedLM

from tempplug_adapters.huggingface.loading import load_pretrained
from tempplug_adapters.huggingface.masked_tokens import NOT_PREDICTED, masked_loss_sum


class MabelModel(nn.Module):
    """Embeds sentences, and says how well it predicts their masked tokens.

    Args:
        encoder: a transformers masked language model.

    Source: He et al. 2022, MABEL, section 3 and its code: the projection of [CLS] is two layers with a tanh between them.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        width = encoder.config.hidden_size
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        for layer in self.head:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=getattr(encoder.config, "initializer_range", 0.02))
                nn.init.zeros_(layer.bias)

    @classmethod
    def from_pretrained(cls, name: str) -> MabelModel:
        """Returns the model around a pretrained one.

        Args:
            name: a folder or a name on the Hugging Face hub.

        Raises:
            ConfigError: it cannot be loaded, or the checkpoint lacks the head for masked tokens.
        """
        purpose = "a masked language model with the head that it was pretrained with"
        return cls(load_pretrained(AutoModelForMaskedLM, name, purpose=purpose))

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns one vector a sentence, [n, D].

        Args:
            input_ids: [n, T] tokens, [CLS] first.
            attention_mask: [n, T] non-zero at real tokens.
        """
        hidden: Tensor = self.encoder.base_model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        embedding: Tensor = self.head(hidden[:, 0])
        return embedding

    def mlm_loss(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean cross-entropy of the masked tokens in nats, [], 0 where there are none.

        Args:
            input_ids: [n, T] tokens, some of them masked.
            attention_mask: [n, T] non-zero at real tokens.
            labels: [n, T] the masked tokens, `NOT_PREDICTED` elsewhere.
        """
        total = masked_loss_sum(self.encoder, input_ids, attention_mask, labels)
        return total / (labels != NOT_PREDICTED).sum().clamp(min=1)
