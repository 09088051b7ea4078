"""CLIPModel in your own Hugging Face Trainer, with any temperature strategy by three flags.

    python adapters/examples/clip_trainer.py --output_dir out --temperature-strategy learnable --num_train_epochs 3

It fine-tunes ``--model``, or a small random CLIP, on images whose captions are the names of their classes. The command
``tempplug train clip`` does that with any captions, measures retrieval and writes a folder for others.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import CLIPConfig, CLIPModel, HfArgumentParser, Trainer, TrainingArguments, set_seed

from tempplug_adapters.huggingface import TemperatureArguments, TemperatureTrainerMixin
from tempplug_adapters.huggingface.loading import load_pretrained, load_tokenizer
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.training.recipe import around


@dataclass
class ExampleArguments:
    """What is trained on which images."""

    model: str | None = field(default=None, metadata={"help": "folder or hub name of a CLIPModel; else a small random one"})
    dataset: str = field(default="digits", metadata={"help": "images with classes: digits, cifar10, imagenette, a folder, ..."})
    data_dir: str | None = field(default=os.environ.get("TEMPPLUG_DATA"), metadata={"help": "folder of data"})
    images: int | None = field(default=None, metadata={"help": "how many to train on; else all"})


class Captioned(Dataset[dict[str, Tensor]]):
    """Images with the tokens of their captions."""

    def __init__(self, arguments: ExampleArguments, size: int, tokenizer: Any) -> None:
        folder = None if arguments.data_dir is None else Path(arguments.data_dir)
        self.images = load_images(arguments.dataset, "train", folder, size=size, count=arguments.images)
        captions = [f"a photo of a {name}" for name in self.images.classes]
        self.tokens = (tokenizer or letters)(captions, padding=True, return_tensors="pt")
        assert self.images.labels is not None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> dict[str, Tensor]:
        pixels = self.images.batch(torch.tensor([position]))[0].float() / 127.5 - 1
        label = int(self.images.labels[position])  # type: ignore[index]
        return {"pixel_values": pixels, **{name: rows[label] for name, rows in self.tokens.items()}}


def letters(captions: Sequence[str], **more: Any) -> dict[str, Tensor]:
    """Returns a token a letter, for a model that has no tokenizer; 0 ends a text and fills it up."""
    width = max(map(len, captions)) + 1
    ids = [[ord(letter) % 127 + 1 for letter in text] + [0] * (width - len(text)) for text in captions]
    return {"input_ids": torch.tensor(ids)}


class ClipTrainer(TemperatureTrainerMixin, Trainer):
    """Contrasts images with texts."""

    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Returns the embeddings of images and texts."""
        outputs = model(**inputs)
        return outputs.image_embeds, outputs.text_embeds


def create_model(arguments: ExampleArguments) -> Any:
    """Returns the model that training starts from."""
    if arguments.model is not None:
        return load_pretrained(CLIPModel, arguments.model)
    layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**layers, "vocab_size": 128, "eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0}
    vision = {**layers, "image_size": 32, "patch_size": 8}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=32))


def main(words: Sequence[str]) -> list[dict[str, float]]:
    """Trains, saves the model and returns the logs: loss, temperature, similarities."""
    parser = HfArgumentParser((TemperatureArguments, TrainingArguments, ExampleArguments))
    temperature, training, arguments = parser.parse_args_into_dataclasses(list(words))
    set_seed(training.seed)
    model = create_model(arguments)
    # the checkpoint's temperature determines the options of strategies and where a learned one begins; logit_scale is frozen
    scale = model.logit_scale.requires_grad_(False)
    temperatures = around(max(0.01, math.exp(-scale.item())))
    tokenizer = None if arguments.model is None else load_tokenizer(arguments.model)
    trainer = ClipTrainer(
        model,
        training,
        train_dataset=Captioned(arguments, model.config.vision_config.image_size, tokenizer),
        contrastive_loss=temperature.create_loss("cross-view", symmetric=True, temperatures=temperatures),
        log_record=temperature.log_record,
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model()
    return [entry for entry in trainer.state.log_history if "temperature" in entry]


if __name__ == "__main__":
    for log in main(sys.argv[1:]):
        print(f"epoch {log['epoch']:.2f}  loss {log['loss']:.4f}  temperature {log['temperature']:.4f}")
