"""MSC's step: the loss is the formula's, the backbone stays in evaluation mode, the first blocks stay as they are."""

from __future__ import annotations

import pytest
import torch
from msc_toys import toy_backbone, toy_network
from torch import Tensor, nn

import tempplug
from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.msc.model import MSC, centre_of, unit_representations
from tempplug_adapters.msc.network import blocks_of, default_frozen_blocks, freeze_blocks


def loss_of(strategy: str = "fixed:temperature=0.25", objective: str = "infonce") -> tempplug.ContrastiveLoss:
    return tempplug.ContrastiveLoss(strategy, objective, "two-view")


def formula(first: Tensor, second: Tensor, centre: Tensor, temperature: float, angular: bool) -> Tensor:
    """MSC's loss from raw features, in float64, one anchor after the other."""
    unit = [each.double() / each.double().norm(dim=1, keepdim=True) for each in (first, second)]
    shifted = [each - centre.double() for each in unit]
    points = torch.cat([each / each.norm(dim=1, keepdim=True) for each in shifted])
    count, total = len(first), torch.zeros((), dtype=torch.float64)
    for anchor in range(2 * count):
        positive = (anchor + count) % (2 * count)
        powers = (points @ points[anchor] / temperature).exp()
        others = sum(powers[each] for each in range(2 * count) if each != anchor)
        total = total - (powers[positive] / others).log()
    total = total / (2 * count)
    if angular:
        for each in shifted:
            total = total + (each**2).sum() / count
    return total


@pytest.mark.parametrize("angular", [False, True])
def test_the_loss_is_the_formulas(angular: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    first, second = (torch.rand(7, 3, 12, 12, generator=generator) for _ in range(2))
    backbone = toy_backbone().eval()
    with torch.no_grad():
        a, b = backbone(first), backbone(second)
    centre = 0.9 * torch.nn.functional.normalize(a, dim=1).mean(0)
    model = MSC(backbone, centre, loss_of(), angular=angular)
    loss = model(first, second)
    torch.testing.assert_close(loss.double(), formula(a, b, centre, 0.25, angular), rtol=1e-5, atol=1e-5)
    assert (loss - MSC(backbone, torch.zeros(8), loss_of(), angular=angular)(first, second)).abs() > 0.05, "the centre counts"
    loss.backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in backbone.parameters())


def test_the_backbone_keeps_its_statistics() -> None:
    backbone = toy_backbone()
    before = {name: value.clone() for name, value in backbone.named_buffers()}
    model = MSC(backbone.train(), torch.zeros(8), loss_of())
    assert not any(each.training for each in backbone.modules())
    model.train()
    assert model.training
    assert model.loss_fn.training
    assert not any(each.training for each in backbone.modules())
    model(torch.rand(4, 3, 12, 12), torch.rand(4, 3, 12, 12)).backward()
    assert all(torch.equal(value, before[name]) for name, value in backbone.named_buffers())
    assert not model.eval().loss_fn.training


def test_the_centre_is_a_mean_and_belongs_to_the_state() -> None:
    representations = torch.nn.functional.normalize(torch.randn(9, 5), dim=1)
    centre = centre_of(representations)
    torch.testing.assert_close(centre, representations.sum(0) / 9)
    torch.testing.assert_close(centre_of(representations, unit=True), centre / centre.square().sum().sqrt())
    model = MSC(nn.Flatten(), centre, loss_of("macl"))
    assert torch.equal(model.state_dict()["centre"], centre)
    assert model.dimension == 5
    assert "centre" not in dict(model.named_parameters())
    for wrong in (torch.randn(5), torch.randn(0, 5)):
        with pytest.raises(ShapeError, match=r"must be \[N, F\] with N at least 1"):
            centre_of(wrong)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="loss_fn of layout 'cross-view' must be of layout 'two-view'"):
        MSC(nn.Flatten(), torch.zeros(3), tempplug.ContrastiveLoss("fixed", layout="cross-view"))
    with pytest.raises(ShapeError, match=r"centre of shape \[1, 3\] must be \[F\]"):
        MSC(nn.Flatten(), torch.zeros(1, 3), loss_of())


