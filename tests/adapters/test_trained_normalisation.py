"""Networks of other packages see images normalised as they were trained with."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from transformers import ViTConfig, ViTModel

from tempplug.errors import ConfigError
from tempplug_adapters.images.backbones import IMAGENET_MEAN, IMAGENET_STD, Backbone, create_backbone


def normalisation(backbone: Backbone) -> list[list[float]]:
    return [[round(float(value), 4) for value in each.flatten()] for each in (backbone.mean, backbone.std)]


def test_timms_models_are_normalised_as_they_were_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        network = nn.Conv2d(3, 7, 3)
        network.pretrained_cfg = {"mean": (0.5, 0.4, 0.3), "std": (0.25, 0.5, 1.0)}  # type: ignore[assignment]
        return network

    timm = ModuleType("timm")
    timm.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    assert normalisation(create_backbone("timm:net", pretrained=True)) == [[0.5, 0.4, 0.3], [0.25, 0.5, 1.0]]
    assert normalisation(create_backbone("timm:net", mean=(0, 0, 0))) == [[0, 0, 0], [0.25, 0.5, 1.0]]


@pytest.fixture
def vit_folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=32, patch_size=16
    )
    ViTModel(config).eval().save_pretrained(tmp_path)
    return tmp_path


IMAGENET = [[round(value, 4) for value in each] for each in (IMAGENET_MEAN, IMAGENET_STD)]
HALVES = {"image_mean": [0.5, 0.5, 0.25], "image_std": [0.5, 0.5, 0.75]}


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("preprocessor_config.json", HALVES | {"do_normalize": True}, [[0.5, 0.5, 0.25], [0.5, 0.5, 0.75]]),
        ("processor_config.json", {"image_processor": HALVES}, [[0.5, 0.5, 0.25], [0.5, 0.5, 0.75]]),
        ("preprocessor_config.json", HALVES | {"do_normalize": False}, [[0, 0, 0], [1, 1, 1]]),
        ("preprocessor_config.json", {"do_resize": True}, IMAGENET),
        ("other.json", HALVES, IMAGENET),
    ],
)
def test_checkpoints_are_normalised_as_they_were_trained(
    vit_folder: Path, file: str, content: dict[str, Any], expected: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (vit_folder / file).write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.setattr(socket, "socket", None)  # a folder is read without the network
    name = f"transformers:{vit_folder}"
    backbone = create_backbone(name).eval()
    assert normalisation(backbone) == expected
    images = torch.rand(2, 3, 32, 32)
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in expected)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), backbone.module((images - mean) / std).last_hidden_state[:, 0])
    assert normalisation(create_backbone(name, mean=(0, 0, 0), std=(2, 2, 2))) == [[0, 0, 0], [2, 2, 2]]


def test_a_malformed_preprocessor_is_named(vit_folder: Path) -> None:
    for content in ("{", '{"image_mean": 0.5, "image_std": 0.5}', '{"image_mean": ["x"], "image_std": [1]}'):
        (vit_folder / "preprocessor_config.json").write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match=f"model='{vit_folder}' cannot be loaded"):
            create_backbone(f"transformers:{vit_folder}")
