"""Dual encoders of transformers: settings of a checkpoint, and embeddings of images and texts in one space.

It must not depend on data sets or training.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError
from tempplug.strategies.maps import ScaleMap
from tempplug_adapters.huggingface.loading import load_image_settings, load_pretrained, load_tokenizer
from tempplug_adapters.measurements import numbers_of
from tempplug_adapters.modes import evaluating
from tempplug_adapters.storage.files import write_json

_PURPOSE = "a dual encoder: get_text_features, get_image_features and logit_scale, as CLIPModel has them"
# Of CLIP's training images, as in every processor of CLIP.
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
PROCESSOR_FILE = "preprocessor_config.json"


def load_dual_encoder(name: str) -> Any:
    """Loads a dual encoder in float32 from a folder or the hub; raises ConfigError unless it is one with weights."""
    model = load_pretrained(AutoModel, name, purpose=_PURPOSE)
    missing = [each for each in ("get_text_features", "get_image_features", "logit_scale") if not hasattr(model, each)]
    if missing:
        raise ConfigError(f"model='{name}' is a {type(model).__name__} and has no {missing[0]}. Wanted is {_PURPOSE}.")
    return model


@dataclass(frozen=True)
class Checkpoint:
    """Settings of a checkpoint that a training needs before the model is built.

    Attributes:
        tokenizer: of its texts.
        temperature: 1/exp(logit_scale); without ``bias`` at least CLIP's bound of 1/100.
        bias: logit_bias of a model that was trained with the sigmoid loss, as SigLIP and SigLIP 2; None of others.
        dimension: of the embeddings.
        image_size: pixels of each side.
        max_length: most tokens of a text, with special tokens.
        masked: whether the model takes a padding mask; SigLIP does not, and is trained with texts of full length.
        processor: contents of ``preprocessor_config.json``, the normalisation of images.
    """

    tokenizer: Any
    temperature: float
    bias: float | None
    dimension: int
    image_size: int
    max_length: int
    masked: bool
    processor: dict[str, Any]

    @classmethod
    def read(cls, name: str, max_length: int | None = None) -> Checkpoint:
        """Returns the settings of a checkpoint.

        Args:
            name: a folder or a name on the Hugging Face hub.
            max_length: most tokens of a text; None: the model's limit.

        Raises:
            ConfigError: as `load_dual_encoder`.
        """
        model, tokenizer = load_dual_encoder(name), load_tokenizer(name)
        text, vision = model.config.text_config, model.config.vision_config
        bias = float(model.logit_bias.detach()) if isinstance(getattr(model, "logit_bias", None), Tensor) else None
        temperature = math.exp(-float(model.logit_scale.detach()))
        temperature = max(0.01, temperature) if bias is None else temperature
        dimension = getattr(model.config, "projection_dim", None) or vision.hidden_size
        longest = min(max_length or text.max_position_embeddings, text.max_position_embeddings)
        masked = "attention_mask" in tokenizer.model_input_names and not model.config.model_type.startswith("siglip")
        settings = load_image_settings(name) or {"image_processor_type": "CLIPImageProcessor"}
        processor = {"image_mean": list(_MEAN), "image_std": list(_STD), **settings}
        return cls(tokenizer, temperature, bias, dimension, vision.image_size, longest, masked, processor)

    def tokens(self, texts: Iterable[str]) -> list[Tensor]:
        """Returns the token ids of each text, [T] int64."""
        ids = self.tokenizer(list(texts), truncation=True, max_length=self.max_length)["input_ids"]
        return [torch.tensor(each) for each in ids]

    def padded(self, tokens: Sequence[Tensor]) -> dict[str, Tensor]:
        """Returns texts [T] as arguments of the model, [B, T]: with a mask, or of full length if it takes none."""
        rows = pad_sequence(list(tokens), batch_first=True, padding_value=self.tokenizer.pad_token_id)
        if not self.masked:
            return {"input_ids": F.pad(rows, (0, self.max_length - rows.shape[1]), value=self.tokenizer.pad_token_id)}
        mask = pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True)
        return {"input_ids": rows, "attention_mask": mask}

    def save(self, folder: Path) -> None:
        """Writes tokenizer and processor beside a model."""
        self.tokenizer.save_pretrained(folder)
        write_json(folder / PROCESSOR_FILE, self.processor)


class DualEncoder(nn.Module):
    """Images and texts to the loss.

    The checkpoint's own ``logit_scale`` and ``logit_bias`` are not trained; strategy and objective have scale and bias.

    Args:
        model: of `load_dual_encoder`.
        checkpoint: settings of the model's checkpoint.
        loss_fn: of images as view a and texts as view b; None where nothing is trained.

    Attributes:
        encoder: the model.
    """

    mean: Tensor
    std: Tensor
    loss_fn: Any

    def __init__(self, model: Any, checkpoint: Checkpoint, loss_fn: ContrastiveLoss | None) -> None:
        super().__init__()
        self.encoder, self.checkpoint, self.loss_fn, self.size = model, checkpoint, loss_fn, checkpoint.image_size
        for name in ("logit_scale", "logit_bias"):
            if isinstance(own := getattr(model, name, None), nn.Parameter):
                own.requires_grad_(False)
        for name in ("mean", "std"):
            values = torch.tensor(checkpoint.processor[f"image_{name}"]).reshape(1, 3, 1, 1)
            self.register_buffer(name, values, persistent=False)

    def forward(
        self,
        index: Tensor | None = None,
        pixels: Tensor | None = None,
        labels: Tensor | None = None,
        keys: Tensor | None = None,
        **texts: Tensor,
    ) -> Tensor:
        """Returns the loss in nats, []; without ``index``, the embeddings of the images or of the texts, [B, D].

        Args:
            index: [B] positions of the images.
            pixels: [B, 3, H, W] uint8.
            labels: [B] classes, or None.
            keys: [B] numbers of the captions, equal for equal captions; for terms on negatives that read them.
            **texts: of `Checkpoint.padded`, row i the caption of image i.
        """
        if pixels is None:
            return self.embed_texts(**texts)
        images = self.embed_images(pixels)
        return images if index is None else self.loss_of(images, self.embed_texts(**texts), index, labels, keys)

    def rows_to_embed(
        self, index: Tensor, pixels: Tensor, labels: Tensor | None = None, keys: Tensor | None = None, **texts: Tensor
    ) -> list[dict[str, Tensor]]:
        """Returns images and texts as rows that `forward` can embed in parts."""
        return [{"pixels": pixels}, texts]

    def loss_of(
        self,
        images: Tensor,
        texts: Tensor,
        index: Tensor,
        labels: Tensor | None = None,
        keys: Tensor | None = None,
        **inputs: Tensor,
    ) -> Tensor:
        """Returns the loss of the embeddings of images and texts, [B, D]; the other arguments are as of `forward`."""
        loss: Tensor = self.loss_fn(images, texts, **self.loss_fn.accepted(index=index, labels=labels, keys=keys))
        return loss

    def embed_images(self, pixels: Tensor) -> Tensor:
        """Returns raw embeddings, [B, D], of pixels [B, 3, H, W] uint8, resized bicubically to the model's size."""
        images = pixels / 255
        if images.shape[-2:] != (self.size, self.size):
            images = F.interpolate(images, (self.size, self.size), mode="bicubic", antialias=True).clamp(0, 1)
        return _pooled(self.encoder.get_image_features(pixel_values=(images - self.mean).div_(self.std)))

    def embed_texts(self, **texts: Tensor) -> Tensor:
        """Returns raw embeddings, [B, D], of texts from `Checkpoint.padded`."""
        return _pooled(self.encoder.get_text_features(**texts))

    def measure(self) -> dict[str, float]:
        """Returns the numbers of the last batch."""
        return numbers_of(self.loss_fn.record)

    @torch.no_grad()
    def exported(
        self, index: Tensor, pixels: Tensor, labels: Tensor | None = None, keys: Tensor | None = None, **texts: Tensor
    ) -> dict[str, Tensor]:
        """Returns the model's weights, with the temperature of the trained loss as ``logit_scale``, and its bias.

        For strategies with many temperatures (``macl``, ``amcl``, ...) it is their mean over the pairs of this batch, which
        changes only the scale of the probabilities, not the order of similarities. What ``sigmoid`` adds to logits is
        written as ``logit_bias`` if the model has one; a model without one, as CLIP, has no place for it.

        The arguments are a batch, as those of `forward`.
        """
        loss_fn = copy.deepcopy(self.loss_fn).eval()
        loss_fn.gather = False  # only one process writes
        known = loss_fn.accepted(index=index, labels=labels, keys=keys)
        with evaluating(self.encoder):
            loss_fn(self.embed_images(pixels), self.embed_texts(**texts), **known)
        state: dict[str, Tensor] = dict(self.encoder.state_dict())
        scale = -loss_fn.record.temperature_mean.log()
        state["logit_scale"] = scale.to(state["logit_scale"]).expand_as(state["logit_scale"])
        pair = loss_fn.objective.pair_function
        if pair is not None and "logit_bias" in state:
            state["logit_bias"] = pair.offset(ScaleMap(scale.exp())).to(state["logit_bias"]).expand_as(state["logit_bias"])
        return state


def _pooled(output: Any) -> Tensor:
    embeddings: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return embeddings
