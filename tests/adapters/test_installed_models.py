"""Backbones of packages that a user may have: named where they lack, without classifiers where they are there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetModel

from tempplug.errors import ConfigError, MissingDependencyError
from tempplug_adapters.images.backbones import create_backbone


def test_packages_that_lack_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("timm", "torchvision", "lightly"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(
            MissingDependencyError, match=f"need the package '{package}': pip install -c constraints.txt {package}"
        ):
            create_backbone(f"{package}:resnet18")


def install(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """Puts a stand-in for a package, and for the packages that it is in, where imports find it."""
    for parent in (name.partition(".")[0], name):
        module = ModuleType(parent)
        module.__path__ = []  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, parent, module)
    vars(sys.modules[name]).update(functions)


class Classifier(nn.Module):
    def __init__(self, attribute: str, head: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.attribute = attribute
        setattr(self, attribute, head)

    def forward(self, images: Tensor) -> Tensor:
        return getattr(self, self.attribute)(self.conv(images).mean((2, 3)))


def test_timm_makes_models_without_a_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        if name != "resnet18d":
            raise RuntimeError("Unknown model")
        return nn.Sequential(nn.Conv2d(3, 7 + pretrained, 3), *([nn.Identity()] if num_classes == 0 else [nn.Flatten()]))

    install(monkeypatch, "timm", create_model=create_model)
    assert create_backbone("timm:resnet18d").dimension == 7
    assert create_backbone("timm:resnet18d", pretrained=True).dimension == 8
    with pytest.raises(ConfigError, match="backbone 'timm:nothing' cannot be made: Unknown model"):
        create_backbone("timm:nothing")


HEADS = [
    (nn.Linear(6, 10), 0),
    (nn.Sequential(nn.Linear(6, 10)), 0),
    (nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 10)), 0),
    (nn.Sequential(nn.LayerNorm(6), nn.Flatten(1), nn.Linear(6, 10)), 2),
    (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 10)), 0),
]


def test_classifiers_of_torchvision_and_lightly_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    for attribute, (head, kept) in zip(("fc", "classifier", "head", "heads", "linear"), HEADS, strict=True):

        def get_model(name: str, weights: str | None = None, attribute: str = attribute, head: nn.Module = head) -> nn.Module:
            seen.append((name, weights))
            return Classifier(attribute, head)

        install(monkeypatch, "torchvision.models", get_model=get_model)
        install(monkeypatch, "lightly.models", ResNetGenerator=get_model)
        backbone = create_backbone("torchvision:some_net")
        assert backbone.dimension == 6
        assert len(getattr(backbone.module, attribute)) == kept
        create_backbone("torchvision:some_net", pretrained=True)
        assert create_backbone("lightly:resnet-18").dimension == 6
    assert seen == [("some_net", None), ("some_net", "DEFAULT"), ("resnet-18", None)] * 5
    install(monkeypatch, "torchvision.models", get_model=lambda name, weights: nn.Conv2d(3, 6, 3))
    with pytest.raises(ConfigError, match=r"'torchvision:odd' has no classifier named fc, .*wrap it in Backbone"):
        create_backbone("torchvision:odd")


def test_checkpoints_of_transformers_come_with_their_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic")
    network = ResNetModel(config).eval()
    network.save_pretrained(tmp_path)
    backbone = create_backbone(f"transformers:{tmp_path}", mean=(0, 0, 0), std=(1, 1, 1)).eval()
    images = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(backbone(images), network(images).pooler_output.flatten(1))
    with pytest.raises(ConfigError, match="nowhere"):
        create_backbone(f"transformers:{tmp_path / 'nowhere'}")
