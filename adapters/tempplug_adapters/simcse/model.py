"""The SimCSE model: an encoder, a pooler, and heads that are used in training only.

It must not know the loss, the data files or the Trainer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.loading import explained, load_pretrained
from tempplug_adapters.huggingface.pooling import pool
from tempplug_adapters.sentence_evaluation.encoder_settings import ENCODER_FILE
from tempplug_adapters.simcse.recipe import POOLERS


def load_config(name: str, dropout: float | None = None) -> Any:
    """Returns the configuration of a pretrained encoder.

    Args:
        name: a folder or a name on the Hugging Face hub.
        dropout: of hidden states and attention; by default the model's own.

    Raises:
        ConfigError: it cannot be loaded, or has no dropout rate that could be set.
    """
    with explained(name):
        config = AutoConfig.from_pretrained(name)
    if dropout is not None:
        rates = [key for key in ("hidden_dropout_prob", "attention_probs_dropout_prob") if hasattr(config, key)]
        if not rates:
            raise ConfigError(f"dropout={dropout}: a {config.model_type} model has no dropout rate of BERT's names.")
        for key in rates:
            setattr(config, key, dropout)
    return config


class SimCSEModel(nn.Module):
    """Encodes a batch to sentence embeddings, in one forward pass for all views.

    Args:
        encoder: a transformers encoder; one with a masked-language-model head where ``mlm_loss`` will be asked for.
        pooler: ``cls_mlp``, ``cls``, ``avg`` or ``avg_first_last``.

    Source: SimCSE (Gao et al. 2021), section 3 and appendix: the MLP after [CLS] is kept in training and left out of
    evaluation.
    """

    def __init__(self, encoder: Any, pooler: str = "cls_mlp") -> None:
        super().__init__()
        self.encoder = encoder
        self.pooler = pooler
        width = encoder.config.hidden_size
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh()) if pooler == "cls_mlp" else nn.Identity()
        for layer in self.head.children():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=getattr(encoder.config, "initializer_range", 0.02))
                nn.init.zeros_(layer.bias)

    @classmethod
    def from_pretrained(cls, name: str, pooler: str = "cls_mlp", *, config: Any = None, mlm: bool = False) -> SimCSEModel:
        """Returns the model around a pretrained encoder.

        Args:
            name: a folder or a name on the Hugging Face hub.
            pooler: see the class.
            config: of `load_config`; by default the encoder's own.
            mlm: whether to keep the masked-language-model head.

        Raises:
            ConfigError: the model cannot be loaded.
        """
        encoder = load_pretrained(AutoModelForMaskedLM if mlm else AutoModel, name, config=config or load_config(name))
        # BERT's own pooler sees no gradient here, which DistributedDataParallel would wait for.
        if getattr(encoder.base_model, "pooler", None) is not None:
            encoder.base_model.pooler = None
        return cls(encoder, pooler)

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
        """Returns ``embedding`` [n, D], and ``mlm_loss`` [] where masked tokens are given.

        Args:
            input_ids: [n, T] tokens of all views, one below the other.
            attention_mask: [n, T] non-zero at real tokens.
            mlm_input_ids: [n, T] the same tokens, some of them masked.
            mlm_labels: [n, T] the masked tokens, -100 elsewhere.
        """
        outputs = self.encoder.base_model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            output_hidden_states=self.pooler == "avg_first_last",
        )
        found = {"embedding": self.head(pool(outputs, attention_mask, POOLERS[self.pooler]))}
        if mlm_input_ids is not None:
            found["mlm_loss"] = self.encoder(input_ids=mlm_input_ids, attention_mask=attention_mask, labels=mlm_labels).loss
        return found

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the encoder as a plain Hugging Face folder, its pooling beside it; the head was for training only."""
        path = Path(folder)
        self.encoder.save_pretrained(path)
        # No length: training cuts sentences short for speed, evaluation reads them whole, as SimCSE does.
        settings = {"pooling": POOLERS[self.pooler]}
        (path / ENCODER_FILE).write_text(json.dumps(settings) + "\n", encoding="utf-8")