def test_representations_are_unit_rows_in_float32() -> None:
    backbone = toy_backbone()
    images = torch.rand(3, 3, 12, 12)
    found = unit_representations(backbone, images)
    expected = backbone(images)
    torch.testing.assert_close(found, expected / expected.norm(dim=1, keepdim=True))
    with torch.autocast("cpu", torch.bfloat16):
        assert backbone(images).dtype == torch.bfloat16
        half = unit_representations(backbone, images)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(half, found, rtol=0.1, atol=0.03)
    assert unit_representations(backbone.double(), images.double()).dtype == torch.float64


def test_temperatures_are_spared_weight_decay() -> None:
    model = MSC(toy_backbone(), torch.zeros(8), loss_of("learnable"))
    spared = model.no_weight_decay()
    names = {name for name, _ in model.named_parameters()}
    assert spared
    assert spared == {name for name in names if name.startswith("loss_fn.")}


def test_blocks_of_networks() -> None:
    network = toy_network()
    assert [type(each).__name__ for each in blocks_of(network)] == ["Conv2d", "BatchNorm2d"] * 3
    assert blocks_of(toy_backbone())[0].weight.shape == (6, 3, 3, 3)
    assert blocks_of(nn.Linear(2, 2))[0].weight.shape == (2, 2)
    assert blocks_of(nn.ReLU()) == []
    resnet = create_backbone("resnet18", width=4)
    found = blocks_of(resnet)
    assert len(found) == 9
    assert {type(each).__name__ for each in found[1:]} == {"ResNetBasicLayer"}
    assert default_frozen_blocks(resnet.module) == 5
    assert default_frozen_blocks(create_backbone("resnet50", width=4).module) == 8
    vit = create_backbone("vit-tiny", image_size=32)
    assert [type(each).__name__ for each in blocks_of(vit)] == ["ViTEmbeddings", *["ViTLayer"] * 12, "LayerNorm"]
    assert default_frozen_blocks(vit.module) == default_frozen_blocks(network) == 0
    parameters = sum(each.numel() for block in blocks_of(vit) for each in block.parameters())
    assert parameters == sum(each.numel() for each in vit.parameters())


class WithToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(3))
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)


class TorchvisionNames(nn.Module):
    """A ResNet with the names that torchvision gives its parts, and stages of one and two blocks."""

    def __init__(self, stem: nn.Module) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu, self.maxpool = stem, nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)
        self.layer1 = nn.Sequential(self._block())
        self.layer2 = nn.Sequential(self._block(), self._block())
        self.layer3 = nn.Sequential(self._block(), self._block())
        self.layer4 = nn.Sequential(self._block())
        self.fc = nn.Sequential()

    @staticmethod
    def _block() -> nn.Module:
        return nn.ModuleDict({"conv1": nn.Conv2d(3, 3, 1), "bn1": nn.BatchNorm2d(3), "conv2": nn.Conv2d(3, 3, 1)})


@pytest.mark.parametrize("stem", [nn.Conv2d(3, 3, 1), nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1))])
def test_the_stem_and_two_stages_of_torchvisions_resnets_are_frozen(stem: nn.Module) -> None:
    backbone = Backbone(TorchvisionNames(stem), dimension=3)
    freeze_blocks(backbone, default_frozen_blocks(backbone.module))
    trained = {name.split(".")[1] for name, each in backbone.named_parameters() if each.requires_grad}
    frozen = {name.split(".")[1] for name, each in backbone.named_parameters() if not each.requires_grad}
    assert (frozen, trained) == ({"conv1", "bn1", "layer1", "layer2"}, {"layer3", "layer4"})
    del backbone.module.layer2  # type: ignore[union-attr]
    assert default_frozen_blocks(backbone.module) == 0


def test_frozen_blocks_want_no_gradient() -> None:
    network = toy_network()
    freeze_blocks(network, 3)
    assert [each.requires_grad for each in network.parameters()] == [False] * 6 + [True] * 6
    freeze_blocks(network, 0)
    assert all(each.requires_grad for each in network.parameters())
    network.requires_grad_(False)
    freeze_blocks(network, 5)
    assert [each.requires_grad for each in network.parameters()] == [False] * 10 + [True] * 2
    for count in (-1, 6):
        with pytest.raises(ConfigError, match=f"frozen_blocks={count} must be at least 0 and less than 6, the blocks of Sequ"):
            freeze_blocks(network, count)
    token = WithToken()
    freeze_blocks(token, 1)
    assert [name for name, each in token.named_parameters() if each.requires_grad] == ["second.weight", "second.bias"]
    freeze_blocks(token, 0)
    assert token.token.requires_grad
