"""A random CLIP of two narrow layers with a tokenizer of words, in a folder, and pictures of one colour with captions."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, CLIPConfig, CLIPModel, PreTrainedTokenizerFast, SiglipConfig, SiglipModel

SPECIAL = ["<pad>", "<unk>", "<bos>", "<eos>"]
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (20, 40, 220), "yellow": (230, 220, 20), "white": (230,) * 3}
SIZE = 16


def save_clip(folder: Path, words: list[str], *, scale: float = 2.0, size: int = SIZE, width: int = 16, seed: int = 0) -> Path:
    """Writes the folder of a random CLIP whose ``logit_scale`` is ``scale``, and returns it."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *dict.fromkeys(words)])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    ends = [("<bos>", 2), ("<eos>", 3)]
    tokenizer.post_processor = TemplateProcessing(single="<bos> $A <eos>", special_tokens=ends)
    named = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=12, **named)
    layers = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2, "num_attention_heads": 2}
    tokens = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    text = {"vocab_size": len(vocabulary), "max_position_embeddings": 12, **tokens}
    config = CLIPConfig(
        text_config={**layers, **text},
        vision_config={**layers, "image_size": size, "patch_size": size // 4},
        projection_dim=width,
        logit_scale_init_value=scale,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        CLIPModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def save_siglip(folder: Path, clip: Path, *, scale: float = 4.7215, bias: float = -16.5) -> Path:
    """Writes the folder of a random SigLIP with the tokenizer of a CLIP, and returns it."""
    layers = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    config = SiglipConfig(
        text_config={**layers, **ends, "vocab_size": 40, "max_position_embeddings": 12, "projection_size": 16},
        vision_config={**layers, "image_size": SIZE, "patch_size": 4},
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = SiglipModel(config)
        model.logit_scale.fill_(scale)
        model.logit_bias.fill_(bias)
        model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(clip).save_pretrained(folder)
    return folder


def save_pictures(folder: Path, *, count: int = 20, tested: bool = True) -> Path:
    """Writes folders of pictures, each a noisy colour with two captions of it, as `datasets` reads them; returns the folder."""
    generator = torch.Generator().manual_seed(3)
    for split, number in (("train", count), *([("test", 10)] if tested else [])):
        place = folder / split
        place.mkdir(parents=True)
        rows = []
        for row in range(number):
            name = list(COLOURS)[row % len(COLOURS)]
            noise = torch.randint(-30, 30, (SIZE, SIZE, 3), generator=generator)
            pixels = (torch.tensor(COLOURS[name]) + noise).clamp(0, 255).byte()
            Image.fromarray(pixels.numpy()).save(place / f"{row}.png")
            rows.append({"file_name": f"{row}.png", "text": [f"a {name} picture", f"all {name}"]})
        (place / "metadata.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


WORDS = ["a", "all", "picture", "photo", "of", ".", *COLOURS]
