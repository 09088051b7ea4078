"""Export: torchvision's names and layout, shown by a network written from those names alone; checkpoints rebuilt or refused."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug.cli import main as tempplug
from tempplug.errors import ConfigError, DataError, MissingDependencyError
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.images.trained_backbone import load_backbone
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.storage.manifest import seal
from tempplug_adapters.vision.export import export_backbone, torchvision_state


def main(words: list[str]) -> int:
    return tempplug(["export", *words])


DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
CONVOLUTIONS = {"resnet18": 2, "resnet50": 3}


def trained(backbone: Backbone) -> Backbone:
    """Gives every weight and statistic a value of its own, so that a mix-up shows."""
    generator = torch.Generator().manual_seed(0)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values, low, high in ((module.weight, 0.5, 1.5), (module.bias, -0.3, 0.3)):
                values.data.uniform_(low, high, generator=generator)
            module.running_mean.uniform_(-0.3, 0.3, generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
    return backbone.eval()


def checkpoint(folder: Path, trained_backbone: nn.Module, **settings: Any) -> Path:
    """The output folder of a training; returns its path."""
    run = folder / "run"
    run.mkdir(exist_ok=True)
    torch.save(trained_backbone.state_dict(), run / "encoder.pt")
    write_json(run / "settings.json", {"method": "simclr", "recipe": {"seed": 0, **settings}})
    return run


def torchvision_resnet(name: str, state: dict[str, Tensor], images: Tensor, small_stem: bool) -> tuple[Tensor, set[str]]:
    """A residual network written from torchvision's names: pooled values [B, F] before ``fc``, and the names used."""
    used: set[str] = set()

    def read(weight: str) -> Tensor:
        used.add(weight)
        return state[weight].double()

    def convolve(values: Tensor, layer: str, stride: int = 1) -> Tensor:
        weight = read(f"{layer}.weight")
        return F.conv2d(values, weight, stride=stride, padding=weight.shape[-1] // 2)

    def normalise(values: Tensor, layer: str) -> Tensor:
        scale, shift, mean, variance = (
            read(f"{layer}.{each}").view(1, -1, 1, 1) for each in ("weight", "bias", "running_mean", "running_var")
        )
        return (values - mean) / (variance + 1e-5).sqrt() * scale + shift

    last = CONVOLUTIONS[name]
    values = normalise(convolve(images, "conv1", stride=1 if small_stem else 2), "bn1").relu()
    if not small_stem:
        values = F.max_pool2d(values, 3, stride=2, padding=1)
    for stage, depth in enumerate(DEPTHS[name], start=1):
        for block in range(depth):
            prefix, stride = f"layer{stage}.{block}", 2 if block == 0 and stage > 1 else 1
            identity = values
            for i in range(1, last + 1):
                # the 3x3 convolution strides: the first of two, the second of three
                here = stride if i == last - 1 else 1
                values = normalise(convolve(values, f"{prefix}.conv{i}", here), f"{prefix}.bn{i}")
                values = values.relu() if i < last else values
            if f"{prefix}.downsample.0.weight" in state:
                identity = normalise(convolve(identity, f"{prefix}.downsample.0", stride), f"{prefix}.downsample.1")
            values = (values + identity).relu()
    return values.mean((2, 3)), used


@pytest.mark.parametrize(("name", "stem"), [("resnet18", "imagenet"), ("resnet50", "cifar")])
def test_exported_weights_are_torchvisions(name: str, stem: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = trained(create_backbone(name, stem=stem, width=4, mean=(0.5, 0.5, 0.5), std=(0.2, 0.3, 0.4)))
    output = tmp_path / "deep" / "weights.pth"
    about = export_backbone(checkpoint(tmp_path, backbone, backbone=name, stem=stem, width=4), output)
    weights = torch.load(output, weights_only=True)
    assert all(each.is_contiguous() and not each.requires_grad for each in weights.values())
    images = torch.rand(2, 3, 37, 41, dtype=torch.float64)
    normalised = (images - 0.5) / torch.tensor([0.2, 0.3, 0.4], dtype=torch.float64).view(3, 1, 1)
    expected, used = torchvision_resnet(name, weights, normalised, stem == "cifar")
    assert set(weights) == used | {key for key in weights if key.endswith(".num_batches_tracked")}
    assert len(weights) == {"resnet18": 120, "resnet50": 318}[name], "torchvision's without fc"
    with torch.no_grad():
        torch.testing.assert_close(backbone.double()(images), expected, rtol=1e-6, atol=1e-6)
    assert f"weights of {name} under torchvision's names" in about
    assert "mean (0.5, 0.5, 0.5) and standard deviation (0.2, 0.3, 0.4)" in about
    assert ("conv1 is 3x3" in about) == (stem == "cifar")
    assert [each.name for each in output.parent.iterdir()] == ["weights.pth"], "nothing is left beside it"


def test_names_and_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone = trained(create_backbone("resnet18", stem="cifar", width=4)).to(memory_format=torch.channels_last)
    source = checkpoint(tmp_path, backbone, backbone="resnet18", stem="cifar", width=4)
    found = {}
    for names, about in (("torchvision", "torchvision's names (conv1 is 3x3 of stride 1"), ("module", "its own names")):
        for file in (tmp_path / f"{names}.pth", tmp_path / f"{names}.safetensors"):
            assert main(["--checkpoint", str(source), "--output", str(file), "--format", names]) == 0
            assert capsys.readouterr().out.startswith(f"{file}: 120 weights of resnet18 under {about}")
            weights = load_file(file) if file.suffix == ".safetensors" else torch.load(file, weights_only=True)
            assert found.setdefault(names, weights).keys() == weights.keys()
            assert all(torch.equal(found[names][key], each) for key, each in weights.items())
    other = create_backbone("resnet18", stem="cifar", width=4)
    other.module.load_state_dict(found["module"])
    assert all(torch.equal(a, b) for a, b in zip(backbone.parameters(), other.parameters(), strict=True))


def test_other_networks_keep_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = nn.Conv2d(3, 4, 3)
    source = checkpoint(tmp_path, Backbone(nn.ModuleDict({"a": shared, "b": shared}), dimension=4), backbone="timm:small")
    for output in (tmp_path / "a.pth", tmp_path / "a.safetensors"):
        assert "weights of timm:small under its own names" in export_backbone(source, output)
        weights = load_file(output) if output.suffix == ".safetensors" else torch.load(output, weights_only=True)
        assert set(weights) == {"a.weight", "a.bias", "b.weight", "b.bias"}
        assert torch.equal(weights["b.weight"], shared.weight)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingDependencyError, match=r"pip install -c constraints\.txt timm"):
        load_backbone(source)


@pytest.mark.parametrize(
    ("name", "options", "settings"),
    [
        ("resnet18", {"width": 4}, {"stem": None, "width": 4}),
        ("vit-tiny", {"image_size": 24, "patch_size": 8}, {"stem": None, "width": None}),
    ],
)
def test_backbones_come_back(name: str, options: dict[str, Any], settings: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = trained(create_backbone(name, mean=(0.1, 0.2, 0.3), **options))
    again = load_backbone(checkpoint(tmp_path, backbone, backbone=name, **settings))
    assert (again.training, again.dimension) == (True, backbone.dimension)
    images = torch.rand(2, 3, 24, 24)
    with torch.no_grad():
        assert torch.equal(again.eval()(images), backbone(images))


WEIGHTS = {"mean": torch.zeros(3, 1, 1), "std": torch.ones(3, 1, 1)}
BACKBONE = {"recipe": {"backbone": "resnet18"}}


NOISE = bytes(random.Random(0).randrange(256) for _ in range(500))


@pytest.mark.parametrize(
    ("file", "content", "settings", "message"),
    [
        ("encoder.pt", {"encoder.weight": torch.zeros(1)}, BACKBONE, "has no weights of a Backbone"),
        ("pytorch_model.bin", WEIGHTS, BACKBONE, "has no weights of a Backbone"),
        ("pytorch_model.bin", [1, 2], BACKBONE, "has no weights of a Backbone"),
        ("encoder.pt", WEIGHTS, {"recipe": {"hidden": 32}}, "is not of a vision training: its settings.json names no backbone"),
        ("encoder.pt", WEIGHTS, {"backbone": "resnet18"}, "settings.json is damaged"),
        ("encoder.pt", WEIGHTS, [], "settings.json is damaged"),
        ("encoder.pt", WEIGHTS, "[" * 100_000, "settings.json is damaged: maximum recursion depth"),
        ("encoder.pt", NOISE, BACKBONE, r"encoder\.pt cannot be read"),
        ("other.pt", WEIGHTS, BACKBONE, "is no folder of a training"),
    ],
)
def test_other_folders_are_refused(file: str, content: Any, settings: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    torch.save(content, tmp_path / "run" / file)
    if isinstance(content, bytes):
        (tmp_path / "run" / file).write_bytes(content)
    (tmp_path / "run" / "settings.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
    for read in (load_backbone, lambda source: export_backbone(source, tmp_path / "a.pth")):
        with pytest.raises(DataError, match=message) as raised:
            read(tmp_path / "run")
        assert "\n" not in str(raised.value)
    assert not (tmp_path / "a.pth").exists()


def test_a_checkpoint_holds_the_backbone_among_others(tmp_path: Path) -> None:
    backbone = trained(create_backbone("resnet18", width=4))
    folder = checkpoint(tmp_path, backbone, backbone="resnet18", width=4)
    state = {f"step.backbone.{name}": value for name, value in backbone.state_dict().items()}
    state |= {"step.projection_head.0.weight": torch.zeros(2), "step.momentum_encoder.backbone.mean": torch.zeros(1)}
    (folder / "encoder.pt").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    seal(folder)
    again = load_backbone(folder).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in backbone.state_dict().items())
    (folder / "settings.json").write_text((folder / "settings.json").read_text().replace('"width": 4', '"width": 5'))
    with pytest.raises(DataError, match=r"pytorch_model\.bin cannot be read: its settings\.json is damaged"):
        load_backbone(folder)


def test_settings_that_do_not_fit_are_said(tmp_path: Path) -> None:
    backbone = create_backbone("resnet18", width=4)
    for settings, message in [
        (
            {"backbone": "resnet18", "width": 8},
            "does not fit its backbone 'resnet18'.*weight has the shape .4, 3, 7, 7., which its settings make .8, 3",
        ),
        ({"backbone": "resnet34", "width": 4}, "does not fit its backbone 'resnet34'.*it lacks weights: module.encoder"),
        ({"backbone": "resnet18", "width": "wide"}, "does not fit its backbone"),
        ({"backbone": "vit-tiny"}, "does not fit its backbone 'vit-tiny'"),
        ({"backbone": "my own"}, "does not fit its backbone 'my own'.*there is no backbone"),
    ]:
        folder = checkpoint(tmp_path, backbone, **settings)
        with pytest.raises(DataError, match=f"(?s){message}"):
            load_backbone(folder)
    with pytest.raises(DataError, match="does not fit"):
        export_backbone(checkpoint(tmp_path, backbone, backbone="resnet18", width=8), tmp_path / "a.pth")


def test_names_of_other_networks_have_no_place_in_torchvision() -> None:
    for name in ("conv1.weight", "encoder.stages.0.layers.0.attention.weight", "encoder.stages.0.layers.0.layer.0.bias"):
        with pytest.raises(DataError, match=f"'{name}' is not a weight of a ResNet"):
            torchvision_state({name: torch.zeros(1)})


def test_outputs_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint(tmp_path, create_backbone("resnet18", width=2), backbone="resnet18", width=2)
    file = folder / "encoder.pt"
    before = file.read_bytes()
    for output, names, error, message in [
        (folder / "deep" / ".." / "encoder.pt", "torchvision", ConfigError, "is the file of the weights itself"),
        (tmp_path, "torchvision", ConfigError, "is a folder"),
        (tmp_path / "a.pth", "caffe", ConfigError, "names='caffe' must be torchvision or module"),
        (file / "a.pth", "torchvision", DataError, "cannot be written"),
        (file / "a.safetensors", "torchvision", DataError, "cannot be written"),
    ]:
        with pytest.raises(error, match=message):
            export_backbone(folder, output, names=names)
    assert file.read_bytes() == before
    assert main(["--checkpoint", str(tmp_path / "none"), "--output", str(tmp_path / "a.pth")]) == 2
    shown = capsys.readouterr()
    assert "error: checkpoint '" in shown.err[:19]
    assert "none' is no folder of a training" in shown.err
    assert not shown.out
